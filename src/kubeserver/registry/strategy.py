"""What differs between kinds, as values: where a kind is served, and how its objects are defaulted and validated.

The verbs in `write.rest` are the same for every kind. A built-in kind and one of a CRD are both a `Resource`: its
address, its schema and its `Rules`. Rules are plain functions over JSON trees; they change only the tree that they are
given first, and none of them raises for what a client sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Protocol, TypeAlias

import msgspec

from kubemachinery.field_errors import FieldError
from kubemachinery.serving.views import CollectionView, SubresourceView
from kubeserver.apply import Shape

Tree: TypeAlias = dict[str, Any]

ALL_VERBS: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


def _nothing(*_: Any) -> None:
    return None


def _same(tree: Tree, old: Tree | None = None) -> Tree:
    return tree


def _no_errors(*_: Any) -> Sequence[FieldError]:
    return ()


def _no_word(_: Tree) -> str:
    return ""


def _no_words(*_: Any) -> Sequence[str]:
    return ()


def _no_shape() -> Shape:
    return Shape.of(None)


class FindUnknownFields(Protocol):
    def __call__(self, tree: Tree, old: Tree | None = None, /) -> Sequence[str]: ...


class SetDefaults(Protocol):
    def __call__(self, tree: Tree, old: Tree | None = None, /) -> Tree: ...


class ResourceRules(msgspec.Struct, frozen=True, kw_only=True):
    """The rules of a kind, in the order in which `write.rest` calls them.

    `malformed(tree)` returns why the tree cannot be decoded as this kind at all (400), or "". `unknown(tree)` names the
    fields that the schema does not know (`spec.zzz`); `prune(tree)` gives the tree without them, `default(tree)` the
    tree with what is absent filled in; both may change the tree or make another. What a tree shares with `old`, the
    object that it succeeds, may be passed over by `unknown` and `default`. `on_create(tree)`,
    `on_update(new, old)` and `on_status(new, old)` restore the fields that a client may not set there
    (`write.rest` itself already keeps spec and status apart where the resource has a status). `validate(new, old,
    subresource)` answers with field errors; `old` is None on create. `warn(new, old)` gives sentences for the
    Warning header of a write that is valid.
    """

    malformed: Callable[[Tree], str] = _no_word
    unknown: FindUnknownFields = _no_words
    prune: Callable[[Tree], Tree] = _same
    default: SetDefaults = _same
    on_create: Callable[[Tree], None] = _nothing
    on_update: Callable[[Tree, Tree], None] = _nothing
    on_status: Callable[[Tree, Tree], None] = _nothing
    validate: Callable[[Tree, Tree | None, str], Sequence[FieldError]] = _no_errors
    warn: Callable[[Tree, Tree | None], Iterable[str]] = _no_words


class ServedColumn(msgspec.Struct, frozen=True, kw_only=True):
    """One printed column. `path` is a JSONPath below the object, as in a CRD: `.status.phase`."""

    name: str
    path: str
    type: str = "string"
    format: str = ""
    description: str = ""
    priority: int = 0


class SubresourceAction(msgspec.Struct, frozen=True, kw_only=True):
    """A subresource that changes one object by POST, such as binding a pod to a node.

    `alter(object, body, now)` changes the object in place, or raises `status.StatusError`; the metadata of the body are
    valid, and `now` is a formatted time.
    """

    kind: str
    alter: Callable[[Tree, Tree, str], None]


class ScalePaths(msgspec.Struct, frozen=True):
    """The paths of the fields that `scale` shows, as field names."""

    wanted: tuple[str, ...]
    present: tuple[str, ...]
    selector: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class Resource:
    """One kind in one served version.

    `schema()` is an OpenAPI v3 structural schema with the `x-kubernetes-*` extensions, as a CRD carries it, without
    `metadata`. `selectable` maps a field label to its dotted path (`{"status.phase": "status.phase"}`); name and
    namespace are always selectable. `columns` None means the columns Name and Age.
    """

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True
    singular: str = ""
    list_kind: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    subresources: frozenset[str] = frozenset()
    scaling: ScalePaths | None = None
    # What a write through /status leaves as it was, and so does not own.
    status_keeps: tuple[tuple[str, ...], ...] = (("metadata",), ("spec",))
    # Schemas are large and mostly not asked for: they are made on demand, and cached by their maker.
    schema: Callable[[], Mapping[str, Any]] = dict
    # Where its parts have names of their own in OpenAPI documents: the kind's, and the schemas of all of them by name.
    public_name: str = ""
    components: Callable[[], Mapping[str, Any]] = dict
    shape: Callable[[], Shape] = _no_shape
    # Strategic merge, where the kind has it: (tree, patch) -> tree; raises patches.PatchError.
    strategic: Callable[[Tree, Tree], Tree] | None = None
    rules: ResourceRules = field(default_factory=ResourceRules)
    columns: tuple[ServedColumn, ...] | None = None
    # The cells below `columns`, where paths alone cannot express them: (tree, now) -> values.
    cells: Callable[[Tree, int], Sequence[Any]] | None = None
    selectable: Mapping[str, str] = field(default_factory=dict)
    custom: bool = False
    # Another group's view of the objects that are stored as `shares` (Events are both `v1` and `events.k8s.io/v1`), and
    # how they are converted: (tree, api_version) -> tree. Both rows have the function.
    shares: str = ""
    convert: Callable[[Tree, str], Tree] | None = None
    stored_version: str = ""
    unconditional_update: bool = True
    create_on_update: bool = False
    grace_seconds: int | None = None
    # Names: RFC 1123 subdomains by default; labels for namespaces; nearly anything for RBAC's own objects.
    label_name: bool = False
    free_name: bool = False
    generation: bool = True
    # Fields of the metadata whose change makes another generation too.
    generation_metadata: tuple[str, ...] = ()
    # Its generation counts no changes, only the beginning of its end.
    still: bool = False
    # Objects of this kind go to the file of short-lived things: kept for an hour, never many.
    ephemeral: bool = False
    # Answered with the object that was sent, and never stored (reviews); or only there to be looked at through views.
    virtual: bool = False
    # By the last part of their path.
    views: Mapping[str, SubresourceView] = field(default_factory=dict)
    collection: CollectionView | None = None
    actions: Mapping[str, SubresourceAction] = field(default_factory=dict)
    deprecated: str = ""
    # Objects written before this revision are defaulted again when they are read: the schema has changed since.
    schema_revision: int = 0
    # Even a small object may take long to validate, so it is not done on the event loop.
    costly: bool = False

    @cached_property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @cached_property
    def group_resource(self) -> str:
        """The name under which objects are stored, in whatever version they are requested."""
        if self.shares:
            return self.shares
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def storage(self) -> str:
        return self.stored_version or self.version

    @property
    def has_status(self) -> bool:
        return "status" in self.subresources

    @property
    def listed_as(self) -> str:
        return self.list_kind or f"{self.kind}List"
