"""A write of the status does not read the spec, nor one of the spec the status, where it is sent as it is stored."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kubemachinery import status
from kubeserver.builtin import decoding, kinds
from kubeserver.protocol import authentication
from kubeserver.registry.write_context import WriteContext
from kubeserver.write import prepare

Tree = dict[str, Any]
[PODS] = [resource for resource in kinds.RESOURCES if resource.plural == "pods"]


def context(subresource: str, validation: str = "Strict") -> WriteContext:
    return WriteContext(
        resource=PODS,
        user=authentication.SYSTEM,
        namespace="n",
        name="p",
        subresource=subresource,
        manager="test",
        validation=validation,
    )


@pytest.fixture
def stored() -> Tree:
    spec = {"containers": [{"name": "c", "image": "i"}]}
    made = prepare.received(context(""), {"metadata": {"name": "p"}, "spec": spec, "status": {"phase": "Running"}})
    return {**made, "metadata": {**made["metadata"], "uid": "u"}}


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[set[str]]:
    """The parts of every object that is read."""
    found: list[set[str]] = []
    plain = decoding.read

    def noting(name: str, tree: Any) -> Tree:
        found.append(set(tree) & {"spec", "status"})
        return plain(name, tree)

    monkeypatch.setattr(decoding, "read", noting)
    return found


@pytest.mark.parametrize(("subresource", "part"), [("status", "status"), ("", "spec")])
def test_the_part_that_is_kept_is_not_read(subresource: str, part: str, stored: Tree, read: list[set[str]]) -> None:
    sent = {**stored, part: copy.deepcopy(stored[part])}
    assert prepare.received(context(subresource), sent, stored) == stored
    assert read == [{part}]


@pytest.mark.parametrize(("subresource", "part"), [("status", "spec"), ("", "status")])
def test_a_part_that_is_sent_in_another_form_is_read(subresource: str, part: str, stored: Tree) -> None:
    sent = {**stored, part: {**stored[part], "unheard": 1}}
    with pytest.raises(status.StatusError, match=f'unknown field "{part}.unheard"'):
        prepare.received(context(subresource), sent, stored)
    wrong = {**stored, part: ["no", "object"]}
    with pytest.raises(status.StatusError, match="expected an object"):
        prepare.received(context(subresource, "Ignore"), wrong, stored)
