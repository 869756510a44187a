"""The memory: what the API said, as the brain sees it. Deterministic, in memory, one owner, no I/O.

From the door inwards:

    world         the only door: objects in, cycles and answers out
    specs         from ClusterQueues, Cohorts, LocalQueues and flavors to the brain's values
    reading       from Workloads to the brain's values
    shapes        what Workloads ask for, under the rules of their namespace and queue
    structure     queues, cohorts, flavors and the trees grown from them
    namespaces    whom a queue takes at all
    lines         who waits through which LocalQueue, and in whose line
    queues        one line: who competes, who is parked, who is the head
    reservations  who holds quota, and who is to go later for whom
    second_pass   who holds quota and has to be looked at once more
    outside       pods that take room on nodes although no placement accounts for them
    waking        who is tried again, and when
    booking       reservations that are being written
    history       how much each LocalQueue used lately
    audit         whether this memory equals one built anew
    admission     what a decision looks like in a Workload's status
"""
