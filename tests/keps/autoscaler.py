"""A simulated cluster autoscaler: it provides no nodes, and sets the conditions of requests that a test chooses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import yaml

from keps.system import System, Tree, now
from pykueue.api import registry
from pykueue.api.autoscaling import ProvisioningRequest

REQUEST = registry.AUTOSCALING.of(ProvisioningRequest)
EXAMPLES = Path(__file__).parents[2] / "examples" / "provisioning"
_CRD = yaml.safe_load((EXAMPLES / "provisioningrequests.yaml").read_text(encoding="utf-8"))


class Autoscaler:
    def __init__(self, env: System) -> None:
        self._env = env

    async def install(self) -> None:
        """Its CRD."""
        await self._env.install(_CRD, REQUEST)

    async def requests(self) -> dict[str, Tree]:
        found = await self._env.client.list(REQUEST)
        trees = [msgspec.json.decode(item) for item in found.items]
        return {tree["metadata"]["name"]: tree for tree in trees}

    async def asked(self, name: str) -> Tree:
        """The request of this name, once it is there."""

        async def is_there() -> bool:
            return name in await self.requests()

        await self._env.until(is_there)
        return (await self.requests())[name]

    async def until(self, *names: str) -> None:
        """Wait until exactly these requests are there."""

        async def are_there() -> bool:
            return sorted(await self.requests()) == sorted(names)

        await self._env.until(are_there)

    async def reports(self, name: str, *types: str, message: str = "", **details: str) -> None:
        """These conditions are true of a request; one that starts with `!` is false."""
        await self.asked(name)
        conditions = [
            {
                "type": condition.removeprefix("!"),
                "status": "False" if condition.startswith("!") else "True",
                "reason": "Played",
                "message": message,
                "lastTransitionTime": now(),
            }
            for condition in types
        ]
        status: dict[str, Any] = {"conditions": conditions, "provisioningClassDetails": details}
        await self._env.client.patch(REQUEST, name, {"status": status}, "default", subresource="status")
