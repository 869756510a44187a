"""From a request body to an object of the right kind, name and namespace, pruned and defaulted; or an
error that names what is wrong with it."""

from __future__ import annotations

from typing import Any

from kubemachinery import status
from kubemachinery.field_errors import ErrorType, FieldError
from kubeserver.registry import metadata
from kubeserver.registry.strategy import Resource, Tree
from kubeserver.registry.write_context import WriteContext


def received(context: WriteContext, sent: Any, old: Tree | None = None) -> Tree:
    """Return the object in a body. `old` is the object that it replaces."""
    resource, rules = context.resource, context.resource.rules
    if not isinstance(sent, dict):
        raise status.bad_request("the body is not an object")
    check_kind(resource, sent)
    tree = dict(sent)
    details = metadata.read(tree)
    unread = _unread(context, tree, old)
    for key in unread:
        del tree[key]
    if malformed := rules.malformed(tree):
        raise status.bad_request(f"{_title(resource)}: {malformed}")
    # A built-in kind is also read into its own spelling by pruning; a custom one has nothing else to gain from it.
    if check_unknown(context, tree, old) or not resource.custom:
        tree = rules.prune(tree)
    tree["metadata"] = details
    tree |= unread
    tree = rules.default(tree, old)
    metadata.prune(tree["metadata"])
    place(context, tree["metadata"])
    return tree


def kept(context: WriteContext) -> str:
    """Return the part that this write takes from the stored object, whatever was sent; empty if there is none."""
    resource = context.resource
    if context.subresource == "status":
        return "spec" if ("spec",) in resource.status_keeps else ""
    return "status" if resource.has_status and not context.subresource else ""


def _unread(context: WriteContext, tree: Tree, old: Tree | None) -> Tree:
    """Return the part of a built-in kind that is sent as it is stored, and that this write does not change: reading it
    takes much of the time of a small write."""
    key = kept(context)
    if context.resource.custom or not key or old is None or key not in tree or tree[key] is not old.get(key):
        return {}
    return {key: tree[key]}


def check_kind(resource: Resource, tree: Tree, *, requires_kind: bool = False) -> None:
    """Check apiVersion and kind. Custom objects and applied configurations must have them; others take the path's."""
    kind, version = tree.get("kind"), tree.get("apiVersion")
    if (resource.custom or requires_kind) and not kind:
        raise status.bad_request("Object 'Kind' is missing in the body")
    if (resource.custom or requires_kind) and not version:
        raise status.bad_request("Object 'apiVersion' is missing in the body")
    if kind and kind != resource.kind:
        raise status.bad_request(f"the kind in the data ({kind}) does not match the expected kind ({resource.kind})")
    if version and version != resource.api_version:
        raise status.bad_request(
            f"the API version in the data ({version}) does not match the expected API version ({resource.api_version})"
        )
    tree["apiVersion"], tree["kind"] = resource.api_version, resource.kind


def check_unknown(context: WriteContext, tree: Tree, old: Tree | None = None) -> bool:
    """Refuse, warn of or ignore unknown fields (fieldValidation); return whether there is anything to prune."""
    if context.validation == "Ignore":
        return True
    found = [f'unknown field "{path}"' for path in context.resource.rules.unknown(tree, old)]
    found += [f'unknown field "{path}"' for path in metadata.unknown(tree["metadata"])]
    found += context.oddities
    found = list(dict.fromkeys(found))
    if found and context.validation == "Strict":
        message = f"strict decoding error: {', '.join(found)}"
        if context.patches:
            raise status.invalid("", "", "", [FieldError("patch", ErrorType.INVALID, message)])
        raise status.bad_request(f"{_title(context.resource)}: {message}")
    context.warnings.extend(found)
    return bool(found)


def place(context: WriteContext, details: Tree) -> None:
    """Check that name and namespace agree with the path, and fill in what is absent."""
    given = details.get("namespace") or ""
    if context.resource.namespaced:
        if given and given != context.namespace:
            raise status.bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
        if not context.namespace:
            raise status.bad_request("an object of this kind needs a namespace in its path")
        details["namespace"] = context.namespace
    else:
        # Charts and generators write a namespace into cluster-scoped objects too; it is dropped.
        details.pop("namespace", None)
    if context.name:
        if details.get("name", context.name) != context.name:
            raise status.bad_request(
                f"the name of the object ({details['name']}) does not match the name on the URL ({context.name})"
            )
        details["name"] = context.name


def validate(context: WriteContext, new: Tree, old: Tree | None) -> None:
    """Raise for an invalid object, and collect the warnings of a valid one."""
    errors = list(metadata.check(context.resource, new["metadata"], old["metadata"] if old else None))
    errors += context.resource.rules.validate(new, old, context.subresource)
    if errors:
        raise context.invalid(errors)
    if context.subresource != "status":
        context.warnings.extend(context.resource.rules.warn(new, old))


def _title(resource: Resource) -> str:
    return f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}'
