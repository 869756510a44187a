"""The case of a plan: documents, read into typed and complete objects and the choices they are decided under."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from pykueue import settings
from pykueue.api import codec, config, defaults, kube, kueue, meta, registry, validation
from pykueue.api.errors import FieldError
from pykueue.core import requests
from pykueue.core.policy import Policy
from pykueue.core.topology import Profile
from pykueue.documents import Document
from pykueue.errors import UsageError

# The kinds that have a part in scheduling. What others refer to comes before what refers to it, so that every Workload
# is read under the rules that hold for it.
KINDS: Final[tuple[type[msgspec.Struct], ...]] = (
    kube.Namespace,
    kube.LimitRange,
    kube.RuntimeClass,
    kueue.Topology,
    kueue.ResourceFlavor,
    kueue.AdmissionCheck,
    kueue.Cohort,
    kueue.ClusterQueue,
    kueue.LocalQueue,
    kube.Node,
    kube.Pod,
    kueue.Workload,
)
_ORDER: Final = {kind: place for place, kind in enumerate(KINDS)}


@dataclass(frozen=True, slots=True)
class Configured:
    """What a Configuration means for decisions."""

    policy: Policy
    accounting: requests.Accounting
    profile: Profile


@dataclass(frozen=True, slots=True)
class Case:
    """The objects of a plan, typed and complete, and the choices they are to be decided under."""

    configured: Configured
    objects: tuple[msgspec.Struct, ...]

    def with_objects(self, objects: Iterable[msgspec.Struct]) -> Case:
        """The same choices over other objects."""
        return Case(self.configured, tuple(sorted(objects, key=lambda thing: _ORDER[type(thing)])))


def read(documents: Iterable[Document]) -> Case:
    """The case that documents describe. Lists are taken apart; kinds without a part in scheduling are passed over."""
    configuration: Configured | None = None
    found: list[msgspec.Struct] = []
    names: dict[tuple[type, str, str], str] = {}
    for source, tree in _flattened(documents):
        if tree.get("kind") == config.KIND and str(tree.get("apiVersion", "")).startswith(config.GROUP):
            if configuration is not None:
                raise UsageError(f"{source}: a second Configuration; a plan has one")
            configuration = _configuration(tree, source)
            continue
        typed = _typed(source, tree)
        if typed is None:
            continue
        metadata: meta.ObjectMeta = typed.metadata  # type: ignore[attr-defined]
        name = (type(typed), metadata.namespace, metadata.name)
        if name in names:
            raise UsageError(f"{source}: {tree['kind']} {metadata.name} is already in {names[name]}")
        names[name] = source
        found.append(typed)
    chosen = configuration or _configuration({"apiVersion": config.V1BETA2, "kind": config.KIND}, "")
    return Case(chosen, ()).with_objects(found)


# Gates that only decisions know: the manager cannot be started with them, a plan can be made with them.
_OF_PLANS: Final = frozenset(
    {
        "ClusterQueueExcludeResourcePrefixes",
        "ConcurrentAdmission",
        "MultiKueueOrchestratedPreemption",
        "PrioritizePreemptorWorkloads",
        "QuotaCheck",
    }
)


def _configuration(tree: dict[str, Any], source: str) -> Configured:
    """What the Configuration means here. A plan says what would be decided, so it is less strict than a start: it knows
    gates that only decisions know, and takes exclusions together with a quota check that makes them pointless."""
    asked = tree.get("featureGates")
    gates: dict[str, Any] = asked if isinstance(asked, dict) else {}
    extra = {name: value for name, value in gates.items() if name in _OF_PLANS and isinstance(value, bool)}
    resources = tree.get("resources")
    resources = resources if isinstance(resources, dict) else {}
    excluded = resources.get("excludeResourcePrefixes") or []
    if isinstance(excluded, list) and all(isinstance(prefix, str) for prefix in excluded):
        resources = {name: value for name, value in resources.items() if name != "excludeResourcePrefixes"}
    else:
        excluded = []
    shown = {**tree, "featureGates": {name: value for name, value in gates.items() if name not in extra}}
    loaded = settings.load({**shown, "resources": resources} if resources else _without(shown, "resources"), source)
    only_declared = gates.get("QuotaCheck") is True and resources.get("quotaCheck") == config.QuotaCheck.ONLY_DECLARED
    if only_declared:  # KEP-7513: then the exclusion lists do not count
        excluded, extra = [], {**extra, "ClusterQueueExcludeResourcePrefixes": False}
    transformations = loaded.configuration.resources.transformations if loaded.configuration.resources else ()
    accounting = requests.accounting(excluded, transformations)
    if loaded.policy.ignore_undeclared:
        # Kept as a queue's own list, because a world that looks at declared resources only drops the global one.
        accounting = requests.accounting((), transformations).for_queue(excluded)
    return Configured(
        policy=replace(
            loaded.policy.with_gates(extra), ignore_undeclared=loaded.policy.ignore_undeclared or only_declared
        ),
        accounting=accounting,
        profile=Profile.of(loaded.gates),
    )


def _without(tree: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in tree.items() if key != name}


def _flattened(documents: Iterable[Document]) -> Iterator[Document]:
    for source, tree in documents:
        if not isinstance(tree, dict):
            raise UsageError(f"{source}: is not an object with apiVersion and kind")
        if isinstance(tree.get("items"), list) and str(tree.get("kind", "")).endswith("List"):
            yield from _flattened(Document(f"{source} item {n}", item) for n, item in enumerate(tree["items"], start=1))
        else:
            yield Document(source, tree)


# What a server refuses and a plan can do without: a flavor with a topology and no node labels selects every node.
_UNDERSTOOD: Final = frozenset({("ResourceFlavor", "spec")})


def _typed(source: str, tree: dict[str, Any]) -> msgspec.Struct | None:
    version, kind = tree.get("apiVersion"), tree.get("kind")
    if not isinstance(version, str) or not isinstance(kind, str):
        raise UsageError(f"{source}: has no apiVersion and kind")
    row = registry.ALL.find(version, kind)
    if row is None or row[0].type not in _ORDER:
        return None
    complete = defaults.for_plan(tree)
    errors = validation.structural_errors(complete)
    _refuse(source, kind, tree, [error for error in errors if (kind, error.path) not in _UNDERSTOOD])
    try:
        return codec.from_tree(complete, row[0].type)
    except codec.DecodeError as error:
        raise UsageError(f"{source}: {kind} {_name(tree)}: {error}") from None


def _refuse(source: str, kind: str, tree: dict[str, Any], errors: list[FieldError]) -> None:
    if errors:
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        raise UsageError(f"{source}: {kind} {_name(tree)}: {errors[0]}{more}")


def _name(tree: dict[str, Any]) -> str:
    metadata = tree.get("metadata")
    return str(metadata.get("name", "")) if isinstance(metadata, dict) else ""
