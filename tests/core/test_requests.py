"""What pods request and what quota is charged: rules AM4 to AM18, AM21 and AM22, one test for each rule."""

from __future__ import annotations

import gzip
from collections import defaultdict
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kubemachinery import quantity
from kubemachinery.meta import ObjectMeta
from pykueue.api.config import Resources, ResourceTransformation
from pykueue.api.kube import (
    Container,
    LimitRange,
    LimitRangeItem,
    LimitRangeSpec,
    Overhead,
    PodSpec,
    ResourceRequirements,
    RuntimeClass,
)
from pykueue.api.kueue import PodSetAssignment, ReclaimablePod, Workload
from pykueue.core import amounts, requests
from pykueue.core.requests import Invalidity, LimitRangeSummary, PodRequirements

Amounts = dict[str, Any]


def container(requests: Amounts | None = None, limits: Amounts | None = None, sidecar: bool = False) -> Container:
    resources = ResourceRequirements(requests=requests or {}, limits=limits or {})
    return Container(resources=resources, restart_policy="Always" if sidecar else "")


def cpu(amount: str, sidecar: bool = False) -> Container:
    return container({"cpu": amount}, sidecar=sidecar)


def limit_range(name: str = "a", type: str = "Container", **bounds: Amounts) -> LimitRange:
    item = LimitRangeItem(type=type, **bounds)
    return LimitRange(metadata=ObjectMeta(name=name), spec=LimitRangeSpec(limits=(item,)))


def figure(spec: PodSpec, limits: LimitRangeSummary = requests.NO_LIMITS) -> dict[str, str]:
    return {name: str(q) for name, q in requests.read(spec, limits=limits).figure.items()}


def asked(**figures: str) -> requests.Quantities:
    return {name: quantity.parse(text) for name, text in figures.items()}


# --- One pod ----------------------------------------------------------------------------------------------------------


def test_am4_containers_and_sidecars_add_up_and_the_largest_init_sum_counts() -> None:
    both = (cpu("300m"), cpu("200m"))
    initial, sidecar = cpu("700m"), cpu("100m", sidecar=True)
    overhead: dict[str, str | int | float] = {"cpu": "50m"}
    assert figure(PodSpec(containers=both)) == {"cpu": "500m"}
    assert figure(PodSpec(containers=both, init_containers=(initial, sidecar), overhead=overhead)) == {"cpu": "750m"}
    # A sidecar that started before runs beside the init container.
    assert figure(PodSpec(containers=both, init_containers=(sidecar, initial), overhead=overhead)) == {"cpu": "850m"}


def test_am4_each_resource_is_added_up_by_itself() -> None:
    spec = PodSpec(
        containers=(container({"cpu": "1", "memory": "1Gi"}), container({"example.com/gpu": 2})),
        init_containers=(container({"memory": "3Gi"}),),
    )
    assert figure(spec) == {"cpu": "1", "memory": "3Gi", "example.com/gpu": "2"}


def test_am5_pod_level_requests_replace_cpu_memory_and_hugepages() -> None:
    spec = PodSpec(
        containers=(container({"cpu": "1", "memory": "1Gi", "example.com/gpu": "1"}),),
        resources=ResourceRequirements(requests={"cpu": "4", "hugepages-2Mi": "4Mi", "example.com/gpu": "9"}),
        overhead={"cpu": "100m"},
    )
    assert figure(spec) == {"cpu": "4100m", "memory": "1Gi", "hugepages-2Mi": "4Mi", "example.com/gpu": "1"}


def test_am7_the_overhead_of_a_runtime_class_counts_where_the_pod_names_none() -> None:
    classes = {
        "kata": RuntimeClass(overhead=Overhead(pod_fixed={"memory": "64Mi"})),
        "bare": RuntimeClass(),
    }

    def overhead(**spec: Any) -> requests.Quantities:
        return requests.read(PodSpec(**spec), runtime_classes=classes).overhead

    assert overhead(runtime_class_name="kata") == asked(memory="64Mi")
    assert overhead(runtime_class_name="kata", overhead={"memory": "1Mi"}) == asked(memory="1Mi")
    assert overhead(runtime_class_name="bare") == {}
    assert overhead(runtime_class_name="nowhere") == {}


def test_am8_of_several_limit_ranges_the_tightest_bounds_and_the_first_defaults_by_name_hold() -> None:
    limits = requests.merge_limit_ranges(
        [
            limit_range("b", max={"cpu": "4"}, min={"cpu": "1"}, default={"cpu": "3"}, default_request={"memory": "2"}),
            limit_range("a", max={"cpu": "2"}, min={"cpu": "500m"}, default={"cpu": "2", "memory": "9"}),
            limit_range("c", type="Pod", max={"memory": "1Gi"}),
            limit_range("d", type="PersistentVolumeClaim", max={"storage": "1Gi"}),
        ]
    )
    assert limits.container == requests.LimitRangeBounds(
        max=asked(cpu="2"),
        min=asked(cpu="1"),
        default_limits=asked(cpu="2", memory="9"),
        default_requests=asked(memory="2"),
    )
    assert limits.pod.max == asked(memory="1Gi")


def test_am8_defaults_apply_to_containers_and_to_pods_with_pod_level_resources() -> None:
    limits = requests.merge_limit_ranges(
        [
            limit_range("a", default={"cpu": "2"}, default_request={"memory": "1Gi"}),
            limit_range("b", type="Pod", default_request={"memory": "8Gi"}),
        ]
    )
    assert figure(PodSpec(containers=(container(),), init_containers=(cpu("3"),)), limits) == {
        "cpu": "3",
        "memory": "1Gi",
    }
    whole = PodSpec(containers=(container(),), resources=ResourceRequirements(requests={"cpu": "5"}))
    assert figure(whole, limits) == {"cpu": "5", "memory": "8Gi"}


def test_am9_a_limit_stands_in_for_a_missing_request_but_not_before_the_namespaces_default_request() -> None:
    spec = PodSpec(containers=(container(limits={"cpu": "2", "memory": "1Gi"}),))
    assert figure(spec) == {"cpu": "2", "memory": "1Gi"}
    limits = requests.merge_limit_ranges([limit_range(default_request={"cpu": "250m"})])
    assert figure(spec, limits) == {"cpu": "250m", "memory": "1Gi"}
    whole = PodSpec(containers=(cpu("1"),), resources=ResourceRequirements(limits={"cpu": "7"}))
    assert figure(whole) == {"cpu": "7"}


# --- Charging ---------------------------------------------------------------------------------------------------------


def rule(input: str, outputs: Amounts, strategy: str = "", multiply_by: str = "") -> ResourceTransformation:
    return ResourceTransformation(input=input, outputs=outputs, strategy=strategy, multiply_by=multiply_by)


def charged(accounting: requests.Accounting, figure: requests.Quantities) -> dict[str, str]:
    return {name: str(q) for name, q in accounting.charged(figure).items()}


def test_am11_resources_are_left_out_by_prefix_and_a_queue_adds_its_own_prefixes() -> None:
    everywhere = requests.accounting(prefixes=["networking.example.com/", "mem"])
    figure = {**asked(cpu="1", memory="1"), "networking.example.com/vpc": quantity.parse("1")}
    assert charged(everywhere, figure) == {"cpu": "1"}
    assert charged(everywhere.for_queue(["c"]), figure) == {}
    assert charged(everywhere.for_queue(["x"]), figure) == {"cpu": "1"}
    assert requests.PLAIN.charged(figure) == figure


def test_exclusions_name_the_prefix_and_its_list() -> None:
    accounting = requests.accounting(prefixes=["mem"]).for_queue(["memory", "example.com/"])
    assert accounting.exclusions(["cpu", "memory", "example.com/nic"]) == (
        requests.Exclusion("example.com/nic", "example.com/", by_queue=True),
        requests.Exclusion("memory", "mem", by_queue=False),
    )


def test_am12_a_rule_turns_its_input_into_outputs_and_keeps_or_replaces_it() -> None:
    retain = requests.accounting(transformations=[rule("gpu", {"credits": "10", "cpu": "500m"})])
    replace = requests.accounting(transformations=[rule("gpu", {"credits": "10"}, strategy="Replace")])
    assert charged(retain, asked(gpu="2", cpu="1")) == {"gpu": "2", "cpu": "2", "credits": "20"}
    assert charged(replace, asked(gpu="2", cpu="1")) == {"cpu": "1", "credits": "20"}
    assert charged(replace, asked(cpu="1")) == {"cpu": "1"}


def test_am12_multiply_by_scales_the_outputs_by_another_resource_of_the_same_pod_after_exclusion() -> None:
    by_memory = rule("gpu", {"gpu-memory": "2"}, strategy="Retain", multiply_by="memory")
    accounting = requests.accounting(transformations=[by_memory])
    assert charged(accounting, asked(gpu="3", memory="4")) == {"gpu": "3", "memory": "4", "gpu-memory": "24"}
    assert charged(accounting, asked(gpu="3")) == {"gpu": "3", "gpu-memory": "6"}
    assert charged(accounting.for_queue(["memory"]), asked(gpu="3", memory="4")) == {"gpu": "3", "gpu-memory": "6"}


def test_am12_negative_outputs_never_lower_a_direct_request() -> None:
    accounting = requests.accounting(
        transformations=[rule("widget", {"cpu": "-4"}, "Replace"), rule("socket", {"cpu": "6"}, "Replace")]
    )
    assert charged(accounting, asked(widget="2", socket="1", cpu="3")) == {"cpu": "3"}
    assert charged(accounting, asked(widget="1", socket="1", cpu="3")) == {"cpu": "5"}


def test_am13_the_total_is_in_amounts_times_the_count_never_negative_and_in_visiting_order() -> None:
    figure = {**asked(cpu="100m", memory="1.5", pods="1"), "nvidia.com/gpu": quantity.parse("-2")}
    assert requests.total(figure, 3) == (("memory", 6), ("nvidia.com/gpu", 0), ("pods", 3), ("cpu", 300))
    assert requests.total(asked(memory="9E"), 2) == (("memory", amounts.UNLIMITED),)
    assert requests.total(asked(cpu="1"), 0) == (("cpu", 0),)


def test_am14_placement_uses_the_pods_own_requests_without_transformations() -> None:
    assert requests.in_amounts(asked(cpu="1", memory="1Ki")) == {"cpu": 1000, "memory": 1024}


def test_undeclared_are_resources_with_nonzero_requests_that_are_not_covered() -> None:
    wanted = requests.total(asked(cpu="1", gpu="0", disk="1"), 1)
    assert requests.undeclared(wanted, {"cpu"}) == (("disk", 1),)
    assert requests.undeclared(wanted, {"cpu", "disk"}) == ()


def test_requests_are_shown_in_the_suffixes_of_their_resource() -> None:
    assert requests.shown(requests.total(asked(cpu="1500m", memory="1Gi"), 2)) == {"cpu": "3", "memory": "2Gi"}


# --- Counts -----------------------------------------------------------------------------------------------------------


def test_am15_reclaimable_pods_need_no_quota_and_never_make_it_negative() -> None:
    done = (ReclaimablePod(name="workers", count=3), ReclaimablePod(name="other", count=1))
    assert requests.remaining_count("workers", 5, done) == 2
    assert requests.remaining_count("workers", 2, done) == 0
    assert requests.remaining_count("driver", 1, done) == 1


def test_am16_usage_shrinks_with_reclaimable_pods_and_never_exceeds_what_was_admitted() -> None:
    partial = PodSetAssignment(count=3, resource_usage={"cpu": "3", "memory": "10"})
    assert requests.reserved(partial, 5, 5) == ((("memory", 10), ("cpu", 3000)), 3)
    assert requests.reserved(partial, 5, 2) == ((("memory", 6), ("cpu", 2000)), 2)
    assert requests.reserved(partial, 5, 0) == ((("memory", 0), ("cpu", 0)), 0)
    whole = PodSetAssignment(resource_usage={"cpu": "5"})
    assert requests.reserved(whole, 5, 4) == ((("cpu", 4000),), 4)
    none = PodSetAssignment(count=0, resource_usage={"cpu": "0"})
    assert requests.reserved(none, 0, 0) == ((("cpu", 0),), 0)


def test_am16_a_negative_recorded_amount_is_no_quota_for_others() -> None:
    negative = PodSetAssignment(count=2, resource_usage={"cpu": "-4", "memory": "10"})
    assert requests.reserved(negative, 2, 2) == ((("memory", 10), ("cpu", 0)), 2)
    assert requests.reserved(negative, 2, 1) == ((("memory", 5), ("cpu", 0)), 1)


# --- Validity ---------------------------------------------------------------------------------------------------------


def refused(spec: PodSpec, *ranges: LimitRange) -> tuple[Invalidity, list[str]] | None:
    limits = requests.merge_limit_ranges(ranges)
    refusal = requests.check_pods([PodRequirements(), requests.read(spec, limits=limits)], limits)
    return None if refusal is None else (refusal.why, [error.path for error in refusal.errors])


def test_no_request_is_above_its_limit_in_containers_init_containers_and_the_pod() -> None:
    greedy = container({"cpu": "2", "memory": "1"}, {"cpu": "1", "memory": "1"})
    path = "spec.podSets[1].template.spec"
    assert refused(PodSpec(containers=(cpu("1"), greedy))) == (
        Invalidity.REQUESTS_OVER_LIMITS,
        [f"{path}.containers[1].resources"],
    )
    assert refused(PodSpec(init_containers=(greedy,))) == (
        Invalidity.REQUESTS_OVER_LIMITS,
        [f"{path}.initContainers[0].resources"],
    )
    assert refused(PodSpec(resources=greedy.resources)) == (
        Invalidity.REQUESTS_OVER_LIMITS,
        [f"{path}.resources"],
    )
    assert refused(PodSpec(containers=(container({"cpu": "1"}, {"memory": "1"}),))) is None


def test_containers_stay_between_the_min_and_max_of_the_limit_range() -> None:
    bounds = limit_range(max={"cpu": "2"}, min={"cpu": "500m", "memory": "1"})
    assert refused(PodSpec(containers=(cpu("1"),)), bounds) is None
    for outside in (cpu("3"), cpu("100m"), container({"cpu": "1"}, {"cpu": "3"})):
        found = refused(PodSpec(containers=(outside,)), bounds)
        assert found is not None
        assert found[0] is Invalidity.OUTSIDE_LIMIT_RANGE


def test_the_pods_figure_stays_between_the_min_and_max_of_the_limit_range() -> None:
    bounds = limit_range(type="Pod", max={"cpu": "3"}, min={"cpu": "2"})
    assert refused(PodSpec(containers=(cpu("1"), cpu("1"))), bounds) is None
    for pods in ((cpu("2"), cpu("2")), (cpu("1"),)):
        assert refused(PodSpec(containers=pods), bounds) == (
            Invalidity.OUTSIDE_LIMIT_RANGE,
            ["spec.podSets[1].template.spec"],
        )
    only_max = limit_range(type="Pod", max={"cpu": "3"})
    assert refused(PodSpec(containers=(cpu("4"),)), only_max) is not None
    # What the pod does not ask for violates no minimum.
    assert refused(PodSpec(containers=(container({"memory": "1"}),)), bounds) is None


def test_requests_over_limits_are_reported_before_limit_ranges() -> None:
    greedy = container({"cpu": "9"}, {"cpu": "8"})
    found = refused(PodSpec(containers=(greedy,)), limit_range(max={"cpu": "1"}))
    assert found is not None
    assert found[0] is Invalidity.REQUESTS_OVER_LIMITS


def test_malformed_quantity_is_reported_with_its_field() -> None:
    assert refused(PodSpec(containers=(cpu("many"),), overhead={"cpu": "x"})) == (
        Invalidity.MALFORMED,
        [
            "spec.podSets[1].template.spec.containers[0].resources.requests[cpu]",
            "spec.podSets[1].template.spec.overhead[cpu]",
        ],
    )
    assert requests.merge_limit_ranges([limit_range(max={"cpu": "x"})]) == requests.NO_LIMITS


# --- The recorded cases -----------------------------------------------------------------------------------------------

PLANS = Path(__file__).parents[3] / "shared" / "conformance" / "plan"
FAMILIES = ["pod-shapes", "res-transform", "res-exclude", "quantities", "quantity-spelling", "reclaimable"]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_recorded_reservation_is_charged_what_its_pods_request(family: str) -> None:
    cases = PLANS / f"{family}.jsonl.gz"
    if not cases.exists():
        pytest.skip("the recorded plans are not beside this checkout")
    checked = 0
    with gzip.open(cases) as lines:
        for case in map(msgspec.json.decode, lines):
            objects: dict[str, list[Any]] = defaultdict(list)
            for item in case["case"]["items"]:
                objects[item["kind"]].append(item)
            resources = (objects["Configuration"] or [{}])[0].get("resources") or {}
            settings = msgspec.convert(resources, Resources)
            accounting = requests.accounting(settings.exclude_resource_prefixes, settings.transformations)
            classes = {rc["metadata"]["name"]: msgspec.convert(rc, RuntimeClass) for rc in objects["RuntimeClass"]}
            workloads = {f"{w['metadata']['namespace']}/{w['metadata']['name']}": w for w in objects["Workload"]}
            for key in case["expected"].get("reserved") or ():
                workload = msgspec.convert(workloads[key], Workload)
                ranges = [r for r in objects["LimitRange"] if r["metadata"]["namespace"] == key.split("/")[0]]
                limits = requests.merge_limit_ranges(msgspec.convert(ranges, list[LimitRange]))
                given = {p["name"]: p for p in case["expected"]["assignments"][key]["podSetAssignments"]}
                for pod_set in workload.spec.pod_sets:
                    pod = requests.read(pod_set.template.spec, runtime_classes=classes, limits=limits)
                    assert requests.check_pods([pod], limits) is None
                    assignment = given[pod_set.name]
                    total = dict(requests.total(pod.figure, assignment["count"], accounting))
                    for resource, usage in (assignment.get("resourceUsage") or {}).items():
                        assert total[resource] == amounts.of_request(resource, quantity.parse(usage)), (case["id"], key)
                        checked += 1
    assert checked > 10
