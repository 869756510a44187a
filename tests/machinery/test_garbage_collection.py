"""What the garbage collector of a serving process searches. Each in a process of its own: the setting is for good."""

from __future__ import annotations

import subprocess
import sys

_GROWING = """
import gc
from kubemachinery import process

process.tune_garbage_collector(is_growing=True)
before = gc.get_freeze_count()
kept = [[number] for number in range(200_000)]
assert gc.get_threshold()[1] > 10**6, "what stays is not searched while it is read"
assert len(gc.get_objects(generation=2)) < 100_000
process.objects_read()
assert gc.get_freeze_count() - before > 200_000, "what was read is never searched"
assert gc.get_threshold()[1] < 1000
assert not gc.get_objects(generation=0)[1_000:]
kept_too = [[number] for number in range(200_000)]
process.objects_read()
assert gc.get_freeze_count() - before < 300_000, "only once"
"""
_UNTOUCHED = """
import gc
from kubemachinery import process

before = gc.get_threshold(), gc.get_freeze_count()
process.objects_read()
assert (gc.get_threshold(), gc.get_freeze_count()) == before
"""


def test_objects_that_are_read_at_the_start_are_not_searched_for_cycles() -> None:
    subprocess.run([sys.executable, "-c", _GROWING], check=True)


def test_a_process_that_did_not_ask_for_it_keeps_its_garbage_collector() -> None:
    subprocess.run([sys.executable, "-c", _UNTOUCHED], check=True)
