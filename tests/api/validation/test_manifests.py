"""The manifests that people have: each is defaulted, found in order, and comes back unchanged from the older version."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubemachinery import codec
from pykueue.api import conversion, defaults, own_schemas, registry, validation

MANIFESTS = Path(__file__).resolve().parents[4] / "shared" / "reference" / "manifests"


def manifests() -> Iterator[Any]:
    for path in sorted(MANIFESTS.rglob("*.yaml")):
        for number, tree in enumerate(yaml.safe_load_all(path.read_text())):
            if isinstance(tree, dict) and str(tree.get("apiVersion")).startswith(f"{conversion.GROUP}/"):
                yield pytest.param(tree, id=f"{path.relative_to(MANIFESTS)}#{number} {tree['kind']}")


CASES = list(manifests())
# A sample from before the rule existed: it restricts a check to a flavor that the queue does not have.
REFUSED = {"cluster-queue-2": ["spec.admissionChecksStrategy.admissionChecks[0].onFlavors[0]"]}
needs_manifests = pytest.mark.skipif(not CASES, reason="the reference manifests are not beside this clone")


@needs_manifests
@pytest.mark.parametrize("tree", CASES or [{}])
def test_a_known_manifest_is_in_order_and_comes_back(tree: dict[str, Any]) -> None:
    schema = own_schemas.find(tree)
    assert schema is not None
    assert schema.unknown_fields(tree) == []
    made = defaults.for_plan(tree)
    assert [error.path for error in validation.validate(made)] == REFUSED.get(made["metadata"]["name"], [])
    assert conversion.convert(conversion.convert(made, conversion.OLD), conversion.HUB) == made
    found = registry.KUEUE.find(made["apiVersion"], made["kind"])
    assert found is not None
    assert isinstance(codec.from_tree(made, found[0].type), found[0].type)
