"""What a pod requests, and what quota its pod set is charged for it (rules AM4 to AM22).

A pod's spec is read once (`read`) into `PodRequirements`: exact quantities, with the overhead of its RuntimeClass, the
defaults of the namespace's LimitRanges, and limits in place of missing requests. Its `figure` is what one pod uses on a
node. What quota is charged is computed by an `Accounting`, compiled once for the configuration and a ClusterQueue:
resources are excluded by prefix, others are transformed, and the result is counted in amounts, times the pods.

Nothing here raises because of an object's content. A malformed quantity is an error of the Workload, with its field.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from kubemachinery import quantity
from kubemachinery.field_errors import ErrorType, FieldError
from kubemachinery.quantity import ZERO, Quantity, QuantityError, QuantityText
from pykueue.api.kube import LimitRange, PodSpec, ResourceRequirements, RuntimeClass
from pykueue.api.kueue import PodSetAssignment, ReclaimablePod
from pykueue.core import amounts
from pykueue.core.amounts import Amount
from pykueue.core.resource_order import in_visiting_order

if TYPE_CHECKING:  # `pykueue queue` computes requests, and must not load the scheduler for it
    from pykueue.api.config import ResourceTransformation
    from pykueue.core.workload import Requests

Quantities: TypeAlias = Mapping[str, Quantity]
"""Exact quantities by resource."""

_NONE: Final[Quantities] = {}


def _add(total: dict[str, Quantity], more: Quantities) -> None:
    for resource, requested in more.items():
        total[resource] = total[resource] + requested if resource in total else requested


def _raise_to(total: dict[str, Quantity], least: Quantities) -> None:
    for resource, requested in least.items():
        if resource not in total or total[resource] < requested:
            total[resource] = requested


def _merged(a: Quantities, b: Quantities, choose: Callable[[Quantity, Quantity], Quantity]) -> Quantities:
    return {**b, **{resource: choose(requested, b.get(resource, requested)) for resource, requested in a.items()}}


# --- LimitRanges ------------------------------------------------------------------------------------------------------


class LimitRangeBounds(msgspec.Struct, frozen=True):
    """The combined limits of all LimitRanges of a namespace for one type: containers or pods."""

    max: Quantities = msgspec.field(default_factory=dict)
    min: Quantities = msgspec.field(default_factory=dict)
    default_limits: Quantities = msgspec.field(default_factory=dict)
    default_requests: Quantities = msgspec.field(default_factory=dict)


class LimitRangeSummary(msgspec.Struct, frozen=True):
    """The combined LimitRanges of a namespace, for containers and for pods."""

    container: LimitRangeBounds = LimitRangeBounds()
    pod: LimitRangeBounds = LimitRangeBounds()


NO_LIMITS: Final = LimitRangeSummary()


def merge_limit_ranges(ranges: Iterable[LimitRange]) -> LimitRangeSummary:
    """Combine LimitRanges: the tightest bounds apply, and of several defaults the first by the name of its LimitRange
    ([AM8]). A malformed quantity is ignored.
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


# --- What one pod requests --------------------------------------------------------------------------------------------


class ContainerRequirements(msgspec.Struct, frozen=True):
    """Requests and limits of a container, or of a pod as a whole."""

    path: str
    requests: Quantities
    limits: Quantities
    is_sidecar: bool = False


class PodRequirements(msgspec.Struct, frozen=True):
    """What a pod requests, with the values that its spec leaves to the RuntimeClass and the LimitRanges."""

    containers: tuple[ContainerRequirements, ...] = ()
    init_containers: tuple[ContainerRequirements, ...] = ()
    pod: ContainerRequirements | None = None
    overhead: Quantities = msgspec.field(default_factory=dict)
    malformed: tuple[FieldError, ...] = ()

    @property
    def figure(self) -> Quantities:
        """What one pod uses on a node ([AM4] to [AM6]).

        Containers and sidecars run side by side, so they add up. Init containers run one after another, each beside
        the sidecars that started before it, so the largest sum at any moment counts.
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
            total.update((r, requested) for r, requested in self.pod.requests.items() if _is_pod_level(r))
        _add(total, self.overhead)
        return total


def _is_pod_level(resource: str) -> bool:
    """Whether the resource can be requested for the pod as a whole ([AM5])."""
    return resource in ("cpu", "memory") or resource.startswith("hugepages-")


def read(
    spec: PodSpec, *, runtime_classes: Mapping[str, RuntimeClass] | None = None, limits: LimitRangeSummary = NO_LIMITS
) -> PodRequirements:
    """What a pod with this spec requests in a namespace with these LimitRanges ([AM7] to [AM9])."""
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
        requested = _parsed(given.requests, f"{path}.requests", malformed)
        # Limits come last, so that a namespace's default request beats a container's own limit.
        return ContainerRequirements(path, {**allowed, **bounds.default_requests, **requested}, allowed, is_sidecar)

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


class Exclusion(msgspec.Struct, frozen=True):
    """A resource that is not charged, the prefix that excludes it, and whether that is the ClusterQueue's own
    prefix."""

    resource: str
    prefix: str
    by_queue: bool


class _Transformation(msgspec.Struct, frozen=True):
    multiply_by: str
    outputs: Quantities
    replaces: bool


@dataclass(frozen=True, slots=True)
class Accounting:
    """From what pods request to what quota is charged. Made by `accounting`, refined by `for_queue`."""

    prefixes: tuple[str, ...] = ()
    queue_prefixes: tuple[str, ...] = ()
    transformations: Mapping[str, _Transformation] = field(default_factory=dict)
    # Both lists together, in the form that every request is compared with.
    excluded: tuple[str, ...] = field(init=False, default=())

    def __post_init__(self) -> None:
        object.__setattr__(self, "excluded", self.prefixes + self.queue_prefixes)

    def for_queue(self, prefixes: Iterable[str]) -> Accounting:
        """The same with the prefixes that one ClusterQueue excludes in addition."""
        return replace(self, queue_prefixes=tuple(prefixes))

    def exclusions(self, requested: Iterable[str]) -> tuple[Exclusion, ...]:
        """Which of these resources are excluded and why, for explanations."""
        prefixes = [(p, False) for p in self.prefixes] + [(p, True) for p in self.queue_prefixes]
        found = (
            next((Exclusion(resource, p, by_queue) for p, by_queue in prefixes if resource.startswith(p)), None)
            for resource in sorted(requested)
        )
        return tuple(exclusion for exclusion in found if exclusion is not None)

    def charged(self, requested: Quantities) -> Quantities:
        """What is charged for one pod with these requests ([AM11], [AM12])."""
        if self.excluded:
            requested = {resource: q for resource, q in requested.items() if not resource.startswith(self.excluded)}
        if self.transformations.keys().isdisjoint(requested):
            return requested
        retained: dict[str, Quantity] = {}
        # Summed apart: outputs may cancel each other, but never what was requested directly.
        generated: dict[str, Quantity] = {}
        for resource, q in requested.items():
            rule = self.transformations.get(resource)
            if rule is None or not rule.replaces:
                retained[resource] = q
            if rule is not None:
                base = q.times(requested[rule.multiply_by]) if rule.multiply_by in requested else q
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
"""Everything is charged as it is requested."""


def in_amounts(requested: Quantities) -> dict[str, Amount]:
    """Quantities as amounts, with their sign: what one pod uses on a node, for placement ([AM14])."""
    return {resource: amounts.of_request(resource, q) for resource, q in requested.items()}


def total(requested: Quantities, count: int, accounting: Accounting = PLAIN) -> Requests:
    """What quota is charged for `count` pods with these requests each, in visiting order ([AM10] to [AM13])."""
    charged = in_amounts(accounting.charged(requested))
    return in_visiting_order(
        {resource: amounts.multiply(max(amount, 0), count) for resource, amount in charged.items()}
    )


def undeclared(requests: Requests, declared: Collection[str]) -> Requests:
    """The requests that no resource group covers. A request of zero does not count ([AM21])."""
    return tuple((resource, amount) for resource, amount in requests if amount > 0 and resource not in declared)


def shown(requests: Requests) -> dict[str, QuantityText]:
    """The requests as `status.resourceRequests[].resources` lists them, by name."""
    return {resource: amounts.as_quantity(resource, amount).canonical for resource, amount in sorted(requests)}


# --- How many pods ----------------------------------------------------------------------------------------------------


def remaining_count(name: str, count: int, reclaimable: Iterable[ReclaimablePod]) -> int:
    """The pods of a pod set that still need quota. More pods may be reclaimable than the pod set has left ([AM15])."""
    return count - next((min(done.count, count) for done in reclaimable if done.name == name), 0)


def reserved(assignment: PodSetAssignment, count: int, remaining: int) -> tuple[Requests, int]:
    """What a recorded assignment uses, and for how many pods ([AM16]).

    `count` is that of the pod set, for an assignment without one; `remaining` is its `remaining_count`. Usage shrinks
    with the pods that are reclaimable, and does not grow to pods that were never admitted. A negative amount, as Kueue
    recorded it for negative requests before 0.19.1, would be quota for others: it counts as 0.
    """
    admitted = count if assignment.count is None else assignment.count
    recorded = in_amounts(_readable(assignment.resource_usage))
    usage = in_visiting_order({resource: max(amount, 0) for resource, amount in recorded.items()})
    if remaining >= admitted:
        return usage, admitted
    return tuple((r, amounts.multiply(amount // admitted, remaining)) for r, amount in usage), remaining


# --- Whether it can be admitted at all --------------------------------------------------------------------------------


class Invalidity(StrEnum):
    """Why a Workload is refused before quota is considered, in the order of the checks ([AM22])."""

    MALFORMED = "a quantity cannot be parsed"
    REQUESTS_OVER_LIMITS = "resources validation failed"
    OUTSIDE_LIMIT_RANGE = "resources didn't satisfy LimitRange constraints"


class InvalidRequests(msgspec.Struct, frozen=True):
    """Why a Workload's requests are invalid, with an error for each field."""

    why: Invalidity
    errors: tuple[FieldError, ...]

    def __str__(self) -> str:
        errors = list(dict.fromkeys(map(str, self.errors)))
        listed = errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]"
        return f"{self.why.value}: {listed}"


def check_pods(pod_sets: Sequence[PodRequirements], limits: LimitRangeSummary = NO_LIMITS) -> InvalidRequests | None:
    """Validate what the pods of a Workload request ([AM22], steps 3 to 5). `pod_sets` are in the order of the spec."""
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
    """One error that lists the resources, of those in both, of which `high` has more than `low`, as amounts."""
    more = sorted(r for r in high.keys() & low.keys() if amounts.of_request(r, high[r]) > amounts.of_request(r, low[r]))
    if more:
        yield FieldError(path, ErrorType.INVALID, message, more)
