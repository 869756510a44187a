"""In which form a client wants its answer, and objects in that form: whole, metadata only, or as a Table.

Objects are kept as the JSON of their stored version. Asked for in that version, they are answered with these bytes;
only other versions, Tables and metadata are decoded, and what they become is kept with the entry for the next client.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import msgspec

from pykueue.apiserver import bodies, status, tables
from pykueue.apiserver.objects import Entry
from pykueue.apiserver.registry import Registry
from pykueue.apiserver.strategy import Resource, Tree
from pykueue.clock import Clock

_PARTIAL: Final = frozenset({"PartialObjectMetadata", "PartialObjectMetadataList"})


@dataclass(frozen=True, slots=True)
class Form:
    """`shape` is object, partial or table; `api_version` is that of the Table or the metadata."""

    shape: str = "object"
    api_version: str = "meta.k8s.io/v1"
    yaml: bool = False

    @property
    def content_type(self) -> str:
        return bodies.YAML if self.yaml else bodies.JSON


@lru_cache(maxsize=256)
def negotiate(accept: str) -> Form:
    """The first form in an Accept header that is spoken here; raises 406 where there is none."""
    if not accept.strip():
        return Form()
    for offer in accept.split(","):
        kind, *rest = (part.strip() for part in offer.split(";"))
        parameters = dict(part.partition("=")[::2] for part in rest)
        form = _offered(kind.lower(), parameters)
        if form is not None:
            return form
    raise status.not_acceptable()


def _offered(kind: str, parameters: dict[str, str]) -> Form | None:
    if kind not in (bodies.JSON, bodies.YAML, "*/*", "application/*"):
        return None
    yaml = kind == bodies.YAML
    wanted = parameters.get("as", "")
    if not wanted:
        return Form(yaml=yaml)
    if parameters.get("g") != "meta.k8s.io" or parameters.get("v") not in ("v1", "v1beta1"):
        return None
    api_version = f"meta.k8s.io/{parameters['v']}"
    if wanted == "Table":
        return Form("table", api_version, yaml)
    if wanted in _PARTIAL:
        return Form("partial", api_version, yaml)
    return None


class Presenter:
    """Objects of one resource in one form."""

    def __init__(
        self, registry: Registry, clock: Clock, resource: Resource, form: Form, include: str = "Metadata"
    ) -> None:
        self._registry = registry
        self._clock = clock
        self._resource = resource
        self._form = form
        self._include = include
        self._head = head(resource)

    # --- One object ---------------------------------------------------------------------------------------------------

    def whole(self, entry: Entry) -> bytes:
        """The object itself, in the version asked for."""
        if entry.body.startswith(self._head) and entry.revision >= self._resource.schema_revision:
            return entry.body
        found: bytes = entry.form((self._resource.api_version, self._resource.schema_revision), self._converted)
        return found

    def _converted(self, entry: Entry) -> bytes:
        return encode(self._resource, to_version(self._registry, self._resource, msgspec.json.decode(entry.body)))

    def tree(self, entry: Entry) -> Tree:
        tree: Tree = msgspec.json.decode(self.whole(entry))
        return tree

    def one(self, entry: Entry) -> bytes:
        match self._form.shape:
            case "partial":
                return bodies.encode(tables.partial(self.tree(entry), self._form.api_version))
            case "table":
                return self.tabled([entry], {"resourceVersion": str(entry.revision)})
        return self.whole(entry)

    def of_tree(self, tree: Tree) -> bytes:
        """An object that is not stored, such as the outcome of a dry run."""
        match self._form.shape:
            case "partial":
                return bodies.encode(tables.partial(tree, self._form.api_version))
            case "table":
                return bodies.encode(self._table([tree], {}))
        return bodies.encode(tree)

    # --- Lists --------------------------------------------------------------------------------------------------------

    def many(self, entries: Sequence[Entry], metadata: Tree) -> bytes:
        match self._form.shape:
            case "partial":
                items = [tables.partial(self.tree(entry), self._form.api_version) for entry in entries]
                return bodies.encode(
                    {
                        "kind": "PartialObjectMetadataList",
                        "apiVersion": self._form.api_version,
                        "metadata": metadata,
                        "items": items,
                    }
                )
            case "table":
                return self.tabled(entries, metadata)
        first = bodies.encode(
            {"kind": self._resource.listed_as, "apiVersion": self._resource.api_version, "metadata": metadata}
        )
        return b"".join((first[:-1], b',"items":[', b",".join(self._items(entries)), b"]}\n"))

    def _items(self, entries: Iterable[Entry]) -> Iterable[bytes]:
        if self._resource.custom:
            return (self.whole(entry) for entry in entries)
        # The items of a built-in list do not repeat what kind they are.
        skipped = len(self._head)
        return (b"{" + self.whole(entry)[skipped:] for entry in entries)

    def tabled(self, entries: Iterable[Entry], metadata: Tree) -> bytes:
        return bodies.encode(self._table([self.tree(entry) for entry in entries], metadata))

    def _table(self, trees: Sequence[Tree], metadata: Tree) -> Tree:
        now = self._clock.now()
        rows = [(tables.cells(self._resource, tree, now), self._beside(tree)) for tree in trees]
        return tables.table(self._resource, rows, metadata, self._form.api_version)

    def _beside(self, tree: Tree) -> Any:
        match self._include:
            case "None":
                return None
            case "Object":
                return tree
        return tables.partial(tree, self._form.api_version)

    # --- Watching -----------------------------------------------------------------------------------------------------

    def bookmark(self, revision: int, ends_initial: bool) -> bytes:
        metadata: Tree = {"resourceVersion": str(revision), "creationTimestamp": None}
        if ends_initial:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        tree = {"kind": self._resource.kind, "apiVersion": self._resource.api_version, "metadata": metadata}
        return self.of_tree(tree)


def head(resource: Resource) -> bytes:
    """How the JSON of every object of this resource begins."""
    return b'{"apiVersion":"%s","kind":"%s",' % (resource.api_version.encode(), resource.kind.encode())


def encode(resource: Resource, tree: Tree) -> bytes:
    """The bytes of an object, beginning with `head`."""
    rest = {key: value for key, value in tree.items() if key not in ("apiVersion", "kind")}
    return bodies.encode({"apiVersion": resource.api_version, "kind": resource.kind, **rest})


def to_version(registry: Registry, resource: Resource, tree: Tree) -> Tree:
    """A stored object in a served version, with the defaults that its schema has today."""
    if tree.get("apiVersion") != resource.api_version:
        tree = registry.convert(resource)(tree, resource.api_version)
    if resource.custom:
        tree = resource.rules.default(resource.rules.prune(tree))
    return tree
