"""A client for any Kubernetes API server: requests, informers, work queues, a controller loop, Events, leader election.

It contains nothing of queueing. Everything runs on one asyncio loop and takes a `Clock` and a `Random` as arguments, so
the same code runs over sockets, or in one process on an event loop with virtual time.
"""
