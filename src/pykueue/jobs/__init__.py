"""What people submit: jobs of every kind, seen through one contract.

contract    the questions that a kind of job answers; `batch_job`, `pod`, `pod_group` answer them
kinds       the table of kinds, with those of other packages
options     what the operator chose
selection   whether a job is ours
podsets     pod templates: read, given what they need to run, put back
facts       what has to be known to decide about a job
reconcile   the one reconciler, as a decision; `actions` is what comes out
admission   the one webhook: what a new job gets, and what is refused
executor    carries actions out
"""
