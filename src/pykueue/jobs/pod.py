"""A pod that is its own job."""

from __future__ import annotations

from pykueue.jobs.contract import Job


class Pod(Job):
    """A single pod."""
