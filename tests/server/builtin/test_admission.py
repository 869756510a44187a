"""What a pod is given from other objects on its way in: a priority, limits, the cost of its runtime."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from kubemachinery import status
from kubeserver.admission.chain import CREATE, AdmissionAttributes
from kubeserver.builtin import admission, events, scheduling
from kubeserver.builtin.kinds import RESOURCES

Tree = dict[str, Any]

POD = next(one for one in RESOURCES if one.kind == "Pod")
CLASS = next(one for one in RESOURCES if one.kind == "PriorityClass")


def pod(requests: Tree | None = None, limits: Tree | None = None, **spec: Any) -> Tree:
    resources = {key: value for key, value in (("requests", requests), ("limits", limits)) if value}
    given: dict[str, Any] = {
        "metadata": {"name": "one"},
        "spec": {"containers": [{"name": "a", "image": "i", "resources": resources}]},
    }
    given["spec"].update(spec)
    return POD.rules.default(POD.rules.prune(given))


def admitted(tree: Tree, **objects: list[Tree]) -> Tree:
    """The pod after every hook, in a cluster that holds these objects."""
    by_resource = {
        admission.PRIORITY_CLASSES: objects.get("classes", []),
        admission.RUNTIME_CLASSES: objects.get("runtimes", []),
        admission.LIMIT_RANGES: objects.get("ranges", []),
    }

    def find(resource: str, _namespace: str) -> Iterable[Tree]:
        return by_resource[resource]

    for hook in admission.hooks(find):
        review = AdmissionAttributes(operation=CREATE, resource=POD, namespace="default", object=tree)
        if hook.concerns(review) and hook.mutate is not None:
            tree = hook.mutate(review) or tree
    return tree


def refused(tree: Tree, **objects: list[Tree]) -> str:
    with pytest.raises(status.StatusError) as found:
        admitted(tree, **objects)
    assert found.value.code == 403
    return found.value.message


HIGH = {"metadata": {"name": "high"}, "value": 7, "preemptionPolicy": "Never"}
STANDARD = {"metadata": {"name": "standard"}, "value": 3, "globalDefault": True}


def test_a_priority_comes_from_its_class() -> None:
    spec = admitted(pod(priorityClassName="high"), classes=[HIGH])["spec"]
    assert (spec["priority"], spec["preemptionPolicy"]) == (7, "Never")


def test_without_a_class_the_standard_one_counts() -> None:
    spec = admitted(pod(), classes=[HIGH, STANDARD])["spec"]
    assert (spec["priorityClassName"], spec["priority"]) == ("standard", 3)


def test_without_any_it_is_zero() -> None:
    assert admitted(pod())["spec"]["priority"] == 0


def test_a_missing_priority_class_is_refused() -> None:
    assert "there is no PriorityClass high" in refused(pod(priorityClassName="high"))


def test_a_priority_is_not_for_pods_to_choose() -> None:
    assert "its priority is 0" in refused(pod(priority=9))


def test_two_standard_classes_are_one_too_many() -> None:
    other = {"metadata": {"name": "other"}, "value": 1, "globalDefault": True}
    (hook,) = [one for one in admission.hooks(lambda *_: [STANDARD]) if one.plural == "priorityclasses"]
    assert hook.mutate is not None
    with pytest.raises(status.StatusError, match="standard"):
        hook.mutate(AdmissionAttributes(operation=CREATE, resource=CLASS, object=other))


def test_the_classes_of_the_system_pass_their_own_rules() -> None:
    for one in scheduling.SYSTEM_CLASSES:
        assert CLASS.rules.validate(one, None, "") == []


def limit_range(**item: Any) -> Tree:
    return {"metadata": {"name": "small"}, "spec": {"limits": [{"type": "Container", **item}]}}


def test_a_container_that_asks_for_nothing_is_given_what_the_namespace_gives() -> None:
    tree = admitted(pod(), ranges=[limit_range(default={"cpu": "1"}, defaultRequest={"cpu": "500m"})])
    assert tree["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "500m"}, "limits": {"cpu": "1"}}
    assert "cpu request for container a" in tree["metadata"]["annotations"]["kubernetes.io/limit-ranger"]


def test_what_it_asks_for_stays() -> None:
    tree = admitted(pod(requests={"cpu": "2"}), ranges=[limit_range(defaultRequest={"cpu": "500m", "memory": "1Mi"})])
    assert tree["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "2", "memory": "1Mi"}


@pytest.mark.parametrize(
    ("item", "limits", "why"),
    [
        ({"max": {"cpu": "1"}}, {"cpu": "2"}, "a limit of at most 1 of cpu, and this one 2"),
        ({"min": {"cpu": "3"}}, {"cpu": "2"}, "at least 3 of cpu, and this one for 2"),
        ({"min": {"memory": "1Mi"}}, {"cpu": "2"}, "at least 1Mi of memory, and this one for none"),
        ({"max": {"memory": "1Mi"}}, {"cpu": "2"}, "at most 1Mi of memory, and this one none"),
    ],
)
def test_what_is_out_of_bounds_is_refused(item: Tree, limits: Tree, why: str) -> None:
    assert why in refused(pod(limits=limits), ranges=[limit_range(**item)])


def test_the_bounds_of_a_pod_count_all_its_containers() -> None:
    whole = {"metadata": {"name": "p"}, "spec": {"limits": [{"type": "Pod", "max": {"cpu": "3"}}]}}
    both = [{"name": name, "image": "i", "resources": {"limits": {"cpu": "2"}}} for name in ("a", "b")]
    assert "a Pod here has a limit of at most 3 of cpu, and this one 4" in refused(pod(containers=both), ranges=[whole])


HEAVY = {
    "metadata": {"name": "heavy"},
    "handler": "h",
    "overhead": {"podFixed": {"cpu": "100m"}},
    "scheduling": {"nodeSelector": {"heavy": "yes"}, "tolerations": [{"key": "heavy", "operator": "Exists"}]},
}


def test_a_runtime_class_sets_overhead_and_scheduling_of_its_pods() -> None:
    spec = admitted(pod(runtimeClassName="heavy", nodeSelector={"a": "b"}), runtimes=[HEAVY])["spec"]
    assert spec["overhead"] == {"cpu": "100m"}
    assert spec["nodeSelector"] == {"a": "b", "heavy": "yes"}
    assert {"key": "heavy", "operator": "Exists"} in spec["tolerations"]


def test_a_missing_runtime_class_is_refused() -> None:
    assert "there is no RuntimeClass heavy" in refused(pod(runtimeClassName="heavy"))


def test_a_pod_does_not_choose_its_own_overhead() -> None:
    assert "overhead" in refused(pod(overhead={"cpu": "1"}))


def test_an_event_has_two_faces_and_loses_nothing_between_them() -> None:
    core = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod"},
        "message": "words",
        "source": {"component": "c"},
        "count": 2,
        "reportingComponent": "r",
        "reason": "R",
    }
    new = events.convert(core, events.EVENTS)
    assert (new["regarding"], new["note"], new["deprecatedCount"]) == ({"kind": "Pod"}, "words", 2)
    assert "involvedObject" not in new
    assert events.convert(new, events.CORE) == core
