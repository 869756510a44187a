"""The status of queues, and what may be deleted."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace

from kubemachinery import meta
from kubemachinery.meta import SECOND, Condition, ObjectMeta
from pykueue.api import kueue, labels
from pykueue.api.kueue import ClusterQueue, LocalQueue
from pykueue.lifecycle import queues
from pykueue.lifecycle.queues import KnownCheck, QueueCounts, QuotaUsage, References

NOW = meta.parse_time("2026-03-01T12:00:00Z")
IN_USE = labels.RESOURCE_IN_USE_FINALIZER


def cluster_queue(
    *checks: kueue.AdmissionCheckStrategyRule, stop: str = "None", deleting: bool = False
) -> ClusterQueue:
    flavors = tuple(kueue.FlavorQuotas(name=name) for name in ("fast", "cheap"))
    return ClusterQueue(
        metadata=ObjectMeta(name="cq", generation=3, deletion_timestamp=meta.format_time(NOW) if deleting else None),
        spec=kueue.ClusterQueueSpec(
            resource_groups=(kueue.ResourceGroup(covered_resources=("memory", "cpu"), flavors=flavors),),
            admission_checks_strategy=kueue.AdmissionChecksStrategy(admission_checks=checks),
            stop_policy=stop,
        ),
    )


def check(name: str, *flavors: str) -> kueue.AdmissionCheckStrategyRule:
    return kueue.AdmissionCheckStrategyRule(name=name, on_flavors=flavors)


KNOWN = References(
    flavors={"fast": "racks", "cheap": ""},
    topologies=frozenset({"racks"}),
    checks={
        "ok": KnownCheck(),
        "idle": KnownCheck(is_active=False),
        "m1": KnownCheck(controller=labels.MULTIKUEUE_CONTROLLER),
        "m2": KnownCheck(controller=labels.MULTIKUEUE_CONTROLLER),
        "p": KnownCheck(controller=labels.PROVISIONING_CONTROLLER),
    },
)
NO_TOPOLOGY = References(flavors=KNOWN.flavors, checks=KNOWN.checks)
NOTHING = References()


@pytest.mark.parametrize(
    ("queue", "references", "reasons"),
    [
        (cluster_queue(check("ok")), KNOWN, []),
        (cluster_queue(check("ok", "fast"), check("p")), KNOWN, []),
        (cluster_queue(stop="Hold"), KNOWN, ["Stopped"]),
        (cluster_queue(), NOTHING, ["FlavorNotFound"]),
        (cluster_queue(check("ok")), NOTHING, ["FlavorNotFound", "AdmissionCheckNotFound"]),
        (cluster_queue(check("idle")), KNOWN, ["AdmissionCheckInactive"]),
        (cluster_queue(check("m1"), check("m2")), KNOWN, ["MultipleMultiKueueAdmissionChecks"]),
        (cluster_queue(check("m1", "fast")), KNOWN, ["MultiKueueAdmissionCheckAppliedPerFlavor"]),
        (cluster_queue(check("m1", "fast", "cheap")), KNOWN, []),
        (cluster_queue(check("m1"), check("p")), KNOWN, ["MultiKueueWithProvisioningRequest"]),
        (cluster_queue(), NO_TOPOLOGY, ["TopologyNotFound"]),
        (cluster_queue(check("m1")), NO_TOPOLOGY, []),
        (cluster_queue(check("gone"), stop="HoldAndDrain"), KNOWN, ["Stopped", "AdmissionCheckNotFound"]),
        (cluster_queue(check("gone"), stop="Hold", deleting=True), NOTHING, ["Terminating"]),
    ],
)
def test_why_a_cluster_queue_cannot_admit(queue: ClusterQueue, references: References, reasons: list[str]) -> None:
    """In their order; deletion beats everything, and where pods run elsewhere no topology is needed."""
    assert [blocker.reason for blocker in queues.blockers(queue, references)] == reasons
    (active,) = queues.cluster_queue_status(queue, references, QueueCounts(), NOW).conditions
    assert (active.status, active.reason) == (("False", reasons[0]) if reasons else ("True", "Ready"))
    assert active.observed_generation == 3


@pytest.mark.parametrize(("on", "reasons"), [(True, ["TopologyNotFound"]), (False, [])])
def test_without_its_gate_a_topology_is_not_missed(on: bool, reasons: list[str]) -> None:
    flavors = [
        kueue.ResourceFlavor(metadata=ObjectMeta(name=name), spec=kueue.ResourceFlavorSpec(topology_name="nowhere"))
        for name in ("fast", "cheap")
    ]
    references = References.of(flavors, (), (), has_topologies=on)
    assert [blocker.reason for blocker in queues.blockers(cluster_queue(), references)] == reasons


def test_the_message_has_every_reason() -> None:
    (active,) = queues.cluster_queue_status(
        cluster_queue(check("ok"), stop="Hold"), NOTHING, QueueCounts(), NOW
    ).conditions
    for word in ("stopped", "fast,cheap", "references missing AdmissionCheck(s): ok"):
        assert word in active.message


def test_a_status_computed_again_is_the_same_and_its_time_stays() -> None:
    queue = cluster_queue()
    first = queues.cluster_queue_status(queue, KNOWN, QueueCounts(pending=1), NOW)
    again = queues.cluster_queue_status(replace(queue, status=first), KNOWN, QueueCounts(pending=1), NOW + 60 * SECOND)
    assert again == first


def test_conditions_of_others_stay() -> None:
    theirs = Condition(type="TheirOwn", status="True")
    queue = replace(cluster_queue(), status=kueue.ClusterQueueStatus(conditions=(theirs,)))
    assert theirs in queues.cluster_queue_status(queue, KNOWN, QueueCounts(), NOW).conditions


COUNTED = QueueCounts(
    pending=4,
    reserving=3,
    admitted=2,
    reservation={("cheap", "cpu"): QuotaUsage("5", "2")},
    usage={("cheap", "cpu"): QuotaUsage("4", "1")},
)


def test_every_flavor_is_listed_also_where_nothing_is_taken() -> None:
    status = queues.cluster_queue_status(cluster_queue(), KNOWN, COUNTED, NOW)
    assert (status.pending_workloads, status.reserving_workloads, status.admitted_workloads) == (4, 3, 2)
    fast, cheap = status.flavors_reservation
    assert [(one.name, one.total, one.borrowed) for one in fast.resources] == [("cpu", "0", "0"), ("memory", "0", "0")]
    assert [(one.name, one.total, one.borrowed) for one in cheap.resources] == [("cpu", "5", "2"), ("memory", "0", "0")]
    assert status.flavors_usage[1].resources[0].total == "4"


@pytest.mark.parametrize(
    ("share", "shown"), [(None, None), (0.0, 0), (12.2, 13), (math.inf, 2**63 - 1), (1e30, 2**63 - 1)]
)
def test_a_share_is_rounded_up_and_shown_only_with_fair_sharing(share: float | None, shown: int | None) -> None:
    status = queues.cluster_queue_status(cluster_queue(), KNOWN, QueueCounts(weighted_share=share), NOW)
    assert (status.fair_sharing.weighted_share if status.fair_sharing else None) == shown
    cohort = queues.cohort_status(share)
    assert (cohort.fair_sharing.weighted_share if cohort.fair_sharing else None) == shown


def local_queue(stop: str = "None") -> LocalQueue:
    return LocalQueue(spec=kueue.LocalQueueSpec(cluster_queue="cq", stop_policy=stop))


def active(queue: ClusterQueue) -> ClusterQueue:
    return replace(queue, status=queues.cluster_queue_status(queue, KNOWN, QueueCounts(), NOW))


@pytest.mark.parametrize(
    ("queue", "behind", "expected"),
    [
        (local_queue(), active(cluster_queue()), "True/Ready"),
        (local_queue(), active(cluster_queue(stop="Hold")), "False/ClusterQueueIsInactive"),
        (local_queue(), cluster_queue(), "False/ClusterQueueIsInactive"),
        (local_queue(), None, "False/ClusterQueueDoesNotExist"),
        (local_queue("Hold"), None, "False/Stopped"),
        (local_queue("HoldAndDrain"), active(cluster_queue()), "False/Stopped"),
    ],
)
def test_whether_a_local_queue_takes_workloads(queue: LocalQueue, behind: ClusterQueue | None, expected: str) -> None:
    (found,) = queues.local_queue_status(queue, behind, QueueCounts(), NOW).conditions
    assert f"{found.status}/{found.reason}" == expected


def test_stopped_local_queue_has_no_pending_workloads_but_its_usage() -> None:
    status = queues.local_queue_status(local_queue("Hold"), active(cluster_queue()), COUNTED, NOW)
    assert (status.pending_workloads, status.reserving_workloads) == (0, 3)
    assert status.flavors_reservation[1].resources[0].total == "5"


def test_without_its_cluster_queue_nothing_is_taken_through_it() -> None:
    status = queues.local_queue_status(local_queue(), None, COUNTED, NOW)
    assert (status.reserving_workloads, status.admitted_workloads, status.flavors_usage) == (0, 0, ())


def test_usage_over_time_is_in_the_local_queue_status() -> None:
    consumed = kueue.AdmissionFairSharingStatus()
    status = queues.local_queue_status(local_queue(), active(cluster_queue()), COUNTED, NOW, consumed=consumed)
    assert status.fair_sharing is not None
    assert status.fair_sharing.admission_fair_sharing_status == consumed
    assert queues.local_queue_status(local_queue(), None, COUNTED, NOW).fair_sharing is None


@pytest.mark.parametrize(
    ("present", "deleting", "used", "expected"),
    [
        ((), False, False, (IN_USE,)),
        (("their/own",), False, True, ("their/own", IN_USE)),
        ((IN_USE,), False, False, (IN_USE,)),
        ((IN_USE, "their/own"), True, True, (IN_USE, "their/own")),
        ((IN_USE, "their/own"), True, False, ("their/own",)),
        ((), True, True, ()),
    ],
)
def test_finalizer_is_removed_with_the_last_user(
    present: tuple[str, ...], deleting: bool, used: bool, expected: tuple[str, ...]
) -> None:
    metadata = ObjectMeta(finalizers=present, deletion_timestamp=meta.format_time(NOW) if deleting else None)
    assert queues.finalizers(metadata, is_used=used) == expected
