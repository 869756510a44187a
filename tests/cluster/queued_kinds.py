"""The job kinds as tests with real operators see them: a small manifest each, and what is particular to the kind.

Every pod requests one CPU. A kind is in the table as soon as its integration is implemented; its operator may have to be
selected (`assets.selected`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import yaml

Tree = dict[str, Any]

# A simulated pod of the embedded server runs this long; kwok's pods end when a test decides.
LONG: Final = "100000"
_POD: Final = (
    f"{{containers: [{{name: %s, image: none, command: [sleep, '{LONG}'], resources: {{requests: {{cpu: 1}}}}}}]}}"
)


@dataclass(frozen=True)
class QueuedKind:
    """One kind: its framework and resource, its manifest, its pods, its partners, and the field that suspends it.

    Without `suspend` the kind is made of pods: they wait behind a scheduling gate, and the object itself runs. `ends` is
    the label selector of the pods whose success ends the job; None for a kind that serves until it is deleted.
    """

    framework: str
    resource: str
    manifest: str
    pods: int
    partners: tuple[str, ...] = ()
    suspend: tuple[str, ...] = ()
    ends: str | None = ""
    workloads: int = 1
    before: tuple[tuple[str, str], ...] = ()  # objects that have to exist: the collection, and the manifest
    finished: tuple[str, ...] = ()  # the conditions one of which the operator sets at the end

    def __str__(self) -> str:
        return self.framework

    @property
    def tree(self) -> Tree:
        tree: Tree = yaml.safe_load(self.manifest)
        return tree

    @property
    def short(self) -> QueuedKind:
        """The same kind with simulated pods that end after a second."""
        return replace(self, manifest=self.manifest.replace(LONG, "1"))


def _replicas(kind: str, field: str, container: str, *roles: str) -> str:
    """A job of Training Operator with two workers, and one replica of each other role."""
    pod = f"{{spec: {_POD % container}}}"
    specs = "".join(
        f"    {role}: {{replicas: {2 if role == 'Worker' else 1}, restartPolicy: Never, template: {pod}}}\n"
        for role in roles
    )
    return f"apiVersion: kubeflow.org/v1\nkind: {kind}\nmetadata: {{name: job}}\nspec:\n  {field}:\n{specs}"


def _training(kind: str, field: str, container: str, *roles: str) -> QueuedKind:
    name = kind.lower()
    return QueuedKind(
        f"kubeflow.org/{name}",
        f"apis/kubeflow.org/v1/{name}s",
        _replicas(kind, field, container, *roles),
        pods=len(roles) + 1,
        partners=("training-operator",),
        suspend=("spec", "runPolicy", "suspend"),
        finished=("Succeeded",),
    )


_RAY_GROUPS: Final = f"""
    headGroupSpec: {{rayStartParams: {{}}, template: {{spec: {_POD % "head"}}}}}
    workerGroupSpecs:
    - groupName: small
      replicas: 2
      minReplicas: 0
      maxReplicas: 4
      rayStartParams: {{}}
      template: {{spec: {_POD % "worker"}}}
"""

KINDS: Final = (
    QueuedKind(
        "batch/job",
        "apis/batch/v1/jobs",
        f"""
apiVersion: batch/v1
kind: Job
metadata: {{name: job}}
spec:
  parallelism: 3
  completions: 3
  template: {{spec: {{restartPolicy: Never, {(_POD % "main")[1:]}}}
""",
        pods=3,
        suspend=("spec", "suspend"),
        finished=("Complete",),
    ),
    QueuedKind(
        "jobset.x-k8s.io/jobset",
        "apis/jobset.x-k8s.io/v1alpha2/jobsets",
        f"""
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {{name: job}}
spec:
  replicatedJobs:
  - name: driver
    template: {{spec: {{parallelism: 1, completions: 1, template: {{spec: {_POD % "main"}}}}}}}
  - name: worker
    replicas: 2
    template: {{spec: {{parallelism: 2, completions: 2, template: {{spec: {_POD % "main"}}}}}}}
""",
        pods=5,
        partners=("jobset",),
        suspend=("spec", "suspend"),
        finished=("Completed",),
    ),
    _training("PyTorchJob", "pytorchReplicaSpecs", "pytorch", "Master", "Worker"),
    _training("TFJob", "tfReplicaSpecs", "tensorflow", "Chief", "Worker"),
    _training("XGBoostJob", "xgbReplicaSpecs", "xgboost", "Master", "Worker"),
    _training("PaddleJob", "paddleReplicaSpecs", "paddle", "Master", "Worker"),
    _training("JAXJob", "jaxReplicaSpecs", "jax", "Worker"),
    QueuedKind(
        "kubeflow.org/mpijob",
        "apis/kubeflow.org/v2beta1/mpijobs",
        f"""
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {{name: job}}
spec:
  mpiReplicaSpecs:
    Launcher: {{replicas: 1, template: {{spec: {_POD % "launcher"}}}}}
    Worker: {{replicas: 2, template: {{spec: {_POD % "worker"}}}}}
""",
        pods=3,
        partners=("mpi-operator",),
        suspend=("spec", "runPolicy", "suspend"),
        ends="training.kubeflow.org/job-role=launcher",
        finished=("Succeeded",),
    ),
    QueuedKind(
        "trainer.kubeflow.org/trainjob",
        "apis/trainer.kubeflow.org/v1alpha1/trainjobs",
        f"""
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {{name: job}}
spec:
  runtimeRef: {{name: plain, kind: TrainingRuntime, apiGroup: trainer.kubeflow.org}}
  trainer: {{numNodes: 2, command: [sleep, '{LONG}'], resourcesPerNode: {{requests: {{cpu: "1"}}}}}}
""",
        pods=2,
        partners=("jobset", "trainer"),
        suspend=("spec", "suspend"),
        before=(
            (
                "apis/trainer.kubeflow.org/v1alpha1/trainingruntimes",
                f"""
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainingRuntime
metadata: {{name: plain}}
spec:
  mlPolicy: {{numNodes: 1}}
  template:
    spec:
      replicatedJobs:
      - name: node
        template:
          metadata: {{labels: {{trainer.kubeflow.org/trainjob-ancestor-step: trainer}}}}
          spec: {{template: {{spec: {_POD % "node"}}}}}
""",
            ),
        ),
        finished=("Complete",),
    ),
    QueuedKind(
        "ray.io/raycluster",
        "apis/ray.io/v1/rayclusters",
        f"apiVersion: ray.io/v1\nkind: RayCluster\nmetadata: {{name: job}}\nspec:\n{_RAY_GROUPS}",
        pods=3,
        partners=("kuberay",),
        suspend=("spec", "suspend"),
        ends=None,
    ),
    QueuedKind(
        "ray.io/rayjob",
        "apis/ray.io/v1/rayjobs",
        f"apiVersion: ray.io/v1\nkind: RayJob\nmetadata: {{name: job}}\nspec:\n  entrypoint: python -c 1\n  shutdownAfterJobFinishes: true\n"
        f"  submitterPodTemplate: {{spec: {{restartPolicy: Never, {(_POD % 'submitter')[1:]}}}\n"
        f"  rayClusterSpec:\n{_RAY_GROUPS}",
        pods=4,
        partners=("kuberay",),
        suspend=("spec", "suspend"),
        ends="batch.kubernetes.io/job-name=job",
    ),
    QueuedKind(
        "ray.io/rayservice",
        "apis/ray.io/v1/rayservices",
        f"apiVersion: ray.io/v1\nkind: RayService\nmetadata: {{name: job}}\nspec:\n"
        f"  serveConfigV2: 'applications: [{{name: app, import_path: a.b}}]'\n"
        f"  rayClusterConfig:\n{_RAY_GROUPS}",
        pods=3,
        partners=("kuberay",),
        suspend=("spec", "rayClusterConfig", "suspend"),
        ends=None,
    ),
    QueuedKind(
        "workload.codeflare.dev/appwrapper",
        "apis/workload.codeflare.dev/v1beta2/appwrappers",
        f"""
apiVersion: workload.codeflare.dev/v1beta2
kind: AppWrapper
metadata: {{name: job}}
spec:
  components:
  - template:
      apiVersion: batch/v1
      kind: Job
      metadata: {{name: inner}}
      spec:
        parallelism: 2
        completions: 2
        template: {{spec: {{restartPolicy: Never, {(_POD % "main")[1:]}}}
""",
        pods=2,
        partners=("appwrapper",),
        suspend=("spec", "suspend"),
    ),
    QueuedKind(
        "sparkoperator.k8s.io/sparkapplication",
        "apis/sparkoperator.k8s.io/v1beta2/sparkapplications",
        f"""
apiVersion: sparkoperator.k8s.io/v1beta2
kind: SparkApplication
metadata: {{name: job}}
spec:
  type: Python
  mode: cluster
  sparkVersion: 3.5.3
  image: none
  mainApplicationFile: local:///main.py
  arguments: ['{LONG}']
  driver: {{coreRequest: "1", memory: 512m}}
  executor: {{instances: 2, coreRequest: "1", memory: 512m}}
""",
        pods=3,
        partners=("spark-operator",),
        suspend=("spec", "suspend"),
    ),
    QueuedKind(
        "deployment",
        "apis/apps/v1/deployments",
        f"""
apiVersion: apps/v1
kind: Deployment
metadata: {{name: job}}
spec:
  replicas: 3
  selector: {{matchLabels: {{app: job}}}}
  template: {{metadata: {{labels: {{app: job}}}}, spec: {_POD % "main"}}}
""",
        pods=3,
        ends=None,
        workloads=3,
    ),
    QueuedKind(
        "statefulset",
        "apis/apps/v1/statefulsets",
        f"""
apiVersion: apps/v1
kind: StatefulSet
metadata: {{name: job}}
spec:
  replicas: 3
  serviceName: job
  selector: {{matchLabels: {{app: job}}}}
  template: {{metadata: {{labels: {{app: job}}}}, spec: {_POD % "main"}}}
""",
        pods=3,
        ends=None,
    ),
    QueuedKind(
        "leaderworkerset.x-k8s.io/leaderworkerset",
        "apis/leaderworkerset.x-k8s.io/v1/leaderworkersets",
        f"""
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {{name: job}}
spec:
  replicas: 2
  leaderWorkerTemplate:
    size: 2
    leaderTemplate: {{spec: {_POD % "leader"}}}
    workerTemplate: {{spec: {_POD % "worker"}}}
""",
        pods=4,
        partners=("lws",),
        ends=None,
        workloads=2,
    ),
)
