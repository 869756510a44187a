"""Protobuf bodies: what Go clients send is read whole, as a real server wrote it, or refused with the place."""

from __future__ import annotations

import base64
from pathlib import Path

import msgspec
import pytest

from kubeserver.builtin import decoding, kinds
from kubeserver.builtin_types import types
from kubeserver.http import protobuf
from kubeserver.registry.strategy import Resource

_LINES = (Path(__file__).parent / "recorded" / "objects.jsonl").read_bytes().splitlines()


@pytest.mark.parametrize("number", range(len(_LINES)))
def test_what_a_real_server_wrote_reads_as_its_json(number: int) -> None:
    """Same object, asked for in both forms."""
    row = msgspec.json.decode(_LINES[number])
    tree = protobuf.decode(base64.b64decode(row["wire"]))
    name = types.of_kind(tree["apiVersion"], tree["kind"])
    assert name is not None
    assert decoding.read(name, tree) == row["json"]


# --- a writer small enough to be seen through ---------------------------------------------------------------------------


def varint(number: int) -> bytes:
    number &= 2**64 - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def field(number: int, value: int | str | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def body(api_version: str, kind: str, message: bytes, *more: bytes) -> bytes:
    return protobuf.MAGIC + field(1, field(1, api_version) + field(2, kind)) + field(2, message) + b"".join(more)


METADATA = field(1, field(1, "one"))


def test_a_map_of_texts() -> None:
    data = field(2, field(1, "key") + field(2, "value"))
    tree = protobuf.decode(body("v1", "ConfigMap", METADATA + data))
    assert tree == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "one"},
        "data": {"key": "value"},
    }


def test_an_entry_of_a_map_without_a_value_is_there() -> None:
    tree = protobuf.decode(body("v1", "ConfigMap", METADATA + field(2, field(1, "key"))))
    assert decoding.read("core.v1.ConfigMap", tree)["data"] == {"key": ""}


def test_bytes_come_as_base64() -> None:
    data = field(2, field(1, "key") + field(2, b"\xff\x00"))
    assert protobuf.decode(body("v1", "Secret", METADATA + data))["data"] == {"key": "/wA="}


def test_negative_numbers_and_explicit_zeros() -> None:
    assert protobuf.decode(body("scheduling.k8s.io/v1", "PriorityClass", field(2, -5)))["value"] == -5
    job = protobuf.decode(body("batch/v1", "Job", field(2, field(1, 0))))
    assert job["spec"] == {"parallelism": 0}


def test_quantities_times_and_either_or() -> None:
    limits = field(1, field(1, "cpu") + field(2, field(1, "1500m")))
    port = field(2, field(2, field(1, 1) + field(3, "web")))
    probe = field(10, field(1, port))
    container = field(1, "main") + field(8, limits) + probe
    started = field(7, field(1, 1_700_000_000))
    pod = field(2, field(2, container)) + field(3, started)
    tree = protobuf.decode(body("v1", "Pod", pod))
    (found,) = tree["spec"]["containers"]
    assert found["resources"]["limits"] == {"cpu": "1500m"}
    assert found["livenessProbe"]["httpGet"]["port"] == "web"
    assert tree["status"]["startTime"] == "2023-11-14T22:13:20Z"


def test_fields_of_an_inlined_message_are_the_outer_ones_in_json() -> None:
    """A volume's source is a message of its own on the wire, and has no name in JSON."""
    volume = field(1, "cache") + field(2, field(2, field(1, "Memory")))
    tree = protobuf.decode(body("v1", "Pod", field(2, field(1, volume))))
    assert tree["spec"]["volumes"] == [{"name": "cache", "emptyDir": {"medium": "Memory"}}]


def test_numbers_in_a_list_may_be_packed() -> None:
    codes = field(3, varint(1) + varint(137))
    rule = field(1, "FailJob") + field(2, field(2, "In") + codes)
    tree = protobuf.decode(body("batch/v1", "Job", field(2, field(11, field(1, rule)))))
    assert tree["spec"]["podFailurePolicy"]["rules"][0]["onExitCodes"]["values"] == [1, 137]


def test_options_of_a_deletion_are_read_whatever_group_they_name() -> None:
    options = field(1, 5) + field(4, "Foreground")
    assert protobuf.decode(body("batch/v1", "DeleteOptions", options)) == {
        "apiVersion": "batch/v1",
        "kind": "DeleteOptions",
        "gracePeriodSeconds": 5,
        "propagationPolicy": "Foreground",
    }


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (b"{}", "magic bytes"),
        (body("v1", "ConfigMap", field(99, "x")), r"core\.v1\.ConfigMap has no field number 99"),
        (body("v1", "Pod", field(2, field(2, field(77, 1)))), r"Pod\.spec\.containers: core\.v1\.Container .* 77"),
        (body("kueue.x-k8s.io/v1beta2", "Workload", b""), "Workload of 'kueue.x-k8s.io/v1beta2' is not read"),
        (body("v1", "Deployment", b""), "Deployment"),
        (body("v1", "ConfigMap", METADATA)[:-3], "ends in the middle"),
        (body("v1", "ConfigMap", field(1, 5)), "a number where bytes are expected"),
        (body("v1", "ConfigMap", field(1, field(1, b"\xff"))), "not valid UTF-8"),
        (body("v1", "ConfigMap", b"\x0f"), "wire type 7"),
        (body("v1", "ConfigMap", b"\xff" * 12), "too long"),
        (body("v1", "ConfigMap", METADATA, field(3, "gzip")), "encoding"),
        (body("v1", "ConfigMap", METADATA, field(9, "x")), "unknown field number 9"),
    ],
)
def test_what_cannot_be_read_whole_is_refused_with_the_reason(sent: bytes, why: str) -> None:
    with pytest.raises(protobuf.ProtobufError, match=why):
        protobuf.decode(sent)


def test_no_prefix_of_a_body_is_a_crash() -> None:
    """A connection that breaks gives a refusal or a smaller object, never an exception of another sort."""
    whole = base64.b64decode(msgspec.json.decode(_LINES[0])["wire"])
    for length in range(len(whole)):
        try:
            protobuf.decode(whole[:length])
        except protobuf.ProtobufError:
            continue


def test_scale_is_read_as_protobuf() -> None:
    """Typed clients write the scale of a Deployment so."""
    tree = protobuf.decode(body("autoscaling/v1", "Scale", METADATA + field(2, field(1, 4)) + field(3, field(1, 1))))
    assert (tree["metadata"], tree["spec"], tree["status"]) == ({"name": "one"}, {"replicas": 4}, {"replicas": 1})


def test_a_binding_is_read_as_protobuf() -> None:
    """Typed clients bind pods so."""
    tree = protobuf.decode(body("v1", "Binding", METADATA + field(2, field(1, "Node") + field(3, "n1"))))
    assert (tree["metadata"], tree["target"]) == ({"name": "one"}, {"kind": "Node", "name": "n1"})


@pytest.mark.parametrize("resource", kinds.RESOURCES, ids=lambda resource: resource.group_resource)
def test_every_built_in_kind_is_read_as_protobuf(resource: Resource) -> None:
    """The bodies of its subresources included."""
    for kind in (resource.kind, *(action.kind for action in resource.actions.values())):
        assert types.of_kind(resource.api_version, kind) is not None
