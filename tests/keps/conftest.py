"""Every test runs twice: on the embedded server, and on a real one (`make test-cluster`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from keps import engines
from keps.engines import Cluster, Embedded, Engine


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with engines.real_cluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.fixture(params=["embedded", pytest.param("cluster", marks=pytest.mark.cluster)])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Engine:
    if request.param == "cluster":
        found: Cluster = request.getfixturevalue("cluster")
        return found
    return Embedded(tmp_path)
