"""The parts of OpenAPI v3 documents: the schemas that all kinds share, references, operations, and views."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from kubemachinery.serving.negotiation import JSON
from kubemachinery.serving.views import CollectionView, SubresourceView

Tree: TypeAlias = dict[str, Any]

_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1"
META_NAME: Final = f"{_META}.ObjectMeta"
LIST_META_NAME: Final = f"{_META}.ListMeta"
_OWNER: Final = {
    "type": "object",
    "description": "A reference to an owner of the object.",
    "required": ["apiVersion", "kind", "name", "uid"],
    "x-kubernetes-map-type": "atomic",
    "properties": {
        "apiVersion": {"type": "string", "description": "Group and version of the owner."},
        "kind": {"type": "string", "description": "Kind of the owner."},
        "name": {"type": "string", "description": "Name of the owner."},
        "uid": {"type": "string", "description": "UID of the owner."},
        "controller": {"type": "boolean", "description": "Whether the owner is the managing controller."},
        "blockOwnerDeletion": {
            "type": "boolean",
            "description": "Whether foreground deletion of the owner waits for this object.",
        },
    },
}
_MANAGED_FIELDS: Final = {
    "type": "object",
    "description": "The fields that one manager has set.",
    "properties": {
        "apiVersion": {"type": "string", "description": "The version in which the fields are named."},
        "fieldsType": {"type": "string", "description": "The format of fieldsV1: FieldsV1."},
        "fieldsV1": {"$ref": f"#/components/schemas/{_META}.FieldsV1"},
        "manager": {"type": "string", "description": "The manager that set them."},
        "operation": {"type": "string", "description": "Apply or Update."},
        "subresource": {"type": "string", "description": "The subresource through which they were set."},
        "time": {"type": "string", "format": "date-time", "description": "When they last changed."},
    },
}
_METADATA: Final = {
    "description": "Metadata that every object has.",
    "type": "object",
    "properties": {
        "name": {"type": "string", "description": "Unique among objects of the kind in the namespace; immutable."},
        "generateName": {"type": "string", "description": "The prefix of a name that the server generates."},
        "namespace": {"type": "string", "description": "The namespace of the object."},
        "labels": {
            "type": "object",
            "additionalProperties": {"type": "string"},
            "description": "Labels, which selectors match.",
        },
        "annotations": {
            "type": "object",
            "additionalProperties": {"type": "string"},
            "description": "Annotations: values of any form for programs.",
        },
        "uid": {"type": "string", "description": "Unique over all objects and times."},
        "resourceVersion": {"type": "string", "description": "The revision of the last write."},
        "generation": {"type": "integer", "format": "int64", "description": "Number of changes of the desired state."},
        "creationTimestamp": {"type": "string", "format": "date-time", "description": "When it was created."},
        "deletionTimestamp": {
            "type": "string",
            "format": "date-time",
            "description": "When the deletion was requested, plus the grace period.",
        },
        "deletionGracePeriodSeconds": {
            "type": "integer",
            "format": "int64",
            "description": "The grace period of the deletion.",
        },
        "finalizers": {
            "type": "array",
            "items": {"type": "string"},
            "description": "Identifiers that must be removed before the object is deleted.",
            "x-kubernetes-list-type": "set",
            "x-kubernetes-patch-strategy": "merge",
        },
        "ownerReferences": {
            "type": "array",
            "description": "The owners of the object; it is deleted after the last of them.",
            "items": {"$ref": f"#/components/schemas/{_META}.OwnerReference"},
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["uid"],
            "x-kubernetes-patch-strategy": "merge",
            "x-kubernetes-patch-merge-key": "uid",
        },
        "managedFields": {
            "type": "array",
            "items": {"$ref": f"#/components/schemas/{_META}.ManagedFieldsEntry"},
            "description": "The managers of the fields.",
            "x-kubernetes-list-type": "atomic",
        },
        "selfLink": {"type": "string", "description": "Not used."},
    },
}
API_VERSION: Final = {"type": "string", "description": "The group and version of the object."}
KIND: Final = {"type": "string", "description": "The kind of the object."}
_LIST_META: Final = {
    "type": "object",
    "description": "The metadata of a list.",
    "properties": {
        "continue": {"type": "string", "description": "The token for the next page."},
        "remainingItemCount": {
            "type": "integer",
            "format": "int64",
            "description": "The number of objects after this page.",
        },
        "resourceVersion": {"type": "string", "description": "The revision of the list."},
    },
}

COMMON_SCHEMAS: Final = {
    META_NAME: _METADATA,
    LIST_META_NAME: _LIST_META,
    f"{_META}.OwnerReference": _OWNER,
    f"{_META}.ManagedFieldsEntry": _MANAGED_FIELDS,
    f"{_META}.FieldsV1": {"type": "object", "description": "A set of fields as a tree."},
}


class GroupVersionKind(NamedTuple):
    group: str
    version: str
    kind: str

    @property
    def extension(self) -> Tree:
        """The value of `x-kubernetes-group-version-kind`."""
        return {"group": self.group, "kind": self.kind, "version": self.version}

    @property
    def component(self) -> str:
        """The name of its schema: the group backwards, the version, the kind."""
        return f"{'.'.join(reversed(self.group.split('.')))}.{self.version}.{self.kind}"


class ResourceWithViews(Protocol):
    @property
    def group(self) -> str: ...

    @property
    def version(self) -> str: ...

    @property
    def kind(self) -> str: ...

    @property
    def plural(self) -> str: ...

    @property
    def namespaced(self) -> bool: ...

    @property
    def views(self) -> Mapping[str, SubresourceView]: ...

    @property
    def collection(self) -> CollectionView | None: ...


# --- Documents --------------------------------------------------------------------------------------------------------


def document(version: str, paths: Tree, schemas: Tree) -> Tree:
    """`/openapi/v3/apis/G/V`."""
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes-compatible API", "version": version},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def digest(body: bytes) -> str:
    """Return the hash of a document. It is part of the document's URL, because kubectl caches documents by URL."""
    return hashlib.sha256(body).hexdigest()[:32].upper()


def index(digests: Mapping[str, str]) -> Tree:
    """`/openapi/v3`, from the path of each document to its hash."""
    return {
        "paths": {path: {"serverRelativeURL": f"/openapi/v3/{path}?hash={found}"} for path, found in digests.items()}
    }


# --- Schemas ----------------------------------------------------------------------------------------------------------


def reference(name: str, description: str = "") -> Tree:
    found = {"$ref": f"#/components/schemas/{name}"}
    return {"description": description, "allOf": [found], "default": {}} if description else found


def object_schema(own: Mapping[str, Any], kind: GroupVersionKind) -> Tree:
    """Return the schema of an object: its own, with apiVersion, kind and metadata."""
    properties = {
        **(own.get("properties") or {}),
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": reference(META_NAME, "Standard metadata of an object."),
    }
    return {**own, "type": "object", "properties": properties, "x-kubernetes-group-version-kind": [kind.extension]}


def view_schemas(resource: ResourceWithViews) -> Iterator[tuple[str, Tree]]:
    shown: list[SubresourceView | CollectionView] = list(resource.views.values())
    if resource.collection is not None:
        shown.append(resource.collection)
    for view in shown:
        kind = GroupVersionKind(resource.group, resource.version, view.kind)
        yield kind.component, object_schema(view.schema(), kind)


# --- Paths ------------------------------------------------------------------------------------------------------------


def query_parameter(name: str, kind: str, description: str) -> Tree:
    return {
        "name": name,
        "in": "query",
        "description": description,
        "schema": {"type": kind, "uniqueItems": True},
    }


def path_parameter(name: str) -> Tree:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "uniqueItems": True}}


def collection_path(resource: ResourceWithViews) -> str:
    root = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
    return f"{root}/namespaces/{{namespace}}/{resource.plural}" if resource.namespaced else f"{root}/{resource.plural}"


def object_parameters(resource: ResourceWithViews) -> list[Tree]:
    """Return the parameters in the path of one object."""
    return [*([path_parameter("namespace")] if resource.namespaced else []), path_parameter("name")]


def operation(kind: GroupVersionKind, action: str, query: Sequence[Tree], component: str) -> Tree:
    """Return an operation whose response is the schema `component`."""
    content = {JSON: {"schema": reference(component)}}
    return {
        "operationId": f"{action}{kind.kind}",
        "tags": [f"{kind.group or 'core'}_{kind.version}"],
        "parameters": query,
        "responses": {"200": {"description": "OK", "content": content}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": kind.extension,
    }


def view_paths(resource: ResourceWithViews) -> Iterator[tuple[str, Tree]]:
    if (listed := resource.collection) is not None:
        kind = GroupVersionKind(resource.group, resource.version, listed.kind)
        query = [query_parameter(key, "string", description) for key, description in listed.parameters.items()]
        path = collection_path(resource)
        if resource.namespaced:
            everywhere = operation(kind, "listForAll", query, kind.component)
            yield path.replace("/namespaces/{namespace}", ""), {"get": everywhere}
        get = operation(kind, "list", query, kind.component)
        yield path, {"get": get, "parameters": object_parameters(resource)[:-1]}
    for name, view in sorted(resource.views.items()):
        kind = GroupVersionKind(resource.group, resource.version, view.kind)
        query = [query_parameter(key, "integer", one.description) for key, one in view.parameters.items()]
        get = operation(kind, f"get{resource.kind}", query, kind.component)
        yield (
            f"{collection_path(resource)}/{{name}}/{name}",
            {"get": get, "parameters": object_parameters(resource)},
        )
