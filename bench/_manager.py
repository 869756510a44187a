"""`pykueue manager` that leads the API server to no webhooks.

It imports nothing else: what a manager uses is measured, not what the bench does.
"""

from __future__ import annotations

import sys

from pykueue import cli
from pykueue.webhooks import webhook_server


async def nowhere(served: webhook_server.WebhookServer) -> None:
    """No webhook is called."""


if __name__ == "__main__":
    webhook_server.WebhookServer.register = nowhere  # type: ignore[assignment, method-assign]
    cli.main(["manager", *sys.argv[1:]])
