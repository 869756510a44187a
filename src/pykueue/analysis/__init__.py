"""What would help: questions about a world that was not, answered by running the brain on a copy of the objects.

    parts.py       single changes as data: raise this quota, wait for that Workload, resume this queue
    trial.py       would a Workload get in if these parts changed?
    suggesting.py  the smallest changes that let a Workload in, each proven by trials
    placement.py   whether nodes can hold its pods, which quota does not say
    gates.py       what keeps a Workload from competing at all, and the part that would open it
    why.py         everything about one Workload that waits, in one value
    whatif.py      who would start, wait or have to go if objects changed
    lint/          configurations that can never work, or that will surprise

Nothing here talks to anybody: objects in, answers out.
"""
