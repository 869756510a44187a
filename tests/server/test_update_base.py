"""An update that builds on the stored tree must not change it."""

from __future__ import annotations

from typing import Any

import pytest

from kubeserver.write.rest import UpdateBase

OLD: dict[str, Any] = {"metadata": {"name": "a"}, "spec": {"size": 1}}


def test_a_new_tree_may_share_what_it_leaves_alone() -> None:
    new = {"metadata": dict(OLD["metadata"]), "spec": OLD["spec"]}
    assert UpdateBase(OLD, is_shared=True).check(new) is new


@pytest.mark.parametrize("new", [OLD, {"metadata": OLD["metadata"], "spec": {}}], ids=["the object", "its metadata"])
def test_sharing_what_later_steps_change_in_place_is_an_error(new: dict[str, Any]) -> None:
    with pytest.raises(AssertionError):
        UpdateBase(OLD, is_shared=True).check(new)
