"""Preemption loops are found in the third round, without any change of the decisions; an outside change ends them.

The manager has no loops under fair sharing while the gate `FairSharingPreemptionProgress` is on, so it is off here."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from msgspec.structs import replace

from kubemachinery import yaml_documents
from pykueue.analysis import planner
from pykueue.analysis.planner import Progress, SchedulingPlan
from pykueue.api import kueue
from pykueue.cli import main
from pykueue.state.preemption_loops import LoopStep, PreemptionLoop
from pykueue.testing import system
from pykueue.testing.virtual_loop import Stuck

NOW = 1_800_000_000 * 10**9
FOLDER = Path(__file__).parent / "loops"
CASES = sorted(FOLDER.glob("livelock-*.yaml"))
LIVELOCK = FOLDER / "livelock-33.yaml"


GATES = {"FairSharingPreemptionProgress": False}


def begun(path: Path, *, departures: bool = True) -> SchedulingPlan:
    case = planner.read(yaml_documents.read(path))
    policy = replace(case.configured.policy, preemption_progress=False)
    case = replace(case, configured=replace(case.configured, policy=policy))
    return planner.begin(case, NOW, departures=departures)


@pytest.fixture
def livelock(tmp_path: Path) -> Path:
    """The file of a livelock, with the gate off in its Configuration."""
    trees: list[dict[str, Any]] = [dict(document.tree) for document in yaml_documents.read(LIVELOCK)]
    path = tmp_path / LIVELOCK.name
    path.write_text(
        yaml.safe_dump_all(
            {**tree, "featureGates": GATES} if tree["kind"] == "Configuration" else tree for tree in trees
        )
    )
    return path


def run(made: SchedulingPlan, cycles: int = 60) -> list[Progress]:
    return [planner.advance(made, NOW) for _ in range(cycles)]


def state_of(made: SchedulingPlan) -> Any:
    """Everything that the next cycle rests on, read without the detector."""
    return (
        sorted((key, held.usage, held.evicted) for key, held in made.world.reservations.items()),
        sorted(
            (name, [w.key for w in queue.active()], sorted(w.key for w in queue.parked()))
            for name, queue in made.world.queues.items()
        ),
    )


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
@pytest.mark.parametrize("departures", [False, True], ids=["as Kueue", "as the manager"])
def test_loop_is_found_and_is_a_cycle_of_states(path: Path, departures: bool) -> None:
    made = begun(path, departures=departures)
    states, progress = [], []
    while Progress.REPEATS not in progress:
        progress.append(planner.advance(made, NOW))
        states.append(state_of(made))
        assert len(progress) < 60
    assert made.loop is not None
    # The states themselves repeat, and go on repeating with the same period.
    first = states.index(states[-1])
    period = len(states) - 1 - first
    assert period > 0
    run(made, 5 * period)
    assert state_of(made) == states[-1]
    preempted = {p for cycle in made.cycles[-period:] for p in _preemptions(cycle)}
    assert set(made.loop.preemptions) == preempted


def _preemptions(decisions: list[Any]) -> set[LoopStep]:
    return {
        LoopStep(decision.workload, victim.key)
        for decision in decisions
        for victim in getattr(decision, "targets", ())
        if not victim.already_evicted
    }


def test_loop_is_reported_once() -> None:
    made = begun(LIVELOCK)
    assert run(made, 60).count(Progress.REPEATS) == 1
    loop = made.world.loop_of("default/w1")
    assert loop is not None
    assert loop.rounds > 3
    assert loop.members == ("default/w1", "default/w2", "default/w3")
    assert made.world.loop_of("default/w0") is None


@pytest.mark.parametrize("change", ["arrival", "edit", "deletion", "quota"])
def test_loop_ends_with_a_change_from_outside(change: str) -> None:
    made = begun(LIVELOCK)
    run(made, 30)
    workload = made.workloads["default/w2"]
    metadata = workload.metadata
    match change:
        case "arrival":
            named = msgspec.structs.replace(metadata, name="w9", uid="u9", resource_version="")
            made.world.put(msgspec.structs.replace(workload, metadata=named), NOW)
        case "edit":
            edited = msgspec.structs.replace(metadata, generation=metadata.generation + 1)
            made.world.put(msgspec.structs.replace(workload, metadata=edited), NOW)
        case "deletion":
            made.world.drop(workload)
        case "quota":
            case = planner.read(yaml_documents.read(LIVELOCK))
            queue = next(t for t in case.objects if isinstance(t, kueue.ClusterQueue) and t.metadata.name == "q0")
            spec = msgspec.structs.replace(queue.spec, cohort_name="other")
            made.world.put(msgspec.structs.replace(queue, spec=spec), NOW)
            made.world.settle(NOW)
    assert made.world.loop_of("default/w1") is None


def test_detection_leaves_decisions_as_they_are() -> None:
    """Cycles go on after a loop is found: the decisions of later rounds are those of the first."""
    made = begun(LIVELOCK)
    run(made, 60)
    decisions = [[(type(d).__name__, d.workload) for d in cycle] for cycle in made.cycles]
    found = next(n for n, cycle in enumerate(decisions) if n > 20 and cycle == decisions[-1])
    period = next(
        p
        for p in range(1, 20)
        if decisions[-p - 1 :] == decisions[-2 * p - 1 : -p] or decisions[-1 - p] == decisions[-1]
    )
    assert decisions[found : found + period] == decisions[found + period : found + 2 * period]


def test_plan_until_stable_ends_with_exit_code_1_and_names_the_loop(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["plan", "-f", str(LIVELOCK), "--until-stable", "-o", "json"])
    assert ended.value.code == 1
    output = capsys.readouterr()
    assert msgspec.json.decode(output.out)["loop"]["workloads"] == ["default/w1", "default/w2", "default/w3"]
    assert output.err == (
        "not stable: preemption loop: default/w3 preempts default/w1, default/w2 preempts default/w3; "
        "repeated 3 times in 13 cycles\n"
    )


def test_plan_until_stable_ends_when_the_time_is_over(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["plan", "-f", str(LIVELOCK), "--until-stable", "--timeout", "1e-9"])
    assert ended.value.code == 1
    assert capsys.readouterr().err == "not stable: decisions still change after 1 cycle\n"


def test_whatif_reports_that_there_is_no_stable_state(
    livelock: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    extra = tmp_path / "extra.yaml"
    extra.write_text("{apiVersion: v1, kind: Namespace, metadata: {name: other}}")
    with pytest.raises(SystemExit) as ended:
        main(["whatif", "--in", str(livelock), "-f", str(extra)])
    assert ended.value.code == 1
    assert "no stable state with the change: preemption loop: default/w3 preempts" in capsys.readouterr().err


def test_whatif_compares_with_a_change_that_ends_the_loop(livelock: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["whatif", "--in", str(livelock), "--delete", "workload/w2"])
    output = capsys.readouterr()
    assert "Would start" in output.out
    assert output.err.startswith("no stable state without the change: preemption loop: ")


def test_explain_warns_of_a_loop(livelock: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["explain", "-f", str(livelock), "w1"])
    assert (
        "Warning\n  preemption loop: default/w3 preempts default/w1, default/w2 preempts default/w3, in turns."
        in capsys.readouterr().out
    )
    main(["explain", "-f", str(livelock), "w1", "-o", "json"])
    assert msgspec.json.decode(capsys.readouterr().out)["warnings"][0].startswith("preemption loop: ")


def _objects() -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The configuration and the queues of the livelock, and Jobs in place of its Workloads."""
    trees = [document.tree for document in yaml_documents.read(LIVELOCK)]
    configuration = next(tree for tree in trees if tree["kind"] == "Configuration")
    found = [tree for tree in trees if tree["kind"] not in ("Configuration", "Workload", "Namespace")]
    for name, queue, priority, cpu in (("w1", "q0", 10, 6), ("w2", "q1", 10, 6), ("w3", "q1", 0, 3)):
        meta = {"name": f"p{priority}"}
        found.append(
            {
                "apiVersion": "kueue.x-k8s.io/v1beta2",
                "kind": "WorkloadPriorityClass",
                "metadata": meta,
                "value": priority,
            }
        )
        labels = {"kueue.x-k8s.io/queue-name": queue, "kueue.x-k8s.io/priority-class": f"p{priority}"}
        container = {
            "name": "c",
            "image": "x",
            "command": ["sleep", "36000"],
            "resources": {"requests": {"cpu": str(cpu)}},
        }
        template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
        found.append(
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {"name": name, "labels": labels},
                "spec": {"template": template},
            }
        )
    return configuration, found


def test_manager_reports_a_loop_by_event_metric_and_explain() -> None:
    configuration, objects = _objects()
    chosen = {"fairSharing": configuration["fairSharing"], "featureGates": GATES}
    with system(chosen, runner="none") as kueue_:
        # No time passes on the virtual clock while decisions repeat, so the system is never idle.
        with pytest.raises(Stuck, match=r"never idle at .*; preemption loop: .*w3.* preempts .*w1"):
            kueue_.apply(*objects)
        assert kueue_.explain("w1").warnings[0].startswith("EvictionLoop since ")
        counted = re.search(r'pykueue_eviction_loops_total{cluster_queue="q1",.*} (.*)', kueue_.metrics())
        assert counted is not None
        assert float(counted[1]) >= 1
        kueue_.delete("job", "w3")  # a change from outside ends it, and the Events are written
        kueue_.advance(60)
        events = [event for event in kueue_.all("event") if event["reason"] == "EvictionLoop"]
        assert {event["type"] for event in events} == {"Warning"}
        assert {event["regarding"]["name"].split("-")[1] for event in events} >= {"w1", "w3"}
        assert all(" preempts " in event["note"] and "without any other change" in event["note"] for event in events)
        # The loop has ended; it was preempted too often all the same.
        assert [warning.split()[0] for warning in kueue_.explain("w1").warnings] == ["Thrashing"]


def test_manager_comes_to_rest_with_the_gate_on() -> None:
    configuration, objects = _objects()
    with system({"fairSharing": configuration["fairSharing"]}, runner="none") as kueue_:
        kueue_.apply(*objects)
        kueue_.advance(60)
        assert "pykueue_eviction_loops_total{" not in kueue_.metrics()
        states = {job["metadata"]["name"]: job["spec"]["suspend"] for job in kueue_.all("job")}
        # w3 reclaimed quota from w1, and w2 preempted w3 in its own ClusterQueue and got what w3 released.
        assert states == {"w1": True, "w2": False, "w3": True}


def test_sentence_of_a_loop_names_each_pair_once() -> None:
    pair = LoopStep("a/x", "a/y")
    assert PreemptionLoop("q", (pair, pair), 3, 0).sentence() == "a/x preempts a/y"
