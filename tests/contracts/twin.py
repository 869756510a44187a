"""Two servers, one question: our own in this process, and a real kube-apiserver, asked the same and compared.

What differs between any two servers is taken out first: uids, revisions, times, generated names, the order of
errors. Words may differ too, for we write our own; codes, reasons, the fields that are complained about and objects may
not. A difference that is meant is a row in `EXPLAINED`, with its reason.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec

from cluster.real import Answer, Client
from kubemachinery.clock import SystemClock
from kubemachinery.http_messages import Request, body_of
from kubeserver.assembly import Embedded, Parts
from kubeserver.builtin import admission, scheduling
from kubeserver.builtin.kinds import RESOURCES
from kubeserver.http.health import ServerInfo
from kubeserver.protocol import authentication
from kubeserver.registry import unsupported
from kubeserver.storage.sqlite import MemoryJournal

_TOKEN: Final = "twin"
# Where generated questions begin: another number asks others.
_FIRST_SEED: Final = int(os.environ.get("TWIN_SEED", "0"))


def seeds(count: int, block: int = 0) -> range:
    """The seeds of one test, or of one of its blocks."""
    first = _FIRST_SEED + block * count
    return range(first, first + count)


class Ours:
    """Our server in this process, without a socket: a request is a value and so is its answer."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._embedded = self._runner.run(self._started())

    async def _started(self) -> Embedded:
        parts = Parts(builtin=RESOURCES, plugins=admission.hooks, initial=scheduling.SYSTEM_CLASSES)
        authenticator = authentication.Authenticator({_TOKEN: authentication.ADMIN}, ("127.0.0.1",))
        embedded = Embedded(parts, MemoryJournal(), authenticator, SystemClock(), random.Random(1), ServerInfo("twin"))
        await embedded.start()
        return embedded

    def request(
        self, method: str, path: str, body: Any = None, content_type: str = "application/json", **headers: str
    ) -> Answer:
        return self._runner.run(self._answer(method, path, body, content_type, headers))

    async def _answer(self, method: str, path: str, body: Any, content_type: str, headers: Mapping[str, str]) -> Answer:
        place, _, query = path.partition("?")
        sent = {"host": "127.0.0.1", "authorization": f"Bearer {_TOKEN}", "user-agent": "twin/1.0"}
        sent["accept"] = "application/json"
        payload = b""
        if body is not None:
            payload = body if isinstance(body, bytes) else msgspec.json.encode(body)
            if content_type:
                sent["content-type"] = content_type
        sent.update({name.lower().replace("_", "-"): value for name, value in headers.items()})
        parameters = parse_qsl(query, keep_blank_values=True)
        request = Request(method, place, parameters, sent, body_of(payload))
        response = await self._embedded.server.handle(request)
        data = response.body if method != "HEAD" else b""  # which HTTP omits
        if response.stream is not None:
            chunks: list[bytes] = []

            async def write(chunk: bytes) -> None:
                chunks.append(chunk)

            await response.stream(write)
            data = b"".join(chunks)
        try:
            decoded = msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            decoded = data.decode(errors="replace")
        found = {name.lower(): value for name, value in response.headers.items()}
        found["content-type"] = response.content_type
        return Answer(response.status, found, decoded)

    def close(self) -> None:
        self._runner.run(self._embedded.close())
        self._runner.close()


# --- comparing --------------------------------------------------------------------------------------------------------

_UID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TIME: Final = re.compile(r'"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"')
_VOLATILE: Final = ("resourceVersion", "selfLink")


def normalised(body: Any) -> Any:
    """A body without what no two servers have in common."""
    text = msgspec.json.encode(body).decode()
    metadata = body.get("metadata") if isinstance(body, dict) else None
    if isinstance(metadata, dict) and metadata.get("generateName") and metadata.get("name"):
        text = text.replace(metadata["name"], "<generated>")
    tree = msgspec.json.decode(_TIME.sub('"<time>"', _UID.sub("<uid>", text)).encode())
    _clean(tree)
    return tree


def _clean(value: Any) -> None:
    if isinstance(value, dict):
        metadata = value.get("metadata")
        if isinstance(metadata, dict):
            for key in _VOLATILE:
                metadata.pop(key, None)
            if isinstance(metadata.get("managedFields"), list):
                metadata["managedFields"].sort(key=_entry_order)
        for condition in value.get("conditions") or () if isinstance(value.get("conditions"), list) else ():
            if isinstance(condition, dict):
                condition.pop("message", None)  # our own words
        for inner in value.values():
            _clean(inner)
    elif isinstance(value, list):
        for inner in value:
            _clean(inner)


def _entry_order(entry: Any) -> tuple[str, ...]:
    return tuple(str(entry.get(key, "")) for key in ("operation", "manager", "apiVersion", "subresource"))


def comparable(answer: Answer) -> Any:
    """A response in the form in which two of them are compared."""
    body = answer.body
    if not isinstance(body, dict) or body.get("kind") != "Status":
        return {"code": answer.code, "body": normalised(body)}
    details = body.get("details") or {}
    # The real server spells the place of what concerns the whole object as Go does.
    causes = sorted(
        (cause.get("reason", ""), cause.get("field", "").replace("<nil>", "")) for cause in details.get("causes") or ()
    )
    return {
        "code": answer.code,
        "reason": body.get("reason", ""),
        "details": {key: details.get(key, "") for key in ("name", "group", "kind")},
        "causes": list(dict.fromkeys(causes)),
    }


_WARNING: Final = re.compile(r'299 - "((?:[^"\\]|\\.)*)"')
_PLACE: Final = re.compile(r'[\w.\[\]/-]+(?=: )|volume \\"[^"]*"')
# What this server adds: RBAC is not enforced, Services get no address.
_OWN_WARNINGS: Final = frozenset(unsupported.words(name) for name in ("rbac", "service-addresses"))


def headers(answer: Answer) -> Any:
    """The headers that are compared. Of a warning, only its path: the texts differ."""
    warnings = [text for text in _WARNING.findall(answer.headers.get("warning", "")) if text not in _OWN_WARNINGS]
    places = sorted(found[0] if (found := _PLACE.match(text)) else text for text in warnings)
    return {
        "type": answer.headers.get("content-type", "").partition(";")[0],
        "warnings": places,
        "retry": answer.headers.get("retry-after", ""),
    }


def differences(left: Any, right: Any, path: str = "") -> list[str]:
    """Where two values differ, one line a place: `real` first."""
    if isinstance(left, dict) and isinstance(right, dict):
        lines = []
        for key in sorted({*left, *right}):
            lines += differences(left.get(key, "<absent>"), right.get(key, "<absent>"), f"{path}.{key}")
        return lines
    if isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        return [
            line
            for at, (a, b) in enumerate(zip(left, right, strict=True))
            for line in differences(a, b, f"{path}[{at}]")
        ]
    return [] if left == right else [f"{path}: real {_short(left)}, ours {_short(right)}"]


def _short(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) < 300 else text[:300] + "..."


@dataclass
class Twin:
    """Both servers, and what was found to differ."""

    real: Client
    ours: Ours
    asked: int = 0
    explained: dict[str, int] = field(default_factory=dict)

    def both(
        self, method: str, path: str, body: Any = None, content_type: str = "application/json", **headers: str
    ) -> tuple[Answer, Answer]:
        """Ask both the same."""
        self.asked += 1
        return (
            self.real.request(method, path, body, content_type, **headers),
            self.ours.request(method, path, body, content_type, **headers),
        )

    def compare(self, what: str, real: Answer, ours: Answer) -> list[str]:
        """The lines in which the responses differ without an explanation."""
        found = differences(comparable(real), comparable(ours)) + differences(headers(real), headers(ours), ".headers")
        if not found:
            return []
        for explanation in EXPLAINED:
            if explanation.covers(what, real, ours, found):
                self.explained[explanation.why] = self.explained.get(explanation.why, 0) + 1
                return []
        shown = [
            f"{name}: {answer.code} {answer.body.get('message', '')}"
            for name, answer in (("real", real), ("ours", ours))
            if isinstance(answer.body, dict) and answer.body.get("kind") == "Status"
        ]
        return [what, *(f"    {line}" for line in (*found, *shown))]


@dataclass(frozen=True)
class Explanation:
    """A difference that is meant: which requests, which codes, and why."""

    why: str
    what: str = ""  # a pattern over the description of the request
    codes: tuple[int, int] | None = None  # (real, ours)
    message_pattern: str = ""  # a pattern over the body of the real server
    lines: str = ""  # a pattern that every differing line must match

    def covers(self, what: str, real: Answer, ours: Answer, found: list[str]) -> bool:
        return (
            re.search(self.what, what) is not None
            and (self.codes is None or self.codes == (real.code, ours.code))
            and (not self.message_pattern or re.search(self.message_pattern, str(real.body)) is not None)
            and all(re.search(self.lines, line) for line in found)
        )


EXPLAINED: Final[tuple[Explanation, ...]] = (
    Explanation(
        "kube-apiserver fails inside on strategic patches that order an empty list or end with a directive; "
        "we apply them",
        what="strategic",
        codes=(500, 200),
    ),
    Explanation("the same, where what comes out is not valid", what="strategic", codes=(500, 422)),
    Explanation(
        "where there is nothing to patch, kube-apiserver adds an item with the directive in it, drops that and warns of it",
        what="strategic",
        lines=r"^\.headers\.warnings: real .*\.\$patch",
    ),
    Explanation(
        "a configuration that the schema does not know is the client's mistake, not the server's",
        what="apply",
        codes=(500, 400),
    ),
    Explanation(
        "where an apply takes the last item out of a map or list, kube-apiserver leaves null there and then refuses "
        "its own null; we leave nothing there",
        what="apply",
        message_pattern='Invalid value: "null": .*must be of type',
    ),
    Explanation(
        "kube-apiserver leaves the index out, or names another part of the object, where it complains; we name the place",
        lines=r"^\.causes\[\d\]: real \S+(ownerReferences\.|volumeMounts\.|metadata\.taints|overhead\.limits)",
    ),
    Explanation(
        "a revision in an object to be created is the client's mistake, not the server's",
        what="^create .*resourceVersion",
        codes=(500, 400),
    ),
    Explanation(
        "kube-apiserver complains in the words of the old face of Events, whichever was asked; we answer as we were asked",
        what="Event of events.k8s.io",
        lines=r"^\.details\.group: |^\.causes\[\d\]: ",
    ),
    Explanation(
        "an empty list without meaning is not stored, and so has no owner",
        what=r"^create (LimitRange|ClusterRole|EndpointSlice)|: a list at \.(rules|spec\.limits|spec\.devices\.requests|endpoints|ports)",
        lines=r"^\.body\.metadata\.managedFields",
    ),
    Explanation(
        "kube-apiserver records no time for the manager of a scale of a built-in kind; every entry has its time here",
        what="after its scale$",
        lines=r"^\.body\.metadata\.managedFields\[\d\]\.time: real \"<absent>\"",
    ),
    Explanation(
        "a patch that takes all metadata away leaves what names the object",
        what="^merge {'metadata': None}",
        codes=(400, 200),
    ),
    Explanation(
        "a missing resourceVersion is reported for the Kind, like every other error of an object",
        what="^update Lease|^an update of a custom object needs",
        lines=r"^\.details\.kind: ",
    ),
    Explanation(
        "an operator that no selector knows is an unsupported value",
        what="'operator': 'Bogus'",
        lines=r"^\.causes\[0\]: real \[\"FieldValueInvalid\"",
    ),
    Explanation(
        "an unknown path is answered with a Status that names it; kube-apiserver has words without a Status for some",
        what="^an unknown (resource|group)",
    ),
    Explanation(
        "a JSON patch that cannot be applied is reported with its operation and path",
        what="^a JSON patch ",
        lines=r"^\.(causes|details\.kind|details\.name): ",
    ),
    Explanation("a uid in an object is a precondition: a mismatch is a conflict", what="another uid", codes=(422, 409)),
    Explanation(
        "a failed precondition is reported for the resource, like any other conflict",
        what="^deleting with another",
        lines=r"^\.details\.kind: ",
    ),
    Explanation("a subresource that is not served is not found", what="^the scale of", codes=(404, 404)),
    Explanation(
        "a review is a response and not an object: its fields have no managers; and it has a reason",
        what="^may I|^whose",
        lines=r"^\.body\.(metadata\.managedFields|status\.reason|status\.error): ",
    ),
    Explanation(
        "a number with a fraction where an integer is required is reported once; kube-apiserver reports it twice",
        what=": a fraction at ",
        lines=r"^\.causes: real .*\[\"FieldValueTypeInvalid\"",
    ),
    Explanation(
        "webhooks are called on this machine only, which is reported beside other errors of a URL",
        what=r"at \.webhooks\[0\]\.clientConfig",
        lines=r"^\.causes: real \[\[\"FieldValueInvalid\"",
    ),
    Explanation(
        "an empty word is none of those that are supported",
        what="an empty text at .*preemptionPolicy",
        lines=r'^\.causes\[\d\]: real \["FieldValueRequired",',
    ),
    Explanation(
        "of the labels of a selector, we name the one that is wrong",
        lines=r'^\.causes\[\d\]: real \["FieldValueInvalid","\S+matchLabels"\], ours \S+matchLabels\[',
    ),
    Explanation(
        "no address and no node port is allocated here",
        what="Service",
        lines=r"^\.body\.spec\.(clusterIPs?|ports\[0\]\.nodePort): real .*, ours \"<absent>\"",
    ),
    Explanation(
        "a patch that puts a value of the wrong type somewhere is reported as such",
        what="^merge",
        codes=(422, 400),
    ),
)
