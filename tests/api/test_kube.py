"""The types of Kubernetes' kinds read real objects, and ignore fields that they do not declare."""

from __future__ import annotations

import msgspec
import pytest

from kubemachinery import codec
from kubemachinery.kinds import Kind
from pykueue.api import kube, registry

POD = b"""{
  "apiVersion": "v1", "kind": "Pod",
  "metadata": {"name": "p", "namespace": "ns", "creationTimestamp": null, "labels": {"app": "x"}},
  "spec": {
    "containers": [
      {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "500m", "memory": 1073741824}},
       "securityContext": {"privileged": false}}
    ],
    "initContainers": [{"name": "proxy", "restartPolicy": "Always", "resources": {"requests": {"cpu": 0.5}}}],
    "overhead": {"cpu": "10m"},
    "schedulingGates": [{"name": "kueue.x-k8s.io/admission"}],
    "tolerations": [{"operator": "Exists"}],
    "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
      {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}}},
    "volumes": [{"name": "v", "emptyDir": {}}]
  },
  "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True", "lastProbeTime": null}],
             "podIP": "10.0.0.1"}
}"""


def test_a_pod_reads_as_it_was_written() -> None:
    pod = codec.decode(POD, kube.Pod)
    assert pod.metadata.labels == {"app": "x"}
    assert pod.spec.containers[0].resources.requests == {"cpu": "500m", "memory": 1073741824}
    assert pod.spec.init_containers[0].restart_policy == "Always"
    assert pod.spec.scheduling_gates == (kube.PodSchedulingGate(name="kueue.x-k8s.io/admission"),)
    assert pod.spec.affinity is not None
    assert pod.spec.affinity.node_affinity is not None
    needed = pod.spec.affinity.node_affinity.required_during_scheduling_ignored_during_execution
    assert needed is not None
    assert needed.node_selector_terms[0].match_expressions[0].values == ("a",)
    assert (pod.status.phase, pod.status.pod_ip) == ("Running", "10.0.0.1")


def test_a_quantity_stays_as_it_came() -> None:
    """Quantities are parsed where they are calculated with; what is written back keeps its spelling."""
    pod = codec.decode(POD, kube.Pod)
    assert codec.to_tree(pod.spec.init_containers[0].resources) == {"requests": {"cpu": 0.5}}


@pytest.mark.parametrize("row", registry.KUBERNETES.rows, ids=lambda row: row.kind)
def test_every_slice_reads_an_object_without_anything(row: Kind) -> None:
    value = codec.decode(b"{}", row.type)
    assert codec.to_tree(value)["kind"] == row.kind
    assert codec.to_tree(value)["apiVersion"] == row.api_version


def test_names_that_are_not_plain_camel_case_are_spelt_as_kubernetes_does() -> None:
    names = {member.encode_name for member in msgspec.structs.fields(kube.PodStatus)}
    assert {"podIP", "hostIP", "qosClass"} <= names
