"""Health checks and the version, served without authentication."""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from kubemachinery.http_messages import Request, Response
from kubemachinery.serving import paths, query
from kubeserver.http import responses
from kubeserver.registry.strategy import Tree
from kubeserver.storage.objects import Objects

# The minor version whose behaviour is followed: kubectl warns when it is more than one away from its own.
KUBERNETES_MINOR: Final = 36

# The checks of each probe. A store that refuses writes can still be read, so it is no reason to restart the server.
PROBES: Final[Mapping[str, tuple[str, ...]]] = {
    "livez": ("ping",),
    "healthz": ("ping",),
    "readyz": ("ping", "started", "store"),
}


class ServerInfo(msgspec.Struct, frozen=True):
    """The version of the program, and where backups are written."""

    program_version: str
    backups: Path | None = None


class HealthEndpoints:
    """The probes. The server is ready once `ready` is set, while the store accepts writes."""

    def __init__(self, objects: Objects, about: ServerInfo) -> None:
        self._objects = objects
        self._about = about
        self.ready = False

    def answer(self, request: Request) -> Response | None:
        """`/version`, `/livez` and the like, or one of their checks; None for every other path."""
        match paths.segments(request.path):
            case ["version"]:
                responses.only_get(request)
                return responses.json(self._version())
            case [probe] if probe in PROBES:
                return self._probed(request, probe)
            case [probe, check] if check in PROBES.get(probe, ()):
                trouble = self._trouble(check)
                return _text(503, f"{check} failed: {trouble}\n") if trouble else _text(200, "ok")
        return None

    def _probed(self, request: Request, probe: str) -> Response:
        excluded = {value for name, value in request.query if name == "exclude"}
        lines, is_well = [], True
        for check in PROBES[probe]:
            trouble = self._trouble(check)
            if check in excluded:
                lines.append(f"[+]{check} excluded: ok\n")
            elif trouble:
                lines.append(f"[-]{check} failed: {trouble}\n")
                is_well = False
            else:
                lines.append(f"[+]{check} ok\n")
        if not is_well:
            return _text(503, "".join([*lines, f"{probe} check failed\n"]))
        return _text(200, "".join([*lines, f"{probe} check passed\n"]) if query.has(request, "verbose") else "ok")

    def _trouble(self, check: str) -> str:
        match check:
            case "started":
                return "" if self.ready else "starting, or about to end"
            case "store":
                return self._objects.failure
        return ""

    def _version(self) -> Tree:
        return {
            "major": "1",
            "minor": str(KUBERNETES_MINOR),
            "gitVersion": f"v1.{KUBERNETES_MINOR}.0+embedded.{self._about.program_version}",
            "gitCommit": "embedded",
            "gitTreeState": "clean",
            "buildDate": "1970-01-01T00:00:00Z",
            "goVersion": f"not Go: Python {platform.python_version()}",
            "compiler": platform.python_implementation(),
            "platform": f"{sys.platform}/{platform.machine()}",
        }


def _text(code: int, text: str) -> Response:
    return Response(status=code, body=text.encode(), content_type="text/plain; charset=utf-8")
