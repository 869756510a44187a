"""What the server keeps of an encoded object."""

from __future__ import annotations

import tracemalloc
from typing import Any

from kubeserver.builtin.kinds import RESOURCES
from kubeserver.registry import representations

PODS = next(resource for resource in RESOURCES if resource.plural == "pods")


def test_an_encoded_object_takes_no_more_memory_than_its_length() -> None:
    """The history keeps thousands of them, of any length."""
    trees: list[dict[str, Any]] = [
        {"metadata": {"name": "a", "annotations": {"x": "y" * length}}} for length in range(1_000, 9_000, 100)
    ]
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        kept = [representations.encode(PODS, tree) for tree in trees]
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert kept[0].startswith(representations.head(PODS))
    assert taken < 1.03 * sum(map(len, kept))
