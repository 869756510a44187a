"""Two priorities for work that waits: of keys in a work queue, and of requests at a rate limiter."""

from __future__ import annotations

from enum import Enum
from typing import Final


class QueuePriority(Enum):
    """LOW waits while there is NORMAL work: the keys of an initial list, status updates that no decision depends on."""

    NORMAL = "normal"
    LOW = "low"


NORMAL: Final = QueuePriority.NORMAL
LOW: Final = QueuePriority.LOW
