"""OpenAPI v3: what every kind looks like, for `kubectl explain`, `kubectl apply` and whoever generates code.

Documents are made when they are first asked for and kept until a CRD changes. Their address carries a hash of their
content, because kubectl keeps them on disk under that address.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import msgspec

from kubeserver.protocol import bodies
from kubeserver.registry import patching, scale
from kubeserver.registry.registry import Registry
from kubeserver.registry.strategy import Resource, Tree, View

# kubectl asks OpenAPI v2, in protobuf and nothing else, about kinds that v3 does not have, and takes a refusal for a
# failure to validate. A document without kinds lets it go on, and say that the kind is not there.
V2_PROTOBUF: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
V2_WITHOUT_KINDS: Final = b"\n\x032.0" + b"\x12\x0a" + b"\n\x05empty" + b"\x12\x010" + b"B\x00"

_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1"
_META_NAME: Final = f"{_META}.ObjectMeta"
_LIST_META_NAME: Final = f"{_META}.ListMeta"
_OWNER: Final = {
    "type": "object",
    "description": "An object that another belongs to.",
    "required": ["apiVersion", "kind", "name", "uid"],
    "x-kubernetes-map-type": "atomic",
    "properties": {
        "apiVersion": {"type": "string", "description": "Group and version of the owner."},
        "kind": {"type": "string", "description": "Kind of the owner."},
        "name": {"type": "string", "description": "Name of the owner."},
        "uid": {"type": "string", "description": "The owner's uid; another object of its name is not it."},
        "controller": {"type": "boolean", "description": "Whether this owner steers the object."},
        "blockOwnerDeletion": {
            "type": "boolean",
            "description": "Whether the owner waits for this object to go first.",
        },
    },
}
_MANAGED_FIELDS: Final = {
    "type": "object",
    "description": "The fields that somebody set.",
    "properties": {
        "apiVersion": {"type": "string", "description": "The version in which the fields are named."},
        "fieldsType": {"type": "string", "description": "How the fields are written down: FieldsV1."},
        "fieldsV1": {"$ref": f"#/components/schemas/{_META}.FieldsV1"},
        "manager": {"type": "string", "description": "Who set them."},
        "operation": {"type": "string", "description": "How: Apply or Update."},
        "subresource": {"type": "string", "description": "Through which door, if not the main one."},
        "time": {"type": "string", "format": "date-time", "description": "When they last changed."},
    },
}
_METADATA: Final = {
    "description": "What every object carries: its name and place, its labels and annotations, its owners.",
    "type": "object",
    "properties": {
        "name": {"type": "string", "description": "Unique among the kind in its namespace; never changes."},
        "generateName": {"type": "string", "description": "The beginning of a name that the server completes."},
        "namespace": {"type": "string", "description": "The namespace that the object lives in."},
        "labels": {
            "type": "object",
            "additionalProperties": {"type": "string"},
            "description": "Short values to select objects by.",
        },
        "annotations": {
            "type": "object",
            "additionalProperties": {"type": "string"},
            "description": "Values of any length, for programs.",
        },
        "uid": {"type": "string", "description": "Unique over all objects that ever were."},
        "resourceVersion": {"type": "string", "description": "The revision of the last write."},
        "generation": {"type": "integer", "format": "int64", "description": "Counts the changes of what is wanted."},
        "creationTimestamp": {"type": "string", "format": "date-time", "description": "When it was created."},
        "deletionTimestamp": {"type": "string", "format": "date-time", "description": "When it is to be gone."},
        "deletionGracePeriodSeconds": {
            "type": "integer",
            "format": "int64",
            "description": "How long it may take to go.",
        },
        "finalizers": {
            "type": "array",
            "items": {"type": "string"},
            "description": "Who has to agree before it goes.",
            "x-kubernetes-list-type": "set",
            "x-kubernetes-patch-strategy": "merge",
        },
        "ownerReferences": {
            "type": "array",
            "description": "The objects that it belongs to, and goes with.",
            "items": {"$ref": f"#/components/schemas/{_META}.OwnerReference"},
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["uid"],
            "x-kubernetes-patch-strategy": "merge",
            "x-kubernetes-patch-merge-key": "uid",
        },
        "managedFields": {
            "type": "array",
            "items": {"$ref": f"#/components/schemas/{_META}.ManagedFieldsEntry"},
            "description": "Who set which fields.",
            "x-kubernetes-list-type": "atomic",
        },
        "selfLink": {"type": "string", "description": "Not used."},
    },
}
_API_VERSION: Final = {"type": "string", "description": "The group and version in which this object is written."}
_KIND: Final = {"type": "string", "description": "What this object is."}
_LIST_META: Final = {
    "type": "object",
    "description": "What a list says of itself.",
    "properties": {
        "continue": {"type": "string", "description": "How to read on."},
        "remainingItemCount": {"type": "integer", "format": "int64", "description": "How many are still to come."},
        "resourceVersion": {"type": "string", "description": "The revision that the list shows."},
    },
}

_COMMON: Final = {
    _META_NAME: _METADATA,
    _LIST_META_NAME: _LIST_META,
    f"{_META}.OwnerReference": _OWNER,
    f"{_META}.ManagedFieldsEntry": _MANAGED_FIELDS,
    f"{_META}.FieldsV1": {"type": "object", "description": "A tree with a key for every field."},
}


def reads_only_v2_protobuf(accept: str) -> bool:
    # Some write an @ before the version, which is no media type and yet means this one.
    return accept.replace("@", ".") == V2_PROTOBUF


class OpenApi:
    """The documents of all versions of all groups."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._documents: dict[tuple[str, str], tuple[bytes, str]] = {}
        registry.on_change(self._documents.clear)

    def index(self) -> Tree:
        """`/openapi/v3`."""
        paths: Tree = {}
        for group, versions in sorted(self._registry.groups().items()):
            for version in versions:
                path = f"apis/{group}/{version}" if group else f"api/{version}"
                _, digest = self._made(group, version)
                paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={digest}"}
        return {"paths": paths}

    def document(self, group: str, version: str) -> tuple[bytes, str] | None:
        """The document of one version with its hash; None where nothing is served."""
        if not self._registry.in_version(group, version):
            return None
        return self._made(group, version)

    def _made(self, group: str, version: str) -> tuple[bytes, str]:
        found = self._documents.get((group, version))
        if found is None:
            body = msgspec.json.encode(document(self._registry.in_version(group, version), group, version))
            found = self._documents[group, version] = (body, hashlib.sha256(body).hexdigest()[:32].upper())
        return found


def document(resources: list[Resource], group: str, version: str) -> Tree:
    schemas: Tree = {}
    paths: Tree = {}
    for resource in resources:
        schemas |= resource.components()
    schemas |= _COMMON
    for resource in resources:
        schemas[component(resource)] = _schema(resource)
        if not resource.virtual:
            schemas[component(resource, of_list=True)] = _list_schema(resource)
        for view in resource.views.values():
            seen = _seen_through(view, resource)
            schemas[component(seen)] = _schema(seen)
        if resource.scaling is not None:
            schemas[component(scale.KIND)] = _schema(scale.KIND)
        paths.update(_paths(resource))
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes-compatible API", "version": version},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def component(resource: Resource, *, of_list: bool = False) -> str:
    """The name of a kind's schema: its own, or the group backwards, the version, the kind."""
    kind = resource.listed_as if of_list else resource.kind
    if resource.public_name:
        return resource.public_name.removesuffix(resource.kind) + kind
    return f"{'.'.join(reversed(resource.group.split('.')))}.{resource.version}.{kind}"


def _seen_through(view: View, resource: Resource) -> Resource:
    """What a view shows, as if it were a resource of its own."""
    return replace(resource, kind=view.kind, schema=view.schema, public_name="", components=dict)


def _reference(name: str, description: str = "") -> Tree:
    reference = {"$ref": f"#/components/schemas/{name}"}
    return {"description": description, "allOf": [reference], "default": {}} if description else reference


def _kinds(resource: Resource, kind: str) -> list[Tree]:
    return [{"group": resource.group, "kind": kind, "version": resource.version}]


def _schema(resource: Resource) -> Tree:
    own: Mapping[str, Any] = resource.components().get(resource.public_name) or resource.schema()
    properties = {
        **(own.get("properties") or {}),
        "apiVersion": _API_VERSION,
        "kind": _KIND,
        "metadata": _reference(_META_NAME, "Name, place, labels and owners."),
    }
    return {
        **own,
        "type": "object",
        "properties": properties,
        "x-kubernetes-group-version-kind": _kinds(resource, resource.kind),
    }


def _list_schema(resource: Resource) -> Tree:
    return {
        "type": "object",
        "description": f"A list of {resource.kind}.",
        "required": ["items"],
        "properties": {
            "apiVersion": _API_VERSION,
            "kind": _KIND,
            "metadata": _reference(_LIST_META_NAME, "The revision of the list, and how to read on."),
            "items": {"type": "array", "items": _reference(component(resource)), "description": "The objects."},
        },
        "x-kubernetes-group-version-kind": _kinds(resource, resource.listed_as),
    }


# --- Paths ------------------------------------------------------------------------------------------------------------


def _query(name: str, kind: str, description: str) -> Tree:
    return {
        "name": name,
        "in": "query",
        "description": description,
        "schema": {"type": kind, "uniqueItems": True},
    }


_DRY_RUN: Final = _query("dryRun", "string", "All: do everything but store the outcome.")
_MANAGER: Final = _query("fieldManager", "string", "Under which name the changed fields are owned.")
# kubectl looks for this parameter in the patch of a kind: with it, the server is trusted to validate.
_VALIDATION: Final = _query(
    "fieldValidation", "string", "What to do about unknown and repeated fields: Ignore, Warn or Strict."
)
_FORCE: Final = _query("force", "boolean", "Take over fields that others own (apply only).")
_LIST_QUERY: Final = [
    _query("labelSelector", "string", "Only objects with such labels."),
    _query("fieldSelector", "string", "Only objects with such fields."),
    _query("limit", "integer", "At most so many at once."),
    _query("continue", "string", "Read on where the last page ended."),
    _query("resourceVersion", "string", "Not older than this revision."),
    _query("resourceVersionMatch", "string", "How the revision is meant: Exact or NotOlderThan."),
    _query("sendInitialEvents", "boolean", "Begin a watch with what there is."),
    _query("allowWatchBookmarks", "boolean", "Tell from time to time how far the watch has come."),
    _query("timeoutSeconds", "integer", "End a watch after so long."),
    _query("watch", "boolean", "Tell what changes, instead of what there is."),
]
_WRITE_QUERY: Final = [_DRY_RUN, _MANAGER, _VALIDATION]

# verb -> (HTTP method, action as OpenAPI has it, parameters)
_ON_COLLECTION: Final = {
    "list": ("get", "list", _LIST_QUERY),
    "create": ("post", "post", _WRITE_QUERY),
    "deletecollection": ("delete", "deletecollection", _LIST_QUERY),
}
_ON_OBJECT: Final[dict[str, tuple[str, str, list[Tree]]]] = {
    "get": ("get", "get", []),
    "update": ("put", "put", _WRITE_QUERY),
    "delete": ("delete", "delete", [_DRY_RUN]),
    "patch": ("patch", "patch", [*_WRITE_QUERY, _FORCE]),
}


def _paths(resource: Resource) -> Iterator[tuple[str, Tree]]:
    root = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
    collection = (
        f"{root}/namespaces/{{namespace}}/{resource.plural}" if resource.namespaced else f"{root}/{resource.plural}"
    )
    place = [_in_path("namespace")] if resource.namespaced else []
    if resource.namespaced and "list" in resource.verbs:
        yield f"{root}/{resource.plural}", {"get": _operation(resource, "list", "listForAll", _LIST_QUERY)}
    if resource.verbs:
        yield collection, _item(resource, _ON_COLLECTION, place)
    named = [*place, _in_path("name")]
    for name, view in sorted(resource.views.items()):
        query = [_query(key, "integer", one.meaning) for key, one in view.parameters.items()]
        shown = _operation(_seen_through(view, resource), "get", f"get{resource.kind}", query)
        yield f"{collection}/{{name}}/{name}", {"get": shown, "parameters": named}
    if resource.virtual:
        return
    yield f"{collection}/{{name}}", _item(resource, _ON_OBJECT, named)
    for name in sorted(resource.subresources):
        verbs = {verb: row for verb, row in _ON_OBJECT.items() if verb in ("get", "update", "patch")}
        if name == scale.NAME:
            yield f"{collection}/{{name}}/{name}", _item(scale.KIND, verbs, named, resource.kind)
        else:
            yield f"{collection}/{{name}}/{name}", _item(resource, verbs, named, name.capitalize())


def _in_path(name: str) -> Tree:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "uniqueItems": True}}


def _item(resource: Resource, verbs: Mapping[str, Any], parameters: list[Tree], suffix: str = "") -> Tree:
    item: Tree = {
        method: _operation(resource, verb, action + suffix, query)
        for verb, (method, action, query) in verbs.items()
        if verb in resource.verbs
    }
    if parameters:
        item["parameters"] = parameters
    return item


def _operation(resource: Resource, verb: str, action: str, query: list[Tree]) -> Tree:
    shown = _reference(component(resource, of_list=verb == "list"))
    operation: Tree = {
        "operationId": f"{action}{resource.kind}",
        "tags": [f"{resource.group or 'core'}_{resource.version}"],
        "parameters": query,
        "responses": {"200": {"description": "OK", "content": {bodies.JSON: {"schema": shown}}}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": _kinds(resource, resource.kind)[0],
    }
    if verb == "patch":
        body = {"schema": {"type": "object"}}
        operation["requestBody"] = {"content": dict.fromkeys(patching.types(resource), body), "required": True}
    elif verb in ("create", "update"):
        operation["requestBody"] = {"content": {"*/*": {"schema": _reference(component(resource))}}, "required": True}
    return operation
