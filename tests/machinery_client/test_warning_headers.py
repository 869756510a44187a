"""The texts of `Warning` headers, as API servers send them."""

from __future__ import annotations

import pytest

from kubemachinery.client import warning_headers
from kubeserver.http import responses


@pytest.mark.parametrize(
    ("header", "texts"),
    [
        ("", []),
        ('299 - "one"', ["one"]),
        ('299 - "one", 299 - "two, with a comma"', ["one", "two, with a comma"]),
        ('299 - "a \\"quoted\\" word and a \\\\"', ['a "quoted" word and a \\']),
        ('299 agent "dated" "Thu, 19 Nov 2026 23:00:00 GMT",299 - "next"', ["dated", "next"]),
        ('110 - "Response is Stale", 299 - "one"', ["one"]),
        ('299 - "one", no warning, 299 - "two"', ["one"]),
        ('299 - "not closed', []),
        ('299 - "' + "größer".encode().decode("latin-1") + '"', ["größer"]),
        ('299 - "gr\xf6\xdfer"', ["größer"]),
    ],
)
def test_texts_of_a_header(header: str, texts: list[str]) -> None:
    assert warning_headers.texts(header) == texts


def test_texts_are_those_that_the_embedded_server_was_given() -> None:
    given = ['field "x" is unknown', "a\\b, c", "one"]
    assert warning_headers.texts(responses.warning_header(given)) == given
