"""v1beta1 <-> v1beta2 of `kueue.x-k8s.io`, on JSON trees. v1beta2 is the hub version.

Most fields are the same in both versions and pass unchanged, as does every field that neither version declares.
What was renamed, retired or added is read from the table of the older version (`kueue_v1beta1.CHANGES`), so that a new
field needs no code here. The few that changed their structure are converted by the functions at the end.

* **A round trip loses no field.** A client that reads and writes v1beta1 would delete every field that v1beta1 does not
  have (preemption gates, concurrent admission …). The conversion to v1beta1 stores those fields in one annotation,
  `KEPT`, and the conversion to v1beta2 restores them where their parent still exists: the pod set, the `spec`. A client
  deletes the fields by removing the annotation. It is never stored: v1beta2 objects do not have it.
* **Fields of the other version are dropped.** `cohortName` in a v1beta1 object is not a field of v1beta1; keeping it
  while the version changes would make it effective. It is dropped, as the schema of v1beta1 prunes it.
* **Fields that v1beta2 retired are converted in one direction**: the plain list of admission checks becomes a strategy,
  `Borrow` and `Preempt` become `MayStopSearch`, a priority class without a source is dropped. v1beta1 then shows the
  newer form, which it has as well. So a second round trip changes nothing.

Any JSON is accepted: a value of an unexpected type passes unchanged, and the schema refuses it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import msgspec

from kubemachinery import unstructured
from kubemachinery.unstructured import ABSENT, Path, Tree
from kubemachinery.versions import FieldRenamed, FieldsAdded, FieldsRemoved
from pykueue.api import kueue, kueue_v1beta1, registry, topology_encoding
from pykueue.api.topology_encoding import EncodedDomain

GROUP: Final = kueue.GROUP
HUB: Final = kueue.VERSION
OLD: Final = kueue_v1beta1.VERSION

# In a v1beta1 object, the fields that only v1beta2 has: a JSON object with the structure of these fields, in which
# lists of named entries are objects by name.
KEPT: Final = "pykueue/v1beta2-fields"

Change = Callable[[Tree], Tree]


class Differences(msgspec.Struct, frozen=True):
    """The differences of one kind between the versions. In a path, `[]` means each named entry of a list."""

    # (v1beta1, v1beta2): the same value under another name.
    renamed: tuple[tuple[Path, Path], ...]
    # Fields of v1beta1 that v1beta2 does not have any more.
    retired: tuple[Path, ...]
    # Fields of v1beta2 that v1beta1 does not have.
    newer: tuple[Path, ...]
    # Conversions that need a function.
    up: tuple[Change, ...]
    down: tuple[Change, ...]


def convert(tree: Tree, to_version: str) -> Tree:
    """`tree` in `to_version` (`v1beta2`, or `kueue.x-k8s.io/v1beta2`); unchanged when `problem` returns a message."""
    if problem(tree, to_version):
        return tree
    wanted = _version(to_version)
    if tree["apiVersion"] == f"{GROUP}/{wanted}":
        return tree
    differences = DIFFERENCES[tree["kind"]]
    converted = _up(tree, differences) if wanted == HUB else _down(tree, differences)
    return {**converted, "apiVersion": f"{GROUP}/{wanted}"}


def problem(tree: object, to_version: str) -> str | None:
    """Why `tree` cannot be had in `to_version`, in a sentence; `None` when it can."""
    kind, api_version = unstructured.get(tree, "kind"), unstructured.get(tree, "apiVersion")
    if not isinstance(kind, str) or kind not in DIFFERENCES:
        return f"kind {kind!r} is not a kind of {GROUP}"
    if api_version not in (f"{GROUP}/{OLD}", f"{GROUP}/{HUB}"):
        return f"{kind} has the apiVersion {api_version!r}, which is neither {GROUP}/{OLD} nor {GROUP}/{HUB}"
    if _version(to_version) not in (OLD, HUB):
        return f"{kind} cannot be had in {to_version!r}, only in {GROUP}/{OLD} and {GROUP}/{HUB}"
    return None


def _version(api_version: str) -> str:
    return api_version.removeprefix(f"{GROUP}/")


def _up(tree: Tree, differences: Differences) -> Tree:
    tree, kept = _take_kept(tree)
    for stray in (*(new for _, new in differences.renamed), *differences.newer):
        tree = _remove(tree, stray)
    for change in differences.up:
        tree = change(tree)
    for old, new in differences.renamed:
        tree = _move(tree, old, new)
    for path in differences.retired:
        tree = _remove(tree, path)
    for path in differences.newer:
        tree = _restore(tree, kept, path)
    return tree


def _down(tree: Tree, differences: Differences) -> Tree:
    for stray in (*(old for old, _ in differences.renamed), *differences.retired):
        tree = _remove(tree, stray)
    for change in differences.down:
        tree = change(tree)
    kept: Tree = {}
    for path in differences.newer:
        part = _pick(tree, path)
        kept = kept if part is ABSENT else _merge(kept, part)
        tree = _remove(tree, path)
    for old, new in differences.renamed:
        tree = _move(tree, new, old)
    return _put_kept(tree, kept) if kept else tree


def _put_kept(tree: Tree, kept: Tree) -> Tree:
    try:
        written = json.dumps(kept, sort_keys=True)
    except RecursionError:
        # Nested deeper than any server accepts, so it is not kept.
        return tree
    return unstructured.put(tree, ("metadata", "annotations", KEPT), written)


def _take_kept(tree: Tree) -> tuple[Tree, Any]:
    """`tree` without the annotation, and the fields in the annotation; none if it cannot be parsed."""
    path = ("metadata", "annotations", KEPT)
    written = unstructured.find(tree, path)
    if written is ABSENT:
        return tree, {}
    tree = unstructured.without(tree, path)
    if not unstructured.get(tree, "metadata", "annotations"):
        tree = unstructured.without(tree, path[:-1])
    try:
        return tree, json.loads(unstructured.text(written))
    except (ValueError, RecursionError):
        return tree, {}


# --- Paths through lists of named things ------------------------------------------------------------------------------

_EACH: Final = "[]"


def _path(*dotted: str) -> Path:
    return tuple(part for place in dotted if place for part in place.replace(_EACH, f".{_EACH}").split("."))


def _move(tree: Tree, source: Path, target: Path) -> Tree:
    value = unstructured.find(tree, source)
    return tree if value is ABSENT else unstructured.put(unstructured.without(tree, source), target, value)


def _remove(tree: Tree, path: Path) -> Tree:
    if _EACH not in path:
        return unstructured.without(tree, path)
    at = path.index(_EACH)
    return unstructured.changed(tree, path[:at], unstructured.each(lambda entry: _remove(entry, path[at + 1 :])))


def _pick(tree: Any, path: Path) -> Any:
    """The value at `path`, inside the part of the tree that is needed to restore it."""
    if not path:
        return tree
    head, rest = path[0], path[1:]
    if head == _EACH:
        found = {
            unstructured.text(entry.get("name")): _pick(entry, rest)
            for entry in map(unstructured.mapping, unstructured.sequence(tree))
        }
        named = {name: part for name, part in found.items() if part is not ABSENT}
        return named or ABSENT
    part = _pick(tree[head], rest) if isinstance(tree, dict) and head in tree else ABSENT
    return part if part is ABSENT else {head: part}


def _merge(first: Tree, second: Tree) -> Tree:
    """Two picked parts merged. They come from different paths, so they overlap in objects only."""
    shared = {key: _merge(first[key], second[key]) for key in first.keys() & second.keys()}
    return {**first, **second, **shared}


def _restore(tree: Any, kept: Any, path: Path) -> Any:
    """`tree` with what `kept` has for `path`, wherever the place for it still exists; what is there already wins."""
    head, rest = path[0], path[1:]
    if head == _EACH:
        return unstructured.each(lambda entry: _restore_named(entry, kept, rest))(tree)
    if not isinstance(tree, dict) or head not in unstructured.mapping(kept):
        return tree
    if rest:
        return {**tree, head: _restore(tree[head], kept[head], rest)} if head in tree else tree
    both = head in tree and isinstance(tree[head], dict) and isinstance(kept[head], dict)
    return {**tree, head: {**kept[head], **tree[head]}} if both else {head: kept[head], **tree}


def _restore_named(entry: Tree, kept: Any, path: Path) -> Tree:
    part = unstructured.mapping(kept).get(unstructured.text(entry.get("name")), ABSENT)
    restored: Tree = entry if part is ABSENT else _restore(entry, part, path)
    return restored


# --- ClusterQueue -----------------------------------------------------------------------------------------------------

_STRATEGY: Final = _path("spec.admissionChecksStrategy")
_CHECKS: Final = _path("spec.admissionChecks")
_RETIRED_WORDS: Final = {"whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt"}


def _checks_as_strategy(tree: Tree) -> Tree:
    """A plain list of checks becomes a strategy with rules for every flavor; where both are set, the list wins."""
    checks = unstructured.sequence(unstructured.find(tree, _CHECKS))
    rules = [{"name": name} for name in checks]
    return unstructured.put(tree, _STRATEGY, {"admissionChecks": rules}) if rules else tree


def _fungibility_in_new_words(tree: Tree) -> Tree:
    for field, retired in _RETIRED_WORDS.items():
        path = ("spec", "flavorFungibility", field)
        if unstructured.get(tree, *path) == retired:
            tree = unstructured.put(tree, path, "MayStopSearch")
    return tree


# --- Workload ---------------------------------------------------------------------------------------------------------

# (priorityClassSource, group, kind)
_PRIORITY_CLASSES: Final = (
    ("kueue.x-k8s.io/workloadpriorityclass", "kueue.x-k8s.io", "WorkloadPriorityClass"),
    ("scheduling.k8s.io/priorityclass", "scheduling.k8s.io", "PriorityClass"),
)
_CLASS_REF: Final = _path("spec.priorityClassRef")
_CLASS_NAME: Final = _path("spec.priorityClassName")
_CLASS_SOURCE: Final = _path("spec.priorityClassSource")
_ASSIGNMENTS: Final = _path("status.admission.podSetAssignments")


def _priority_class_as_reference(tree: Tree) -> Tree:
    source, name = unstructured.find(tree, _CLASS_SOURCE), unstructured.find(tree, _CLASS_NAME)
    for known, group, kind in _PRIORITY_CLASSES:
        if source == known and name is not ABSENT:
            tree = unstructured.put(tree, _CLASS_REF, {"group": group, "kind": kind, "name": name})
    return tree


def _priority_class_as_name(tree: Tree) -> Tree:
    reference = unstructured.get(tree, *_CLASS_REF)
    for source, group, kind in _PRIORITY_CLASSES:
        if (unstructured.get(reference, "group"), unstructured.get(reference, "kind")) == (
            group,
            kind,
        ) and "name" in reference:
            tree = unstructured.put(tree, _CLASS_NAME, reference["name"])
            tree = unstructured.put(tree, _CLASS_SOURCE, source)
            tree = unstructured.without(tree, _CLASS_REF)
    return tree


def _pods_in_full(tree: Tree) -> Tree:
    """Kueue converts pods with Kubernetes' types, which write two of their fields even when they are empty."""
    containers = unstructured.each(lambda container: {"resources": {}, **container})

    def in_full(template: Any) -> Any:
        if not isinstance(template, dict):
            return template
        for field in ("initContainers", "containers"):
            template = unstructured.changed(template, ("spec", field), containers)
        return {"metadata": {}, **template}

    pod_set = unstructured.each(lambda entry: unstructured.changed(entry, ("template",), in_full))
    return unstructured.changed(tree, ("spec", "podSets"), pod_set)


def _topology_assignments(change: Change) -> Change:
    one = unstructured.each(
        lambda assignment: unstructured.changed(assignment, ("topologyAssignment",), _if_object(change))
    )
    return lambda tree: unstructured.changed(tree, _ASSIGNMENTS, one)


def _if_object(change: Change) -> Callable[[Any], Any]:
    return lambda value: change(value) if isinstance(value, dict) else value


def _domains_as_slices(assignment: Tree) -> Tree:
    levels, domains = _read_domains(assignment)
    if domains is None:
        return assignment
    rest = {key: value for key, value in assignment.items() if key != "domains"}
    return {**rest, **topology_encoding.encode(levels, domains)}


def _slices_as_domains(assignment: Tree) -> Tree:
    domains = topology_encoding.decode(assignment)
    if domains is None:
        return assignment
    rest = {key: value for key, value in assignment.items() if key != "slices"}
    return {**rest, "domains": [{"values": list(domain.values), "count": domain.pods} for domain in domains]}


def _read_domains(assignment: Tree) -> tuple[list[str], list[EncodedDomain] | None]:
    levels = assignment.get("levels")
    written = assignment.get("domains")
    if not isinstance(levels, list) or not isinstance(written, list):
        return [], None
    domains = []
    for entry in map(unstructured.mapping, written):
        values, pods = unstructured.sequence(entry.get("values")), unstructured.integer(entry.get("count"))
        if pods is None or len(values) != len(levels) or not all(isinstance(value, str) for value in values):
            return [], None
        domains.append(EncodedDomain(tuple(values), pods))
    return levels, domains


# --- MultiKueueCluster ------------------------------------------------------------------------------------------------

_CLUSTER_SOURCE: Final = _path("spec.clusterSource")
_CLUSTER_SOURCES: Final = ("kubeConfig", "clusterProfileRef")


def _one_cluster_source(tree: Tree) -> Tree:
    """Both ways to reach a cluster move under `clusterSource`. v1beta1 demands a kubeConfig; an empty one is none."""
    given = {field: unstructured.find(tree, ("spec", field)) for field in _CLUSTER_SOURCES}
    if all(value is ABSENT for value in given.values()):
        return tree
    if unstructured.get(given["kubeConfig"], "location") == "":
        given["kubeConfig"] = ABSENT
    return unstructured.put(
        tree, _CLUSTER_SOURCE, {field: value for field, value in given.items() if value is not ABSENT}
    )


def _flat_cluster_source(tree: Tree) -> Tree:
    source = unstructured.get(tree, *_CLUSTER_SOURCE)
    if not isinstance(source, dict):
        return tree
    rest = {field: value for field, value in source.items() if field not in _CLUSTER_SOURCES}
    tree = unstructured.put(tree, _CLUSTER_SOURCE, rest) if rest else unstructured.without(tree, _CLUSTER_SOURCE)
    given = {"kubeConfig": {"location": "", "locationType": "Secret"}, **source}
    for field in _CLUSTER_SOURCES:
        if field in given:
            tree = unstructured.put(tree, ("spec", field), given[field])
    return tree


# --- The table --------------------------------------------------------------------------------------------------------

# The kinds that changed their shape: what to do on the way up, and on the way down.
_RESHAPED: Final[dict[str, tuple[tuple[Change, ...], tuple[Change, ...]]]] = {
    "ClusterQueue": ((_checks_as_strategy, _fungibility_in_new_words), ()),
    "MultiKueueCluster": ((_one_cluster_source,), (_flat_cluster_source,)),
    "Workload": (
        (_priority_class_as_reference, _topology_assignments(_domains_as_slices), _pods_in_full),
        (_priority_class_as_name, _topology_assignments(_slices_as_domains), _pods_in_full),
    ),
}


def _differences(kind: str) -> Differences:
    changes = kueue_v1beta1.CHANGES.get(kind, ())
    renamed = [change for change in changes if isinstance(change, FieldRenamed)]
    up, down = _RESHAPED.get(kind, ((), ()))
    return Differences(
        renamed=tuple((_path(change.place.rpartition(".")[0], change.name), _path(change.place)) for change in renamed),
        retired=tuple(
            _path(change.place, field.encode_name)
            for change in changes
            if isinstance(change, FieldsAdded)
            for field in msgspec.structs.fields(change.fields)
        ),
        newer=tuple(
            _path(change.place, name)
            for change in changes
            if isinstance(change, FieldsRemoved)
            for name in change.names
        ),
        up=up,
        down=down,
    )


DIFFERENCES: Final[dict[str, Differences]] = {row.kind: _differences(row.kind) for row in registry.KUEUE}
