"""The operators of job kinds, simulated: JobSet's controller, the Training Operator, and KubeRay, which creates the
RayCluster of a RayJob.

Each writes the status that the manager reads. Pods are not created: a status counts them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

from kubemachinery.client.errors import Conflict, KubeError, NotFound
from simulation.engine import job_kinds, setup
from simulation.engine.owners import Part, Played, true_conditions
from simulation.engine.revisions import Tree
from simulation.engine.setup import Plan
from simulation.engine.users import kind_of


class Operator(Played):
    """What all operators share: an object that is not suspended starts, comes up, and runs to its end."""

    async def wait(self, plan: Plan, part: Part) -> None:
        match part:
            case ("stop",):
                await asyncio.sleep(plan.stop_seconds)
            case ("ready",):
                await self.stage.until_ready(plan)
            case ("run",):
                await self.stage.until_done(plan)
            case _:
                await asyncio.sleep(0.1)

    def wanted(self, tree: Tree) -> Iterator[Part]:
        row = job_kinds.KINDS[self.kind]
        if row.is_over(tree):
            return
        if row.is_suspended(tree):
            if row.has_pods(tree):
                yield ("stop",)
        elif not row.has_pods(tree):
            yield ("start",)
        elif not self.is_ready(tree):
            yield ("ready",)
        elif self.ends(tree):
            yield ("run",)

    def is_ready(self, tree: Tree) -> bool:
        raise NotImplementedError

    def ends(self, tree: Tree) -> bool:
        """Whether it comes to an end by itself."""
        return True

    def fails(self, tree: Tree) -> bool:
        return self.stage.plan(tree["metadata"]["name"]).fails


class JobSetController(Operator):
    """The rows of the status are in another order than the replicated jobs."""

    resource = job_kinds.JOB_SET.resource
    kind = "JobSet"

    def is_ready(self, tree: Tree) -> bool:
        return all(row["ready"] for row in tree["status"]["replicatedJobsStatus"])

    def status(self, tree: Tree, part: Part) -> Tree:
        match part:
            case ("start",):
                return {"replicatedJobsStatus": self._counted(tree, active=True)}
            case ("ready",):
                return {"replicatedJobsStatus": self._counted(tree, active=True, ready=True)}
            case ("stop",):
                return {"replicatedJobsStatus": self._counted(tree, suspended=True)}
        type_ = "Failed" if self.fails(tree) else "Completed"
        end = {
            "type": type_,
            "status": "True",
            "reason": "Played",
            "message": "",
            "lastTransitionTime": self.stage.now(),
        }
        return {"replicatedJobsStatus": self._counted(tree, succeeded=not self.fails(tree)), "conditions": [end]}

    def _counted(self, tree: Tree, **counts: bool) -> list[Tree]:
        names = ("active", "ready", "succeeded", "failed", "suspended")
        return [
            {"name": each["name"], **{name: each["replicas"] * counts.get(name, False) for name in names}}
            for each in reversed(tree["spec"]["replicatedJobs"])
        ]


class TrainingOperator(Operator):
    """PyTorchJobs: counts of pods by replica type, and conditions."""

    resource = job_kinds.PYTORCH_JOB.resource
    kind = "PyTorchJob"

    def is_ready(self, tree: Tree) -> bool:
        return bool(true_conditions(tree).get("Running"))

    def status(self, tree: Tree, part: Part) -> Tree:
        match part:
            case ("start",):
                return {
                    "replicaStatuses": self._counted(tree, "active"),
                    "conditions": self._with(tree, Running="False"),
                }
            case ("ready",):
                return {"conditions": self._with(tree, Running="True")}
            case ("stop",):
                counted = {type_: {"active": 0} for type_ in tree["spec"]["pytorchReplicaSpecs"]}
                return {"replicaStatuses": counted, "conditions": self._with(tree, Running="False", Suspended="True")}
        end = "Failed" if self.fails(tree) else "Succeeded"
        counted = self._counted(tree, end.lower())
        return {"replicaStatuses": counted, "conditions": self._with(tree, Running="False", **{end: "True"})}

    def _counted(self, tree: Tree, what: str) -> Tree:
        return {
            type_: {"active": 0, what: replicas["replicas"]}
            for type_, replicas in tree["spec"]["pytorchReplicaSpecs"].items()
        }

    def _with(self, tree: Tree, **statuses: str) -> list[Tree]:
        others = [each for each in tree.get("status", {}).get("conditions", ()) if each["type"] not in statuses]
        moment = self.stage.now()
        written = [
            {"type": type_, "status": status, "reason": "Played", "message": "", "lastTransitionTime": moment}
            for type_, status in statuses.items()
        ]
        return [*others, *written]


class RayClusterController(Operator):
    """A RayCluster of its own ends when its user deletes it; one of a RayJob with that."""

    resource = job_kinds.RAY_CLUSTER.resource
    kind = "RayCluster"

    def is_ready(self, tree: Tree) -> bool:
        status = tree.get("status", {})
        workers = job_kinds.ray_pods(tree["spec"]) - 1
        return bool(status.get("state") == "ready" and status.get("availableWorkerReplicas") == workers)

    def ends(self, tree: Tree) -> bool:
        return not job_kinds.controller(tree)

    async def act(self, tree: Tree, part: Part) -> bool:
        if part != ("run",):
            return await super().act(tree, part)
        metadata = tree["metadata"]
        row = kind_of(self.kind)
        await self.stage.client.delete(row, metadata["name"], metadata["namespace"], uid=metadata["uid"])
        return True

    def status(self, tree: Tree, part: Part) -> Tree:
        match part:
            case ("start",):
                return {"state": "", "head": {"podName": f"{tree['metadata']['name']}-head"}}
            case ("ready",):
                return {"state": "ready", "availableWorkerReplicas": job_kinds.ray_pods(tree["spec"]) - 1}
        return {"state": "suspended", "availableWorkerReplicas": 0, "head": {"podName": ""}}


class RayJobController(Operator):
    """Creates the RayCluster when the job starts, and deletes it when the job stops or ends."""

    resource = job_kinds.RAY_JOB.resource
    kind = "RayJob"

    def is_ready(self, tree: Tree) -> bool:
        return bool(tree.get("status", {}).get("rayClusterStatus", {}).get("state") == "ready")

    async def act(self, tree: Tree, part: Part) -> bool:
        row = kind_of("RayCluster")
        if part == ("start",):
            made = setup.cluster_of(tree)
            if await self.stage.client.find(row, made["metadata"]["name"], made["metadata"]["namespace"]) is None:
                await self._create(made)
        elif part in (("stop",), ("run",)):
            with contextlib.suppress(NotFound):
                await self.stage.client.delete(row, setup.cluster_name(tree), tree["metadata"]["namespace"])
        return await super().act(tree, part)

    async def _create(self, made: Tree) -> None:
        """Raise for a cluster that exists by now, so that the status is not written yet: it may be one that goes."""
        try:
            await self.stage.client.create(kind_of("RayCluster"), made)
        except Conflict as error:
            raise KubeError(str(error)) from error

    def status(self, tree: Tree, part: Part) -> Tree:
        match part:
            case ("start",):
                return {"jobDeploymentStatus": "Running", "rayClusterName": setup.cluster_name(tree)}
            case ("ready",):
                return {"rayClusterStatus": {"state": "ready"}}
            case ("stop",):
                return {"jobDeploymentStatus": "Suspended", "rayClusterName": "", "rayClusterStatus": {"state": ""}}
        if self.fails(tree):
            return {"jobDeploymentStatus": "Failed", "jobStatus": "FAILED", "message": "played"}
        return {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED", "message": "played"}


OPERATORS = (JobSetController, TrainingOperator, RayClusterController, RayJobController)
