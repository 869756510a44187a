"""Which job a Workload is for."""

from __future__ import annotations

import pytest

from kubemachinery.meta import ObjectMeta, OwnerReference
from pykueue.api import kueue, labels, workload_owners


def owner(kind: str, name: str, *, controller: bool | None = None) -> OwnerReference:
    return OwnerReference(api_version="any/v1", kind=kind, name=name, uid=f"uid-{name}", controller=controller)


NAMED = {labels.JOB_OWNER_GVK: "any/v1, Kind=StatefulSet", labels.JOB_OWNER_NAME: "web"}
PODS = (owner("Pod", "web-0"), owner("Pod", "web-1"))


@pytest.mark.parametrize(
    ("owners", "annotations", "expected"),
    [
        ((owner("ConfigMap", "a"), owner("PyTorchJob", "b", controller=True)), {}, ("PyTorchJob", "b", "uid-b")),
        ((*PODS, owner("StatefulSet", "web")), NAMED, ("StatefulSet", "web", "uid-web")),
        (PODS, NAMED, ("StatefulSet", "web", "")),
        (PODS, {}, None),
        ((), {}, None),
        (PODS, {labels.JOB_OWNER_GVK: "StatefulSet"}, None),
    ],
    ids=["its controller", "named by annotations", "named, and not an owner yet", "a pod group", "none", "malformed"],
)
def test_job_of_a_workload(
    owners: tuple[OwnerReference, ...], annotations: dict[str, str], expected: tuple[str, str, str] | None
) -> None:
    metadata = ObjectMeta(name="w", owner_references=owners, annotations=annotations)
    found = workload_owners.job_of(kueue.Workload(metadata=metadata))
    assert (None if found is None else (found.kind, found.name, found.uid)) == expected
