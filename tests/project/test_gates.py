"""The table of gates against the code: a gate that is implemented is read, and a gate that is read is implemented."""

from __future__ import annotations

import ast
from pathlib import Path

import msgspec

import pykueue
from pykueue.api.validation.gates import ValidationGates
from pykueue.features import GATES

_SOURCES = Path(pykueue.__file__).parent
# The table itself, the table of fields, and what chooses gates for its own runs.
_NOT_READERS = ("features.py", "api/effects.py", "simulate/")

# Read although they are not implemented, and why.
_READ_WHILE_MISSING = {
    "KueueDRAIntegration": "off, ResourceClaims are refused",
    "KueueDRAIntegrationConsumableCapacity": "off, capacity sources of deviceClassMappings are refused",
    "ConcurrentAdmission": "`pykueue plan` decides with it",
    "MultiKueueManagerQuotaAutomation": "a condition has the same name",
    "ElasticJobsViaWorkloadSlicesWithTAS": "`pykueue plan` decides with it",
    "MultiKueueOrchestratedPreemption": "`pykueue plan` decides with it",
    "PrioritizePreemptorWorkloads": "`pykueue plan` decides with it",
}


def _read() -> set[str]:
    """Every gate whose name is a string in the code, or a field of the gates of validation."""
    found = {field.encode_name for field in msgspec.structs.fields(ValidationGates)}
    for path in _SOURCES.rglob("*.py"):
        if not path.relative_to(_SOURCES).as_posix().startswith(_NOT_READERS):
            nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            found |= {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return found & GATES.keys()


def test_every_implemented_gate_is_read_unless_it_is_locked_or_only_changes_speed() -> None:
    switched = {gate.name for gate in GATES.values() if gate.implemented and not gate.locked and not gate.speed_only}
    assert switched - _read() == set()


def test_every_gate_that_is_read_is_implemented() -> None:
    missing = {gate.name for gate in GATES.values() if not gate.implemented}
    assert (_read() & missing) - _READ_WHILE_MISSING.keys() == set()


def test_a_gate_that_only_changes_speed_is_read_by_nothing() -> None:
    assert {gate.name for gate in GATES.values() if gate.speed_only} & _read() == set()
