"""The feature gates: which can be set, which cannot, and the messages for the operator."""

from __future__ import annotations

import pytest

from pykueue import features
from pykueue.core import policy
from pykueue.features import GATES, resolve


def problem(**overrides: bool) -> str:
    gates, problems = resolve(overrides)
    assert gates is features.DEFAULTS, "a wrong configuration is not half used"
    return "; ".join(f"{name} {message}" for name, message in problems)


def test_without_overrides_every_gate_has_its_default() -> None:
    gates, problems = resolve({})
    assert not problems
    assert dict(gates) == {name: gate.default for name, gate in GATES.items()}


def test_a_gate_can_be_switched_either_way() -> None:
    gates, problems = resolve({"PartialAdmission": False, "PriorityBoost": True})
    assert not problems
    assert (gates["PartialAdmission"], gates["PriorityBoost"]) == (False, True)


def test_unknown_gate_is_refused_with_the_nearest_name() -> None:
    assert problem(PartialAdmision=True) == "PartialAdmision is not a known gate; did you mean PartialAdmission?"


def test_removed_gate_is_refused_with_its_history() -> None:
    assert problem(LendingLimit=True) == "LendingLimit is no longer a gate: its behaviour is always on"
    assert "KueueDRAIntegration" in problem(DynamicResourceAllocation=True)


def test_a_locked_gate_keeps_its_value_and_may_be_set_to_it() -> None:
    assert problem(TLSOptions=False) == "TLSOptions is locked to true"
    assert problem(WorkloadRequestUseMergePatch=False) == "WorkloadRequestUseMergePatch is locked to true"
    assert not resolve({"TLSOptions": True, "WorkloadRequestUseMergePatch": True})[1]


@pytest.mark.parametrize("name", ["LocalQueueMetrics", "MetricsForCohorts", "MetricForWorkloadCreationLatency"])
def test_gates_of_metrics_can_be_set_either_way(name: str) -> None:
    for value in (True, False):
        gates, problems = resolve({name: value})
        assert (problems, gates[name]) == ((), value)


def test_turning_on_what_is_not_implemented_is_refused_and_turning_it_off_is_not() -> None:
    missing = next(gate for gate in GATES.values() if not gate.implemented and not gate.needs and not gate.locked)
    assert problem(**{missing.name: True}).endswith("is not implemented in this version and cannot be turned on")
    assert not resolve({missing.name: False})[1]


def test_a_gate_that_is_not_implemented_is_off_whatever_its_default_in_kueue() -> None:
    assert not [name for name, value in features.DEFAULTS.items() if value and not GATES[name].implemented]
    assert GATES["MultiKueue"].default_in_kueue
    assert GATES["MultiKueue"] in features.missing_by_default()


def test_a_gate_needs_its_parents() -> None:
    assert "TASProfileMixed needs TopologyAwareScheduling to be on" in problem(TopologyAwareScheduling=False)
    off = {name: False for name, gate in GATES.items() if "TopologyAwareScheduling" in (name, *gate.needs)}
    assert not resolve(off)[1]


def test_a_stage_is_switched_as_a_whole_and_a_single_gate_overrules_it() -> None:
    gates, problems = resolve({"AllAlpha": True, "PriorityBoost": False})
    assert not problems
    on = {name for name in gates if gates[name] and GATES[name].stage is features.GateStage.ALPHA}
    assert on == {
        gate.name for gate in GATES.values() if gate.stage is features.GateStage.ALPHA and gate.implemented
    } - {"PriorityBoost"}


def test_gates_that_a_stage_does_not_switch_are_named_in_a_notice() -> None:
    (notice,) = features.notices({"AllBeta": True})
    missing = [gate.name for gate in GATES.values() if gate.stage is features.GateStage.BETA and not gate.implemented]
    assert notice == f"featureGates.AllBeta: does not turn on {', '.join(missing)}: not implemented in this version"
    assert list(features.notices({"AllAlpha": False})) == [
        "featureGates.AllAlpha: does not change WorkloadRequestUseMergePatch: locked"
    ]
    assert not list(features.notices({"AllBeta": False}))


def test_turning_off_a_gate_that_only_changes_speed_gives_a_notice() -> None:
    (notice,) = features.notices({"TASCacheTopologyTree": False})
    assert notice.startswith("featureGates.TASCacheTopologyTree: has no effect")
    assert not list(features.notices({"TASCacheTopologyTree": True, "PartialAdmission": False}))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {}),
        ("PartialAdmission=false", {"PartialAdmission": False}),
        ("A=true, B=F ,C=1", {"A": True, "B": False, "C": True}),
    ],
)
def test_the_flag_is_read_as_kueue_reads_it(text: str, found: dict[str, bool]) -> None:
    assert features.parse(text) == (found, ())


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("PartialAdmission", "PartialAdmission has no value; write NAME=true or NAME=false"),
        ("PartialAdmission=yes", "PartialAdmission must be true or false, not 'yes'"),
    ],
)
def test_invalid_flag_names_the_invalid_part(text: str, sentence: str) -> None:
    (found,) = features.parse(text)[1]
    assert f"{found.name} {found.message}" == sentence


@pytest.mark.parametrize("gate", GATES.values(), ids=lambda gate: gate.name)
def test_rows_are_complete(gate: features.FeatureGate) -> None:
    assert gate.meaning.endswith(".")
    assert set(gate.needs) <= set(GATES)
    assert gate.name not in features.REMOVED
    if gate.default:
        assert all(GATES[parent].default for parent in gate.needs), "on by default without its parent"


def test_policy_reads_existing_gates() -> None:
    assert set(policy.GATES.values()) <= set(GATES)


def test_policy_defaults_equal_the_gate_table() -> None:
    assert policy.SchedulingPolicy().with_gates(features.DEFAULTS) == policy.SchedulingPolicy()
