"""A typed view of an object of any kind: its type and its metadata, read from the JSON tree.

A program that handles kinds it has no type for wraps each tree once, where it is received, and reads attributes from
then on. As in `unstructured`, a field that is missing or has the wrong type reads as absent: the schema reports it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, Self, TypeVar, overload

from kubemachinery import unstructured
from kubemachinery.meta import OwnerReference
from kubemachinery.unstructured import Tree

T = TypeVar("T")


class _ReadOnce(Generic[T]):
    """As `functools.cached_property`, which before Python 3.12 takes a lock that is half of the time of a short read.
    Two threads may both compute a value; it is the same."""

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self._name = compute.__name__
        self.__doc__ = compute.__doc__

    @overload
    def __get__(self, view: None, owner: type[Any]) -> Self: ...

    @overload
    def __get__(self, view: object, owner: type[Any]) -> T: ...

    def __get__(self, view: object | None, owner: type[Any]) -> Self | T:
        if view is None:
            return self
        value = view.__dict__[self._name] = self._compute(view)
        return value


class ObjectView:
    """One object. The tree must not be changed in place: attributes are read once."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree

    @property
    def api_version(self) -> str:
        return unstructured.text(self.tree.get("apiVersion"))

    @property
    def kind(self) -> str:
        return unstructured.text(self.tree.get("kind"))

    @_ReadOnce
    def metadata(self) -> Mapping[str, Any]:
        return unstructured.mapping(self.tree.get("metadata"))

    @_ReadOnce
    def spec(self) -> Mapping[str, Any]:
        return unstructured.mapping(self.tree.get("spec"))

    @_ReadOnce
    def status(self) -> Mapping[str, Any]:
        return unstructured.mapping(self.tree.get("status"))

    @property
    def name(self) -> str:
        return unstructured.text(self.metadata.get("name"))

    @property
    def namespace(self) -> str:
        return unstructured.text(self.metadata.get("namespace"))

    @property
    def uid(self) -> str:
        return unstructured.text(self.metadata.get("uid"))

    @property
    def resource_version(self) -> str:
        return unstructured.text(self.metadata.get("resourceVersion"))

    @property
    def generation(self) -> int:
        return unstructured.integer(self.metadata.get("generation")) or 0

    @_ReadOnce
    def labels(self) -> Mapping[str, str]:
        return unstructured.texts(self.metadata.get("labels"))

    @_ReadOnce
    def annotations(self) -> Mapping[str, str]:
        return unstructured.texts(self.metadata.get("annotations"))

    @property
    def finalizers(self) -> list[Any]:
        return unstructured.sequence(self.metadata.get("finalizers"))

    @property
    def creation_timestamp(self) -> str:
        return unstructured.text(self.metadata.get("creationTimestamp"))

    @property
    def deletion_timestamp(self) -> str:
        return unstructured.text(self.metadata.get("deletionTimestamp"))

    @property
    def is_deleting(self) -> bool:
        return self.metadata.get("deletionTimestamp") is not None

    @_ReadOnce
    def owner_references(self) -> tuple[OwnerReference, ...]:
        return tuple(_owner(entry) for _, entry in unstructured.entries(self.metadata, "ownerReferences"))

    @property
    def controller(self) -> OwnerReference | None:
        """The reference of the one owner that controls the object."""
        return next((owner for owner in self.owner_references if owner.controller), None)

    # --- Changed copies of the tree -----------------------------------------------------------------------------------

    def with_labels(self, labels: Mapping[str, str]) -> Tree:
        """The object with these labels added or replaced; its other labels stay."""
        return self._with("labels", labels)

    def with_annotations(self, annotations: Mapping[str, str]) -> Tree:
        """The object with these annotations added or replaced; its other annotations stay."""
        return self._with("annotations", annotations)

    def without_label(self, name: str) -> Tree:
        return self._without("labels", name)

    def without_annotation(self, name: str) -> Tree:
        return self._without("annotations", name)

    def _with(self, field: str, values: Mapping[str, str]) -> Tree:
        before = unstructured.mapping(self.metadata.get(field))
        return unstructured.put(self.tree, ("metadata", field), {**before, **values})

    def _without(self, field: str, name: str) -> Tree:
        """The object without one entry; a map that would be empty is removed."""
        before, path = unstructured.mapping(self.metadata.get(field)), ("metadata", field)
        if name not in before:
            return self.tree
        kept = {key: value for key, value in before.items() if key != name}
        return unstructured.put(self.tree, path, kept) if kept else unstructured.without(self.tree, path)


def _owner(entry: Mapping[str, Any]) -> OwnerReference:
    return OwnerReference(
        api_version=unstructured.text(entry.get("apiVersion")),
        kind=unstructured.text(entry.get("kind")),
        name=unstructured.text(entry.get("name")),
        uid=unstructured.text(entry.get("uid")),
        controller=entry.get("controller") is True,
    )
