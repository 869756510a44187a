"""API machinery for any Kubernetes program: metadata, quantities, selectors, patches, structural schemas, CEL, a client
with informers and work queues, Events, leader election, and an HTTP client and server.

It imports neither kubeserver nor pykueue.
"""
