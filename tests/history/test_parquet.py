"""`pykueue history -o parquet`: the columns with their types, and the sentence where pyarrow is absent."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from history.test_columns import shown
from kubemachinery.errors import UsageError
from pykueue.cli import history
from pykueue.history import columns


def rows() -> list[dict[str, Any]]:
    every = columns.COLUMNS.items()
    return [
        {name: each.value(record) for name, each in every} for record in (shown("a", 10), shown("b", 3600, user="bob"))
    ]


@pytest.mark.parametrize("name", columns.COLUMNS)
def test_the_type_of_a_column_is_that_of_its_values(name: str) -> None:
    assert all(row[name] is None or isinstance(row[name], history.column_type(name)) for row in rows())


def test_parquet_has_all_columns_with_their_types(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed: pip install 'pykueue[parquet]'")
    history.write_parquet(tmp_path / "h.parquet", rows())
    table = parquet.read_table(tmp_path / "h.parquet")
    assert table.to_pylist() == rows()
    types = {field.name: str(field.type) for field in table.schema}
    # No record has an exit code or a limit; the columns have their type all the same.
    assert (types["exit"], types["limit"], types["cpu_hours"], types["job"]) == ("int64", "int64", "double", "string")


def test_without_pyarrow_the_command_that_installs_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r"-o parquet needs pyarrow: pip install \'pykueue\[parquet\]\'"):
        history.write_parquet(tmp_path / "h.parquet", rows())
    assert not (tmp_path / "h.parquet").exists()
