"""One Workload's life. Pure: an object and the facts around it go in, changes come out.

    step         what is due for a Workload now, by the rules in their order
    reservation  what is written when quota is given, given back, or no longer holds
    eviction     the one way in which a Workload loses what it has, and how it comes back
    waiting      what is written for a Workload that was tried and did not get in
    provisioning what the requests for nodes of a Workload mean, and which are due
    ending       how a life ends
    queues       the status of ClusterQueues, LocalQueues and Cohorts, and what may be deleted

Everybody who changes a Workload goes through these, whichever controller it is, so that a condition means the same
whoever wrote it.
"""
