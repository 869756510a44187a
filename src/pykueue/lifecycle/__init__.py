"""The lifecycle of one Workload. Pure: an object and the facts about it in, changes out.

    step              what is due for a Workload now, by the rules in their order
    reservation       what is written when quota is reserved, released, or no longer holds
    eviction          the one way in which a Workload is evicted, and how it is requeued
    pending_status    what is written for a Workload that a scheduling cycle did not admit
    provisioning      the check that requests nodes: its state, and the requests that are due
    variants          a Workload that is tried on several flavors at once
    finishing         the end of a Workload
    queues            the status of ClusterQueues, LocalQueues and Cohorts, and their finalizers

Every controller that changes a Workload uses these functions, so that a condition has one meaning.
"""
