"""Job integrations: jobs of every kind, through one interface.

    interface           what a kind of job implements; `batch_job`, `pod`, `pod_group` implement it
    kinds               the table of integrations, with those of other distributions
    options             the integration part of the Configuration
    selection           whether a job is managed; `unreadable_owners` for owners that cannot be read
    podsets             pod templates: read, injected with the admission, restored
    workloads           the Workload of a job: built, prioritized, compared
    workload_matching   the one Workload of a job; `slices` for elastic jobs, `workload_sync` for updates
    reconcile           the reconciler as a decision: `facts` in, `actions` out
    admission           the webhook: what a new job gets, and what is refused
    executor            one reconcile pass: read, decide, apply
    triggers            which jobs to reconcile when something changes
    ungating            pods of elastic jobs, released as far as the admitted slice grants
    offline             the Workload that a job in a file would get

The wiring. For every integration of `kinds.enabled(options.frameworks)` there is an informer of the kind, whose values
are trees; that of pods is limited to the label `kueue.x-k8s.io/managed=true`. It is indexed by `triggers.parent_keys`
and `triggers.named_keys`; pods by `triggers.group_keys`; Workloads by `triggers.owner_keys`. An `executor.JobSources`
reads these caches; one controller has `JobKey`s as keys and `JobReconciler.reconcile` as its function:

    a job was added, changed or deleted       add `triggers.key_of(row, tree, options)`, after `triggers.delay_seconds`
    a Workload was added, changed or deleted  add `triggers.owners_of(workload, kinds)`, every job with the Workload's
                                              `namespace/name` among its `named_keys`, and every job with a key of
                                              `owner_keys(workload)` among its `parent_keys`
    a WorkloadPriorityClass was added         nothing: a job that waits for it is retried

A new kind is a subclass of `interface.GenericJob` and a row in `kinds`; or, in another distribution, an entry point of
the group `pykueue.job_kinds` that names a `kinds.JobIntegration`.
"""
