"""The types of kueue.x-k8s.io: every field has a description and a default, and is readable with any content."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, get_args, get_origin

import msgspec
import pytest

from kubemachinery import codec, meta
from kubemachinery.fields import NOTHING, Field
from pykueue.api import kube, kueue, kueue_v1beta1


def _structs(module: Any) -> list[type[msgspec.Struct]]:
    return [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, msgspec.Struct) and value.__module__ == module.__name__
    ]


def _field_of(annotation: Any) -> Field:
    """All constraints of a field; the outermost one wins."""
    if get_origin(annotation) is not Annotated:
        return NOTHING
    inner, *constraints = get_args(annotation)
    field = _field_of(inner)
    for more in constraints:
        field = field.refined_by(more)
    return field


def _fields() -> Iterator[tuple[str, msgspec.structs.FieldInfo, Field]]:
    for module in (kueue, kueue_v1beta1):
        for type_ in _structs(module):
            for member in msgspec.structs.fields(type_):
                yield f"{type_.__name__}.{member.encode_name}", member, _field_of(member.type)


def test_every_field_has_a_description() -> None:
    unclear = [
        name
        for name, _, field in _fields()
        if len(field.meaning) < 8
        or not field.meaning.endswith(".")
        or not (field.meaning[0].isupper() or field.meaning[0] == "`")
    ]
    assert unclear == []


def test_every_type_has_a_description() -> None:
    assert [
        type_.__name__ for module in (kueue, kube, kueue_v1beta1) for type_ in _structs(module) if not type_.__doc__
    ] == []


def test_a_field_with_an_api_default_reads_as_that_default_when_absent() -> None:
    """An object from a file, which no server has defaulted yet, means the same as one from a server."""
    differing = []
    for name, member, field in _fields():
        factory = member.default_factory
        absent = member.default if factory is msgspec.NODEFAULT else factory()
        # An object that the API defaults is None where it is absent: readers have to distinguish absent from empty.
        if field.default is not msgspec.UNSET and absent is not None and absent != field.default:
            differing.append((name, absent, field.default))
    # The old version's one oddity: required, and defaulted all the same.
    assert differing == [("KubeConfig.locationType", "", "Secret")]


def test_enums_have_the_public_values_and_one_extension() -> None:
    assert [str(state) for state in kueue.CheckState] == ["Pending", "Ready", "Retry", "Rejected", "PreemptionRequired"]
    assert set(kueue.StopPolicy) == {"None", "Hold", "HoldAndDrain"}


@pytest.mark.parametrize("type_", kueue.KINDS, ids=lambda type_: type_.__name__)
def test_an_object_without_anything_is_readable(type_: type[msgspec.Struct]) -> None:
    assert codec.decode(b"{}", type_) == type_()


@pytest.mark.parametrize("type_", kueue.KINDS, ids=lambda type_: type_.__name__)
def test_created_object_has_its_kind(type_: type[msgspec.Struct]) -> None:
    assert codec.to_tree(type_())["apiVersion"] == "kueue.x-k8s.io/v1beta2"
    assert codec.to_tree(type_())["kind"] == type_.__name__


def test_a_value_from_the_future_does_not_make_an_object_unreadable() -> None:
    queue = codec.decode(b'{"spec": {"stopPolicy": "HoldAndWait", "cohortName": "all"}}', kueue.ClusterQueue)
    assert (queue.spec.stop_policy, queue.spec.cohort_name) == ("HoldAndWait", "all")


def test_required_fields_are_written_even_when_empty() -> None:
    """An API server refuses a condition without a message, and an empty message is one."""
    assert codec.to_tree(meta.Condition(type="Active", status="True", reason="Ready")) == {
        "type": "Active",
        "status": "True",
        "reason": "Ready",
        "message": "",
        "lastTransitionTime": "",
    }
    assert codec.to_tree(kueue.ReclaimablePod(name="main")) == {"name": "main", "count": 0}
    assert codec.to_tree(kueue.FlavorUsage(name="default")) == {"name": "default", "resources": []}


def test_counters_of_a_queue_are_written_when_they_are_zero() -> None:
    """`kubectl get` shows a blank where a counter is absent."""
    assert codec.to_tree(kueue.ClusterQueueStatus()) == {
        "pendingWorkloads": 0,
        "reservingWorkloads": 0,
        "admittedWorkloads": 0,
    }


def test_the_proposals_have_their_fields() -> None:
    queue = codec.decode(
        b'{"spec": {"defaultLocalQueue": {"name": "main"}, "excludeResourcePrefixes": ["example.com/"]}}',
        kueue.ClusterQueue,
    )
    assert queue.spec.default_local_queue == kueue.DefaultLocalQueue(name="main")
    assert queue.spec.exclude_resource_prefixes == ("example.com/",)
    check = codec.decode(b'{"spec": {"controllerName": "example.com/c"}}', kueue.AdmissionCheck)
    assert (check.spec.retry_delay_minutes, check.spec.preemption_policy) == (15, "Anytime")
    assert kueue.WorkloadStatus().admission_checks_conditions == ()
