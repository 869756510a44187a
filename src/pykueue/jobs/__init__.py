"""What people submit: jobs of every kind, seen through one contract.

    contract    the questions that a kind of job answers; `batch_job`, `pod`, `pod_group` answer them
    kinds       the table of kinds, with those of other packages
    options     what the operator chose
    selection   whether a job is ours
    podsets     pod templates: read, given what they need to run, put back
    workloads   the Workload of a job: made, ranked, compared
    matching    exactly one Workload for a job; `slices` for those that grow, `upkeep` for what stays the same on both
    reconcile   the one reconciler, as a decision: `facts` in, `actions` out
    admission   the one webhook: what a new job gets, and what is refused
    executor    one pass: gather, decide, carry out
    waking      which jobs to look at when something changes
    ungating    pods of elastic jobs, released as far as their slice goes

How it is wired. For every row of `kinds.enabled(options.frameworks)` there is an informer of the kind whose values are
trees; that of pods is limited to the label `kueue.x-k8s.io/managed=true`. It is indexed by `waking.parent_words` and
`waking.named_words`; pods by their group; Workloads by `waking.owner_words`. An `executor.Sources` over these copies,
a `WorkloadWriter`, and one controller whose keys are `JobKey`s and whose reconcile is `Executor.reconcile`:

    a job came, changed or went       add `waking.key_of(row, tree, options)`, after `waking.delay_seconds(key, tree)`
    a Workload came, changed or went  add `waking.owners_of(workload, kinds)`, `key_of` every job that stands under
                                      `namespace/name` of the Workload in `named_words`, and every job that stands in
                                      `parent_words` under a word of `owner_words(workload)`
    a WorkloadPriorityClass came      nothing: a job that waits for it is tried again by itself

Adding a kind: a class that answers `contract.Job`, and a row in `kinds`; or, from another package, an entry point of
the group `pykueue.job_kinds` that names a `kinds.Row`.
"""
