"""CustomResourceDefinitions: checked, accepted, and served from the moment they are stored.

The CRD kind is one of the built-in resources; this module gives it its rules. A CRD gets its status in the write that
stores it, and the registry learns of it in the same turn in which watchers do: whoever reads `Established` finds the
paths and the discovery there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any, Final

import msgspec

from pykueue.api import meta, structural
from pykueue.api.errors import ErrorSort, FieldError
from pykueue.apiserver import limits, metadata, scale
from pykueue.apiserver.apply import Shape
from pykueue.apiserver.entries import Change
from pykueue.apiserver.jsonpath import PathError, compile_path
from pykueue.apiserver.objects import Objects
from pykueue.apiserver.registry import Convert, Registry, swap_version
from pykueue.apiserver.store import Key, Op
from pykueue.apiserver.strategy import ALL_VERBS, Column, Resource, Rules, Scaling, Tree
from pykueue.clock import Clock

log = logging.getLogger(__name__)

GROUP: Final = "apiextensions.k8s.io"
PLURAL: Final = "customresourcedefinitions"
RESOURCE: Final = f"{PLURAL}.{GROUP}"
CLEANUP: Final = "customresourcecleanup.apiextensions.k8s.io"

_COLUMN_TYPES: Final = ("integer", "number", "string", "boolean", "date")
_FIXED: Final = ("group", "scope", "names.plural", "names.kind")


class CustomResources:
    """Turns CRDs into served resources. `conversions` has the groups whose versions this process converts itself."""

    def __init__(self, objects: Objects, clock: Clock, conversions: Mapping[str, Convert]) -> None:
        self._objects = objects
        self._clock = clock
        self._conversions = conversions
        self._registry: Registry | None = None
        # What is served for each CRD at present, as bytes of its spec.
        self._served: dict[str, bytes] = {}
        self._trusts = False

    def kind(self, base: Resource) -> Resource:
        """The CRD kind itself, with the rules of this module behind those that it has."""
        rules = replace(
            base.rules,
            on_create=_both(base.rules.on_create, self._on_create),
            on_update=_both(base.rules.on_update, self._on_update),
            validate=self._with_checks(base.rules.validate),
        )
        return replace(base, rules=rules)

    def start(self, registry: Registry) -> None:
        """Serve what is stored, and follow what changes."""
        self._registry = registry
        collection = self._objects.collection(RESOURCE)
        for entry in collection:
            try:
                self._serve(msgspec.json.decode(entry.body), entry.revision)
            except Exception:
                # Stored by another version of this program, or by hand: the rest is served all the same.
                log.exception("the CRD %s cannot be served", entry.key.name)
        collection.listeners[self._notice] = None

    @contextmanager
    def trusting(self) -> Iterator[None]:
        """Take schemas unread: those that the program brings itself are read by its tests, not at every first start."""
        self._trusts = True
        try:
            yield
        finally:
            self._trusts = False

    # --- Status, in the same write ------------------------------------------------------------------------------------

    def _on_create(self, tree: Tree) -> None:
        _complete_names(tree)
        details = tree["metadata"]
        details["finalizers"] = [*(f for f in details.get("finalizers", ()) if f != CLEANUP), CLEANUP]
        tree["status"] = self._status(tree, {})

    def _on_update(self, new: Tree, old: Tree) -> None:
        _complete_names(new)
        new["status"] = self._status(new, old.get("status") or {})

    def _status(self, tree: Tree, before: Tree) -> Tree:
        spec = tree.get("spec") or {}
        names, versions = spec.get("names") or {}, spec.get("versions") or []
        clash = self._clash(tree["metadata"].get("name", ""), spec)
        stored = list(before.get("storedVersions") or [])
        for version in versions if isinstance(versions, list) else []:
            if isinstance(version, dict) and version.get("storage") and version.get("name") not in stored:
                stored.append(version.get("name"))
        accepted = before.get("acceptedNames") if clash else names
        conditions = [
            _condition("NamesAccepted", not clash, *(("NamesConflict", clash) if clash else _NO_CONFLICT)),
            _condition("Established", not clash, *(_NOT_ACCEPTED if clash else _ESTABLISHED)),
        ]
        if tree["metadata"].get("deletionTimestamp"):
            conditions.append(
                _condition("Terminating", True, "InstanceDeletionInProgress", "its objects are being deleted")
            )
        now = meta.format_time(self._clock.now())
        known = {one.get("type"): one for one in before.get("conditions") or [] if isinstance(one, dict)}
        for one in conditions:
            earlier = known.get(one["type"], {})
            same = earlier.get("status") == one["status"] and earlier.get("lastTransitionTime")
            one["lastTransitionTime"] = earlier["lastTransitionTime"] if same else now
        return {
            "acceptedNames": accepted or {"plural": "", "kind": ""},
            "conditions": conditions,
            "storedVersions": stored,
        }

    def _clash(self, own: str, spec: Tree) -> str:
        """Which other CRD of the group already has one of the names; "" where none has."""
        names = spec.get("names") or {}
        wanted = _all_names(names)
        for entry in self._objects.collection(RESOURCE):
            if entry.key.name == own:
                continue
            other = msgspec.json.decode(entry.body)
            if other["spec"].get("group") != spec.get("group"):
                continue
            taken = _all_names((other.get("status") or {}).get("acceptedNames") or {})
            for name in wanted:
                if name in taken:
                    return f'"{name}" is already in use by {entry.key.name}'
        return ""

    # --- Serving ------------------------------------------------------------------------------------------------------

    def _notice(self, change: Change) -> None:
        if change.op is Op.DELETED:
            self._withdraw(change.entry.key.name)
        else:
            self._serve(msgspec.json.decode(change.entry.body), change.revision)

    def _serve(self, tree: Tree, revision: int) -> None:
        name = tree["metadata"]["name"]
        established = any(
            one.get("type") == "Established" and one.get("status") == "True"
            for one in (tree.get("status") or {}).get("conditions") or []
        )
        if not established or self._registry is None:
            self._withdraw(name)
            return
        leaving = bool(tree["metadata"].get("deletionTimestamp"))
        # What decides how a CRD is served. A change of its labels must not end everybody's watches.
        essence = msgspec.json.encode([tree["spec"], leaving])
        if self._served.get(name) == essence:
            return
        self._served[name] = essence
        spec = tree["spec"]
        resources = [
            _resource(spec, version, revision, leaving=leaving)
            for version in spec["versions"]
            if version.get("served", True)
        ]
        convert = self._conversions.get(spec["group"])
        self._registry.serve(name, resources, _certain(convert) if convert else swap_version)
        self._registry.stop_watches(name)

    def _withdraw(self, name: str) -> None:
        if self._served.pop(name, None) is not None and self._registry is not None:
            self._registry.withdraw(name)
            self._registry.stop_watches(name)

    # --- Checks -------------------------------------------------------------------------------------------------------

    def _with_checks(
        self, base: Callable[[Tree, Tree | None, str], Sequence[FieldError]]
    ) -> Callable[[Tree, Tree | None, str], Sequence[FieldError]]:
        def validate(new: Tree, old: Tree | None, subresource: str) -> Sequence[FieldError]:
            # The server's own finalizer has a name of the old sort, without a '/', which only it may use.
            found = [error for error in base(new, old, subresource) if error.value != CLEANUP]
            return found or list(self._check(new, old))

        return validate

    def _check(self, new: Tree, old: Tree | None) -> Iterator[FieldError]:
        spec = new.get("spec")
        if not isinstance(spec, dict):
            yield FieldError("spec", ErrorSort.REQUIRED, "")
            return
        if old is not None and spec == old.get("spec"):
            return
        yield from _check_names(new, spec)
        versions = spec.get("versions")
        if not isinstance(versions, list) or not versions:
            yield FieldError("spec.versions", ErrorSort.REQUIRED, "there must be at least one version")
            return
        yield from _check_versions(versions)
        for index, version in enumerate(versions):
            yield from _check_version(version, f"spec.versions[{index}]", reads=not self._trusts)
        yield from self._check_conversion(spec, versions)
        if old is not None:
            yield from _check_fixed(new, old)

    def _check_conversion(self, spec: Tree, versions: list[Any]) -> Iterator[FieldError]:
        strategy = (spec.get("conversion") or {}).get("strategy", "None")
        if strategy not in ("None", "Webhook"):
            yield FieldError("spec.conversion.strategy", ErrorSort.NOT_SUPPORTED, "must be None or Webhook", strategy)
        served = [one for one in versions if isinstance(one, dict) and one.get("served")]
        if strategy == "Webhook" and spec.get("group") not in self._conversions and len(served) > 1:
            words = limits.words("conversion-webhooks")
            yield FieldError("spec.conversion.strategy", ErrorSort.INVALID, words, strategy)
        if spec.get("preserveUnknownFields"):
            yield FieldError(
                "spec.preserveUnknownFields",
                ErrorSort.INVALID,
                "must be false; use x-kubernetes-preserve-unknown-fields in the schema",
                True,
            )


_NO_CONFLICT: Final = ("NoConflicts", "no conflicts found")
_ESTABLISHED: Final = ("InitialNamesAccepted", "the initial names have been accepted")
_NOT_ACCEPTED: Final = ("NotAccepted", "not all names are accepted")


def _certain(convert: Convert) -> Convert:
    """A conversion that knows only some kinds of its group leaves the others as they are, but for their version."""

    def certain(tree: Tree, api_version: str) -> Tree:
        converted = convert(tree, api_version)
        return converted if converted.get("apiVersion") == api_version else swap_version(converted, api_version)

    return certain


def _condition(kind: str, holds: bool, reason: str, message: str) -> Tree:
    return {"type": kind, "status": "True" if holds else "False", "reason": reason, "message": message}


def _both(first: Callable[..., None], second: Callable[..., None]) -> Callable[..., None]:
    def both(*trees: Tree) -> None:
        first(*trees)
        second(*trees)

    return both


def _complete_names(tree: Tree) -> None:
    names = (tree.get("spec") or {}).get("names")
    if isinstance(names, dict) and isinstance(names.get("kind"), str):
        names.setdefault("singular", names["kind"].lower())
        names.setdefault("listKind", f"{names['kind']}List")
    spec = tree.get("spec")
    if isinstance(spec, dict):
        spec.setdefault("conversion", {"strategy": "None"})


def _all_names(names: Tree) -> list[str]:
    """Every name by which a kind can be meant. Kinds and their lists are apart from the names of resources."""
    resources = [names.get("plural"), names.get("singular"), *(names.get("shortNames") or [])]
    kinds = [names.get("kind"), names.get("listKind")]
    return [name for name in (*resources, *kinds) if name]


# --- From a CRD to resources ------------------------------------------------------------------------------------------


def _resource(spec: Tree, version: Tree, revision: int, *, leaving: bool) -> Resource:
    names = spec["names"]
    schema: Tree = (version.get("schema") or {}).get("openAPIV3Schema") or {"type": "object"}
    columns = version.get("additionalPrinterColumns")
    stored = next(one["name"] for one in spec["versions"] if one.get("storage"))
    doors = version.get("subresources") or {}
    scaling = scale.scaling(doors[scale.NAME]) if doors.get(scale.NAME) is not None else None
    deprecated = ""
    if version.get("deprecated"):
        told = f"{spec['group']}/{version['name']} {names['kind']} is deprecated"
        deprecated = version.get("deprecationWarning") or told

    @cache
    def shape() -> Shape:
        return Shape.of(schema)

    return Resource(
        group=spec["group"],
        version=version["name"],
        kind=names["kind"],
        plural=names["plural"],
        singular=names.get("singular", ""),
        list_kind=names.get("listKind", ""),
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        namespaced=spec["scope"] == "Namespaced",
        verbs=tuple(verb for verb in ALL_VERBS if verb != "create") if leaving else ALL_VERBS,
        subresources=frozenset(name for name in ("status", scale.NAME) if doors.get(name) is not None),
        scaling=scaling,
        schema=lambda: schema,
        shape=shape,
        rules=_rules(schema, scaling),
        columns=tuple(_column(one) for one in columns) if columns else None,
        selectable=_selectable(version),
        custom=True,
        stored_version=stored,
        unconditional_update=False,
        deprecated=deprecated,
        schema_revision=revision,
    )


def _rules(schema: Tree, scaling: Scaling | None) -> Rules:
    @cache
    def compiled() -> structural.Structural:
        # Compiled when the first object comes: a server with many CRDs starts as fast as one with few.
        return _compiled(msgspec.json.encode(schema))

    def validate(new: Tree, old: Tree | None, _: str) -> Sequence[FieldError]:
        found = compiled().validate(new, old)
        return found if scaling is None else [*found, *scale.check_numbers(scaling, new)]

    return Rules(
        unknown=lambda tree, old=None: compiled().unknown_fields(tree, old),
        prune=lambda tree: compiled().prune(tree),
        default=lambda tree, old=None: compiled().default(tree, old),
        validate=validate,
        warn=_finalizers_without_domain,
    )


def _finalizers_without_domain(new: Tree, old: Tree | None) -> Iterator[str]:
    """Finalizers that two programs may well choose at the same time."""
    known = {*metadata.KNOWN_FINALIZERS, *((old or {}).get("metadata", {}).get("finalizers") or ())}
    for name in new["metadata"].get("finalizers") or ():
        if name not in known and "/" not in name:
            yield f'metadata.finalizers: "{name}" has no domain before a slash, and somebody else may choose the same'


@lru_cache(maxsize=32)
def _compiled(schema: bytes) -> structural.Structural:
    """Once for all servers of a process: a simulation starts hundreds of them."""
    return structural.compile(msgspec.json.decode(schema))


def _column(row: Tree) -> Column:
    return Column(
        name=row["name"],
        path=row["jsonPath"],
        type=row.get("type", "string"),
        format=row.get("format", ""),
        description=row.get("description", ""),
        priority=row.get("priority", 0),
    )


def _selectable(version: Tree) -> dict[str, str]:
    paths = [one["jsonPath"].lstrip(".") for one in version.get("selectableFields") or ()]
    return {path: path for path in paths}


# --- What can be served -----------------------------------------------------------------------------------------------


def _check_names(tree: Tree, spec: Tree) -> Iterator[FieldError]:
    group, names = spec.get("group", ""), spec.get("names")
    if not isinstance(group, str) or "." not in group or meta.check_subdomain_name(group):
        yield FieldError("spec.group", ErrorSort.INVALID, "should be a domain with at least one dot", group)
    if spec.get("scope") not in ("Namespaced", "Cluster"):
        yield FieldError("spec.scope", ErrorSort.NOT_SUPPORTED, "must be Namespaced or Cluster", spec.get("scope", ""))
    if not isinstance(names, dict):
        yield FieldError("spec.names", ErrorSort.REQUIRED, "")
        return
    for key in ("plural", "singular"):
        for complaint in meta.check_label_1035_name(str(names.get(key) or "")):
            yield FieldError(f"spec.names.{key}", ErrorSort.INVALID, complaint, names.get(key, ""))
    for key in ("kind", "listKind"):
        for complaint in meta.check_label_1035_name(str(names.get(key) or "").lower()):
            yield FieldError(f"spec.names.{key}", ErrorSort.INVALID, complaint, names.get(key, ""))
    for index, short in enumerate(names.get("shortNames") or ()):
        for complaint in meta.check_label_1035_name(short):
            yield FieldError(f"spec.names.shortNames[{index}]", ErrorSort.INVALID, complaint, short)
    wanted = f"{names.get('plural')}.{group}"
    if tree["metadata"].get("name") != wanted:
        yield FieldError(
            "metadata.name",
            ErrorSort.INVALID,
            f"must be spec.names.plural and spec.group: {wanted}",
            tree["metadata"].get("name"),
        )


def _check_versions(versions: list[Any]) -> Iterator[FieldError]:
    known = [one for one in versions if isinstance(one, dict)]
    if len([one for one in known if one.get("storage")]) != 1:
        yield FieldError(
            "spec.versions", ErrorSort.INVALID, "must have exactly one version marked as storage version", _brief(known)
        )
    if not any(one.get("served") for one in known):
        yield FieldError("spec.versions", ErrorSort.INVALID, "must have at least one served version", _brief(known))
    seen: set[str] = set()
    for index, one in enumerate(known):
        name = one.get("name")
        if name in seen:
            yield FieldError(f"spec.versions[{index}].name", ErrorSort.DUPLICATE, "", name)
        seen.add(str(name))


def _brief(versions: list[Tree]) -> list[Any]:
    return [one.get("name") for one in versions]


def _check_version(version: Any, path: str, *, reads: bool) -> Iterator[FieldError]:
    if not isinstance(version, dict):
        yield FieldError(path, ErrorSort.TYPE_INVALID, "must be an object", version)
        return
    for complaint in meta.check_label_1035_name(str(version.get("name") or "")):
        yield FieldError(f"{path}.name", ErrorSort.INVALID, complaint, version.get("name", ""))
    schema = (version.get("schema") or {}).get("openAPIV3Schema")
    if not isinstance(schema, dict):
        yield FieldError(f"{path}.schema.openAPIV3Schema", ErrorSort.REQUIRED, "schemas are required")
    elif reads:
        yield from structural.check_schema(schema, f"{path}.schema.openAPIV3Schema")
    doors = version.get("subresources")
    if isinstance(doors, dict) and doors.get(scale.NAME) is not None:
        yield from scale.check(doors[scale.NAME], f"{path}.subresources.scale")
    for index, column in enumerate(version.get("additionalPrinterColumns") or ()):
        yield from _check_column(column, f"{path}.additionalPrinterColumns[{index}]")
    for index, selectable in enumerate(version.get("selectableFields") or ()):
        given = selectable.get("jsonPath") if isinstance(selectable, dict) else None
        if not isinstance(given, str) or not given.startswith(".") or "[" in given:
            yield FieldError(
                f"{path}.selectableFields[{index}].jsonPath", ErrorSort.INVALID, "must be a simple path", given
            )


def _check_column(column: Any, path: str) -> Iterator[FieldError]:
    if not isinstance(column, dict):
        yield FieldError(path, ErrorSort.TYPE_INVALID, "must be an object", column)
        return
    if not column.get("name"):
        yield FieldError(f"{path}.name", ErrorSort.REQUIRED, "")
    if column.get("type") not in _COLUMN_TYPES:
        yield FieldError(
            f"{path}.type",
            ErrorSort.NOT_SUPPORTED,
            f"must be one of {', '.join(_COLUMN_TYPES)}",
            column.get("type", ""),
        )
    given = column.get("jsonPath")
    if not isinstance(given, str) or not given:
        yield FieldError(f"{path}.jsonPath", ErrorSort.REQUIRED, "")
        return
    try:
        compile_path(given)
    except PathError as error:
        yield FieldError(f"{path}.jsonPath", ErrorSort.INVALID, str(error), given)


def _check_fixed(new: Tree, old: Tree) -> Iterator[FieldError]:
    for path in _FIXED:
        before, after = old.get("spec"), new.get("spec")
        for part in path.split("."):
            before = before.get(part) if isinstance(before, dict) else None
            after = after.get(part) if isinstance(after, dict) else None
        if before != after:
            yield FieldError(f"spec.{path}", ErrorSort.INVALID, "field is immutable", after)
    present = {one.get("name") for one in new["spec"]["versions"] if isinstance(one, dict)}
    for index, stored in enumerate((new.get("status") or {}).get("storedVersions") or ()):
        if stored not in present:
            yield FieldError(
                f"status.storedVersions[{index}]",
                ErrorSort.INVALID,
                "objects may be stored in this version, so it must appear in spec.versions",
                stored,
            )


def key(name: str) -> Key:
    return Key(RESOURCE, "", name)
