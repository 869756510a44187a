"""What a pod asks for, and what its pod set is charged for it (scheduling rules AM4 to AM19, and §1.10).

A pod's spec is read once (`read`) into `PodNeeds`: exact quantities, with the overhead of its RuntimeClass, the
defaults of the namespace's LimitRanges, and limits standing in for missing requests. Its `figure` is what one pod takes
on a node. What quota is charged goes through an `Accounting`, compiled once for the configuration and a queue:
resources are left out by prefix, others are turned into something else, and all of it is counted in amounts, times the
pods.

Nothing here raises on what an object says. A quantity that is none is a problem of the Workload, told with its field.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, TypeAlias

from kubemachinery import quantity
from kubemachinery.field_errors import ErrorType, FieldError
from kubemachinery.quantity import ZERO, Quantity, QuantityError, QuantityText
from pykueue.api.config import ResourceTransformation
from pykueue.api.kube import LimitRange, PodSpec, ResourceRequirements, RuntimeClass
from pykueue.api.kueue import PodSetAssignment, ReclaimablePod
from pykueue.core import amounts
from pykueue.core.amounts import Amount
from pykueue.core.ordering import in_visiting_order
from pykueue.core.workload import Requests

Quantities: TypeAlias = Mapping[str, Quantity]
"""Exact quantities by resource."""

_NONE: Final[Quantities] = {}


def _add(total: dict[str, Quantity], more: Quantities) -> None:
    for resource, asked in more.items():
        total[resource] = total[resource] + asked if resource in total else asked


def _raise_to(total: dict[str, Quantity], least: Quantities) -> None:
    for resource, asked in least.items():
        if resource not in total or total[resource] < asked:
            total[resource] = asked


def _merged(a: Quantities, b: Quantities, choose: Callable[[Quantity, Quantity], Quantity]) -> Quantities:
    return {**b, **{resource: choose(asked, b.get(resource, asked)) for resource, asked in a.items()}}


# --- LimitRanges ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LimitRangeBounds:
    """What all LimitRanges of a namespace together say of one sort of thing."""

    max: Quantities = field(default_factory=dict)
    min: Quantities = field(default_factory=dict)
    default_limits: Quantities = field(default_factory=dict)
    default_requests: Quantities = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LimitRangeSummary:
    """What a namespace's LimitRanges say of containers and of pods."""

    container: LimitRangeBounds = LimitRangeBounds()
    pod: LimitRangeBounds = LimitRangeBounds()


NO_LIMITS: Final = LimitRangeSummary()


def merge_limit_ranges(ranges: Iterable[LimitRange]) -> LimitRangeSummary:
    """[AM8] Of several, the tightest bounds hold, and of several defaults the first by the name of its LimitRange.

    A quantity that is none is passed over: a LimitRange that nobody can read binds nobody.
    """
    merged = {"Container": LimitRangeBounds(), "Pod": LimitRangeBounds()}
    for item in (i for r in sorted(ranges, key=lambda r: r.metadata.name) for i in r.spec.limits if i.type in merged):
        before = merged[item.type]
        merged[item.type] = LimitRangeBounds(
            max=_merged(before.max, _readable(item.max), min),
            min=_merged(before.min, _readable(item.min), max),
            default_limits={**_readable(item.default), **before.default_limits},
            default_requests={**_readable(item.default_request), **before.default_requests},
        )
    return LimitRangeSummary(merged["Container"], merged["Pod"])


def _readable(texts: Mapping[str, QuantityText]) -> Quantities:
    return _parsed(texts, "", [])


# --- What one pod asks for --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ContainerRequirements:
    """Requests and limits of a container, or of a pod as a whole."""

    path: str
    requests: Quantities
    limits: Quantities
    is_sidecar: bool = False


@dataclass(frozen=True, slots=True)
class PodRequirements:
    """What a pod asks for, with everything filled in that its spec leaves to others."""

    containers: tuple[ContainerRequirements, ...] = ()
    init_containers: tuple[ContainerRequirements, ...] = ()
    pod: ContainerRequirements | None = None
    overhead: Quantities = field(default_factory=dict)
    malformed: tuple[FieldError, ...] = ()

    @property
    def figure(self) -> Quantities:
        """[AM4] to [AM6] What one pod takes on a node.

        Containers and sidecars run side by side, so they add up. Init containers run one after another, each beside
        the sidecars that started before it, so the neediest moment counts.
        """
        total: dict[str, Quantity] = {}
        sidecars: dict[str, Quantity] = {}
        peak: dict[str, Quantity] = {}
        for container in self.containers:
            _add(total, container.requests)
        for container in self.init_containers:
            if container.is_sidecar:
                _add(total, container.requests)
                _add(sidecars, container.requests)
                _raise_to(peak, sidecars)
            else:
                moment = dict(container.requests)
                _add(moment, sidecars)
                _raise_to(peak, moment)
        _raise_to(total, peak)
        if self.pod is not None:
            total.update((r, asked) for r, asked in self.pod.requests.items() if _is_pod_level(r))
        _add(total, self.overhead)
        return total


def _is_pod_level(resource: str) -> bool:
    """[AM5] The resources for which a pod can speak as a whole."""
    return resource in ("cpu", "memory") or resource.startswith("hugepages-")


def read(
    spec: PodSpec, *, runtime_classes: Mapping[str, RuntimeClass] | None = None, limits: LimitRangeSummary = NO_LIMITS
) -> PodRequirements:
    """[AM7] to [AM9] What a pod with this spec asks for in a namespace with these limits."""
    malformed: list[FieldError] = []
    overhead = spec.overhead
    if spec.runtime_class_name is not None and not overhead:
        runtime = (runtime_classes or {}).get(spec.runtime_class_name)
        overhead = runtime.overhead.pod_fixed if runtime is not None and runtime.overhead is not None else {}

    def needs(
        path: str, given: ResourceRequirements, bounds: LimitRangeBounds, is_sidecar: bool = False
    ) -> ContainerRequirements:
        own = _parsed(given.limits, f"{path}.limits", malformed)
        allowed = {**bounds.default_limits, **own}
        asked = _parsed(given.requests, f"{path}.requests", malformed)
        # Limits come last, so that a namespace's default request beats a container's own limit.
        return ContainerRequirements(path, {**allowed, **bounds.default_requests, **asked}, allowed, is_sidecar)

    return PodRequirements(
        containers=tuple(
            needs(f"containers[{i}].resources", c.resources, limits.container) for i, c in enumerate(spec.containers)
        ),
        init_containers=tuple(
            needs(f"initContainers[{i}].resources", c.resources, limits.container, c.restart_policy == "Always")
            for i, c in enumerate(spec.init_containers)
        ),
        pod=needs("resources", spec.resources, limits.pod) if spec.resources is not None else None,
        overhead=_parsed(overhead, "overhead", malformed),
        malformed=tuple(malformed),
    )


def _parsed(texts: Mapping[str, QuantityText], path: str, malformed: list[FieldError]) -> dict[str, Quantity]:
    read: dict[str, Quantity] = {}
    for resource, text in texts.items():
        try:
            read[resource] = quantity.parse(text)
        except QuantityError as error:
            malformed.append(FieldError(f"{path}[{resource}]", ErrorType.INVALID, str(error), text))
    return read


# --- What quota is charged --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Exclusion:
    """A resource that is not charged, the prefix that says so, and whether the queue's own list has it."""

    resource: str
    prefix: str
    by_queue: bool


@dataclass(frozen=True, slots=True)
class _Transformation:
    multiply_by: str
    outputs: Quantities
    replaces: bool


@dataclass(frozen=True, slots=True)
class Accounting:
    """From what pods ask for to what quota is charged. Made by `accounting`, refined by `for_queue`."""

    prefixes: tuple[str, ...] = ()
    queue_prefixes: tuple[str, ...] = ()
    transformations: Mapping[str, _Transformation] = field(default_factory=dict)
    # Both lists together, in the form that every request is compared with.
    excluded: tuple[str, ...] = field(init=False, default=())

    def __post_init__(self) -> None:
        object.__setattr__(self, "excluded", self.prefixes + self.queue_prefixes)

    def for_queue(self, prefixes: Iterable[str]) -> Accounting:
        """The same with the prefixes that one ClusterQueue leaves out besides."""
        return replace(self, queue_prefixes=tuple(prefixes))

    def exclusions(self, asked: Iterable[str]) -> tuple[Exclusion, ...]:
        """Which of these resources are left out and why, for whoever explains it."""
        prefixes = [(p, False) for p in self.prefixes] + [(p, True) for p in self.queue_prefixes]
        found = (
            next((Exclusion(resource, p, by_queue) for p, by_queue in prefixes if resource.startswith(p)), None)
            for resource in sorted(asked)
        )
        return tuple(exclusion for exclusion in found if exclusion is not None)

    def charged(self, asked: Quantities) -> Quantities:
        """[AM11], [AM12] What is charged for one pod that asks for this."""
        if self.excluded:
            asked = {resource: q for resource, q in asked.items() if not resource.startswith(self.excluded)}
        if self.transformations.keys().isdisjoint(asked):
            return asked
        retained: dict[str, Quantity] = {}
        # Kept apart until all of it is known: outputs may cancel each other, but never what was asked for directly.
        generated: dict[str, Quantity] = {}
        for resource, q in asked.items():
            rule = self.transformations.get(resource)
            if rule is None or not rule.replaces:
                retained[resource] = q
            if rule is not None:
                base = q.times(asked[rule.multiply_by]) if rule.multiply_by in asked else q
                _add(generated, {output: base.times(factor) for output, factor in rule.outputs.items()})
        _add(retained, {resource: max(q, ZERO) for resource, q in generated.items()})
        return retained


def accounting(prefixes: Iterable[str] = (), transformations: Iterable[ResourceTransformation] = ()) -> Accounting:
    """The accounting of a configuration, whose quantities have been checked."""
    return Accounting(
        tuple(prefixes),
        (),
        {
            rule.input: _Transformation(
                rule.multiply_by,
                {output: quantity.parse(factor) for output, factor in rule.outputs.items()},
                rule.strategy == "Replace",
            )
            for rule in transformations
        },
    )


PLAIN: Final = Accounting()
"""Everything is charged as it is asked for."""


def in_amounts(asked: Quantities) -> dict[str, Amount]:
    """Quantities as amounts, with their sign: what one pod takes on a node, for placement [AM14]."""
    return {resource: amounts.of_request(resource, q) for resource, q in asked.items()}


def total(asked: Quantities, count: int, accounting: Accounting = PLAIN) -> Requests:
    """[AM10] to [AM13] What quota is charged for `count` pods that ask for this each, in the order of visiting."""
    charged = in_amounts(accounting.charged(asked))
    return in_visiting_order(
        {resource: amounts.multiply(max(amount, 0), count) for resource, amount in charged.items()}
    )


def undeclared(requests: Requests, declared: Collection[str]) -> Requests:
    """§1.8 What is asked for and no resource group covers. To ask for nothing of a resource is not to ask for it."""
    return tuple((resource, amount) for resource, amount in requests if amount > 0 and resource not in declared)


def shown(requests: Requests) -> dict[str, QuantityText]:
    """The requests as `status.resourceRequests[].resources` lists them, by name."""
    return {resource: amounts.as_quantity(resource, amount).canonical for resource, amount in sorted(requests)}


# --- How many pods ----------------------------------------------------------------------------------------------------


def remaining_count(name: str, count: int, reclaimable: Iterable[ReclaimablePod]) -> int:
    """[AM15] The pods of a set that still need their quota. More may be reclaimable than the set has left."""
    return count - next((min(done.count, count) for done in reclaimable if done.name == name), 0)


def reserved(assignment: PodSetAssignment, count: int, remaining: int) -> tuple[Requests, int]:
    """[AM16] What a recorded assignment uses, and for how many pods.

    `count` is the pod set's own, for an assignment that names none; `remaining` is its `remaining_count`. Usage shrinks
    with the pods that are done, and does not grow back to pods that were never admitted.
    """
    admitted = count if assignment.count is None else assignment.count
    usage = in_visiting_order(in_amounts(_readable(assignment.resource_usage)))
    if remaining >= admitted:
        return usage, admitted
    return tuple((r, amounts.multiply(amount // admitted, remaining)) for r, amount in usage), remaining


# --- Whether it can be admitted at all --------------------------------------------------------------------------------


class Invalidity(StrEnum):
    """Why a Workload is refused before anybody looks for quota (§1.10), in the order of looking."""

    MALFORMED = "a quantity cannot be read"
    REQUESTS_OVER_LIMITS = "resources validation failed"
    OUTSIDE_LIMIT_RANGE = "resources didn't satisfy LimitRange constraints"


@dataclass(frozen=True, slots=True)
class InvalidRequests:
    """What is wrong, in one word for programs and in words for people, with the fields concerned."""

    why: Invalidity
    errors: tuple[FieldError, ...]

    def __str__(self) -> str:
        errors = list(dict.fromkeys(map(str, self.errors)))
        listed = errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]"
        return f"{self.why.value}: {listed}"


def check_pods(pod_sets: Sequence[PodRequirements], limits: LimitRangeSummary = NO_LIMITS) -> InvalidRequests | None:
    """§1.10, 3 and 4: what the pods of a Workload ask for is in order. `pod_sets` are in the order of the spec."""
    checks: tuple[tuple[Invalidity, Callable[[PodRequirements], Iterable[FieldError]]], ...] = (
        (Invalidity.MALFORMED, lambda pod: pod.malformed),
        (Invalidity.REQUESTS_OVER_LIMITS, _over_limits),
        (Invalidity.OUTSIDE_LIMIT_RANGE, lambda pod: _outside(pod, limits)),
    )
    for why, check in checks:
        errors = tuple(
            _seen_from(f"spec.podSets[{index}].template.spec", error)
            for index, pod in enumerate(pod_sets)
            for error in check(pod)
        )
        if errors:
            return InvalidRequests(why, errors)
    return None


def _seen_from(above: str, error: FieldError) -> FieldError:
    return FieldError(f"{above}.{error.path}" if error.path else above, error.type, error.message, error.value)


def _over_limits(pod: PodRequirements) -> Iterator[FieldError]:
    for needs in (*pod.init_containers, *pod.containers, *([pod.pod] if pod.pod is not None else [])):
        yield from _above(needs.path, needs.requests, needs.limits, "requests must not exceed its limits")


def _outside(pod: PodRequirements, limits: LimitRangeSummary) -> Iterator[FieldError]:
    for needs in (*pod.init_containers, *pod.containers):
        most = _merged(needs.requests, needs.limits, max)
        least = _merged(needs.requests, needs.limits, min)
        yield from _above(needs.path, most, limits.container.max, "requests must not be above the limitRange max")
        yield from _above(needs.path, limits.container.min, least, "requests must not be below the limitRange min")
    if limits.pod.max or limits.pod.min:
        figure = pod.figure
        yield from _above("", figure, limits.pod.max, "requests must not be above the limitRange max")
        yield from _above("", limits.pod.min, figure, "requests must not be below the limitRange min")


def _above(path: str, high: Quantities, low: Quantities, message: str) -> Iterator[FieldError]:
    """One error that names the resources of which there is more in `high` than in `low`, as amounts, in both."""
    more = sorted(r for r in high.keys() & low.keys() if amounts.of_request(r, high[r]) > amounts.of_request(r, low[r]))
    if more:
        yield FieldError(path, ErrorType.INVALID, message, more)
