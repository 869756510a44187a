"""What holds of any Job, whatever its author wrote and wherever it is admitted."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from jobs.job_harness import JobHarness, batch_job, flavor
from kubemachinery.unstructured import Tree

WORDS = st.sampled_from(["a", "b", "c"])
LABELS = st.dictionaries(WORDS, WORDS, max_size=2)
TOLERATIONS = st.lists(st.builds(lambda key: {"key": key, "operator": "Exists"}, WORDS), max_size=2, unique_by=str)


@st.composite
def templates(draw: st.DrawFn) -> Tree:
    metadata = {key: value for key in ("labels", "annotations") if (value := draw(LABELS))}
    spec = {key: value for key, value in (("nodeSelector", draw(LABELS)), ("tolerations", draw(TOLERATIONS))) if value}
    return ({"metadata": metadata} if metadata else {}) | {"spec": spec}


@settings(max_examples=60)
@given(templates(), LABELS, TOLERATIONS, st.integers(1, 4))
def test_a_job_that_ran_and_was_stopped_is_the_job_it_was(
    template: Tree, node_labels: Tree, tolerations: list[Tree], pods: int
) -> None:
    """Unless it contradicts its flavor, in which case it never ran."""
    harness = JobHarness(batch_job(spec={"parallelism": pods, "completions": pods, "template": template}))
    if not harness.job["spec"]["template"]["metadata"]:
        del harness.job["spec"]["template"]["metadata"]
    before = harness.job
    harness.facts = replace(harness.facts, flavors={"default": flavor(nodeLabels=node_labels, tolerations=tolerations)})
    harness.settle().admit().settle()
    if harness.condition("Finished"):
        assert harness.job == before
        return
    assert harness.job["spec"]["suspend"] is False
    harness.evict().settle()
    assert harness.job == before


@settings(max_examples=60)
@given(
    st.lists(st.sampled_from(["admit", "evict", "suspend", "resume", "grow", "ready", "delete workload"]), max_size=7)
)
def test_every_sequence_settles_and_no_job_runs_without_admission(env: list[str]) -> None:
    harness = JobHarness(batch_job(spec={"completions": None})).settle()
    for event in env:
        match event:
            case "admit" if not harness.condition("QuotaReserved").startswith("True"):
                harness.admit()
            case "evict" if harness.condition("Admitted").startswith("True"):
                harness.evict()
            case "suspend" | "resume":
                harness.edit({"spec": {"suspend": event == "suspend"}})
            case "grow":
                harness.edit({"spec": {"parallelism": harness.job["spec"]["parallelism"] + 1}})
            case "ready":
                harness.status(ready=9)
            case "delete workload":
                harness.delete_workload()
        harness.settle()
        assert len(harness.workloads) == 1
        runs = harness.job["spec"]["suspend"] is False
        assert runs == harness.condition("Admitted").startswith("True")
