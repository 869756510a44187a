"""What the operator chose, as the rules are handed it."""

from __future__ import annotations

from typing import Any

from kubemachinery.meta import MINUTE, SECOND
from pykueue import settings
from pykueue.lifecycle.facts import GATES, LifecycleOptions, PodsReadyOptions


def options(gates: dict[str, bool] | None = None, **configuration: Any) -> LifecycleOptions:
    tree = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", **configuration}
    found = settings.load(tree)
    return LifecycleOptions.of(found.configuration, {**found.gates, **(gates or {})})


def test_empty_configuration_has_the_defaults() -> None:
    assert options() == LifecycleOptions()


def test_timeouts_and_retention() -> None:
    found = options(
        waitForPodsReady={
            "timeout": "90s",
            "recoveryTimeout": "0s",
            "requeuingStrategy": {"backoffLimitCount": 2, "backoffBaseSeconds": 5, "backoffMaxSeconds": 0},
        },
        objectRetentionPolicies={"workloads": {"afterFinished": "2m"}},
    )
    assert found.pods_ready == PodsReadyOptions(90 * SECOND, 0, 2, 5, 0)
    assert found.keep_finished == 2 * MINUTE


def test_recovery_timeout_defaults_to_the_start_timeout() -> None:
    found = options(waitForPodsReady={"timeout": "90s"}).pods_ready
    assert found is not None
    assert found.recovery_timeout == 90 * SECOND


def test_readiness_can_be_switched_off() -> None:
    assert options({"DisableWaitForPodsReady": True}).pods_ready is None


def test_each_gate_controls_its_field() -> None:
    plain = LifecycleOptions()
    for field, gate in GATES.items():
        value = not getattr(plain, field)
        assert getattr(options({gate: value}), field) is value, gate
