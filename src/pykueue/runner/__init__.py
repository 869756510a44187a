"""What becomes of a started pod: a process on this machine, or a pretended one that moves by rules.

job.py, ending.py    what a Job wants next: pods to make and delete, and how it stands         pure
placing.py           which node has room for a pod                                             pure
attempts.py          the containers of a pod, and how often each was tried                     pure
pod.py               what a pod wants next: containers to start and stop, and how it stands    pure
launch.py            the process that a container becomes                                      pure
devices.py           which devices a pod gets                                                  pure
controllers.py       carries out what these say
processes.py         containers as processes, each with its guardian (supervisor.py) and its log (logs.py)
simulated.py         containers that only pretend
machine.py, node.py  what this machine has, as a Node; and queues of that size to begin with
running.py           all of it put together
"""
