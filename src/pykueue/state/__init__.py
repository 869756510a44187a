"""The scheduler's state: its cache and its queues. Deterministic, one owner, no I/O.

world                what other packages use: objects in, decisions and queries out
intake               watched API objects into the parts
cycle_driver         heads out of the queues, a cycle, its decisions into the parts
parts                the parts of a World
specs                ClusterQueues, Cohorts, LocalQueues and flavors, read into the scheduler's values
workload_info        Workloads, read into the scheduler's values
pod_set_requests     what Workloads request, under the rules of their namespace and queue
structure            ClusterQueues, cohorts, flavors, and the cohort trees built from them
namespaces           which namespaces a ClusterQueue selects
pending_index        pending Workloads by LocalQueue and ClusterQueue
pending_queue        the pending Workloads of one ClusterQueue: active, inadmissible, in flight
equivalence_buckets  their heaps, by equivalence class
requeue_policy       where a head that was not admitted goes
reservations         Workloads that hold quota, and preemption targets that leave later
second_pass          Workloads that hold quota and need a second scheduling pass
non_tas_usage        pods that use nodes without a topology assignment
scheduling_scope     which queues are decided together, and when
assumed              reservations whose write is not confirmed
usage_history        decayed usage of LocalQueues
preemption_loops     Workloads that preempt each other in turns
replaced_pods        pods that a controller creates in place of evicted ones
thrashing            Workloads that are preempted again and again
starts               how many Workloads started behind a pending one
troubles             loops, thrashing and starving as one list
preemption_order     which Workload preempted which, so that preemptions under fair sharing end
audit                comparison with a state that is rebuilt from the objects
admission            a decision as `status.admission`
"""
