"""One request for a resource, decoded: the user, the verb, the options and the body."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from kubemachinery import status
from kubemachinery.field_errors import ErrorType, FieldError
from kubemachinery.http_messages import Request
from kubemachinery.serving import negotiation, query
from kubemachinery.serving.negotiation import Representation
from kubemachinery.serving.paths import ResourcePath
from kubeserver.http import protobuf
from kubeserver.protocol import bodies
from kubeserver.protocol.authentication import RequestUser
from kubeserver.registry.strategy import Resource, Tree
from kubeserver.registry.write_context import WriteContext

_VERBS: Final[Mapping[str, str]] = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_MANAGER_LENGTH: Final = 128
# The media types of bodies that are decoded as JSON.
_JSON_TYPES: Final = frozenset({"", bodies.JSON, bodies.JSON_PATCH, bodies.MERGE_PATCH, bodies.STRATEGIC_PATCH})


def is_watch(request: Request) -> bool:
    """Whether a request is a watch; called before its resource is known."""
    return request.method == "GET" and query.flag(request, "watch")


class RequestInfo(msgspec.Struct, frozen=True):
    """A request with its user, path and resource. `warnings` go into the Warning headers of the response."""

    user: RequestUser
    request: Request
    address: ResourcePath
    resource: Resource
    warnings: list[str]

    @property
    def verb(self) -> str:
        request, address = self.request, self.address
        if request.method == "GET":
            if address.watch or query.flag(request, "watch"):
                return "watch"
            return "get" if address.name else "list"
        verb = _VERBS.get(request.method, "")
        if not verb or (verb == "create" and address.name) or (verb in ("update", "patch") and not address.name):
            raise status.method_not_allowed(request.method, "an object" if address.name else "a collection")
        return "deletecollection" if verb == "delete" and not address.name else verb

    @property
    def form(self) -> Representation:
        """The representation that the client asks for."""
        return negotiation.negotiate(self.request.headers.get("accept", ""))

    @property
    def media_type(self) -> str:
        """The media type of the body."""
        return bodies.media_type(self.request.headers.get("content-type", ""))

    @property
    def include(self) -> str:
        """What each row of a Table carries of its object."""
        value = self.request.first("includeObject") or "Metadata"
        if value not in ("None", "Metadata", "Object"):
            why = "must be None, Metadata or Object"
            raise _bad_option("TableOptions", "includeObject", ErrorType.NOT_SUPPORTED, why, value)
        return value

    async def body(self) -> bytes:
        return await self.request.read(bodies.BODY_BYTES)

    # --- Options ------------------------------------------------------------------------------------------------------

    def write_context(self) -> WriteContext:
        """Return the context of the write that the request asks for."""
        request, address = self.request, self.address
        manager = request.first("fieldManager")
        if len(manager.encode()) > _MANAGER_LENGTH:
            why = f"may not be more than {_MANAGER_LENGTH} bytes"
            raise _bad_option("CreateOptions", "fieldManager", ErrorType.TOO_LONG, why)
        if not manager.isprintable():
            why = "should only contain printable characters"
            raise _bad_option("CreateOptions", "fieldManager", ErrorType.INVALID, why)
        validation = request.first("fieldValidation") or "Warn"
        if validation not in ("Ignore", "Warn", "Strict"):
            why = "must be Ignore, Warn or Strict"
            raise _bad_option("CreateOptions", "fieldValidation", ErrorType.NOT_SUPPORTED, why, validation)
        dry_run = [value for name, value in request.query if name == "dryRun" and value]
        options = {"fieldManager": manager, "dryRun": dry_run, "fieldValidation": request.first("fieldValidation")}
        return WriteContext(
            resource=self.resource,
            user=self.user,
            namespace=address.namespace,
            name=address.name,
            subresource=address.subresource,
            manager=manager or _agent(request),
            dry_run=_dry_run(dry_run),
            validation=validation,
            force=query.flag(request, "force"),
            options={name: value for name, value in options.items() if value},
            warnings=self.warnings,
            is_json=self.media_type in _JSON_TYPES,
        )

    def delete_options(self, context: WriteContext, body: bytes) -> Tree:
        """Return the DeleteOptions of the body and of the query; the query has precedence."""
        request, options = self.request, {}
        if body.strip():
            given = _from_protobuf(body) if self.media_type == bodies.PROTOBUF else bodies.parse_yaml(body)
            if not isinstance(given, dict):
                raise status.bad_request("the options of a deletion are not an object")
            options = {key: value for key, value in given.items() if value is not None}
        if query.has(request, "gracePeriodSeconds"):
            options["gracePeriodSeconds"] = query.number(request, "gracePeriodSeconds")
        if request.first("propagationPolicy"):
            options["propagationPolicy"] = request.first("propagationPolicy")
        if query.has(request, "orphanDependents"):
            options["orphanDependents"] = query.flag(request, "orphanDependents")
        if options.get("dryRun"):
            context.dry_run = _dry_run(options["dryRun"])
        return options

    # --- Bodies -------------------------------------------------------------------------------------------------------

    def object(self, context: WriteContext, body: bytes) -> Tree:
        """Decode the object in a body. No Content-Type means JSON."""
        tree: Any
        match self.media_type:
            case "" | bodies.JSON:
                tree = bodies.parse_json(body)
                context.oddities = bodies.duplicates(body, tree)
            case bodies.YAML | "application/x-yaml" | "text/yaml":
                tree = bodies.parse_yaml(body)
            case bodies.PROTOBUF if not self.resource.custom:
                tree = _from_protobuf(body)
            case kind:
                accepted = [bodies.JSON, bodies.YAML] + ([] if self.resource.custom else [bodies.PROTOBUF])
                raise status.unsupported_media_type(kind, accepted)
        if not isinstance(tree, dict):
            raise status.bad_request("the body is not an object")
        return tree

    def configuration(self, context: WriteContext, body: bytes) -> Tree:
        """Decode the configuration of a server-side apply."""
        if not self.request.first("fieldManager"):
            raise _bad_option("PatchOptions", "fieldManager", ErrorType.REQUIRED, "is required for apply patch")
        configuration = bodies.parse_yaml(body)
        if not isinstance(configuration, dict):
            raise status.bad_request("the configuration to apply is not an object")
        if body.lstrip()[:1] == b"{":
            context.oddities = bodies.duplicates(body, configuration)
        return configuration

    def patch(self, body: bytes) -> Any:
        """Decode any other patch."""
        if self.request.first("force"):
            why = "may not be specified for non-apply patch"
            raise _bad_option("PatchOptions", "force", ErrorType.FORBIDDEN, why)
        return bodies.parse_json(body)


def _agent(request: Request) -> str:
    """Return the field manager of a write that names none: the first word of its user agent."""
    name = request.headers.get("user-agent", "").partition("/")[0][:_MANAGER_LENGTH]
    return name if name and name.isprintable() else "unknown"


def _dry_run(values: Any) -> bool:
    if not values:
        return False
    if values != ["All"]:
        raise _bad_option("CreateOptions", "dryRun", ErrorType.NOT_SUPPORTED, 'must be "All"', values)
    return True


def _bad_option(
    kind: str, path: str, error_type: ErrorType, why: str, value: Any = msgspec.UNSET
) -> status.StatusError:
    return status.invalid("meta.k8s.io", kind, "", [FieldError(path, error_type, why, value)])


def _from_protobuf(body: bytes) -> Tree:
    try:
        return protobuf.decode(body)
    except protobuf.ProtobufError as error:
        raise status.bad_request(f"the body cannot be read as protobuf: {error}") from None
