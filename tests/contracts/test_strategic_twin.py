"""Corpus D: strategic merge patches give the same object, and the same owners, on both servers."""

from __future__ import annotations

import pytest

from contracts import patching
from contracts.twin import Twin, seeds

pytestmark = pytest.mark.cluster

_BASE = "/api/v1/namespaces/default/podtemplates"
_STRATEGIC = "application/strategic-merge-patch+json"


@pytest.mark.parametrize("block", range(4))
def test_patched_templates_are_equal(twin: Twin, block: int) -> None:
    """Merge keys, deletions, replacements, retained keys and orders, six patches one after the other."""
    found: list[str] = []
    for seed in seeds(20, block):
        name = f"strategic-{seed}"
        answers = twin.both("POST", _BASE + "?fieldManager=first", patching.pod_template(name, seed))
        found += twin.compare(f"create {name}", *answers)
        for number, patch in enumerate(patching.patches(seed, 6)):
            answers = twin.both("PATCH", f"{_BASE}/{name}?fieldManager=patcher", patch, _STRATEGIC)
            found += twin.compare(f"strategic patch {number} of {name}: {patch}", *answers)
            if answers[0].code != answers[1].code:
                break
    assert not found, "\n".join(found[:100])
