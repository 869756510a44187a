"""The PodTemplates of ProvisioningRequests are such that an API server accepts them."""

from __future__ import annotations

from jobs.job_harness import JobHarness, flavor
from jobs.ray_objects import RAY, ray_job
from kubemachinery import codec
from pykueue.api import kueue
from pykueue.controllers.checks import pod_templates
from pykueue.jobs.podsets import Missing, PodSetConflict


def test_containers_that_are_only_counted_get_an_image() -> None:
    """The autoscaler and the submitter that KubeRay adds to the head [RY5] [RJ3]."""
    tree = ray_job(mode="SidecarMode", cluster={"enableInTreeAutoscaling": True})
    workload = JobHarness(tree, options=RAY).settle().admit().workload
    flavors = {"default": flavor()}
    config = kueue.ProvisioningRequestConfigSpec(provisioning_class_name="check")
    found = pod_templates.asked(workload, codec.to_tree(workload), config, flavors)
    assert not isinstance(found, PodSetConflict | Missing)
    images = {
        each.pod_set: {container["name"]: container["image"] for container in each.template["spec"]["containers"]}
        for each in found
    }
    assert images == {
        "head": {"ray": "ray:1", "autoscaler": "ray:1", "ray-job-submitter": "ray:1"},
        "small": {"ray": "ray:1"},
    }
