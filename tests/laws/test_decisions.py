"""What holds of every decision, whatever the world."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kubemachinery import meta
from laws.random_clusters import NOW, ClusterCase, QueueCase, QuotaCase, WorkloadCase, clusters
from pykueue.api import kueue
from pykueue.core import invariants
from pykueue.core.decision import Admit, Cause, Preempt, Wait
from pykueue.state import audit
from pykueue.state.world import World

SMALL = settings(max_examples=80)


@SMALL
@given(clusters())
def test_no_admission_takes_more_than_the_tree_allows(case: ClusterCase) -> None:
    """Usage that was within bounds before a cycle is so after it, with targets that still run."""
    world = case.world()
    before = invariants.over_quota(world.snapshot())
    for _ in range(6):
        world.decide(NOW)
        assert invariants.over_quota(world.snapshot()) <= before
        assert invariants.broken(world.snapshot()) == []


@SMALL
@given(clusters())
def test_every_head_gets_exactly_one_decision_and_no_workload_is_lost(case: ClusterCase) -> None:
    world = case.world()
    keys = {workload.key for workload in case.workloads}
    for _ in range(4):
        decided = [decision.workload for decision in world.decide(NOW)]
        assert len(decided) == len(set(decided))
        pending = {w.key for q in world.queues.values() for w in (*q.active(), *q.parked())}
        assert pending | world.reservations.keys() == keys
        assert not pending & world.reservations.keys()


@SMALL
@given(clusters())
def test_deciding_until_nothing_changes_ends(case: ClusterCase) -> None:
    world = case.world()
    for _ in range(200):
        decisions = world.decide(NOW)
        if not any(isinstance(decision, (Admit, Preempt)) for decision in decisions):
            return
        for decision in decisions:
            if isinstance(decision, Preempt):
                for victim in decision.targets:  # its job stops and it does not come back
                    world.drop(kueue.Workload(metadata=_metadata(victim.key)))
    raise AssertionError("still admitting or preempting after 200 cycles")


def _metadata(key: str) -> meta.ObjectMeta:
    namespace, _, name = key.partition("/")
    return meta.ObjectMeta(name=name, namespace=namespace)


@SMALL
@given(st.integers(0, 8), st.integers(0, 8), st.integers(1, 12))
def test_a_stated_shortage_is_true(nominal: int, used: int, asked: int) -> None:
    """Adding exactly the reported shortage admits the Workload; one unit less does not."""
    queue = QueueCase("q", "", (QuotaCase(nominal, None, None),), "Never", "Never", strict=False)
    holder, head = WorkloadCase(0, "q", used, 0, 1, "f0"), WorkloadCase(1, "q", asked, 0, 0)
    [decision] = ClusterCase((), (queue,), (holder, head), fair=False).world().decide(NOW)
    assume(isinstance(decision, Wait))
    [finding] = {f for e in decision.explanation for f in e.findings if f.cause in (Cause.SHORT, Cause.BEYOND_CAPACITY)}
    if finding.cause is Cause.BEYOND_CAPACITY:
        assert finding.available == nominal * 1000
        return
    short = finding.short_by // 1000
    assert finding.short_by == short * 1000 > 0
    for more, is_enough in ((short, True), (short - 1, False)):
        bigger = replace(queue, quotas=(QuotaCase(nominal + more, None, None),))
        [decision] = ClusterCase((), (bigger,), (holder, head), fair=False).world().decide(NOW)
        assert isinstance(decision, Admit) is is_enough


@SMALL
@given(clusters())
def test_a_stated_shortage_is_true_in_any_tree(case: ClusterCase) -> None:
    """The same where others lend, borrow, are in debt, or where a limit is in the way; for every flavor that is
    short."""
    asking = next((w for w in case.workloads if w.flavor is None), None)
    assume(asking is not None)
    assert asking is not None
    holders = tuple(w for w in case.workloads if w.flavor is not None)
    queues = tuple(replace(queue, within="Never", reclaim="Never") for queue in case.queues)
    [decision] = replace(case, queues=queues, workloads=(*holders, asking)).world().decide(NOW)
    if not isinstance(decision, Wait):
        return
    for finding in {f for e in decision.explanation for f in e.findings if f.cause is Cause.SHORT}:
        assert finding.short_by > 0
        short = finding.short_by // 1000
        for more, is_enough in ((short, True), (short - 1, False)):
            raised = tuple(
                replace(queue, quotas=_raised(queue.quotas, finding.flavor, more))
                if queue.name == asking.queue
                else queue
                for queue in queues
            )
            [decision] = replace(case, queues=raised, workloads=(*holders, asking)).world().decide(NOW)
            assert isinstance(decision, Admit) is is_enough, (finding, more)


def _raised(quotas: tuple[QuotaCase, ...], flavor: str, more: int) -> tuple[QuotaCase, ...]:
    return tuple(
        replace(quota, nominal=quota.nominal + more) if f"f{n}" == flavor else quota for n, quota in enumerate(quotas)
    )


@SMALL
@given(clusters(), st.lists(st.integers(0, 11), max_size=8))
def test_state_rebuilt_from_the_objects_equals_the_state_after_any_history(case: ClusterCase, ended: list[int]) -> None:
    """Cycles and endings in between; then a new world that is shown only what there is now."""
    world = case.world()
    gone = set()
    for number in ended:
        world.decide(NOW)
        if number < len(case.workloads):
            workload = case.workloads[number]
            gone.add(workload.key)
            world.drop(workload.thing())
    world.settle(NOW)
    flavors = {key: next(iter(held.pod_sets[0].flavors.values()), None) for key, held in world.reservations.items()}
    now_there = tuple(
        replace(workload, flavor=flavors.get(workload.key)) for workload in case.workloads if workload.key not in gone
    )
    rebuilt = replace(case, workloads=now_there).world()
    for workload in now_there:
        world.confirm(workload.key)  # all that was decided has been written and read
    assert audit.differences(world, rebuilt) == []


@SMALL
@given(clusters())
def test_a_restart_admits_nothing_that_was_not_admitted_before(case: ClusterCase) -> None:
    """Once nothing more is admitted, a manager that restarts on the same objects admits nothing either."""
    world = case.world()
    assume(not any(queue.strict for queue in case.queues))  # whose heads are tried for ever
    for _ in range(100):
        if not world.decide(NOW):
            break
    else:
        assume(False)
    assume(not any(held.evicted for held in world.reservations.values()))
    flavors = {key: next(iter(held.pod_sets[0].flavors.values()), None) for key, held in world.reservations.items()}
    again: World = replace(case, workloads=tuple(replace(w, flavor=flavors.get(w.key)) for w in case.workloads)).world()
    for _ in range(20):
        assert not any(isinstance(decision, Admit) for decision in again.decide(NOW))
