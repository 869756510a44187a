"""The table of real partners: Kubernetes' own controllers, kwok, and the operators of the job kinds, with their versions.

Each is built once from its published Go module by `assets.partner`. This module imports nothing, so that the page of
integrations can be generated from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# Of kube-apiserver, kube-controller-manager and kube-scheduler alike.
KUBERNETES: Final = "v1.36.3"


@dataclass(frozen=True)
class Partner:
    """One program: its Go module and version, its main package, and the files of the module that tests need.

    Partners with the same `libraries` are built with the same versions of all libraries, each in a module of its own: so
    a library is compiled once for all of them. `files` are patterns of paths in the module's folder.
    """

    name: str
    title: str
    module: str
    version: str
    main: str
    libraries: str
    files: tuple[str, ...] = ()
    # Built and run by every `make test-cluster`; the others only with OPERATORS=all, or where they are built already.
    always: bool = False


PARTNERS: Final = (
    Partner(
        "kwok",
        "kwok",
        "sigs.k8s.io/kwok",
        "v0.8.0",
        "sigs.k8s.io/kwok/cmd/kwok",
        "0.36",
        ("kustomize/stage/pod/fast/*.yaml", "kustomize/stage/node/fast/*.yaml"),
        always=True,
    ),
    Partner(
        "kube-controller-manager",
        "kube-controller-manager",
        "k8s.io/kubernetes",
        KUBERNETES,
        "k8s.io/kubernetes/cmd/kube-controller-manager",
        "kubernetes",
        always=True,
    ),
    Partner(
        "kube-scheduler",
        "kube-scheduler",
        "k8s.io/kubernetes",
        KUBERNETES,
        "k8s.io/kubernetes/cmd/kube-scheduler",
        "kubernetes",
        always=True,
    ),
    Partner(
        "jobset",
        "JobSet",
        "sigs.k8s.io/jobset",
        "v0.12.0",
        "sigs.k8s.io/jobset",
        "0.36",
        ("config/components/crd/bases/*.yaml", "config/components/webhook/manifests.yaml"),
        always=True,
    ),
    Partner(
        "lws",
        "LeaderWorkerSet",
        "sigs.k8s.io/lws",
        "v0.8.0",
        "sigs.k8s.io/lws/cmd",
        "0.34",
        ("config/crd/bases/*.yaml", "config/webhook/manifests.yaml"),
    ),
    Partner(
        "training-operator",
        "Training Operator",
        "github.com/kubeflow/training-operator",
        "v1.9.4",
        "github.com/kubeflow/training-operator/cmd/training-operator.v1",
        "0.36",
        ("manifests/base/crds/kubeflow.org_*.yaml",),
    ),
    Partner(
        "mpi-operator",
        "MPI Operator",
        "github.com/kubeflow/mpi-operator",
        "v0.8.2",
        "github.com/kubeflow/mpi-operator/cmd/mpi-operator",
        "0.35",
        ("manifests/base/kubeflow.org_mpijobs.yaml",),
    ),
    Partner(
        "kuberay",
        "KubeRay",
        "github.com/ray-project/kuberay/ray-operator",
        # Before v1.6.1 a RayService that was suspended once never runs again (kuberay#4686).
        "v1.6.1",
        "github.com/ray-project/kuberay/ray-operator",
        "0.35-ray",
        ("config/crd/bases/*.yaml",),
    ),
    Partner(
        "appwrapper",
        "AppWrapper",
        "github.com/project-codeflare/appwrapper",
        "v1.2.2",
        "github.com/project-codeflare/appwrapper/cmd",
        "0.35",
        ("config/crd/bases/*.yaml",),
    ),
    Partner(
        "trainer",
        "Kubeflow Trainer",
        "github.com/kubeflow/trainer/v2",
        "v2.3.0",
        "github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager",
        "0.36",
        ("manifests/base/crds/*.yaml", "manifests/base/webhook/manifests.yaml"),
    ),
    Partner(
        "spark-operator",
        "Spark Operator",
        "github.com/kubeflow/spark-operator/v2",
        "v2.5.2",
        "github.com/kubeflow/spark-operator/v2/cmd/operator",
        "0.32",
        ("config/crd/bases/*.yaml",),
    ),
)

# Built by the benchmark that compares the two managers, never by tests.
KUEUE: Final = Partner(
    "kueue",
    "Kueue",
    "sigs.k8s.io/kueue",
    "v0.19.1",
    "sigs.k8s.io/kueue/cmd/kueue",
    "kueue",
    ("config/components/crd/bases/*.yaml", "config/components/manager/controller_manager_config.yaml"),
)

# The partner that runs the jobs of a kind in tests/cluster/test_operators.py, by framework.
OPERATORS: Final = {
    "batch/job": "kube-controller-manager",
    "deployment": "kube-controller-manager",
    "statefulset": "kube-controller-manager",
    "jobset.x-k8s.io/jobset": "jobset",
    "leaderworkerset.x-k8s.io/leaderworkerset": "lws",
    "kubeflow.org/pytorchjob": "training-operator",
    "kubeflow.org/tfjob": "training-operator",
    "kubeflow.org/xgboostjob": "training-operator",
    "kubeflow.org/paddlejob": "training-operator",
    "kubeflow.org/jaxjob": "training-operator",
    "kubeflow.org/mpijob": "mpi-operator",
    "trainer.kubeflow.org/trainjob": "trainer",
    "ray.io/raycluster": "kuberay",
    "ray.io/rayjob": "kuberay",
    "ray.io/rayservice": "kuberay",
    "workload.codeflare.dev/appwrapper": "appwrapper",
    "sparkoperator.k8s.io/sparkapplication": "spark-operator",
}

# What is played beside the operator, by framework (tests/cluster/stand_ins.py).
STAND_INS: Final = {
    "ray.io/rayjob": "Ray's dashboard",
    "ray.io/rayservice": "Ray's dashboard",
    "sparkoperator.k8s.io/sparkapplication": "spark-submit",
}
