"""The installation of the manager in a cluster: manifests, rendered from the tables and the Configuration, and applied.

manifests            all manifests, in the order in which they are applied
rbac                 roles and bindings, derived from the tables of kinds
manager_deployment   the manager: Deployment, Configuration, Services, network policies
names                the names of installed objects
apply                applies manifests to a cluster, and deletes them
kustomize            the manifests as files for `kubectl apply -k`
chart                the manifests as a Helm chart
"""
