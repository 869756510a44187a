"""The paths under /dashboard/: files without authentication, and JSON documents by the permissions of the user.

    api/me                                   what the user has permission to list
    api/overview                             cohorts, with their busiest queues
    api/queues                               a page of ClusterQueues: q, cohort, sort, descending, offset, limit
    api/queues/NAME, api/flavors/NAME        one of them
    api/workloads                            a page of Workloads: q, namespace, queue, clusterQueue, state, sort, …
    api/workloads/NAMESPACE/NAME             one, with its history
    api/workloads/NAMESPACE/NAME/explanation why it is in its state; suggestions=true adds changes that would admit it,
                                             fresh=true computes it now (`pykueue explain`)
    api/overtime                             usage, waiting and users of a ClusterQueue by day: clusterQueue, days
    api/budgets                              what groups have used of their Budgets, and what is refused
    api/stream                               Server-Sent Events: one per change, at most one per second

The files hold no data and need no token. For every other path the API server authenticates the token (TokenReview) and
authorizes list or get of the objects that the answer is made of (SubjectAccessReview). Only GET and HEAD are allowed.
"""

from __future__ import annotations

import asyncio
import gzip
import json
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

from msgspec.structs import replace

from kubemachinery import codec
from kubemachinery.client.delegated_auth import DelegatedAuthorizer
from kubemachinery.client.errors import KubeError
from kubemachinery.errors import UsageError
from kubemachinery.http_messages import Request, Response, Write
from pykueue.api import kube, kueue, registry
from pykueue.api.budget import Budget
from pykueue.dashboard import assets, over_time, workload_history
from pykueue.dashboard.overview import QUEUE_SORTS
from pykueue.dashboard.summaries import FRESH_SECONDS, DashboardSummaries
from pykueue.dashboard.workload_table import SORTS, DisplayState, WorkloadQuery
from pykueue.history import documents
from pykueue.history.store import HistoryStoreError
from pykueue.state import troubles

Tree: TypeAlias = dict[str, Any]

PREFIX: Final = "/dashboard/"
LIMIT: Final = 50
LIMIT_MAX: Final = 200
STREAMS_MAX: Final = 500
HEARTBEAT_SECONDS: Final = 15.0
_SEARCH_MAX: Final = 200
_LARGE_BYTES: Final = 2048
_EVENTS: Final = registry.ALL.of(kube.Event)

_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
        " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class _Refused(Exception):
    """An error answer: status code and message."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def _gone(kind: str, name: str) -> _Refused:
    return _Refused(404, f"{kind} {name[:300]} does not exist")


class DashboardEndpoints:
    """The handler of the paths. `close` ends the streams."""

    def __init__(self, summaries: DashboardSummaries, authorizer: DelegatedAuthorizer) -> None:
        self._summaries = summaries
        self._authorizer = authorizer
        self._over = asyncio.Event()
        self._streams = 0
        self._overview: tuple[int, bytes] = (-1, b"")

    def close(self) -> None:
        self._over.set()

    async def answer(self, request: Request) -> Response:
        """Handle a request (`http_messages.Handler`)."""
        try:
            response = await self._route(request)
        except _Refused as refused:
            response = _json({"message": str(refused)}, refused.code)
            if refused.code == 401:
                response.headers["WWW-Authenticate"] = "Bearer"
        response.headers |= _HEADERS
        return _packed(request, response)

    async def _route(self, request: Request) -> Response:
        if request.method not in ("GET", "HEAD"):
            refused = _json({"message": "method not allowed: the dashboard supports GET and HEAD only"}, 405)
            refused.headers["Allow"] = "GET, HEAD"
            return refused
        if request.path == PREFIX.rstrip("/"):
            return Response(308, headers={"Location": PREFIX})
        parts = [unquote(part) for part in request.path.removeprefix(PREFIX).split("/")]
        if parts[0] == "api":
            return await self._document(request, parts[1:])
        asset = assets.files().get(parts[0] or assets.INDEX) if len(parts) == 1 else None
        if asset is None:
            raise _Refused(404, "page not found")
        headers = {"ETag": asset.etag, "Cache-Control": "no-cache"}
        if request.headers.get("if-none-match") == asset.etag:
            return Response(304, content_type=asset.content_type, headers=headers)
        return Response(200, asset.body, asset.content_type, headers)

    async def _document(self, request: Request, parts: list[str]) -> Response:
        if not request.headers.get("authorization"):
            raise _Refused(401, "a bearer token is required")
        match parts:
            case ["me"]:
                return await self._me(request)
            case ["overview"]:
                return await self._whole(request)
            case ["queues"]:
                return await self._queues(request)
            case ["queues", name]:
                return await self._queue(request, name)
            case ["flavors", name]:
                return await self._flavor(request, name)
            case ["workloads"]:
                return await self._workloads(request)
            case ["workloads", namespace, name]:
                return await self._workload(request, namespace, name)
            case ["workloads", namespace, name, "explanation"]:
                return await self._explanation(request, namespace, name)
            case ["overtime"]:
                return await self._over_time(request)
            case ["budgets"]:
                return await self._budgets(request)
            case ["stream"]:
                return await self._stream(request)
        raise _Refused(404, "page not found")

    # --- Authorization ------------------------------------------------------------------------------------------------

    async def _may(self, request: Request, verb: str, kind: type, namespace: str = "", name: str = "") -> bool:
        row = registry.ALL.of(kind)
        wanted = {"verb": verb, "group": row.group, "resource": row.plural, "namespace": namespace, "name": name}
        attributes = {"resourceAttributes": {key: value for key, value in wanted.items() if value}}
        refusal = await self._authorizer.denial(request, attributes)
        if refusal is not None and refusal.code != 403:
            raise _Refused(refusal.code, refusal.message)
        return refusal is None

    async def _require(self, request: Request, verb: str, kind: type, namespace: str = "", name: str = "") -> None:
        if not await self._may(request, verb, kind, namespace, name):
            where = f" in namespace {namespace}" if namespace else ""
            raise _Refused(403, f"you do not have permission to {verb} {registry.ALL.of(kind).plural}{where}"[:500])

    async def _me(self, request: Request) -> Response:
        """Return which lists the user has permission to read."""
        queues = await self._may(request, "list", kueue.ClusterQueue)
        return _json({"clusterQueues": queues, "workloads": await self._may(request, "list", kueue.Workload)})

    # --- Queues -------------------------------------------------------------------------------------------------------

    async def _whole(self, request: Request) -> Response:
        await self._require(request, "list", kueue.ClusterQueue)
        await self._summaries.refresh()
        if self._overview[0] != self._summaries.revision:
            tree = {**self._summaries.overview.tree(), "totals": self._summaries.table.totals()}
            self._overview = (self._summaries.revision, _encoded(tree))
        return _data(self._overview[1])

    async def _queues(self, request: Request) -> Response:
        await self._require(request, "list", kueue.ClusterQueue)
        offset, limit = _page(request)
        sort = _choice(request, "sort", QUEUE_SORTS, "name")
        await self._summaries.refresh()
        found = self._summaries.overview.page(
            _search(request), request.first("cohort"), sort, descending=_is_on(request, "descending")
        )
        items = [entry.tree() for entry in found[offset : offset + limit]]
        return _json({"items": items, "total": len(found), "offset": offset})

    async def _queue(self, request: Request, name: str) -> Response:
        await self._require(request, "get", kueue.ClusterQueue, name=name)
        await self._summaries.refresh()
        return _found(self._summaries.cluster_queue(name), "ClusterQueue", name)

    async def _flavor(self, request: Request, name: str) -> Response:
        await self._require(request, "get", kueue.ResourceFlavor, name=name)
        await self._require(request, "list", kueue.ClusterQueue)
        await self._summaries.refresh()
        return _found(self._summaries.flavor(name), "ResourceFlavor", name)

    async def _over_time(self, request: Request) -> Response:
        await self._require(request, "list", kueue.ClusterQueue)
        attributes = {"verb": "list", "group": documents.GROUP, "resource": documents.USAGE}
        refusal = await self._authorizer.denial(request, {"resourceAttributes": attributes})
        if refusal is not None:
            where = f"list {documents.USAGE}.{documents.GROUP} in all namespaces"
            raise _Refused(refusal.code, f"you do not have permission to {where}")
        days = _number(request, "days", over_time.DAYS, over_time.DAYS_MAX) or over_time.DAYS
        name = request.first("clusterQueue")
        try:
            found = await self._summaries.over_time(name, days)
        except UsageError:
            raise _gone("ClusterQueue", name) from None
        except HistoryStoreError as error:
            raise _Refused(503, f"the history cannot be read: {error}") from None
        if found is None:
            raise _Refused(501, "this manager keeps no history; --history names a file for it")
        return _json(found)

    async def _budgets(self, request: Request) -> Response:
        await self._require(request, "list", Budget)
        found = self._summaries.budgets()
        if found is None:
            raise _Refused(501, "this manager does not answer for Budgets: the gate Budgets is off")
        return _json(found)

    # --- Workloads ----------------------------------------------------------------------------------------------------

    async def _workloads(self, request: Request) -> Response:
        namespace = request.first("namespace")
        await self._require(request, "list", kueue.Workload, namespace)
        offset, limit = _page(request)
        query = WorkloadQuery.searching(
            _search(request),
            namespace=namespace,
            queue=request.first("queue"),
            cluster_queue=request.first("clusterQueue"),
            state=_choice(request, "state", (*DisplayState, ""), ""),
            sort=_choice(request, "sort", SORTS, "created"),
            descending=_is_on(request, "descending"),
        )
        await self._summaries.refresh()
        await self._summaries.read_troubles()
        return _json(self._summaries.workloads(query, offset, limit))

    async def _workload(self, request: Request, namespace: str, name: str) -> Response:
        await self._require(request, "get", kueue.Workload, namespace, name)
        await self._summaries.read_troubles()
        found = self._summaries.workload(namespace, name)
        if found is None:
            raise _gone("Workload", f"{namespace}/{name}")
        workload, tree = found
        if not await self._may(request, "list", kueue.Workload):
            shown = tree["troubles"]
            tree["troubles"] = [{**each, "message": troubles.within(each["message"], namespace)} for each in shown]
        events: list[kube.Event] = []
        note = ""
        if not await self._may(request, "list", kube.Event, namespace):
            note = f"you do not have permission to list events in namespace {namespace}: the history lacks them"
        else:
            try:
                events = await self._events(workload)
            except KubeError:
                note = "the events could not be read: the history lacks them"
        if len(events) > workload_history.EVENTS_MAX:
            note = f"the latest {workload_history.EVENTS_MAX} of {len(events):,} events are shown"
        return _json({**tree, "history": workload_history.timeline(workload, events), "note": note})

    async def _events(self, workload: kueue.Workload) -> list[kube.Event]:
        metadata = workload.metadata
        listing = await self._authorizer.client.list(
            _EVENTS, metadata.namespace, fields=f"regarding.name={metadata.name}"
        )
        events = (codec.decode(bytes(item), kube.Event) for item in listing.items)
        return [event for event in events if event.regarding is not None and event.regarding.uid == metadata.uid]

    async def _explanation(self, request: Request, namespace: str, name: str) -> Response:
        await self._require(request, "get", kueue.Workload, namespace, name)
        sees_all = await self._may(request, "list", kueue.Workload)
        # Suggestions name Workloads of other namespaces, so they require permission to list all of them.
        suggestions = _is_on(request, "suggestions") and sees_all
        fresh = _is_on(request, "fresh")
        await self._summaries.refresh(at_once=fresh)
        try:
            found = await self._summaries.explanation(namespace, name, suggestions=suggestions, fresh=fresh)
        except UsageError:
            raise _gone("Workload", f"{namespace}/{name}") from None
        if found is None:
            raise _Refused(501, "explanations are not available here; use pykueue explain")
        return _json(found if sees_all else _within(found, namespace))

    # --- The stream ---------------------------------------------------------------------------------------------------

    async def _stream(self, request: Request) -> Response:
        # The stream reveals when something changes, so it requires the same permission.
        namespace = request.first("namespace")
        await self._require(request, "list", kueue.Workload, namespace)
        if self._streams >= STREAMS_MAX:
            raise _Refused(503, "too many open streams; the page retries automatically")

        async def send(write: Write) -> None:
            self._streams += 1
            try:
                await self._send_changes(request, namespace, write)
            finally:
                self._streams -= 1

        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        is_wanted = request.method == "GET"
        return Response(200, content_type="text/event-stream", headers=headers, stream=send if is_wanted else None)

    async def _send_changes(self, request: Request, namespace: str, write: Write) -> None:
        """Send changes, and heartbeats between them, while the user has permission."""
        sent, quiet = -1, 0.0
        while not self._over.is_set():
            await self._summaries.refresh()
            if sent != self._summaries.revision:
                sent, quiet = self._summaries.revision, 0.0
                # Totals count the Workloads of all namespaces.
                totals = {} if namespace else {"totals": self._summaries.table.totals()}
                await write(b"event: changed\ndata: " + _encoded({"revision": sent, **totals}) + b"\n\n")
            elif quiet >= HEARTBEAT_SECONDS:
                quiet = 0.0
                await write(b": heartbeat\n\n")
            try:
                await asyncio.wait_for(self._over.wait(), FRESH_SECONDS)
            except TimeoutError:
                quiet += FRESH_SECONDS
            try:
                if not await self._may(request, "list", kueue.Workload, namespace):
                    return
            except _Refused:
                return


def _within(found: Tree, namespace: str) -> Tree:
    """Return an explanation for a user with access to one namespace: Workloads of other namespaces are omitted."""
    keys = [*found["ahead"], *(holder["workload"] for holder in found["holders"])]
    hidden = [key for key in keys if not key.startswith(f"{namespace}/")]
    return {
        **found,
        "ahead": [key for key in found["ahead"] if key not in hidden],
        "holders": [holder for holder in found["holders"] if holder["workload"] not in hidden],
        "causes": [cause for cause in found["causes"] if not any(key in cause for key in hidden)],
        "suggestions": [],
        "note": "Workloads of other namespaces and suggestions require permission to list Workloads in all namespaces",
    }


# --- Requests and answers ---------------------------------------------------------------------------------------------


def _page(request: Request) -> tuple[int, int]:
    return _number(request, "offset", 0, 10**9), _number(request, "limit", LIMIT, LIMIT_MAX)


def _number(request: Request, name: str, default: int, maximum: int) -> int:
    text = request.first(name) or str(default)
    if not text.isascii() or not text.isdecimal() or len(text) > 10 or int(text) > maximum:
        raise _Refused(400, f"{name}: must be a number from 0 to {maximum}")
    return int(text)


def _choice(request: Request, name: str, known: Any, default: str) -> str:
    text = request.first(name) or default
    if text not in known:
        raise _Refused(400, f"{name}: must be one of {', '.join(filter(None, known))}")
    return text


def _search(request: Request) -> str:
    text = request.first("q")
    if len(text) > _SEARCH_MAX:
        raise _Refused(400, f"q: is longer than {_SEARCH_MAX} characters")
    return text


def _is_on(request: Request, name: str) -> bool:
    return request.first(name) == "true"


def _found(tree: Tree | None, kind: str, name: str) -> Response:
    if tree is None:
        raise _gone(kind, name)
    return _json(tree)


def _encoded(tree: Tree) -> bytes:
    return json.dumps(tree, separators=(",", ":"), allow_nan=False).encode()


def _packed(request: Request, response: Response) -> Response:
    """Compress large bodies: the overview of a thousand queues is requested every second during changes."""
    if len(response.body) < _LARGE_BYTES or "gzip" not in request.headers.get("accept-encoding", ""):
        return response
    packed = {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
    return replace(response, body=gzip.compress(response.body, 1, mtime=0), headers={**response.headers, **packed})


def _json(tree: Tree, code: int = 200) -> Response:
    return _data(_encoded(tree), code)


def _data(body: bytes, code: int = 200) -> Response:
    return Response(code, body, headers={"Cache-Control": "no-store"})
