"""One suite, many implementations: our server and a real kube-apiserver give the same answers."""
