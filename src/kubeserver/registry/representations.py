"""Objects in the representation that a client asks for: whole, metadata only, or as a Table.

Objects are stored as the JSON of their storage version. A request in that version gets these bytes;
only other versions, Tables and metadata are decoded, and what they become is kept with the entry for the next client.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Any, Final

import msgspec

from kubemachinery.clock import Clock
from kubemachinery.serving.negotiation import Representation
from kubeserver.protocol import bodies, cooperative
from kubeserver.registry import tables
from kubeserver.registry.registry import Registry
from kubeserver.registry.strategy import Resource, Tree
from kubeserver.storage.entries import ObjectEntry

# Joins the parts of a list by commas.
Join = Callable[[Sequence[bytes]], Awaitable[bytes]]


class _MetadataAlone(msgspec.Struct, frozen=True):
    metadata: msgspec.Raw = msgspec.Raw(b"{}")


_read_metadata: Final = msgspec.json.Decoder(_MetadataAlone).decode


class Presenter:
    """Encodes objects of one resource in one representation."""

    def __init__(
        self, registry: Registry, clock: Clock, resource: Resource, form: Representation, include: str = "Metadata"
    ) -> None:
        self._registry = registry
        self._clock = clock
        self._resource = resource
        self._form = form
        self._include = include
        self._head = head(resource)

    @property
    def form_key(self) -> Hashable:
        """Presenters of one kind with equal keys encode an object to the same bytes."""
        return self._resource.api_version, self._resource.schema_revision, self._form, self._include

    # --- One object ---------------------------------------------------------------------------------------------------

    def whole(self, entry: ObjectEntry) -> bytes:
        """Return the whole object in the requested version."""
        if entry.body.startswith(self._head) and entry.revision >= self._resource.schema_revision:
            return entry.body
        found: bytes = entry.form((self._resource.api_version, self._resource.schema_revision), self._converted)
        return found

    def _converted(self, entry: ObjectEntry) -> bytes:
        return encode(self._resource, to_version(self._registry, self._resource, msgspec.json.decode(entry.body)))

    def tree(self, entry: ObjectEntry) -> Tree:
        tree: Tree = msgspec.json.decode(self.whole(entry))
        return tree

    def one(self, entry: ObjectEntry) -> bytes:
        match self._form.shape:
            case "partial":
                return bodies.encode(self._partial(entry))
            case "table":
                return self._table(self.tree(entry), {"resourceVersion": str(entry.revision)})
        return self.whole(entry)

    def of_tree(self, tree: Tree) -> bytes:
        """Encode an object that is not stored, such as the result of a dry run."""
        match self._form.shape:
            case "partial":
                return bodies.encode(tables.partial(tree, self._form.api_version))
            case "table":
                return self._table(tree, {})
        return bodies.encode(tree)

    # --- Lists --------------------------------------------------------------------------------------------------------

    async def many(self, entries: Sequence[ObjectEntry], metadata: Tree, join: Join) -> bytes:
        """Encode a list; a long one in slices. `join` puts the parts together."""
        resource, version = self._resource, self._form.api_version
        match self._form.shape:
            case "partial":
                about = {"kind": "PartialObjectMetadataList", "apiVersion": version, "metadata": metadata}
                if not entries:
                    # null, as kube-apiserver does. A client that cannot read it should fail here too.
                    return bodies.encode({**about, "items": None}) + b"\n"
                return await _listed(about, b"items", entries, lambda entry: bodies.encode(self._partial(entry)), join)
            case "table":
                about, now = tables.table(resource, metadata, version), self._clock.now()
                return await _listed(about, b"rows", entries, lambda entry: bodies.encode(self._row(entry, now)), join)
        about = {"kind": resource.listed_as, "apiVersion": resource.api_version, "metadata": metadata}
        if resource.custom:
            # An empty `continue` is present, as in kube-apiserver.
            about["metadata"] = {"continue": "", **metadata}
            return await _listed(about, b"items", entries, self.whole, join)
        # The items of a built-in list do not repeat what kind they are.
        skipped = len(self._head)
        return await _listed(about, b"items", entries, lambda entry: b"{" + self.whole(entry)[skipped:], join)

    def _partial(self, entry: ObjectEntry) -> Tree:
        # The metadata stays JSON: nothing of it is read here.
        return tables.partial({"metadata": _read_metadata(self.whole(entry)).metadata}, self._form.api_version)

    def _row(self, entry: ObjectEntry, now: int) -> Tree:
        return self._row_of(self.tree(entry), now)

    def _row_of(self, tree: Tree, now: int) -> Tree:
        return tables.row(tables.cells(self._resource, tree, now), self._beside(tree))

    def _table(self, tree: Tree, metadata: Tree) -> bytes:
        """Encode the Table of one object."""
        about = tables.table(self._resource, metadata, self._form.api_version)
        return bodies.encode({**about, "rows": [self._row_of(tree, self._clock.now())]})

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


async def _listed(
    about: Tree, key: bytes, entries: Sequence[ObjectEntry], encode: Callable[[ObjectEntry], bytes], join: Join
) -> bytes:
    """Encode the list document `about`, with the entries under `key` at its end."""
    items: list[bytes] = []
    async for some in cooperative.yield_to_loop(entries):
        items += map(encode, some)
    begin, end = b"".join((bodies.encode(about)[:-1], b',"', key, b'":[')), b"]}\n"
    if not items:
        return begin + end
    items[0] = begin + items[0]
    items[-1] += end
    return await join(items)


def head(resource: Resource) -> bytes:
    """Return the begin of the JSON of every object of this resource."""
    return b'{"apiVersion":"%s","kind":"%s",' % (resource.api_version.encode(), resource.kind.encode())


def encode(resource: Resource, tree: Tree) -> bytes:
    """Encode an object, beginning with `head`."""
    rest = {key: value for key, value in tree.items() if key not in ("apiVersion", "kind")}
    encoded = bodies.encode({"apiVersion": resource.api_version, "kind": resource.kind, **rest})
    # A copy of that length: the encoder returns its buffer, which is up to half as long again, and the history keeps
    # thousands of these.
    return bytes(memoryview(encoded))


def to_version(registry: Registry, resource: Resource, tree: Tree) -> Tree:
    """Return an object in a served version, with the defaults of the current schema.

    One that is read in another version than it is stored in has the defaults of the stored one: what the conversion
    leaves out stays out, whatever the schema of the requested version has.
    """
    written, stored = tree.get("apiVersion"), registry.stored_as(resource.group_resource)
    is_read = resource.custom and stored is not None and written == stored.api_version != resource.api_version
    if is_read and stored is not None:
        tree = _complete(stored, tree)
    if written != resource.api_version:
        tree = registry.convert(resource)(tree, resource.api_version)
    if not resource.custom:
        return tree
    return resource.rules.prune(tree) if is_read else _complete(resource, tree)


def _complete(resource: Resource, tree: Tree) -> Tree:
    return resource.rules.default(resource.rules.prune(tree))
