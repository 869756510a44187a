"""Field ownership: server-side apply, and the managedFields that every other write records.

    outcome = apply(live, configuration, manager=..., force=..., target=..., now=...)
    match outcome:
        case Applied(tree): ...                  # the merged object; default, prepare, validate and store it
        case ApplyConflicts() as conflicts: ...  # 409, with `conflicts.message` and `conflicts.causes`
        case ApplyRefused(message): ...          # the configuration cannot be merged at all

    entries = track_update(live, new, manager=..., target=..., now=...)   # create, update, and every other patch

An `ApplyTarget` is one endpoint: a kind at one version and subresource. Build one per endpoint, and keep it.

The rule: a field manager owns the fields that it applied, or changed by any other write. An apply merges the
configuration into the object, then removes what this manager applied last time, does not apply now, and no other
manager owns. A field that this changes and that another manager owns is a conflict; with `force`, this manager becomes
its owner.

    shape       how values of a schema merge: granular or atomic maps, lists by key, sets, scalars
    paths       sets of field paths, in the form of managedFields
    values      one recursion each over a value and its shape: owned paths, differences, merge, removal
    managers    the entries of managedFields
    ownership   `apply` and `track_update`
"""

from __future__ import annotations

from kubeserver.apply.ownership import (
    Applied,
    ApplyConflicts,
    ApplyRefused,
    ApplyTarget,
    FieldConflict,
    Tree,
    apply,
    track_update,
)
from kubeserver.apply.paths import PathSet, from_fields
from kubeserver.apply.shape import Shape

__all__ = [
    "Applied",
    "ApplyConflicts",
    "ApplyRefused",
    "ApplyTarget",
    "FieldConflict",
    "PathSet",
    "Shape",
    "Tree",
    "apply",
    "from_fields",
    "track_update",
]
