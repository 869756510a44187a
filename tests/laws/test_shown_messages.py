"""The message that is shown beside a state is that of the condition which the state rests on, in every view."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kubemachinery import codec, conditions, meta
from pykueue.analysis import explanation
from pykueue.analysis.planner import read
from pykueue.api import kueue
from pykueue.api.conditions import WorkloadCondition
from pykueue.client import job_status
from pykueue.dashboard import workload_history, workload_table

TYPES = ("QuotaReserved", "Admitted", "Evicted", "Finished", "PodsReady", "Requeued", "Preempted")
# One write after the other, as a life has them: which condition, and to what.
LIVES = st.lists(st.tuples(st.sampled_from(TYPES), st.booleans()), max_size=12)
# The condition whose message a state may show.
BELONGS = {
    "Finished": "Finished=True",
    "Evicted": "Evicted=True",
    "Admitted": "Admitted=True",
    "QuotaReserved": "QuotaReserved=True",
    "Pending": "QuotaReserved=False",
    "Inactive": "Evicted=True",
}
SHOWN_AS = {
    job_status.JobState.SUCCEEDED: "Finished=True",
    job_status.JobState.STOPPING: "Evicted=True",
    job_status.JobState.STARTING: "Admitted=True",
    job_status.JobState.RUNNING: "Admitted=True",
}


def lived(life: list[tuple[str, bool]], active: bool) -> kueue.Workload:
    """A Workload after these writes; each message names the condition and the status that it came with."""
    found: tuple[meta.Condition, ...] = ()
    for type_, holds in life:
        message = f"{type_}={holds}"
        reason = "Deactivated" if type_ == "Evicted" and not active else "Why"
        new = meta.Condition(type=type_, status=str(holds), reason=reason, message=message)
        found = (*conditions.without(found, WorkloadCondition(type_)), new)
    pod_set = {"name": "main", "count": 1, "template": {"spec": {"containers": [{"name": "c"}]}}}
    metadata = {"name": "w", "namespace": "ns"}
    made = codec.from_tree(
        {"metadata": metadata, "spec": {"active": active, "podSets": [pod_set]}, "status": {}}, kueue.Workload
    )
    status = kueue.WorkloadStatus(conditions=found)
    return kueue.Workload(metadata=made.metadata, spec=made.spec, status=status)


@given(LIVES, st.booleans())
def test_a_message_belongs_to_the_state_beside_it(life: list[tuple[str, bool]], active: bool) -> None:
    workload = lived(life, active)
    line = workload_history.line(workload, workload_table.row(workload, "cq"))
    assert line["message"] in ("", BELONGS[line["state"]])

    shown = job_status.of_workload(workload)
    if "=" in shown.message:
        waiting = BELONGS["Pending" if active else "Inactive"]
        assert shown.message == SHOWN_AS.get(shown.state, waiting)

    explained = explanation.explain(read([]).with_objects([workload]), "ns/w", 0, suggest=False)
    messages = [cause for cause in explained.causes if "=" in cause]
    assert messages in ([], [f"{explained.state}: {BELONGS[explained.state]}"])
    assert explained.state == line["state"] or (explained.state, line["state"]) == ("Pending", "Inactive")
