"""OpenAPI v3 documents of all kinds, for `kubectl explain`, `kubectl apply` and code generators.

Documents are made at the first request and cached until a CRD changes. Their URL carries a hash of their
content, because kubectl keeps them on disk under that address.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from kubemachinery.serving import openapi
from kubemachinery.serving.openapi import GroupVersionKind
from kubemachinery.serving.openapi import query_parameter as _query
from kubeserver.registry import patching, scale
from kubeserver.registry.registry import Registry
from kubeserver.registry.strategy import Resource, Tree

# kubectl asks OpenAPI v2, in protobuf and nothing else, about kinds that v3 does not have, and takes a refusal for a
# failure to validate. A document without kinds lets it go on and report that the kind does not exist.
V2_PROTOBUF: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
V2_WITHOUT_KINDS: Final = b"\n\x032.0" + b"\x12\x0a" + b"\n\x05empty" + b"\x12\x010" + b"B\x00"


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
        digests: dict[str, str] = {}
        for group, versions in sorted(self._registry.groups().items()):
            for version in versions:
                _, digests[f"apis/{group}/{version}" if group else f"api/{version}"] = self._made(group, version)
        return openapi.index(digests)

    def document(self, group: str, version: str) -> tuple[bytes, str] | None:
        """Return the document of one version with its hash; None where nothing is served."""
        if not self._registry.in_version(group, version):
            return None
        return self._made(group, version)

    def _made(self, group: str, version: str) -> tuple[bytes, str]:
        found = self._documents.get((group, version))
        if found is None:
            body = msgspec.json.encode(document(self._registry.in_version(group, version), version))
            found = self._documents[group, version] = (body, openapi.digest(body))
        return found


def document(resources: list[Resource], version: str) -> Tree:
    schemas: Tree = {}
    paths: Tree = {}
    for resource in resources:
        schemas |= resource.components()
    schemas |= openapi.COMMON_SCHEMAS
    for resource in resources:
        schemas[component(resource)] = _schema(resource)
        if not resource.virtual:
            schemas[component(resource, of_list=True)] = _list_schema(resource)
        schemas.update(openapi.view_schemas(resource))
        if resource.scaling is not None:
            schemas[component(scale.KIND)] = _schema(scale.KIND)
        paths.update(_paths(resource))
    return openapi.document(version, paths, schemas)


def component(resource: Resource, *, of_list: bool = False) -> str:
    """Return the name of a kind's schema: its own, or the group backwards, the version, the kind."""
    kind = resource.listed_as if of_list else resource.kind
    if resource.public_name:
        return resource.public_name.removesuffix(resource.kind) + kind
    return GroupVersionKind(resource.group, resource.version, kind).component


def _kind(resource: Resource) -> GroupVersionKind:
    return GroupVersionKind(resource.group, resource.version, resource.kind)


def _schema(resource: Resource) -> Tree:
    own: Mapping[str, Any] = resource.components().get(resource.public_name) or resource.schema()
    return openapi.object_schema(own, _kind(resource))


def _list_schema(resource: Resource) -> Tree:
    items = {"type": "array", "items": openapi.reference(component(resource)), "description": "The objects."}
    return {
        "type": "object",
        "description": f"A list of {resource.kind}.",
        "required": ["items"],
        "properties": {
            "apiVersion": openapi.API_VERSION,
            "kind": openapi.KIND,
            "metadata": openapi.reference(openapi.LIST_META_NAME, "Standard metadata of a list."),
            "items": items,
        },
        "x-kubernetes-group-version-kind": [_kind(resource)._replace(kind=resource.listed_as).extension],
    }


# --- Paths ------------------------------------------------------------------------------------------------------------


_DRY_RUN: Final = _query("dryRun", "string", "All: process the request without storing the result.")
_MANAGER: Final = _query("fieldManager", "string", "The name under which the changed fields are owned.")
# kubectl looks for this parameter in the patch of a kind: with it, the server is trusted to validate.
_VALIDATION: Final = _query(
    "fieldValidation", "string", "What to do about unknown and repeated fields: Ignore, Warn or Strict."
)
_FORCE: Final = _query("force", "boolean", "Take over fields of other managers (apply only).")
_LIST_QUERY: Final = [
    _query("labelSelector", "string", "Select objects by labels."),
    _query("fieldSelector", "string", "Select objects by fields."),
    _query("limit", "integer", "Maximum number of objects per page."),
    _query("continue", "string", "The continue token of the previous page."),
    _query("resourceVersion", "string", "Not older than this revision."),
    _query("resourceVersionMatch", "string", "How resourceVersion is applied: Exact or NotOlderThan."),
    _query("sendInitialEvents", "boolean", "Begin a watch with the current objects."),
    _query("allowWatchBookmarks", "boolean", "Send bookmarks with the revision that the watch has reached."),
    _query("timeoutSeconds", "integer", "End the watch after this time."),
    _query("watch", "boolean", "Stream changes instead of listing objects."),
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
    collection, named = openapi.collection_path(resource), openapi.object_parameters(resource)
    if resource.namespaced and "list" in resource.verbs and resource.collection is None:
        everywhere = collection.replace("/namespaces/{namespace}", "")
        yield everywhere, {"get": _operation(resource, "list", "listForAll", _LIST_QUERY)}
    if resource.verbs and resource.collection is None:
        yield collection, _item(resource, _ON_COLLECTION, named[:-1])
    yield from openapi.view_paths(resource)
    if resource.virtual:
        return
    yield f"{collection}/{{name}}", _item(resource, _ON_OBJECT, named)
    for name in sorted(resource.subresources):
        verbs = {verb: row for verb, row in _ON_OBJECT.items() if verb in ("get", "update", "patch")}
        if name == scale.NAME:
            yield f"{collection}/{{name}}/{name}", _item(scale.KIND, verbs, named, resource.kind)
        else:
            yield f"{collection}/{{name}}/{name}", _item(resource, verbs, named, name.capitalize())


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
    operation = openapi.operation(_kind(resource), action, query, component(resource, of_list=verb == "list"))
    if verb == "patch":
        body = {"schema": {"type": "object"}}
        operation["requestBody"] = {"content": dict.fromkeys(patching.types(resource), body), "required": True}
    elif verb in ("create", "update"):
        body = {"schema": openapi.reference(component(resource))}
        operation["requestBody"] = {"content": {"*/*": body}, "required": True}
    return operation
