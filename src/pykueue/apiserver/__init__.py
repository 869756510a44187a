"""A Kubernetes-compatible API server on SQLite, in one process. It has not heard of queueing.

From the ground up: `store` keeps revisions in a file, `objects` holds the present and the recent past, `watch` tells
what changed since, `rest` is the verbs, `server` the paths. What kinds there are is handed in: `strategy.Resource`
values for those that are built in, CustomResourceDefinitions for all others. `limits` says what is not offered.
"""
