"""The runner of one machine: controllers of pods, a scheduler and a kubelet, with processes or simulated containers.

job.py, job_completion.py   decide for a Job: pods to create and delete, and its status          pure
replica_set.py, deployment.py, stateful_set.py, cron_job.py   decide for these kinds              pure
replicas.py, cron_schedule.py                                 what they share; schedules          pure
node_assignment.py          selects a node with enough free capacity for a pod                   pure
container_attempts.py       the containers of a pod and the attempts of each                     pure
pod.py                      decides for a pod: containers to start and stop, and its status      pure
process_spec.py             the process that a container becomes                                 pure
devices.py                  assigns devices to a pod                                             pure
controllers.py, replica_controllers.py   apply these decisions
process_executor.py         runs containers as processes, each with a supervisor (supervisor.py) and a log (logs.py)
simulated_executor.py       containers that only take time and run no process
machine.py, node.py         the capacity of this machine as a Node, and first queues of that size
assembly.py                 wires all of these
"""
