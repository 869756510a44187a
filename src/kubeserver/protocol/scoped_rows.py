"""Rows that others bring and take away again, while the server runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Generic, TypeVar

T = TypeVar("T")


class ScopedRows(Generic[T]):
    """By name; empty until somebody lends something."""

    def __init__(self) -> None:
        self.rows: Mapping[str, T] = {}

    @contextmanager
    def with_more(self, rows: Mapping[str, T]) -> Iterator[None]:
        """Have these rows, too, while inside."""
        before, self.rows = self.rows, {**self.rows, **rows}
        try:
            yield
        finally:
            self.rows = before
