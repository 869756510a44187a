"""Admission checks that come with the manager, each in a file. Any other is a program of its own (`examples/budget`).

budget          admits while a group has hours of its Budget left; `history.budget_answers` decides
provisioning    asks a cluster autoscaler for nodes; `lifecycle.provisioning` decides
asking          makes its requests, and deletes them
templates       the pods that nodes are asked for, as PodTemplates
"""
