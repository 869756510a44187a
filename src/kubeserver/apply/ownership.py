"""Ownership after the two kinds of writes: server-side apply, and every other write."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from kubeserver.apply import managers, paths, values
from kubeserver.apply.managers import APPLY, UPDATE, FieldManagerEntry, Identity, Managers
from kubeserver.apply.paths import PathSet
from kubeserver.apply.shape import Shape
from kubeserver.apply.values import FieldChanges

Tree = dict[str, Any]

# Never owned: what identifies the object, and what the server alone writes.
_NEVER_OWNED: Final = paths.from_fields(
    ("apiVersion",),
    ("kind",),
    ("metadata",),
    *(
        ("metadata", name)
        for name in (
            "name",
            "namespace",
            "creationTimestamp",
            "selfLink",
            "uid",
            "clusterName",
            "generation",
            "managedFields",
            "resourceVersion",
        )
    ),
)
_STATUS: Final = paths.from_fields(("status",))

# The manager of the fields of an object without managedFields at its first apply.
_BEFORE_FIRST_APPLY: Final = "before-first-apply"

# kubectl keeps here what it applied from the client's side; its server-side apply inherits those fields.
_KUBECTL: Final = "kubectl"
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


@cache
def _paths(fields: tuple[tuple[str, ...], ...]) -> PathSet:
    return paths.from_fields(*fields)


class ApplyTarget(msgspec.Struct, frozen=True):
    """One endpoint: its version, the shapes of all served versions, and what is never owned through it.

    `convert(tree, api_version)` returns the object in another served version; without it only apiVersion is exchanged.
    `subresource` is "" or "status"; `has_status`: `/status` exists, so that the main endpoint does not own
    `status`; `status_keeps` has the paths that a write through `/status` does not own. `ignored` replaces what follows
    from these. `custom`: the objects are those of a CRD, which kube-apiserver reads without types.
    """

    api_version: str
    shapes: Mapping[str, Shape]
    subresource: str = ""
    has_status: bool = False
    convert: Callable[[Tree, str], Tree] | None = None
    ignored: PathSet | None = None
    status_keeps: tuple[tuple[str, ...], ...] = (("metadata",), ("spec",))
    custom: bool = False

    @property
    def shape(self) -> Shape:
        return self.shapes[self.api_version]

    @property
    def empty(self) -> Tree:
        """The object before anything is set."""
        return {**self.shape.zero}

    @property
    def never_owned(self) -> PathSet:
        """The paths that a write through this endpoint does not change, and so does not own."""
        if self.ignored is not None:
            return self.ignored
        if self.subresource == "status":
            return _paths(self.status_keeps)
        return _STATUS if self.has_status else {}

    def at(self, tree: Tree, api_version: str) -> Tree:
        """Return the object in another version."""
        if tree.get("apiVersion", self.api_version) == api_version:
            return tree
        if self.convert is None:
            return {**tree, "apiVersion": api_version}
        return self.convert(tree, api_version)


class Applied(msgspec.Struct, frozen=True):
    """The object that apply produced, with its managedFields. Unless `changed`, only ownership may have moved."""

    tree: Tree
    changed: bool


class FieldConflict(msgspec.Struct, frozen=True, order=True):
    """One field that another manager owns: the manager as messages show it, and the path (`.spec.replicas`)."""

    manager: str
    path: str


class ApplyConflicts(msgspec.Struct, frozen=True):
    """An apply without force would change fields of others. `message` and `causes` are those of the 409 Status."""

    conflicts: tuple[FieldConflict, ...]

    @property
    def message(self) -> str:
        if len(self.conflicts) == 1:
            (conflict,) = self.conflicts
            return f"Apply failed with 1 conflict: conflict with {conflict.manager}: {conflict.path}"
        lines = []
        for name in dict.fromkeys(conflict.manager for conflict in self.conflicts):
            lines.append(f"conflicts with {name}:")
            lines.extend(f"- {conflict.path}" for conflict in self.conflicts if conflict.manager == name)
        return f"Apply failed with {len(self.conflicts)} conflicts: " + "\n".join(lines)

    @property
    def causes(self) -> list[dict[str, str]]:
        return [
            {
                "reason": "FieldManagerConflict",
                "message": f"conflict with {conflict.manager}",
                "field": conflict.path,
            }
            for conflict in self.conflicts
        ]


class ApplyRefused(msgspec.Struct, frozen=True):
    """The configuration cannot be merged: a field that the schema does not know, a list key twice, managedFields."""

    message: str


# --- apply ------------------------------------------------------------------------------------------------------------


def apply(
    live: Tree | None,
    configuration: Tree,
    *,
    manager: str,
    force: bool,
    target: ApplyTarget,
    now: str,
    settled: bool = False,
) -> Applied | ApplyConflicts | ApplyRefused:
    """Merge `configuration` into `live` (None creates) as `manager`; neither argument is changed.

    `now` is an RFC 3339 time with seconds; `settled`: `live` was written under the current schema. The caller then
    defaults, prepares (status, generation), validates and stores. The tree shares unchanged parts with the arguments.
    """
    metadata = configuration.get("metadata")
    if isinstance(metadata, dict) and metadata.get("managedFields") is not None:
        return ApplyRefused("metadata.managedFields must be nil")
    wrong = list(values.problems(configuration, target.shape))
    if wrong:
        return ApplyRefused(wrong[0].lstrip(":") if len(wrong) == 1 else "errors:\n  " + "\n  ".join(wrong))

    before = target.empty if live is None else live
    known = managers.read((before.get("metadata") or {}).get("managedFields"), trusted=True) or {}
    stripped = _without_managed_fields(before)
    if not known and live is not None:
        known = _updated(target.empty, stripped, {}, _entry_of(_BEFORE_FIRST_APPLY, UPDATE, target), target, now)

    if not settled:
        known = _reconciled(known, target)
    entry = _entry_of(manager, APPLY, target)
    outcome = _applied(stripped, configuration, known, entry, target, now, force=force)
    if isinstance(outcome, ApplyConflicts) and manager == _KUBECTL:
        outcome = _inherit_client_side(outcome, stripped, configuration, known, entry, target, now)
    if isinstance(outcome, ApplyConflicts):
        return outcome
    tree, owners, changed = outcome
    if manager == _KUBECTL:
        tree = _with_last_applied(tree, configuration)
    return Applied(_with_managed_fields(tree, owners), changed)


def _applied(
    live: Tree,
    configuration: Tree,
    known: Managers,
    entry: FieldManagerEntry,
    target: ApplyTarget,
    now: str,
    *,
    force: bool,
) -> tuple[Tree, Managers, bool] | ApplyConflicts:
    """Merge, prune, and hand over ownership; return the object, its managers, and whether the object changed.

    1. merge        the configuration over the live object
    2. own          this manager's entry becomes exactly what it applies now
    3. prune        what it applied last time, does not apply now, and no other manager owns
    4. hand over    fields whose value this changes are taken from their other owners, or are conflicts

    The order matters: pruning needs the new entry, so that fields applied again stay; conflicts are found on the pruned
    object, so that a value which pruning restores is no conflict.
    """
    owners = dict(known)
    merged: Tree = values.merge(live, configuration, target.shape)
    last = owners.get(entry.identity)
    owned = paths.without_below(values.owned(configuration, target.shape), target.never_owned)
    owners[entry.identity] = replace(entry, fields=owned, time=last.time if last else "")
    new = _pruned(merged, owners, owners[entry.identity], last, target)
    passed = _passed_on(live, new, owners, entry.identity, target, force=force)
    if isinstance(passed, ApplyConflicts):
        return passed
    owners, _ = passed
    changed = not values.same(live, new)
    mine = owners.get(entry.identity)
    if mine is not None:
        fields = paths.difference(mine.fields, _NEVER_OWNED)
        if last is not None and fields == last.fields and mine.api_version == last.api_version:
            fields = last.fields  # the identical set, so that an apply without changes compares as equal at once
        owners[entry.identity] = replace(mine, fields=fields, time=now if changed else mine.time)
        if not fields:
            del owners[entry.identity]
    return new if changed else live, owners, changed


def _pruned(
    merged: Tree, owners: Managers, mine: FieldManagerEntry, last: FieldManagerEntry | None, target: ApplyTarget
) -> Tree:
    """Remove what this manager applied last time, applies no longer, and no other manager owns.

    The result cannot be computed as one path difference: managers name their fields in different versions, removing a
    list item also removes what other managers own in it, and an emptied map disappears. So the candidate `kept` (the
    merged object without everything claimed last time) is corrected twice, as kube-apiserver's prune step does.
    """
    if last is None or not last.fields:
        return merged
    if last.api_version == mine.api_version and paths.is_within(last.fields, mine.fields):
        return merged
    version = last.api_version
    shape = target.shapes[version]
    whole = target.at(merged, version)
    claimed = values.with_named_fields(last.fields, shape)
    kept: Tree = values.without(whole, claimed, shape) or {}
    # First restore what any manager owns (the new configuration included), version by version, the claimed one first.
    owned_at: dict[str, PathSet] = {version: {}}
    for entry in owners.values():
        owned_at[entry.api_version] = paths.union(owned_at.get(entry.api_version, {}), entry.fields)
    at, everything = version, whole
    for at, owned in owned_at.items():
        at_shape = target.shapes[at]
        everything, kept = target.at(everything, at), target.at(kept, at)
        present = values.with_named_fields(values.owned(everything, at_shape), at_shape)
        stays = paths.union(
            values.with_named_fields(values.owned(kept, at_shape), at_shape),
            values.with_named_fields(owned, at_shape),
        )
        kept = values.without(everything, paths.difference(present, stays), at_shape) or {}
    # Then restore what no manager owns: only paths that this manager claimed may be removed.
    kept = target.at(kept, version)
    present = values.with_named_fields(values.owned(whole, shape), shape)
    stays = values.with_named_fields(values.owned(kept, shape), shape)
    gone = paths.intersection(paths.difference(present, stays), claimed)
    return target.at(values.without(whole, gone, shape) or {}, target.api_version)


def _inherit_client_side(
    conflicts: ApplyConflicts,
    live: Tree,
    configuration: Tree,
    known: Managers,
    entry: FieldManagerEntry,
    target: ApplyTarget,
    now: str,
) -> tuple[Tree, Managers, bool] | ApplyConflicts:
    """Take over from client-side apply: what kubectl applied then and no write changed since is no conflict."""
    inherited = set(paths.spelt(_last_applied_fields(live, target)))
    others = tuple(conflict for conflict in conflicts.conflicts if conflict.path not in inherited)
    if others:
        return ApplyConflicts(others)
    return _applied(live, configuration, known, entry, target, now, force=True)


def _last_applied_fields(live: Tree, target: ApplyTarget) -> PathSet:
    try:
        last = msgspec.json.decode(_annotations(live).get(_LAST_APPLIED, "").encode())
    except msgspec.DecodeError:
        return {}
    if not isinstance(last, dict) or last.get("apiVersion") != target.api_version:
        return {}
    if any(values.problems(last, target.shape)):
        return {}
    fields = values.owned(last, target.shape)
    for changed in values.compare(last, target.at(live, target.api_version), target.shape):
        fields = paths.difference(fields, changed)
    return fields


def _with_last_applied(tree: Tree, configuration: Tree) -> Tree:
    """Update the client-side annotation where there is one, so that users can return to client-side apply."""
    if not _annotations(tree).get(_LAST_APPLIED):
        return tree
    metadata = dict(configuration.get("metadata") or {})
    if _LAST_APPLIED in (metadata.get("annotations") or {}):
        metadata["annotations"] = {k: v for k, v in metadata["annotations"].items() if k != _LAST_APPLIED}
    text = msgspec.json.encode({**configuration, "metadata": metadata}, order="sorted").decode() + "\n"
    annotations = {**_annotations(tree), _LAST_APPLIED: text}
    return {**tree, "metadata": {**tree["metadata"], "annotations": annotations}}


def _annotations(tree: Tree) -> dict[str, str]:
    return (tree.get("metadata") or {}).get("annotations") or {}


# --- create, update, patch --------------------------------------------------------------------------------------------


def track_update(
    live: Tree | None, new: Tree, *, manager: str, target: ApplyTarget, now: str, settled: bool = False
) -> list[Tree]:
    """Return the managedFields of `new` after a create (`live` None), an update or a patch by `manager`.

    Call it on the decoded, defaulted object before mutating admission and before the status is taken from the stored
    object. `new` may carry managedFields of its own: `[{}]` clears them, and `[]` those of built-in kinds; what cannot
    be read is ignored.
    """
    before = target.empty if live is None else live
    known, stored = _known_at_update(before, new, target)
    if not known and live is not None:
        return []  # without managedFields so far; the first apply begins tracking
    if not (settled and stored):
        known = _reconciled(known, target)
    owners = _updated(
        _without_managed_fields(before),
        _without_managed_fields(new),
        known,
        _entry_of(manager, UPDATE, target),
        target,
        now,
    )
    return managers.write(managers.folded(owners))


def _known_at_update(before: Tree, new: Tree, target: ApplyTarget) -> tuple[Managers, bool]:
    """Return the managers to begin with, and whether they are the stored ones."""
    stored = (before.get("metadata") or {}).get("managedFields")
    sent = (new.get("metadata") or {}).get("managedFields")
    if not target.subresource and sent is not stored and sent != stored:
        if sent == [{}] or (sent == [] and not target.custom):
            return {}, False
        theirs = managers.read(sent, trusted=False)
        if theirs:
            return theirs, False
    return managers.read(stored, trusted=True) or {}, True


def _updated(
    live: Tree, new: Tree, known: Managers, entry: FieldManagerEntry, target: ApplyTarget, now: str
) -> Managers:
    # No entry is exempt, not even the writer's own earlier one: only a field that changes gets a new time.
    passed = _passed_on(live, new, known, None, target, force=True)
    assert not isinstance(passed, ApplyConflicts)
    owners, changes = passed
    taken = paths.union(changes.modified, changes.added)
    taken = paths.difference(paths.without_below(taken, target.never_owned), _NEVER_OWNED)
    if taken:
        previous = owners.get(entry.identity)
        if previous is not None:
            taken = paths.union(taken, previous.fields)
        owners[entry.identity] = replace(entry, fields=taken, time=now)
    return owners


# --- what both share --------------------------------------------------------------------------------------------------


def _entry_of(manager: str, operation: str, target: ApplyTarget) -> FieldManagerEntry:
    return FieldManagerEntry(manager, operation, target.api_version, target.subresource, {})


def _reconciled(known: Managers, target: ApplyTarget) -> Managers:
    """Return the managers with a version that is still served, their sets adapted to the current schema."""
    return {
        identity: entry.owning(values.reconciled(entry.fields, target.shapes[entry.api_version]))
        for identity, entry in known.items()
        if entry.api_version in target.shapes
    }


def _passed_on(
    live: Tree, new: Tree, owners: Managers, mine: Identity | None, target: ApplyTarget, *, force: bool
) -> tuple[Managers, FieldChanges] | ApplyConflicts:
    """Return the managers without the fields that this write takes from them, and the changes; or the conflicts.

    Each manager's set is compared in the version in which it is named, so `live` and `new` are converted once per
    version. A modified or added field that a manager owns is lost to it (a conflict unless forced); a removed field
    leaves its set silently. `mine` is exempt: an applier's own set was made from its configuration.
    """
    changes_at: dict[str, FieldChanges] = {}

    def changes(version: str) -> FieldChanges:
        found = changes_at.get(version)
        if found is None:
            found = values.compare(target.at(live, version), target.at(new, version), target.shapes[version])
            found = found.ignoring(target.never_owned)
            changes_at[version] = found
        return found

    out: Managers = {}
    conflicts: list[FieldConflict] = []
    for identity, entry in owners.items():
        fields = entry.fields
        if identity != mine:
            removed, modified, added = changes(entry.api_version)
            lost = paths.intersection(fields, paths.union(modified, added)) if modified or added else {}
            if lost:
                if not force:
                    conflicts.extend(FieldConflict(entry.spelt(), path) for path in paths.spelt(lost))
                fields = paths.difference(fields, lost)
            if removed:
                kept = paths.difference(fields, removed)
                fields = fields if kept == fields else kept
        if fields:
            out[identity] = entry.owning(fields)
    if conflicts:
        return ApplyConflicts(tuple(sorted(conflicts)))
    return out, changes(target.api_version)


def _without_managed_fields(tree: Tree) -> Tree:
    metadata = tree.get("metadata")
    if not isinstance(metadata, dict) or "managedFields" not in metadata:
        return tree
    return {**tree, "metadata": {key: value for key, value in metadata.items() if key != "managedFields"}}


def _with_managed_fields(tree: Tree, owners: Managers) -> Tree:
    entries = managers.write(owners)
    tree = _without_managed_fields(tree)
    if not entries:
        return tree
    return {**tree, "metadata": {**(tree.get("metadata") or {}), "managedFields": entries}}
