"""The rules of the public CRDs: all of them compile, and each accepts an empty value or returns an error."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubemachinery import structural

_CRDS = Path(__file__).parents[3].parent / "shared" / "reference" / "crds"


def _schemas() -> Iterator[Any]:
    for path in sorted(_CRDS.glob("*.yaml")):
        definition = yaml.safe_load(path.read_text())
        for version in definition["spec"]["versions"]:
            yield pytest.param(version["schema"]["openAPIV3Schema"], id=f"{path.stem}-{version['name']}")


@pytest.mark.skipif(not _CRDS.is_dir(), reason="the public CRDs are not beside this checkout")
@pytest.mark.parametrize("schema", list(_schemas()))
def test_a_public_schema_can_be_served(schema: dict[str, Any]) -> None:
    assert structural.check_schema(schema) == []
