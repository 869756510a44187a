"""Field ownership: server-side apply, and the managedFields that every other write leaves behind.

    outcome = apply(live, configuration, manager=..., force=..., target=..., now=...)
    match outcome:
        case Applied(tree): ...          # the merged object, managedFields included; default, prepare, validate, store it
        case Conflicts() as conflicts: ...  # 409, with `conflicts.message` and `conflicts.causes`
        case Refused(message): ...       # 400

    entries = track_update(live, new, manager=..., target=..., now=...)   # create, update, and every other patch

A `Target` says whose fields are tracked: one kind at one version and subresource. Build it once per endpoint and keep it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Tree = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Shape:
    """How values of one schema merge: `Shape.of(schema)` compiles an OpenAPI v3 structural schema (one CRD version)."""

    @classmethod
    def of(cls, schema: Mapping[str, Any] | None) -> Shape:
        raise NotImplementedError("the merging shape of a schema is being written")


@dataclass(frozen=True, slots=True)
class Target:
    """One endpoint: the version it speaks, the shapes of all versions served, and what it never owns.

    `convert(tree, api_version)` gives the object in another served version; `subresource` is "" or "status";
    `has_status` says that `/status` exists, so that the main endpoint does not own `status`.
    """

    api_version: str
    shapes: Mapping[str, Shape]
    subresource: str = ""
    has_status: bool = False
    convert: Callable[[Tree, str], Tree] | None = None


@dataclass(frozen=True, slots=True)
class Applied:
    """The object that apply produced, with its managedFields. `changed` is False where only ownership could have moved."""

    tree: Tree
    changed: bool


@dataclass(frozen=True, slots=True)
class Conflict:
    """One field that somebody else owns: who (as kubectl prints it) and where (`.spec.replicas`)."""

    manager: str
    path: str


@dataclass(frozen=True, slots=True)
class Conflicts:
    """Apply without force met fields of others. `message` and `causes` are those of the 409 Status."""

    conflicts: tuple[Conflict, ...]

    @property
    def message(self) -> str:
        raise NotImplementedError

    @property
    def causes(self) -> list[dict[str, str]]:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Refused:
    """The configuration cannot be applied at all (a duplicate list key, managedFields in the body): 400."""

    message: str


def apply(
    live: Tree | None, configuration: Tree, *, manager: str, force: bool, target: Target, now: str
) -> Applied | Conflicts | Refused:
    """Merge `configuration` into `live` (None creates) as `manager`; neither argument is changed.

    `now` is an RFC 3339 time with seconds. The caller then defaults, prepares (status, generation), validates and stores;
    a changed tree is new objects along the changed paths and shares the rest with its inputs.
    """
    raise NotImplementedError("server-side apply is being written")


def track_update(live: Tree | None, new: Tree, *, manager: str, target: Target, now: str) -> list[Tree]:
    """Return the managedFields of `new` after a create (`live` None), an update or a patch by `manager`.

    Call it on the decoded, defaulted object before mutating admission and before the status is taken from the stored
    object. `new` may carry managedFields of its own: `[]` or `[{}]` clears them, what cannot be read is ignored.
    """
    raise NotImplementedError("managedFields are being written")
