"""Reconcilers: read, decide through pure code, write once.

assembly               a manager: every controller on one client, and the order in which they start
informers              a local copy of every watched kind, and facts derived from them
scheduler              handles events, runs cycles on the scheduler's state
world_feed             puts objects into the scheduler's state
decision_applier       applies decisions: `reservation_writer`, `eviction_writer`, `pending_status_writer`
write_tasks            the writes that run, up to a bound
workload_writer        the one place where changes of a Workload become requests
workload               evaluates `lifecycle.step` for one Workload and writes the result
jobs, elastic          jobs of every kind, and the pods of elastic jobs
topology               pods through their scheduling gate to their node (`topology_ranks`), and failed nodes
queues                 the status of queues and cohorts; `admission_fair_sharing` samples the usage of LocalQueues
default_local_queues   LocalQueues in the namespaces that a ClusterQueue selects; `populator` runs it alone
in_use_protection      finalizers of objects that others refer to
checks                 admission checks that come with the manager
variants               variants of Workloads (ConcurrentAdmission)
priority_class         the priority of Workloads whose WorkloadPriorityClass changed
state_audit            compares the scheduler's state with one rebuilt from the objects
metrics, visibility    what is measured, and the visibility API; `aggregation` serves it through the API server
"""
