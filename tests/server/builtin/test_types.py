"""The table of fields: one line each, and everything that is made of them."""

from __future__ import annotations

import re

import pytest

from kubeserver.builtin import kinds
from kubeserver.builtin_types import schemas, types
from kubeserver.builtin_types.types import FieldType
from kubeserver.registry.strategy import Resource


def test_every_message_can_be_read_and_leads_to_known_ones() -> None:
    for name in types.messages():
        for field in types.message(name).fields.values():
            kind: FieldType | None = field.type
            while kind is not None:
                if kind.is_message:
                    types.message(kind.name)
                kind = kind.item or kind.value


def test_no_two_fields_of_a_message_share_a_number() -> None:
    for name in types.messages():
        message = types.message(name)
        own = [field for field in message.fields.values() if message.numbers.get(field.number) is field]
        assert len(own) == len(message.numbers), name
        assert not message.numbers.keys() & message.inlined.keys(), name


@pytest.mark.parametrize("resource", kinds.RESOURCES, ids=lambda one: f"{one.group or 'core'}-{one.kind}")
def test_every_kind_has_its_message_schema_and_shape(resource: object) -> None:
    assert isinstance(resource, Resource)
    name = types.of_kind(resource.api_version, resource.kind)
    assert name is not None
    schema = resource.schema()
    assert schema["type"] == "object"
    assert "metadata" not in schema["properties"]
    shape = resource.shape().map
    assert shape is not None
    assert shape.child("metadata") is not None


def test_a_type_inside_itself_ends() -> None:
    """The schema of a CRD holds schemas."""
    schema = schemas.inlined("apiextensions.v1.CustomResourceDefinition")
    assert schema["properties"]["spec"]["properties"]["versions"]["type"] == "array"


def test_lists_have_their_merge_type() -> None:
    spec = schemas.inlined("core.v1.Pod")["properties"]["spec"]["properties"]
    ports = spec["containers"]["items"]["properties"]["ports"]
    assert spec["containers"]["x-kubernetes-patch-merge-key"] == "name"
    assert ports["x-kubernetes-list-map-keys"] == ["containerPort", "protocol"]
    assert ports["items"]["properties"]["protocol"]["default"] == "TCP"
    assert spec["tolerations"]["x-kubernetes-list-type"] == "atomic"


def test_a_document_holds_all_it_refers_to() -> None:
    found = schemas.components("batch.v1.Job")
    assert {"io.k8s.api.batch.v1.JobSpec", "io.k8s.api.core.v1.PodSpec"} <= set(found)
    named = set(re.findall(r"'#/components/schemas/([^']+)'", repr(found)))
    assert named <= set(found)
    assert "io.k8s.apimachinery.pkg.api.resource.Quantity" in named
    volume = found["io.k8s.api.core.v1.PodSpec"]["properties"]["volumes"]["items"]
    assert volume == {"$ref": "#/components/schemas/io.k8s.api.core.v1.Volume"}


def test_an_unknown_flag_is_an_error() -> None:
    with pytest.raises(ValueError, match="unknown flag shiny"):
        types._field("x", "1 string shiny", "core.v1")
