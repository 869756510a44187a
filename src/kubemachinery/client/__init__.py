"""Talking to any API server: a client, informers, work queues, one controller loop, events, leases.

Knows nothing of queueing. Everything runs on one asyncio loop and asks a handed `Clock` and `Random` for time and
chance, so that the same code runs over sockets, or in one process on a loop whose time is virtual.
"""
