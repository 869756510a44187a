"""The dashboard: cohorts, queues and Workloads in a browser, filtered by the permissions of the user.

    workload_table     every Workload as one small row: searched, counted and sorted without reading objects again
    overview           cohorts and queues with their quota, usage, borrowing and pending counts
    workload_history   one Workload: its conditions, checks and Events in order
    summaries          these three over the informers, computed once for all users
    endpoints          the paths: authorization, files, JSON documents and the stream of changes

It reads and never writes. The page is in `static`: plain HTML, CSS and ES modules, served unchanged.
"""
