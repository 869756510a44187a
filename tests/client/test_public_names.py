"""The public names of the Python API are those that are written down: a change of one is a change for users."""

from __future__ import annotations

from pathlib import Path

from client import public_names

LISTED = Path(__file__).with_name("public_names.txt")


def test_the_public_names_are_the_listed_ones() -> None:
    """If the change is meant, update the list (`public_names` prints it) and the changelog."""
    assert public_names.lines() == LISTED.read_text(encoding="utf-8").splitlines()
