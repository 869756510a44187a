"""The message that is shown beside a state is that of the condition which the state rests on, in every view."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pykueue.advising import why
from pykueue.api import codec, conditions, kueue, meta
from pykueue.api.conditions import WorkloadCondition
from pykueue.dashboard import story, table
from pykueue.planning import read
from pykueue.work import standing

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
    standing.Word.SUCCEEDED: "Finished=True",
    standing.Word.STOPPING: "Evicted=True",
    standing.Word.STARTING: "Admitted=True",
    standing.Word.RUNNING: "Admitted=True",
}


def lived(life: list[tuple[str, bool]], active: bool) -> kueue.Workload:
    """A Workload after these writes; each message names the condition and the status that it came with."""
    found: tuple[meta.Condition, ...] = ()
    for type_, holds in life:
        said = f"{type_}={holds}"
        reason = "Deactivated" if type_ == "Evicted" and not active else "Why"
        new = meta.Condition(type=type_, status=str(holds), reason=reason, message=said)
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
    line = story.line(workload, table.row(workload, "cq"))
    assert line["sentence"] in ("", BELONGS[line["state"]])

    shown = standing.of_workload(workload)
    if "=" in shown.why:
        waiting = BELONGS["Pending" if active else "Inactive"]
        assert shown.why == SHOWN_AS.get(shown.word, waiting)

    told = why.why(read([]).with_objects([workload]), "ns/w", 0, suggest=False)
    messages = [cause for cause in told.causes if "=" in cause]
    assert messages in ([], [f"{told.state}: {BELONGS[told.state]}"])
    assert told.state == line["state"] or (told.state, line["state"]) == ("Pending", "Inactive")
