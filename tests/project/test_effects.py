"""The table of fields against the schemas and against the code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pykueue
from kubemachinery.kinds import Kind
from pykueue import features, settings
from pykueue.api import effects, labels, registry, schema
from pykueue.api.effects import EffectKind, FieldEffect
from pykueue.webhooks import table
from pykueue.webhooks.review import Phase

SOURCES = Path(pykueue.__file__).parent
KINDS = (*registry.CUSTOM, settings.ROW)
HEAD = ("apiVersion", "kind", "metadata")


def paths(row: Kind, version: str) -> list[str]:
    return [line.path for line in schema.describe(row, version) if line.path not in HEAD]


def leaves(row: Kind, version: str) -> Iterator[str]:
    found = paths(row, version)
    for path in found:
        if not any(other.startswith((f"{path}.", f"{path}[]")) for other in found):
            yield path


def every_row() -> Iterator[tuple[str, FieldEffect]]:
    for rows in (effects.ROWS, effects.V1BETA1_ROWS):
        for kind, of_kind in rows.items():
            yield from ((kind, row) for row in of_kind)


@pytest.mark.parametrize(
    ("kind", "version"),
    [(kind, version.name) for kind in KINDS for version in kind.versions],
    ids=lambda value: value.kind if isinstance(value, Kind) else value,
)
def test_every_field_has_a_row(kind: Kind, version: str) -> None:
    assert [path for path in leaves(kind, version) if effects.row_of(kind.kind, path, version) is None] == []


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_every_row_names_a_field_and_is_there_once(kind: Kind) -> None:
    for version, rows in ((kind.storage.name, effects.ROWS), ("v1beta1", effects.V1BETA1_ROWS)):
        if kind.version(version) is None:
            continue
        named = [row.path for row in rows.get(kind.kind, ())]
        assert set(named) <= set(paths(kind, version))
        assert len(set(named)) == len(named)


def test_every_kind_has_rows_and_every_row_a_kind() -> None:
    assert {kind.kind for kind in KINDS} == effects.ROWS.keys() >= effects.V1BETA1_ROWS.keys()


def mentions(text: str, name: str) -> bool:
    words = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
    return re.search(rf"\b{words}\b", text) is not None or f'"{name}"' in text


def test_every_module_that_a_row_names_mentions_the_field() -> None:
    silent = [
        f"{kind} {row.path}: {module}"
        for kind, row in every_row()
        for module in row.modules
        if not mentions((SOURCES / module).read_text(encoding="utf-8"), row.name)
    ]
    assert silent == []


def test_a_field_that_takes_effect_names_where() -> None:
    for kind, row in every_row():
        gates = [features.GATES[gate] for gate in row.gates]
        missing = bool(gates) and not any(gate.implemented for gate in gates)
        if row.fate is EffectKind.APPLIES and not missing:
            assert row.modules or row.note, f"{kind} {row.path}"
        if row.fate in (EffectKind.WARNED, EffectKind.REFUSED, EffectKind.CONVERTED):
            assert row.note, f"{kind} {row.path}"


def nested(path: str) -> Any:
    """An object with something at a path."""
    head, _, rest = path.partition(".")
    value: Any = nested(rest) if rest else "x"
    return {head.removesuffix("[]"): [value] if head.endswith("[]") else value}


@pytest.mark.parametrize(
    ("kind", "row"),
    [
        (kind, row)
        for kind, rows in effects.ROWS.items()
        for row in rows
        if (row.gates or row.fate is EffectKind.WARNED)
        and kind != "Configuration"
        and not row.path.startswith("status")
    ],
    ids=lambda value: value if isinstance(value, str) else value.path,
)
def test_a_field_without_effect_is_named_in_a_warning_and_one_with_effect_is_not(kind: str, row: FieldEffect) -> None:
    tree = {"kind": kind, **nested(row.path)}
    (warning,) = effects.warnings(tree, ())
    assert warning.startswith(f"{row.path} has no effect")
    for gate in row.gates:
        assert list(effects.warnings(tree, {gate})) == []
    assert list(effects.warnings({"kind": kind, "spec": {}}, ())) == []


def test_every_kind_that_has_warnings_is_looked_at_by_a_webhook() -> None:
    speaking = {
        kind for kind, rows in effects.ROWS.items() for row in rows if row.gates or row.fate is EffectKind.WARNED
    }
    looked_at = {endpoint.kind.kind for endpoint in table.OWN if endpoint.phase is Phase.VALIDATE}
    assert speaking - {"Configuration"} | {"AdmissionCheck"} <= looked_at


@pytest.mark.parametrize("row", effects.ROWS["Configuration"], ids=lambda row: row.path)
def test_a_field_of_the_configuration_without_effect_gives_a_notice(row: FieldEffect) -> None:
    found = list(effects.configuration_warnings(nested(row.path), ()))
    expected = row.fate is EffectKind.WARNED or bool(row.gates)
    assert [notice.startswith(f"{row.path}: has no effect") for notice in found] == ([True] if expected else [])


def test_an_admission_check_of_multikueue_is_warned_about() -> None:
    check = {"kind": "AdmissionCheck", "spec": {"controllerName": labels.MULTIKUEUE_CONTROLLER}}
    (warning,) = effects.warnings(check, ())
    assert "MultiKueue is not implemented in this version" in warning
    assert list(effects.warnings({**check, "spec": {"controllerName": "example.com/budget"}}, ())) == []
