"""Rows of a table that exist for the duration of a context, while the server runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Generic, TypeVar

T = TypeVar("T")


class ScopedRows(Generic[T]):
    """Rows by name; a caller adds some for the duration of a context."""

    def __init__(self) -> None:
        self.rows: Mapping[str, T] = {}

    @contextmanager
    def with_more(self, rows: Mapping[str, T]) -> Iterator[None]:
        """Add these rows while inside."""
        before, self.rows = self.rows, {**self.rows, **rows}
        try:
            yield
        finally:
            self.rows = before
