"""The memory: what the API said, as the brain sees it. Deterministic, in memory, one owner, no I/O.

From the door inwards:

    world       the only door: objects in, cycles and answers out
    reading     from API objects to the brain's values
    structure   queues, cohorts, flavors and the trees grown from them
    queues      who waits where, and who is the head
    booking     reservations that are being written
    history     how much each LocalQueue used lately
    audit       whether this memory equals one built anew
    admission   what a decision looks like in a Workload's status
"""
