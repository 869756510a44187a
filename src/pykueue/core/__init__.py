"""The brain: a picture of the world in, decisions out. Pure, and the same input gives the same answer.

Read it in this order:

    queue, workload, policy     the words: what is known of queues and Workloads, and the choices that hold
    amounts, requests           what is counted, and how much a Workload asks for
    cohort, quota               the tree and its arithmetic
    snapshot                    the picture, with what-ifs that can be undone
    flavors, eligibility        which flavor fits, and why the others did not
    preemption, fairness        whom to evict, and what is fair
    topology                    where on the nodes it goes
    nomination, order, cycle    one head alone, who comes first, and the algorithm on one page
    decision, explain           the answers as data, and in words
    recheck, deferral, variants the proposals' own: a second look, preemptions that wait, variants of one Workload
    invariants                  what must always hold
"""
