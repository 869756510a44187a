"""The two servers, started once for all twin tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cluster import assets, real
from contracts import ownership
from contracts.twin import Ours, Twin

_TWIN = pytest.StashKey[Twin]()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Report the number of requests, and how often the servers differed for a documented reason."""
    pair = config.stash.get(_TWIN, None)
    if pair is not None:
        terminalreporter.section("twin")
        terminalreporter.line(f"{pair.asked} questions to both servers")
        for why, times in sorted(pair.explained.items()):
            terminalreporter.line(f"{times:5} x {why}")


@pytest.fixture(scope="session")
def twin(request: pytest.FixtureRequest) -> Iterator[Twin]:
    """Both servers with the same empty namespace and the same CRD."""
    try:
        assets.ensure()
    except assets.AssetsError as wrong:
        pytest.fail(str(wrong))
    with real.started() as client:
        ours = Ours()
        try:
            pair = request.config.stash[_TWIN] = Twin(client, ours)
            install(pair, ownership.CRD)
            for namespace in ("twin-limits", "twin-lists"):
                pair.both("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
            yield pair
        finally:
            ours.close()


def install(twin: Twin, crd: dict[str, object]) -> None:
    """Install a CRD in both servers, and wait until both serve it."""
    for answer in twin.both("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd):
        assert answer.code in (201, 409), answer.body
    twin.real.install(crd)
