"""Field ownership: server-side apply, and the managedFields that every other write leaves behind.

    outcome = apply(live, configuration, manager=..., force=..., target=..., now=...)
    match outcome:
        case Applied(tree): ...             # the merged object; default, prepare, validate and store it
        case Conflicts() as conflicts: ...  # 409, with `conflicts.message` and `conflicts.causes`
        case Refused(message): ...          # the configuration cannot be merged at all

    entries = track_update(live, new, manager=..., target=..., now=...)   # create, update, and every other patch

A `Target` says whose fields are tracked: one kind at one version and subresource. Build one per endpoint, and keep it.

The rule in one breath: a manager owns the fields that it applied, or changed by any other write. Applying merges the
configuration into the object, then takes out what this manager applied last time, does not apply now and nobody else
owns. A field that changes on the way and belongs to somebody else is a conflict; where the call is forced, it changes
hands.
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
