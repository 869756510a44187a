"""The two servers, started once for all twin tests."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from cluster import assets, real
from contracts import ownership
from contracts.twin import Ours, Twin

_TWIN = pytest.StashKey[Twin]()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say how much was asked, and how often the servers differed for a reason that is written down."""
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
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    for answer in twin.both("POST", path, crd):
        assert answer.code in (201, 409), answer.body
        if answer.code == 409:
            return
    spec = crd["spec"]
    assert isinstance(spec, dict)
    version = spec["versions"][0]["name"]
    served = f"/apis/{spec['group']}/{version}/{spec['names']['plural']}"
    deadline = time.monotonic() + 30
    while twin.real.request("GET", served).code != 200:
        assert time.monotonic() < deadline, f"{served} does not appear"
        time.sleep(0.05)
    # The real server answers before its storage does; a write may be told to come back for a moment.
    time.sleep(0.5)
