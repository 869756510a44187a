"""Settings of all tests: a slow machine is not a failure. And fixtures of several packages."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# No limit on the time of an example, nor on the time to generate one. The examples are the same
# in every run, so that a change breaks what it breaks; `--hypothesis-profile=searching` thinks of others each time.
settings.register_profile("searching", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("patient", settings.get_profile("searching"), derandomize=True)
settings.load_profile("patient")


@pytest.fixture(autouse=True)
def same_logging() -> Iterator[None]:
    """Restore the program's log after every test: a command that sets it up must not hide the log from later tests."""
    roots = [logging.getLogger(package) for package in ("kubemachinery", "kubeserver", "pykueue")]
    before = [(root.handlers[:], root.level, root.propagate) for root in roots]
    yield
    for root, (handlers, level, propagate) in zip(roots, before, strict=True):
        root.handlers[:], root.level, root.propagate = handlers, level, propagate


@pytest.fixture(autouse=True)
def same_garbage_collection() -> Iterator[None]:
    """Restore the thresholds of the garbage collector after every test: a command makes it run rarely, for a process that ends soon."""
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
