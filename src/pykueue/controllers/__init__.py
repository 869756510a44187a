"""The hands: read, ask, apply once.

assembly        a manager: every controller on one client, and the order in which they start
views           a local copy of every kind that matters, and the facts that follow from them
scheduler       wakes, runs cycles on the memory
carrying        carries the decisions out, and loses none on the way
writing         the one place where changes of a Workload become requests
workload        asks `lifecycle.step` what is due for one Workload and writes it
jobs, elastic   jobs of every kind, and the pods of those that grow and shrink
topology        pods through their gate to their node (`ranks`), and nodes that fail
queues, usage   the status of queues, and what LocalQueues have used lately
in_use          finalizers of what others refer to
checks          admission checks that come with the manager
priority_class  a class whose value changes changes its Workloads
auditing        asks whether the memory still says what the objects say
"""
