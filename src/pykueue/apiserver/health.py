"""Whether the server is well, and which it is: what everybody may ask."""

from __future__ import annotations

import platform
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pykueue.apiserver import answers
from pykueue.apiserver.objects import Objects
from pykueue.apiserver.strategy import Tree
from pykueue.serving import Request, Response

# The minor version whose behaviour is followed: kubectl warns when it is more than one away from its own.
KUBERNETES_MINOR: Final = 36


@dataclass(frozen=True, slots=True)
class About:
    """What the server says of itself."""

    program_version: str
    durability: str = "full"
    backups: Path | None = None


class Health:
    """Ready from the moment that its owner says so, as long as the store works."""

    def __init__(self, objects: Objects, about: About) -> None:
        self._objects = objects
        self._about = about
        self.ready = False

    def answer(self, request: Request) -> Response:
        """`/version`, `/livez`, `/readyz` and `/healthz`."""
        path = request.path.rstrip("/")
        if path == "/version":
            answers.only_reading(request)
            return answers.json(self._version())
        if path == "/readyz" and not (self.ready and not self._objects.failure):
            why = self._objects.failure or "starting"
            return Response(status=503, body=f"not ready: {why}\n".encode(), content_type="text/plain")
        lines = ["ok"]
        if any(name == "verbose" for name, _ in request.query):
            lines = [f"[+]store ok: {self._about.durability} durability", "[+]ready ok", "check passed"]
        return Response(body="\n".join(lines).encode(), content_type="text/plain")

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
