"""The pytest fixture `kueue`: a fresh system on a virtual clock for every test that uses it.

`@pytest.mark.kueue(runner="none", configuration={...}, seed=1)` configures it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pykueue.testing import Kueue


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "kueue(configuration, runner, seed): configures the system of `kueue`")


@pytest.fixture
def kueue(request: pytest.FixtureRequest) -> Iterator[Kueue]:
    """A fresh queueing system; see `pykueue.testing`."""
    from pykueue.testing import system

    mark = request.node.get_closest_marker("kueue")
    with system(*(mark.args if mark else ()), **(mark.kwargs if mark else {})) as found:
        yield found
