"""The handlers of the probes, of the metrics endpoint and of /configz.

healthz   200 while the process serves requests
readyz    200 when every readiness check returns an empty string; else 503 with one line per failed check
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from kubemachinery import http_messages

# Returns why the program is not ready, as a sentence; empty if it is.
ReadinessCheck = Callable[[], str]

# The path that shows the effective Configuration, as in the programs of Kubernetes.
CONFIGURATION_PATH: Final = "/configz"

_TEXT = "text/plain; charset=utf-8"
_METRICS = "text/plain; version=0.0.4; charset=utf-8"


def probes(
    checks: Mapping[str, ReadinessCheck], *, alive: str = "healthz", ready: str = "readyz"
) -> http_messages.Handler:
    """Return the handler of the health server. The Configuration can change the paths."""
    alive_path, ready_path = f"/{alive.strip('/')}", f"/{ready.strip('/')}"

    async def answer(request: http_messages.Request) -> http_messages.Response:
        if request.path == alive_path:
            return _plain(200, "ok")
        if request.path != ready_path:
            return _plain(404, f"not found; this server has {alive_path} and {ready_path}")
        lacking = {name: why for name, check in checks.items() if (why := check())}
        if lacking:
            return _plain(503, "\n".join(f"{name}: {why}" for name, why in lacking.items()))
        return _plain(200, "ok")

    return answer


def exposition(scrape: Callable[[], Awaitable[bytes]]) -> http_messages.Handler:
    """Return the handler of the metrics server; `scrape` is that of `Metrics`."""

    async def answer(request: http_messages.Request) -> http_messages.Response:
        if request.path != "/metrics":
            return _plain(404, "not found; this server has /metrics")
        return http_messages.Response(200, await scrape(), _METRICS)

    return answer


def document(tree: Mapping[str, Any]) -> http_messages.Handler:
    """Return the handler of a page that shows one document, such as the effective Configuration."""

    async def answer(request: http_messages.Request) -> http_messages.Response:
        return http_messages.Response(200, json.dumps(tree).encode(), "application/json")

    return answer


def _plain(code: int, text: str) -> http_messages.Response:
    return http_messages.Response(code, text.encode() + b"\n", _TEXT)
