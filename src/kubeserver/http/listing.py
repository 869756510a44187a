"""The options of lists and watches, parsed from the query; and lists, page by page."""

from __future__ import annotations

import base64
import random
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from kubemachinery import selectors, status
from kubemachinery.field_errors import ErrorType, FieldError
from kubemachinery.http_messages import Request
from kubemachinery.serving import query
from kubeserver.protocol import cooperative
from kubeserver.registry.representations import Presenter
from kubeserver.registry.strategy import Resource, Tree
from kubeserver.storage.entries import ObjectEntry
from kubeserver.storage.objects import Objects
from kubeserver.storage.watch import Match, Watch

FRESH_SECONDS: Final = 3.0
REVISION_MAX: Final = 2**64
_ALWAYS_SELECTABLE: Final = ("metadata.name", "metadata.namespace")


class ListOptions(msgspec.Struct, frozen=True):
    """The options of a list or a watch, checked against each other."""

    labels: selectors.Selector
    fields: selectors.FieldSelector
    limit: int = 0
    token: str = ""
    revision: int | None = None
    match: str = ""
    watch: bool = False
    bookmarks: bool = False
    initial: bool | None = None
    timeout_seconds: int = 0

    @classmethod
    def read(cls, request: Request, resource: Resource, *, watch: bool = False) -> ListOptions:
        watch = watch or query.flag(request, "watch")
        initial = query.flag(request, "sendInitialEvents") if query.has(request, "sendInitialEvents") else None
        revision, match = _revision(request), request.first("resourceVersionMatch")
        token = request.first("continue")
        errors = list(_contradictions(revision, match, token, initial, watch=watch))
        if errors:
            raise status.invalid("meta.k8s.io", "ListOptions", "", errors)
        return cls(
            labels=_labels(request),
            fields=_fields(request, resource),
            limit=max(0, query.number(request, "limit")),
            token=token,
            revision=revision,
            match=match,
            watch=watch,
            bookmarks=query.flag(request, "allowWatchBookmarks"),
            initial=initial,
            timeout_seconds=query.number(request, "timeoutSeconds"),
        )

    @property
    def is_exact(self) -> bool:
        """Whether a list is of the very revision that it names. As in kube-apiserver, a page without a match is."""
        return self.match == "Exact" or (not self.match and self.limit > 0)

    def narrowed_to(self, name: str) -> ListOptions:
        """Return the same options for one object, as a watch of a single name."""
        only = selectors.FieldRequirement("metadata.name", name)
        return replace(self, fields=selectors.FieldSelector((*self.fields.requirements, only)))


def _revision(request: Request) -> int | None:
    value = request.first("resourceVersion")
    if not value:
        return None
    if not value.isascii() or not value.isdecimal() or len(value) > 20 or int(value) >= REVISION_MAX:
        raise status.bad_request(f"invalid resource version {value[:100]!r}")
    return int(value)


def _labels(request: Request) -> selectors.Selector:
    try:
        return selectors.parse(request.first("labelSelector"))
    except selectors.SelectorError as error:
        raise status.bad_request(f"unable to parse the label selector: {error}") from None


def _fields(request: Request, resource: Resource) -> selectors.FieldSelector:
    try:
        selector = selectors.parse_fields(request.first("fieldSelector"))
    except selectors.SelectorError as error:
        raise status.bad_request(f"unable to parse the field selector: {error}") from None
    for requirement in selector.requirements:
        if requirement.path not in _ALWAYS_SELECTABLE and requirement.path not in resource.selectable:
            raise status.bad_request(f"field label not supported: {requirement.path}")
    return selector


def _contradictions(
    revision: int | None, match: str, token: str, initial: bool | None, *, watch: bool
) -> Iterable[FieldError]:
    def forbidden(path: str, why: str) -> FieldError:
        return FieldError(path, ErrorType.FORBIDDEN, why)

    if watch and match and initial is None:
        yield forbidden(
            "resourceVersionMatch", "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        )
        return
    if initial is not None:
        if not watch:
            yield forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list")
        elif match != "NotOlderThan":
            yield forbidden(
                "resourceVersionMatch", "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            )
        return
    if not match:
        return
    if match not in ("Exact", "NotOlderThan"):
        yield FieldError(
            "resourceVersionMatch", ErrorType.NOT_SUPPORTED, "must be Exact, NotOlderThan or nothing", match
        )
    if revision is None:
        yield forbidden("resourceVersionMatch", "resourceVersionMatch is forbidden unless resourceVersion is provided")
    if token:
        yield forbidden("resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided")
    if match == "Exact" and revision == 0:
        yield forbidden("resourceVersionMatch", 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"')


# --- Selecting --------------------------------------------------------------------------------------------------------


class _Labelled(msgspec.Struct):
    labels: dict[str, str] = {}


class _Object(msgspec.Struct):
    metadata: _Labelled = msgspec.field(default_factory=_Labelled)


_labelled: Final = msgspec.json.Decoder(_Object)


def matcher(resource: Resource, options: ListOptions, tree: Callable[[ObjectEntry], Tree]) -> Match | None:
    """Return a predicate for selected entries; None where all are selected."""
    labels = options.labels if options.labels.requirements else None
    if labels is None and not options.fields.requirements:
        return None
    by_key = [r for r in options.fields.requirements if r.path in _ALWAYS_SELECTABLE]
    inside = [r for r in options.fields.requirements if r.path not in _ALWAYS_SELECTABLE]

    def match(entry: ObjectEntry) -> bool:
        for requirement in by_key:
            found = entry.key.name if requirement.path == "metadata.name" else entry.key.namespace
            if (found == requirement.value) is not requirement.equal:
                return False
        if labels is not None and not labels.matches(_labelled.decode(entry.body).metadata.labels):
            return False
        if inside:
            fields = selected_fields(resource, tree(entry))
            return all(requirement.holds(fields) for requirement in inside)
        return True

    return match


def selected_fields(resource: Resource, tree: Tree) -> dict[str, str]:
    """Return the selectable fields of an object as strings; an absent field is ""."""
    return {label: _text(_at(tree, path)) for label, path in resource.selectable.items()}


def _at(tree: Any, path: str) -> Any:
    for part in path.lstrip(".").split("."):
        if not isinstance(tree, dict):
            return None
        tree = tree.get(part)
    return tree


def _text(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
    return str(value)


# --- Lists ------------------------------------------------------------------------------------------------------------


class _Token(msgspec.Struct, array_like=True):
    """A continue token: the revision of the list, and the last object of the page."""

    revision: int
    namespace: str
    name: str


def _write_token(token: _Token) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(token)).decode().rstrip("=")


def _read_token(text: str) -> _Token:
    try:
        padded = text + "=" * (-len(text) % 4)
        token = msgspec.json.decode(base64.b64decode(padded, altchars=b"-_", validate=True), type=_Token)
    except (ValueError, msgspec.MsgspecError):
        raise status.bad_request("continue key is not valid: it was not made by this server") from None
    if not 0 < token.revision < REVISION_MAX:
        raise status.bad_request("continue key is not valid: it names no revision")
    return token


async def wait_until(objects: Objects, revision: int | None) -> None:
    """Wait until a revision is committed: a client that has seen it must not read older state."""
    if revision and not await objects.reach(revision, FRESH_SECONDS):
        raise status.revision_too_large(revision, objects.revision)


async def select(
    objects: Objects, resource: Resource, namespace: str, options: ListOptions, presenter: Presenter
) -> tuple[list[ObjectEntry], Tree]:
    """Return the entries of one page, and the metadata of the list."""
    revision, after = objects.revision, None
    if options.token:
        if options.revision:
            raise status.bad_request("specifying resource version is not allowed when using continue")
        token = _read_token(options.token)
        revision, after = token.revision, (token.namespace, token.name)
        if revision > objects.revision:
            raise status.bad_request("continue key is not valid: it names a revision that is still to come")
    else:
        await wait_until(objects, options.revision)
        revision = objects.revision
        if options.revision and options.is_exact:
            revision = options.revision
    # All of them at once: what is written while a long list is made does not belong to it.
    entries = list(objects.at(resource.group_resource, revision, namespace, after))
    return await _page(resource, options, presenter, entries, revision)


async def _page(
    resource: Resource, options: ListOptions, presenter: Presenter, entries: list[ObjectEntry], revision: int
) -> tuple[list[ObjectEntry], Tree]:
    match, wanted = matcher(resource, options, presenter.tree), options.limit or len(entries)
    chosen: list[ObjectEntry] = []
    if match is None:
        chosen = entries[:wanted]
    else:
        async for some in cooperative.yield_to_loop(entries):
            chosen += filter(match, some)
            if len(chosen) > wanted:
                break
    details: Tree = {"resourceVersion": str(revision)}
    if len(chosen if match else entries) > wanted:
        chosen = chosen[:wanted]
        last = chosen[-1].key
        details["continue"] = _write_token(_Token(revision, last.namespace, last.name))
        if match is None:
            details["remainingItemCount"] = len(entries) - wanted
    return chosen, details


# --- Watches ----------------------------------------------------------------------------------------------------------


def watch(
    resource: Resource,
    namespace: str,
    options: ListOptions,
    presenter: Presenter,
    rng: random.Random,
) -> Watch:
    """Return the Watch that a client asks for."""
    # Without a revision, or from "any", a watch begins with what there is; a bookmark ends that, as with
    # sendInitialEvents, which kube-apiserver sets for such a watch.
    from_present = options.initial if options.initial is not None else not options.revision
    return Watch(
        resource=resource.group_resource,
        namespace=namespace,
        match=matcher(resource, options, presenter.tree),
        after=None if from_present else options.revision or 0,
        present=presenter.one,
        bookmark=presenter.bookmark,
        bookmarks=options.bookmarks,
        end_initial=from_present and options.bookmarks,
        timeout_seconds=float(options.timeout_seconds or rng.randint(1800, 3600)),
        selection=(namespace, options.labels, options.fields, presenter.form_key),
    )
