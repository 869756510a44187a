"""Balanced placement: the same amount on every domain, as far as that goes, over the fewest domains that suffice."""

from __future__ import annotations

from pykueue.core.topology.choosing import Ask
from pykueue.core.topology.counting import Tally
from pykueue.core.topology.spreading import Share


def spread(tally: Tally, level: int, ask: Ask) -> list[Share] | None:
    """Even shares for a *preferred* request, or None where best fit has to do."""
    raise NotImplementedError("balanced placement")
