"""Decisions of the Deployment, ReplicaSet and StatefulSet controllers on small sets of JSON trees."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kubemachinery import meta
from pykueue.api import labels
from pykueue.runner import deployment, replica_set, replicas, stateful_set

Tree = dict[str, Any]
NOW = meta.parse_time("2026-01-01T12:00:00Z")
READY = [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T11:00:00Z"}]


def template(image: str = "a:1") -> Tree:
    return {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": image}]}}


def owner(kind: str, **spec: Any) -> Tree:
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": "web", "namespace": "n", "uid": "W", "generation": 1},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template(), **spec},
        "status": {},
    }


# --- ReplicaSet -------------------------------------------------------------------------------------------------------


def pod(name: str, *, ready: bool = True, phase: str = "Running", **metadata: Any) -> Tree:
    status = {"phase": phase, "conditions": READY if ready else []}
    return {"metadata": {"name": name, "namespace": "n", "uid": name, **metadata}, "status": status}


def test_missing_pods_of_a_replica_set_are_created_and_surplus_ones_deleted() -> None:
    tree = owner("ReplicaSet")
    made = replica_set.decide(tree, [], NOW).create
    assert [each["metadata"]["generateName"] for each in made] == ["web-", "web-"]
    assert made[0]["metadata"]["ownerReferences"][0]["controller"] is True
    pods = [pod("a"), pod("waiting", ready=False, phase="Pending"), pod("b")]
    assert [each["metadata"]["name"] for each in replica_set.decide(tree, pods, NOW).delete] == ["waiting"]


def test_ended_and_deleted_pods_do_not_count() -> None:
    pods = [pod("a", phase="Failed"), pod("b", deletionTimestamp="2026-01-01T12:00:00Z"), pod("c")]
    plan = replica_set.decide(owner("ReplicaSet"), pods, NOW)
    assert (len(plan.create), plan.status["replicas"], plan.status["readyReplicas"]) == (1, 1, 1)


def test_pod_is_available_after_the_seconds_that_it_must_be_ready() -> None:
    late = owner("ReplicaSet", replicas=1, minReadySeconds=3601)
    plan = replica_set.decide(late, [pod("a")], NOW)
    assert (plan.status["availableReplicas"], plan.requeue_after_seconds) == (0, 1.0)


# --- Deployment -------------------------------------------------------------------------------------------------------


class Rollout:
    """A Deployment with its ReplicaSets, whose pods become ready as soon as `ready` is True."""

    def __init__(self, **spec: Any) -> None:
        self.tree = owner("Deployment", **spec)
        self.sets: dict[str, Tree] = {}
        self.ready = True
        self.most = 0
        self.least = 10**6

    def settle(self) -> Rollout:
        for _ in range(40):
            before = copy.deepcopy((self.tree, self.sets))
            plan = deployment.decide(copy.deepcopy(self.tree), copy.deepcopy(list(self.sets.values())), NOW)
            self.tree["status"] = plan.status
            if plan.create is not None:
                self.sets[plan.create["metadata"]["name"]] = {**plan.create, "status": {}}
            for each, count in plan.scale:
                self.sets[each["metadata"]["name"]]["spec"]["replicas"] = count
            for each in plan.delete:
                del self.sets[each["metadata"]["name"]]
            for each in self.sets.values():
                count = each["spec"]["replicas"]
                available = count if self.ready else min(count, each["status"].get("availableReplicas", 0))
                each["status"] = {"replicas": count, "readyReplicas": available, "availableReplicas": available}
            if (self.tree, self.sets) == before:
                return self
            self.most = max(self.most, sum(each["spec"]["replicas"] for each in self.sets.values()))
            self.least = min(self.least, sum(each["status"]["availableReplicas"] for each in self.sets.values()))
        raise AssertionError("it never comes to rest")

    def roll(self, image: str) -> Rollout:
        self.tree["spec"]["template"] = template(image)
        self.most, self.least = 0, 10**6
        return self.settle()

    @property
    def images(self) -> dict[str, int]:
        return {
            each["spec"]["template"]["spec"]["containers"][0]["image"]: each["spec"]["replicas"]
            for each in self.sets.values()
        }


@pytest.mark.parametrize(
    ("surge", "unavailable", "most", "least"), [(1, 0, 5, 4), (0, 1, 4, 3), ("50%", "25%", 6, 3), (0, 0, 4, 3)]
)
def test_rolling_update_stays_within_its_limits(surge: Any, unavailable: Any, most: int, least: int) -> None:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}
    rollout = Rollout(replicas=4, strategy=strategy).settle().roll("a:2")
    assert rollout.images == {"a:1": 0, "a:2": 4}
    assert rollout.most <= most
    assert rollout.least >= least
    assert rollout.tree["status"]["updatedReplicas"] == 4


def test_rollout_without_ready_pods_stops_at_its_limits() -> None:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}}
    rollout = Rollout(replicas=4, strategy=strategy).settle()
    rollout.ready = False
    assert rollout.roll("a:2").images == {"a:1": 3, "a:2": 2}


def test_recreate_ends_all_old_pods_first() -> None:
    rollout = Rollout(replicas=3, strategy={"type": "Recreate"}).settle().roll("a:2")
    assert rollout.images == {"a:1": 0, "a:2": 3}
    assert (rollout.most, rollout.least) == (3, 0)


def test_paused_deployment_is_scaled_and_not_rolled_out() -> None:
    rollout = Rollout(replicas=2).settle()
    rollout.tree["spec"] |= {"paused": True, "replicas": 5}
    assert rollout.roll("a:2").images == {"a:1": 5}


def test_earlier_template_uses_its_replica_set_again_and_old_ones_are_deleted() -> None:
    rollout = Rollout(replicas=1, revisionHistoryLimit=1).settle().roll("a:2").roll("a:1")
    assert rollout.images == {"a:1": 1, "a:2": 0}
    assert rollout.roll("a:3").images == {"a:3": 1, next(iter(set(rollout.images) - {"a:3"})): 0}


# --- StatefulSet ------------------------------------------------------------------------------------------------------


class Ordered:
    """A StatefulSet with its pods; `ready` decides which of them become ready."""

    def __init__(self, **spec: Any) -> None:
        self.tree = owner("StatefulSet", serviceName="svc", **spec)
        self.pods: dict[str, Tree] = {}
        self.stuck: set[str] = set()
        self.log: list[str] = []

    def settle(self) -> Ordered:
        for _ in range(40):
            before = copy.deepcopy((self.tree, self.pods))
            plan = stateful_set.decide(copy.deepcopy(self.tree), copy.deepcopy(list(self.pods.values())), NOW)
            self.tree["status"] = plan.status
            for each in plan.delete:
                self.log.append(f"-{each['metadata']['name']}")
                del self.pods[each["metadata"]["name"]]
            for each in plan.create:
                name = each["metadata"]["name"]
                self.log.append(f"+{name}")
                status = {"phase": "Running", "conditions": [] if name in self.stuck else READY}
                self.pods[name] = {**each, "status": status}
            if (self.tree, self.pods) == before:
                return self
        raise AssertionError("it never comes to rest")

    def change(self, **spec: Any) -> Ordered:
        self.tree["spec"] |= spec
        self.log.clear()
        return self.settle()


def test_pods_of_a_stateful_set_have_their_names_labels_and_order() -> None:
    found = Ordered(replicas=3).settle()
    assert found.log == ["+web-0", "+web-1", "+web-2"]
    first = found.pods["web-1"]
    assert first["metadata"]["labels"][labels.STATEFUL_SET_POD_INDEX] == "1"
    assert first["metadata"]["labels"]["statefulset.kubernetes.io/pod-name"] == "web-1"
    assert (first["spec"]["hostname"], first["spec"]["subdomain"]) == ("web-1", "svc")
    assert found.change(replicas=1).log == ["-web-2", "-web-1"]


def test_next_pod_waits_until_the_one_before_is_ready() -> None:
    found = Ordered(replicas=3)
    found.stuck.add("web-0")
    assert found.settle().log == ["+web-0"]
    parallel = Ordered(replicas=3, podManagementPolicy="Parallel")
    parallel.stuck.add("web-0")
    assert parallel.settle().log == ["+web-0", "+web-1", "+web-2"]


def test_parallel_set_creates_a_limited_number_of_pods_at_once() -> None:
    """The plan ends at that number: a set may request two billion pods."""
    tree = owner("StatefulSet", replicas=2**31 - 1, podManagementPolicy="Parallel")
    created = stateful_set.decide(tree, [], NOW).create
    assert [each["metadata"]["name"] for each in created] == [f"web-{index}" for index in range(replicas.AT_ONCE_MAX)]


def test_new_template_is_rolled_out_from_the_highest_ordinal() -> None:
    found = Ordered(replicas=3).settle()
    before = found.tree["status"]["updateRevision"]
    found.change(template=template("a:2"))
    assert found.log == ["-web-2", "+web-2", "-web-1", "+web-1", "-web-0", "+web-0"]
    status = found.tree["status"]
    assert status["currentRevision"] == status["updateRevision"] != before


def test_rollout_stops_at_a_pod_that_is_not_ready_and_at_the_partition() -> None:
    found = Ordered(replicas=3).settle()
    found.stuck.add("web-2")
    assert found.change(template=template("a:2")).log == ["-web-2", "+web-2"]
    assert found.tree["status"]["currentRevision"] != found.tree["status"]["updateRevision"]
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}
    parted = Ordered(replicas=3, updateStrategy=strategy).settle()
    assert parted.change(template=template("a:2")).log == ["-web-2", "+web-2"]
    assert "partition" in stateful_set.ignored(parted.tree)


def test_failed_pod_is_replaced() -> None:
    found = Ordered().settle()
    found.pods["web-0"]["status"] = {"phase": "Failed"}
    found.log.clear()
    assert found.settle().log == ["-web-0", "+web-0"]


def test_claims_have_no_effect_and_are_named() -> None:
    tree = owner("StatefulSet", volumeClaimTemplates=[{"metadata": {"name": "data"}}])
    assert "volumeClaimTemplates" in stateful_set.ignored(tree)
    assert stateful_set.ignored(owner("StatefulSet")) == ""


@pytest.mark.parametrize(
    ("value", "up", "expected"), [("25%", True, 3), ("25%", False, 2), (4, True, 4), ("x", True, 0)]
)
def test_share_of_replicas(value: Any, up: bool, expected: int) -> None:
    assert replicas.share(value, 10, up=up) == expected
