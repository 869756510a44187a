"""Objects are read as their own types would read them."""

from __future__ import annotations

from typing import Any

import pytest

from kubeserver.builtin import decoding


def pod(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "one"}, "spec": {"containers": [{"name": "a"}], **spec}}


def container(**fields: Any) -> Any:
    tree = decoding.read("core.v1.Pod", pod(containers=[{"name": "a", **fields}]))
    return tree["spec"]["containers"][0]


def test_an_empty_optional_value_vanishes_and_a_mandatory_one_is_written() -> None:
    assert container(image="", env=[], stdin=False) == {"name": "a", "resources": {}}


def test_zero_where_it_means_something_stays() -> None:
    tree = decoding.read("core.v1.Pod", pod(terminationGracePeriodSeconds=0, priority=0, hostNetwork=False))
    assert tree["spec"]["terminationGracePeriodSeconds"] == 0
    assert tree["spec"]["priority"] == 0
    assert "hostNetwork" not in tree["spec"]


def test_null_is_nothing() -> None:
    tree = decoding.read("core.v1.Pod", {"metadata": {"creationTimestamp": None}, "spec": {"containers": [None]}})
    assert tree["metadata"] == {}
    assert tree["spec"]["containers"] == [{"name": "", "resources": {}}]


@pytest.mark.parametrize(
    ("given", "kept"), [("1000m", "1"), (0.5, "500m"), (1024, "1024"), ("1024Ki", "1Mi"), ("1e3", "1e3")]
)
def test_quantities_have_one_spelling(given: Any, kept: str) -> None:
    assert container(resources={"limits": {"cpu": given}})["resources"]["limits"]["cpu"] == kept


def test_times_are_in_utc_and_whole_seconds() -> None:
    tree = decoding.read("core.v1.Pod", {"status": {"startTime": "2026-01-01T02:00:00.9+02:00"}})
    assert tree["status"]["startTime"] == "2026-01-01T00:00:00Z"


def test_what_a_type_does_not_know_is_named_and_dropped() -> None:
    tree = pod(zzz=1, containers=[{"name": "a", "yyy": {}}])
    assert list(decoding.unknown("core.v1.Pod", tree)) == ["spec.containers[0].yyy", "spec.zzz"]
    assert "zzz" not in decoding.read("core.v1.Pod", tree)["spec"]


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"containers": {}}, "spec.containers: expected a list, got an object"),
        ({"containers": [{"name": 1}]}, r"spec.containers\[0\].name: expected a string, got the number 1"),
        ({"nodeSelector": []}, "spec.nodeSelector: expected a map, got a list"),
        ({"hostNetwork": "yes"}, "spec.hostNetwork: expected true or false, got a string"),
        ({"priority": 1.5}, "spec.priority: expected a whole number, got the number 1.5"),
        ({"priority": 2**31}, "spec.priority: 2147483648 does not fit into int32"),
        ({"priority": True}, "spec.priority: expected a whole number, got a boolean"),
        ({"overhead": {"cpu": "lots"}}, "spec.overhead.cpu: "),
        ({"securityContext": []}, "spec.securityContext: expected an object of type core.v1.PodSecurityContext"),
    ],
)
def test_a_value_that_the_type_cannot_hold_is_refused_with_its_place(spec: Any, why: str) -> None:
    with pytest.raises(decoding.DecodingError, match=why):
        decoding.read("core.v1.Pod", pod(**spec))


def test_a_time_to_the_microsecond_has_all_its_digits() -> None:
    lease = {"spec": {"renewTime": "2026-01-01T00:00:00.120000Z"}}
    assert decoding.read("coordination.v1.Lease", lease)["spec"] == lease["spec"]
    with pytest.raises(decoding.DecodingError, match="six digits"):
        decoding.read("coordination.v1.Lease", {"spec": {"renewTime": "2026-01-01T00:00:00Z"}})


def test_base64_is_checked() -> None:
    with pytest.raises(decoding.DecodingError, match=r"data\.k: not valid base64"):
        decoding.read("core.v1.Secret", {"data": {"k": "%"}})


def test_the_empty_default_of_a_schema_is_kept() -> None:
    """`default: {}` in a CRD means something, though it is empty."""
    schema = {"type": "object", "properties": {"a": {"type": "object", "default": {}}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    crd = decoding.read("apiextensions.v1.CustomResourceDefinition", {"spec": {"versions": [version]}})
    assert crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"] == schema


def test_what_is_nested_without_end_is_refused() -> None:
    schema: dict[str, Any] = {}
    for _ in range(200):
        schema = {"properties": {"a": schema}}
    crd = {"spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": schema}}]}}
    with pytest.raises(decoding.DecodingError, match="levels deep"):
        decoding.read("apiextensions.v1.CustomResourceDefinition", crd)
