"""The gates: what can be switched, what cannot, and what the operator is told."""

from __future__ import annotations

import pytest

from pykueue import features
from pykueue.core import policy
from pykueue.features import GATES, resolve


def problem(**overrides: bool) -> str:
    gates, problems = resolve(overrides)
    assert gates is features.DEFAULTS, "a wrong configuration is not half used"
    return "; ".join(f"{name} {message}" for name, message in problems)


def test_without_overrides_every_gate_stands_at_its_default() -> None:
    gates, problems = resolve({})
    assert not problems
    assert dict(gates) == {name: gate.default for name, gate in GATES.items()}


def test_a_gate_can_be_switched_either_way() -> None:
    gates, problems = resolve({"PartialAdmission": False, "PriorityBoost": True})
    assert not problems
    assert (gates["PartialAdmission"], gates["PriorityBoost"]) == (False, True)


def test_a_typo_is_told_with_the_nearest_known_name() -> None:
    assert problem(PartialAdmision=True) == "PartialAdmision is not a known gate; did you mean PartialAdmission?"


def test_a_retired_gate_says_what_became_of_it() -> None:
    assert problem(LendingLimit=True) == "LendingLimit is no longer a gate: what it switched is always on"
    assert "KueueDRAIntegration" in problem(DynamicResourceAllocation=True)


def test_a_locked_gate_keeps_its_value() -> None:
    assert problem(TLSOptions=False) == "TLSOptions is locked to true"


def test_turning_on_what_is_not_implemented_is_refused_and_turning_it_off_is_not() -> None:
    missing = next(gate for gate in GATES.values() if not gate.implemented and not gate.needs and not gate.locked)
    assert problem(**{missing.name: True}).endswith("is not implemented in this version and cannot be turned on")
    assert not resolve({missing.name: False})[1]


def test_a_gate_needs_its_parents() -> None:
    assert "TASProfileMixed needs TopologyAwareScheduling to be on" in problem(TopologyAwareScheduling=False)
    off = {name: False for name, gate in GATES.items() if "TopologyAwareScheduling" in (name, *gate.needs)}
    assert not resolve(off)[1]


def test_a_stage_is_switched_as_a_whole_and_a_single_gate_overrules_it() -> None:
    gates, problems = resolve({"AllAlpha": True, "PriorityBoost": False})
    assert not problems
    on = {name for name in gates if gates[name] and GATES[name].stage is features.Stage.ALPHA}
    assert on == {gate.name for gate in GATES.values() if gate.stage is features.Stage.ALPHA and gate.implemented} - {
        "PriorityBoost"
    }


@pytest.mark.parametrize("gate", GATES.values(), ids=lambda gate: gate.name)
def test_a_row_is_whole(gate: features.Gate) -> None:
    assert gate.meaning.endswith(".")
    assert set(gate.needs) <= set(GATES)
    assert gate.name not in features.REMOVED
    if gate.default:
        assert all(GATES[parent].default for parent in gate.needs), "on by default without its parent"


def test_the_brain_is_switched_by_gates_that_exist() -> None:
    assert set(policy.GATES.values()) <= set(GATES)


def test_the_brain_and_the_table_agree_on_defaults() -> None:
    assert policy.Policy().with_gates(features.DEFAULTS) == policy.Policy()
