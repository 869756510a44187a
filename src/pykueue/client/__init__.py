"""The Python client, and the operations behind the commands.

client.py          pykueue.Client and pykueue.AsyncClient
job_request.py     the Job of a command and its options                          pure
job_status.py      the state of a job and its reason                             pure
job_service.py     submit, find, wait, logs and cancel, on any API server
pod_finder.py      the pods of jobs of every kind
queue_entries.py   the rows of `pykueue queue`
pod_logs.py        the log of a pod, each line once
unqueued.py        jobs and pods without a Workload, and the reason
listing.py         the rows of `pykueue list`
queue_overview.py  the rows of `pykueue top`
served_explanation.py  explanations that the manager of `pykueue up` computes
object_creation.py queues and flavors from options                               pure
"""
