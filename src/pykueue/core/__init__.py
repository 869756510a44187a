"""The scheduler's decisions: a snapshot in, decisions out. Pure: the same input gives the same result.

Read it in this order:

    queue, workload, policy             the values: ClusterQueues, Workloads, and the options that a cycle runs under
    amounts, requests                   what quota is counted in, and how much a Workload requests
    cohort, quota                       the cohort tree and its arithmetic
    snapshot                            all of it at one moment, with what-ifs that can be undone
    flavor_assigner, flavor_fit,        which flavor is assigned, why the others were not,
    eligibility, topology_request       and the topology of the assignment
    preemption, fair_sharing            which reservations are preempted, and the shares of fair sharing
    topology                            where on the nodes the pods are placed
    nomination, ordering, cycle         one head alone, the order of the entries, and the scheduling cycle
    decision, messages                  the results as data, and as messages
    reservation_check, deferred_preemption, variants    the extensions of proposals (KEP-993, ConcurrentAdmission)
    name_shape                          what the names of repeated jobs have in common
    invariants                          what must always hold
"""
