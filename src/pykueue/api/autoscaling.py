"""The part of the cluster autoscaler's API that pykueue uses: a request for nodes, created before the pods."""

from __future__ import annotations

from typing import Annotated, Final

from kubemachinery.fields import always, required
from kubemachinery.meta import ApiStruct, Condition, ObjectMeta
from pykueue.api.kube import BY_TYPE, ApiVersion, KindName, Metadata

API_VERSION: Final = "autoscaling.x-k8s.io/v1"


class PodTemplateReference(ApiStruct, frozen=True):
    """A PodTemplate in the namespace of the request."""

    name: str = required(str)


class RequestedPodSet(ApiStruct, frozen=True):
    """So many pods of one mould."""

    pod_template_ref: PodTemplateReference = PodTemplateReference()
    count: int = 0


class ProvisioningRequestSpec(ApiStruct, frozen=True):
    """Which pods need capacity, and how it is provisioned."""

    provisioning_class_name: str = ""
    parameters: dict[str, str] = {}
    pod_sets: tuple[RequestedPodSet, ...] = ()


class ProvisioningRequestStatus(ApiStruct, frozen=True):
    """What the autoscaler answered."""

    conditions: Annotated[tuple[Condition, ...], BY_TYPE] = ()
    provisioning_class_details: dict[str, str] = {}


class ProvisioningRequest(ApiStruct, frozen=True):
    """A request for nodes, all of them or none."""

    api_version: ApiVersion = always(API_VERSION)
    kind: KindName = always("ProvisioningRequest")
    metadata: Metadata = ObjectMeta()
    spec: ProvisioningRequestSpec = ProvisioningRequestSpec()
    status: ProvisioningRequestStatus = ProvisioningRequestStatus()
