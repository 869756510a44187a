"""Admission checks that come with the manager. Any other is a program of its own (`examples/budget`).

budget                 admits while a group has hours of its Budget left; `history.budget_answers` decides
budget_books           the accounts of all Budgets, kept in step with the history
budget_status          the status, Events and metric of a Budget
provisioning           asks a cluster autoscaler for nodes; `lifecycle.provisioning` decides
provisioning_requests  makes its requests, and deletes them
pod_templates          the pods that nodes are asked for, as PodTemplates
multikueue             refuses checks of MultiKueue, which is not implemented
owned_checks           the AdmissionChecks of one controllerName
"""
