"""The case of a plan: documents as typed, complete objects, and the settings they are decided under."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from kubemachinery import codec, meta, unstructured
from kubemachinery.errors import UsageError
from kubemachinery.field_errors import FieldError
from kubemachinery.yaml_documents import Document
from pykueue import calendars, settings
from pykueue.analysis.planner import job_numbers
from pykueue.api import config, defaults, extensions, kube, kueue, labels, own_schemas, registry, validation
from pykueue.api.validation.nearest import did_you_mean, field_meant
from pykueue.core import requests
from pykueue.core.policy import SchedulingPolicy
from pykueue.core.topology import PlacementOptions
from pykueue.jobs import offline
from pykueue.jobs.options import IntegrationOptions

# The kinds that scheduling uses. Objects come after those that they refer to, so that every Workload is read under
# its final rules.
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
# The kinds that give jobs their priority.
CLASSES: Final = (kueue.WorkloadPriorityClass, kube.PriorityClass)
# The kinds of `pykueue.io`.
EXTENSIONS: Final = tuple(row.type for row in registry.EXTENSIONS)


class Configured(msgspec.Struct, frozen=True):
    """The settings of a Configuration that affect decisions."""

    policy: SchedulingPolicy
    accounting: requests.Accounting
    profile: PlacementOptions
    jobs: IntegrationOptions = msgspec.field(default_factory=IntegrationOptions)
    # The gates that are on.
    on: frozenset[str] = frozenset()


class Case(msgspec.Struct, frozen=True):
    """The objects of a plan, typed and complete, and the settings they are decided under."""

    configured: Configured
    objects: tuple[msgspec.Struct, ...]
    # Jobs as given. Their Workloads depend on all other objects: see `job_submission`.
    jobs: tuple[Document, ...] = ()
    classes: tuple[kueue.WorkloadPriorityClass | kube.PriorityClass, ...] = ()
    # Ignored objects with the reason: (place, reason).
    passed_over: tuple[tuple[str, str], ...] = ()
    # Unknown fields, which a server drops or refuses: (place, sentence).
    unknown_fields: tuple[tuple[str, str], ...] = ()
    # Objects of Kueue's group that scheduling does not use, as given.
    others: tuple[Document, ...] = ()
    # Objects of `pykueue.io`, typed.
    extensions: tuple[msgspec.Struct, ...] = ()
    # Objects that jobs refer to, as given.
    related: tuple[Document, ...] = ()
    # Limits of the results for this case, a sentence each.
    notices: tuple[str, ...] = ()
    # Whether the settings were given, and are not the default ones.
    is_configured: bool = False

    def with_objects(self, objects: Iterable[msgspec.Struct]) -> Case:
        """The case with other objects and the same settings."""
        return replace(self, objects=tuple(sorted(objects, key=lambda thing: _ORDER[type(thing)])))


def read(documents: Iterable[Document], *, is_stored: bool = False, is_effective: bool = False) -> Case:
    """The case of documents. Lists are flattened; kinds that scheduling does not use are ignored. `is_stored`: a server
    has stored the objects, so that they are complete and valid. `is_effective`: the Configuration is that of a running
    manager, complete and valid."""
    configuration: Configured | None = None
    found = _Found(is_stored=is_stored)
    for number, (source, tree) in enumerate(_flattened(documents), start=1):
        if tree.get("kind") == config.KIND and str(tree.get("apiVersion", "")).startswith(config.GROUP):
            if configuration is not None:
                raise UsageError(f"{source}: a second Configuration; a plan has one")
            configuration = _configuration(tree, source, is_effective=is_effective)
        else:
            found.add(source, _placed(tree, number))
    return Case(
        configuration or _default_configuration(),
        (),
        jobs=tuple(found.jobs),
        classes=tuple(found.classes),
        passed_over=tuple(found.passed_over),
        unknown_fields=tuple(found.unknown_fields),
        others=tuple(found.others),
        extensions=tuple(found.extensions),
        related=tuple(found.related),
        is_configured=configuration is not None,
    ).with_objects(found.objects)


def _default_configuration() -> Configured:
    """Without a Configuration all job kinds are queued."""
    everything = {"integrations": {"frameworks": offline.frameworks()}}
    return _configuration({"apiVersion": config.V1BETA2, "kind": config.KIND, **everything}, "")


def with_used_namespaces(case: Case, change: Case | None = None) -> Case:
    """The case with every namespace that its objects, or those of a change, are in, if it has no Namespace objects.

    Manifests of queues and jobs rarely come with their Namespaces. Without one the namespaces are assumed to exist and
    have the label that the server sets. With one the given Namespaces are all that exist. A namespace that the
    change creates is not assumed.
    """
    if any(isinstance(thing, kube.Namespace) for thing in case.objects):
        return case
    objects = (*case.objects, *(change.objects if change is not None else ()))
    jobs = (*case.jobs, *(change.jobs if change is not None else ()))
    used = {thing.metadata.namespace for thing in objects if registry.ALL.of(type(thing)).namespaced}  # type: ignore[attr-defined]
    used |= {unstructured.text(unstructured.get(job.tree, "metadata", "namespace")) for job in jobs}
    created = {thing.metadata.name for thing in objects if isinstance(thing, kube.Namespace)}
    names = sorted(filter(None, used - created))
    assumed = [meta.ObjectMeta(name=name, labels={labels.NAMESPACE_NAME: name}) for name in names]
    return case.with_objects([*(kube.Namespace(metadata=metadata) for metadata in assumed), *case.objects])


class _Found:
    """The contents of the documents read so far."""

    def __init__(self, *, is_stored: bool) -> None:
        self._is_stored = is_stored
        self.objects: list[msgspec.Struct] = []
        self.jobs: list[Document] = []
        self.classes: list[kueue.WorkloadPriorityClass | kube.PriorityClass] = []
        self.passed_over: list[tuple[str, str]] = []
        self.unknown_fields: list[tuple[str, str]] = []
        self.others: list[Document] = []
        self.extensions: list[msgspec.Struct] = []
        self.related: list[Document] = []
        self._sources: dict[str, str] = {}

    def add(self, source: str, tree: dict[str, Any]) -> None:
        typed, place = typed_of(source, tree, is_stored=self._is_stored), place_of(tree)
        is_job = offline.row_of(tree) is not None
        if typed is None and not is_job and offline.second_kind(tree) is not None:
            self.related.append(Document(source, tree))
            return
        if typed is None and not is_job:
            self.passed_over.append((place, offline.why_not(tree)))
            if str(tree["apiVersion"]).partition("/")[0] == labels.GROUP:
                self.others.append(Document(place, tree))
            return
        if place in self._sources:
            raise UsageError(f"{source}: {place} is already in {self._sources[place]}")
        self._sources[place] = source
        if typed is None or is_job:
            if not self._is_stored:
                _refuse(source, place, list(job_numbers.errors(tree)))
            self.jobs.append(Document(source, tree))
            return
        metadata: meta.ObjectMeta = typed.metadata  # type: ignore[attr-defined]
        if isinstance(typed, CLASSES):
            self.classes.append(typed)
        elif isinstance(typed, EXTENSIONS):
            self.extensions.append(typed)
        else:
            self.objects.append(typed)
        # The server has validated its objects.
        schema = own_schemas.find(tree) if not metadata.resource_version else None
        if schema is not None:
            self.unknown_fields += [
                (place, f"unknown field {path or repr(path)}{field_meant(tree, path)}")
                for path in schema.unknown_fields(tree)
            ]


DEFAULT: Final = "default"


def _placed(tree: dict[str, Any], number: int) -> dict[str, Any]:
    """The object with a name and a namespace, if the server would set them."""
    row = registry.ALL.find(unstructured.text(tree.get("apiVersion")), unstructured.text(tree.get("kind")))
    metadata = tree.get("metadata")
    if not isinstance(metadata, dict):
        return tree
    named = dict(metadata)
    if not named.get("name") and isinstance(named.get("generateName"), str):
        named["name"] = f"{named['generateName']}{number}"
    if row[0].namespaced if row is not None else _is_placed(tree):
        named["namespace"] = named.get("namespace") or DEFAULT
    return {**tree, "metadata": named}


def _is_placed(tree: dict[str, Any]) -> bool:
    """Whether an object that is not of the API of Kueue is one that jobs, or Workloads of jobs, have in a namespace."""
    second = offline.second_kind(tree)
    return offline.row_of(tree) is not None or (second is not None and second.namespaced)


# Gates that plans implement and the manager does not.
_OF_PLANS: Final = frozenset(
    {
        "ClusterQueueExcludeResourcePrefixes",
        "QuotaCheck",
    }
)


def _configuration(tree: dict[str, Any], source: str, *, is_effective: bool = False) -> Configured:
    """The settings of a Configuration. A plan is less strict than a manager's start: it accepts gates that only plans
    implement, and exclusions together with a quota check that makes them ineffective."""
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
    given = {**shown, "resources": resources} if resources else _without(shown, "resources")
    loaded = settings.of_manager(given) if is_effective else settings.load(given, source)
    only_declared = gates.get("QuotaCheck") is True and resources.get("quotaCheck") == config.QuotaCheck.ONLY_DECLARED
    if only_declared:  # KEP-7513: then the exclusion lists do not count
        excluded, extra = [], {**extra, "ClusterQueueExcludeResourcePrefixes": False}
    transformations = loaded.configuration.resources.transformations if loaded.configuration.resources else ()
    accounting = requests.accounting(excluded, transformations)
    if loaded.policy.ignore_undeclared:
        # Kept as the list of each queue: with quota checks for declared resources only, the global list is dropped.
        accounting = requests.accounting((), transformations).for_queue(excluded)
    return Configured(
        policy=replace(
            loaded.policy.with_gates(extra), ignore_undeclared=loaded.policy.ignore_undeclared or only_declared
        ),
        accounting=accounting,
        profile=PlacementOptions.of(loaded.gates),
        jobs=IntegrationOptions.of(loaded.configuration, loaded.gates, loaded.pod_namespace_selector),
        on=frozenset(name for name, is_on in {**loaded.gates, **extra}.items() if is_on),
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


# Refused by a server and accepted here: a flavor with a topology and no node labels selects every node.
_UNDERSTOOD: Final = frozenset({("ResourceFlavor", "spec")})


def typed_of(source: str, tree: dict[str, Any], *, is_stored: bool = False) -> msgspec.Struct | None:
    """The typed object of a tree; None for a kind that scheduling does not use. A stored object in the version of the
    type is taken as it is: to compile the schemas for defaults and validation takes half a second."""
    for name in ("apiVersion", "kind"):
        if not isinstance(tree.get(name), str):
            raise UsageError(f"{source}: has no {name}")
    version, kind = tree["apiVersion"], tree["kind"]
    row = registry.ALL.find(version, kind)
    if row is None and version.partition("/")[0] in (labels.GROUP, extensions.GROUP):
        raise UsageError(f"{source}: {version} has no kind {kind}{_hint(kind)}")
    if row is None or not (row[0].type in _ORDER or row[0].type in CLASSES or row[0].type in EXTENSIONS):
        return None
    if is_stored and row[0].api_version == version:
        return _decoded(source, tree, tree, row[0].type)
    complete = defaults.for_plan(tree)
    if row[0].type is kube.Namespace:
        complete = unstructured.put(complete, ("metadata", "labels", labels.NAMESPACE_NAME), _name(tree))
    errors = validation.structural_errors(complete)
    if row[0].type in EXTENSIONS:
        errors += [*validation.validate_create(complete), *calendars.problems(complete)] if not errors else []
    _refuse(source, f"{kind} {_name(tree)}", [error for error in errors if (kind, error.path) not in _UNDERSTOOD])
    return _decoded(source, tree, complete, row[0].type)


def _decoded(
    source: str, tree: dict[str, Any], complete: dict[str, Any], type_: type[msgspec.Struct]
) -> msgspec.Struct:
    try:
        return codec.from_tree(complete, type_)
    except codec.DecodeError as error:
        raise UsageError(f"{source}: {tree['kind']} {_name(tree)}: {error}") from None


def _hint(kind: str) -> str:
    """A hint for an unknown kind of Kueue's group."""
    versions = [
        f"{row.group}/{version.name}" for row in registry.CUSTOM if row.kind == kind for version in row.versions
    ]
    return f"; {' and '.join(versions)} have" if versions else did_you_mean(kind, [row.kind for row in registry.CUSTOM])


def _refuse(source: str, place: str, errors: list[FieldError]) -> None:
    if errors:
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        raise UsageError(f"{source}: {place}: {errors[0]}{more}")


def _name(tree: dict[str, Any]) -> str:
    return unstructured.text(unstructured.get(tree, "metadata", "name"))


def place_of(tree: dict[str, Any]) -> str:
    """The object of a sentence: Kind namespace/name."""
    named = filter(None, (unstructured.text(unstructured.get(tree, "metadata", "namespace")), _name(tree)))
    return f"{tree.get('kind')} {'/'.join(named)}"
