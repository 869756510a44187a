"""Corpus A: the same single requests get the same answers from both servers."""

from __future__ import annotations

import time
from typing import Any

import pytest

from contracts import probing
from contracts.probing import Exchange, Kind
from contracts.twin import Twin

pytestmark = pytest.mark.cluster


# What the real server reads and judges by may be a copy that is behind what was written, so it is asked again.
_PATIENCE = 20
_PAUSE_SECONDS = 0.5


def _forget(twin: Twin, path: str, name: str) -> None:
    options = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
    twin.both("DELETE", f"{path}/{name}", options)


def _name(answer: Any) -> str:
    body = answer.body if isinstance(answer.body, dict) else {}
    return str((body.get("metadata") or {}).get("name") or "")


@pytest.mark.parametrize("kind", probing.kinds(), ids=lambda kind: kind.name)
def test_objects_are_accepted_or_refused_alike(twin: Twin, kind: Kind) -> None:
    """Created, updated, given a status or patched with each change, the object or the refusal is the same."""
    found: list[str] = []
    for row in kind.create:
        body = probing.changed(kind.base, row)
        trial = "&dryRun=All" if kind.stays else ""
        answers = twin.both("POST", f"{kind.path}?fieldManager=probe{trial}", body)
        found += twin.compare(f"create {kind.name} with {row}", *answers)
        for server, answer in zip((twin.real, twin.ours), answers, strict=True):
            if answer.code == 201:
                _remove(server, kind.path, _name(answer))
    name = kind.base["metadata"]["name"]
    for endpoint, rows in (("", kind.update), ("/status", kind.status)):
        for number, row in enumerate(rows):
            name = _fresh(twin, kind, number)
            sides = []
            for server in (twin.real, twin.ours):
                stored = server.request("GET", f"{kind.path}/{name}").body
                changed = probing.changed(stored, row)
                sides.append(server.request("PUT", f"{kind.path}/{name}{endpoint}?fieldManager=probe", changed))
            found += twin.compare(f"update {kind.name}{endpoint} with {row}", *sides)
    for number, row in enumerate(kind.merge):
        name = _fresh(twin, kind, number)
        answers = twin.both("PATCH", f"{kind.path}/{name}?fieldManager=probe", row, "application/merge-patch+json")
        found += twin.compare(f"merge {row} into {kind.name}", *answers)
    _forget(twin, kind.path, name)
    assert not found, "\n".join(found)


def _fresh(twin: Twin, kind: Kind, number: int) -> str:
    """A new object as the table has it, in both servers; its name."""
    name: str = kind.base["metadata"]["name"]
    if kind.stays:
        name = f"{name}-{number}"
    for server in (twin.real, twin.ours):
        _remove(server, kind.path, name)
        base = probing.changed(kind.base, {"metadata.name": name})
        answer = server.request("POST", f"{kind.path}?fieldManager=probe", base)
        assert answer.code == 201, answer.body
    return name


def _remove(server: Any, path: str, name: str) -> None:
    """Take an object away, and the finalizers that would keep it."""
    server.request("PATCH", f"{path}/{name}", {"metadata": {"finalizers": None}}, "application/merge-patch+json")
    server.request("DELETE", f"{path}/{name}", {"gracePeriodSeconds": 0, "propagationPolicy": "Background"})


@pytest.mark.parametrize("exchange", probing.exchanges(), ids=lambda exchange: exchange.name)
def test_requests_are_answered_alike(twin: Twin, exchange: Exchange) -> None:
    """Whatever else can be asked: selectors, options, content types, subresources, mistakes."""
    for step in exchange.before:
        _ask(twin, step)
    found = twin.compare(exchange.name, *_ask(twin, exchange.request))
    patience = _PATIENCE if exchange.leaves_no_trace else 0
    while found and patience:
        patience -= 1
        time.sleep(_PAUSE_SECONDS)
        found = twin.compare(exchange.name, *_ask(twin, exchange.request))
    for step in exchange.after:
        _ask(twin, step)
    assert not found, "\n".join(found)


def _ask(twin: Twin, step: dict[str, Any]) -> tuple[Any, Any]:
    body = step.get("body")
    if isinstance(step.get("raw"), str):
        body = step["raw"].encode()
    return twin.both(
        step.get("method", "GET"),
        step["path"],
        body,
        step.get("type", "application/json"),
        **step.get("headers", {}),
    )


def test_the_corpus_is_large() -> None:
    """At least 400 different questions are asked."""
    assert sum(kind.rows for kind in probing.kinds()) + len(probing.exchanges()) >= 400
