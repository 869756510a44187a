"""CustomResourceDefinitions: validated, accepted, and served from the moment they are stored.

The CRD kind is one of the built-in resources; this module gives it its rules. A CRD gets its status in the write that
stores it, and the registry is updated in the same turn as watches: a client that reads `Established` finds the
paths and the discovery there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

import msgspec
from msgspec import structs

from kubemachinery import meta
from kubemachinery.clock import Clock
from kubemachinery.field_errors import FieldError
from kubeserver.registry import crd_validation, custom_resources
from kubeserver.registry.registry import Convert, Registry, swap_version
from kubeserver.registry.strategy import Resource, Tree
from kubeserver.storage.entries import StoreChange
from kubeserver.storage.objects import Objects
from kubeserver.storage.sqlite import StoreKey, WriteOperation

log = logging.getLogger(__name__)

GROUP: Final = "apiextensions.k8s.io"
PLURAL: Final = "customresourcedefinitions"
RESOURCE: Final = f"{PLURAL}.{GROUP}"
CLEANUP: Final = "customresourcecleanup.apiextensions.k8s.io"


class CustomResources:
    """Turns CRDs into served resources. `conversions` has the groups whose versions this process converts itself, and
    `own` the names of the CRDs that it brings: how long validation by their schemas takes is known."""

    def __init__(
        self, objects: Objects, clock: Clock, conversions: Mapping[str, Convert], own: Iterable[str] = ()
    ) -> None:
        self._own = frozenset(own)
        self._objects = objects
        self._clock = clock
        self._conversions = conversions
        self._registry: Registry | None = None
        # What is served for each CRD at present, as bytes of its spec.
        self._served: dict[str, bytes] = {}
        self._trusts = False

    def kind(self, base: Resource) -> Resource:
        """Return the CRD kind itself, with the rules of this module after its own."""
        rules = structs.replace(
            base.rules,
            on_create=_both(base.rules.on_create, self._on_create),
            on_update=_both(base.rules.on_update, self._on_update),
            validate=self._with_checks(base.rules.validate),
        )
        return replace(base, rules=rules)

    def start(self, registry: Registry) -> None:
        """Serve the stored CRDs, and follow their changes."""
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
        """Skip the validation of schemas while inside: tests validate those of the program, not every first start."""
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
        """Return the other CRD of the group that already has one of the names; "" where none has."""
        names = spec.get("names") or {}
        wanted = _all_names(names)
        # All at once: this may run in a thread while others are stored.
        for entry in list(self._objects.collection(RESOURCE).entries.values()):
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

    def _notice(self, change: StoreChange) -> None:
        if change.op is WriteOperation.DELETED:
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
        # The parts that decide how a CRD is served. A change of its labels must not end all watches.
        essence = msgspec.json.encode([tree["spec"], leaving])
        if self._served.get(name) == essence:
            return
        self._served[name] = essence
        spec = tree["spec"]
        resources = [
            custom_resources.resource(spec, version, revision, leaving=leaving, foreign=name not in self._own)
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
            if found:
                return found
            return list(crd_validation.check(new, old, self._conversions, reads_schemas=not self._trusts))

        return validate


_NO_CONFLICT: Final = ("NoConflicts", "no conflicts found")
_ESTABLISHED: Final = ("InitialNamesAccepted", "the initial names have been accepted")
_NOT_ACCEPTED: Final = ("NotAccepted", "not all names are accepted")


def _certain(convert: Convert) -> Convert:
    """Return a conversion that changes only apiVersion for kinds which the given one does not support."""

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
    """Yield every name of a kind. Kinds and list kinds are separate from resource names."""
    resources = [names.get("plural"), names.get("singular"), *(names.get("shortNames") or [])]
    kinds = [names.get("kind"), names.get("listKind")]
    return [name for name in (*resources, *kinds) if name]


def key(name: str) -> StoreKey:
    return StoreKey(RESOURCE, "", name)
