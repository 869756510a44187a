"""Our controllers and contracts against a real kube-apiserver."""
