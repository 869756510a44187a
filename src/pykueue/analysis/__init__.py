"""Analysis of a queueing system: the scheduler run on a copy of the objects.

    planner/              offline plans: objects in, decisions out
    live_case.py          the objects of a running system
    object_changes.py     single changes as data: raise a quota, finish a Workload, resume a queue
    trial.py              whether a Workload would be admitted with some changes
    suggestion_search.py  the smallest changes that admit a Workload, each verified by trials
    placement.py          whether nodes can hold its pods
    blockers.py           what excludes a Workload from scheduling, and the change that would remove it
    explanation.py        everything about one Workload, in one value
    whatif.py             which Workloads would start, wait or be evicted if objects changed
    lint.py               configurations that can never work, or that have unexpected effects

Except for live_case.py, nothing here does I/O: objects in, results out.
"""
