"""The dashboard: cohorts, queues and Workloads at a glance, in a browser, for whoever may look.

    table       every Workload as one small row: found, counted and sorted without reading objects again
    overview    cohorts and queues with their quota, use, borrowing and pending
    story       one Workload: what became of it, in order
    board       the three over the live copies, computed once for all viewers
    pages       the paths: who may look at what; files, documents and the stream of changes

It reads and never writes. The page itself is in `static`: plain HTML, CSS and ES modules, as they are served.
"""
