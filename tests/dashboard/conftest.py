"""Systems with a dashboard: a fresh one for each test, and a filled one that a module shares."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from dashboard import system
from dashboard.system import System


@pytest.fixture
async def shown(tmp_path: Path) -> AsyncIterator[System]:
    async with system.running(tmp_path) as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def department(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[System]:
    async with system.running(tmp_path_factory.mktemp("department")) as made:
        await system.research(made)
        yield made
