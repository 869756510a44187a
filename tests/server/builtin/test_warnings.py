"""What is accepted with a warning, and the place that the warning names."""

from __future__ import annotations

import base64
import datetime
from typing import Any

import pytest

from kubemachinery.certificates import CertificateAuthority
from kubeserver.builtin import warnings
from kubeserver.builtin.kinds import RESOURCES

Tree = dict[str, Any]


def places(kind: str, tree: Tree, old: Tree | None = None) -> list[str]:
    """The places that a valid object is warned of."""
    rules = next(one for one in RESOURCES if one.kind == kind).rules
    return [words.partition(": ")[0] for words in rules.warn(rules.default(rules.prune(tree)), old)]


def pod(annotations: dict[str, str] | None = None, **spec: Any) -> Tree:
    containers = [{"name": "main", "image": "i"}]
    return {"metadata": {"name": "p", "annotations": annotations}, "spec": {"containers": containers, **spec}}


def running(**container: Any) -> Tree:
    return pod(containers=[{"name": "main", "image": "i", **container}])


ANTI = {
    "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "a", "labelSelector": {}}, {"topologyKey": "a"}]
}
MASTER = {"matchExpressions": [{"key": "node-role.kubernetes.io/master", "operator": "Exists"}]}
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
PORT = {"containerPort": 80}


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        (pod(), []),
        (pod(nodeSelector={"beta.kubernetes.io/os": "linux"}), ["spec.nodeSelector[beta.kubernetes.io/os]"]),
        (
            pod(affinity={"nodeAffinity": {PREFERRED: [{"weight": 1, "preference": MASTER}]}}),
            [f"spec.affinity.nodeAffinity.{PREFERRED}[0].preference.matchExpressions[0].key"],
        ),
        (
            pod(affinity={"podAntiAffinity": ANTI}),
            ["spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[1].labelSelector"],
        ),
        (
            pod(topologySpreadConstraints=[{"maxSkew": 1, "topologyKey": "a", "whenUnsatisfiable": "DoNotSchedule"}]),
            ["spec.topologySpreadConstraints[0].labelSelector"],
        ),
        (
            pod({"security.alpha.kubernetes.io/sysctls": ""}),
            ["metadata.annotations[security.alpha.kubernetes.io/sysctls]"],
        ),
        (pod(volumes=[{"name": "v", "gitRepo": {"repository": "r"}}]), ["spec.volumes[0].gitRepo"]),
        (
            pod(imagePullSecrets=[{"name": "a"}, {"name": "a"}, {}]),
            [f"spec.imagePullSecrets[{at}].name" for at in (1, 2)],
        ),
        (pod(terminationGracePeriodSeconds=-1), ["spec.terminationGracePeriodSeconds"]),
        (running(resources={"requests": {"memory": "1500m"}}), ["spec.containers[0].resources.requests[memory]"]),
        (
            running(env=[{"name": "A", "value": "a"}, {"name": "A", "value": "$(A)b"}, {"name": "A", "value": "c"}]),
            ["spec.containers[0].env[2]"],
        ),
        (running(ports=[PORT, PORT]), ["spec.containers[0].ports[1]"]),
        (running(ports=[PORT, {**PORT, "protocol": "UDP"}]), []),
        (running(ports=[{**PORT, "hostIP": "10.0.0.1"}]), ["spec.containers[0].ports[0]"]),
        (running(ports=[{**PORT, "name": "a"}, {"containerPort": 81, "name": "a"}]), ["spec.containers[0].ports[1]"]),
    ],
)
def test_a_pod_that_its_author_cannot_have_meant(tree: Tree, expected: list[str]) -> None:
    assert places("Pod", tree) == expected


def job(generation: int, name: str = "j") -> Tree:
    template = pod(restartPolicy="Never", terminationGracePeriodSeconds=-1)
    metadata = {"name": name, "generation": generation}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": template}}


def test_a_job_is_warned_of_again_when_what_it_wants_has_changed() -> None:
    place = "spec.template.spec.terminationGracePeriodSeconds"
    assert places("Job", job(1)) == [place]
    assert places("Job", job(1), job(1)) == []
    assert places("Job", job(2), job(1)) == [place]


def test_a_job_whose_pods_cannot_have_its_name_as_host_name() -> None:
    assert places("Job", job(1, "a.b"))[0] == "metadata.name"


def test_a_certificate_needs_the_key_that_belongs_to_it() -> None:
    now = datetime.datetime.now(datetime.UTC)
    one, other = (CertificateAuthority.make(name, now).key_pair for name in ("one", "other"))

    def secret(certificate: bytes, key: bytes) -> Tree:
        data = {"tls.crt": base64.b64encode(certificate).decode(), "tls.key": base64.b64encode(key).decode()}
        return {"metadata": {"name": "s"}, "type": "kubernetes.io/tls", "data": data}

    assert list(warnings.of_secret(secret(one.certificate, one.key), None)) == []
    assert places("Secret", secret(one.certificate, other.key)) == ["tls"]
    assert places("Secret", secret(b"hi", b"hi")) == ["tls"]
