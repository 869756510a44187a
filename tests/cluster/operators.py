"""Real partners beside an API server: Kubernetes' own controllers, kwok for nodes and pods, operators of job kinds.

    with operators.beside(client, kubeconfig, folder) as host:
        host.start("kube-controller-manager", "kube-scheduler", "kwok", "jobset")

The API server may be the real one or the embedded one. Each partner is a process of its own with that kubeconfig and a
log in `folder`; it is ended by its own id. Webhooks of operators are registered by url, with a certificate of a private
authority, and deleted before the operator ends: a registration without an operator would refuse every pod.
"""

from __future__ import annotations

import base64
import contextlib
import datetime
import http.client
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from cluster import assets, real, stand_ins
from cluster.assets.partners import PARTNERS
from kubemachinery.certificates import CertificateAuthority
from started import held_port
from waiting import until

Tree = dict[str, Any]

# CRDs are up to a megabyte of YAML, for which the loader in Python needs many seconds.
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
STAGES: Final = Path(__file__).with_name("stages")
_REGISTRATIONS: Final = "/apis/admissionregistration.k8s.io/v1"
# What the operators of these tests need of Kubernetes, and no controller that needs a cloud, a volume or a certificate.
_CONTROLLERS: Final = (
    "cronjob-controller",
    "deployment-controller",
    "garbage-collector-controller",
    "job-controller",
    "namespace-controller",
    "replicaset-controller",
    "statefulset-controller",
)


@dataclass(frozen=True)
class Start:
    """How a partner is started: its arguments, more environment, its probe, and the webhooks that it serves."""

    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    health_port: int = 0
    webhook_port: int = 0
    webhooks: str = ""  # the pattern of the file with its registrations
    pods_with: str = ""  # the label of the pods that its webhooks for pods are for


class OperatorHost:
    """An API server, and the partners that run beside it."""

    def __init__(self, client: real.Client, kubeconfig: Path, folder: Path) -> None:
        self.client = client
        self.kubeconfig = kubeconfig
        self.folder = folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._closing = contextlib.ExitStack()
        self.dashboards = self._closing.enter_context(stand_ins.ray_dashboards())
        now = datetime.datetime.now(datetime.UTC)
        self._authority = CertificateAuthority.make("operators-ca", now)
        pair = self._authority.issue("webhooks", (), now, hosts=("127.0.0.1", "localhost"))
        # The folder in which controller-runtime looks for a certificate below TMPDIR, unless it is configured otherwise.
        self.certificates = folder / "k8s-webhook-server" / "serving-certs"
        self.certificates.mkdir(parents=True)
        (self.certificates / "tls.crt").write_bytes(pair.certificate)
        (self.certificates / "tls.key").write_bytes(pair.key)

    def start(self, *names: str) -> None:
        """Start these partners where they do not run yet, after their CRDs. A second call does nothing."""
        for name in names:
            if name not in self._running:
                self._start(name, assets.partner(name))

    def install(self, *names: str) -> None:
        """Install the CRDs of these partners; this needs no build."""
        for name in names:
            documents = [tree for path in assets.files(name).rglob("*.yaml") for tree in _documents(path)]
            crds = [tree for tree in documents if tree["kind"] == "CustomResourceDefinition"]
            # Training Operator has an MPIJob of version v1; the version that is queued is MPI Operator's.
            chosen = [tree for tree in crds if name == "mpi-operator" or tree["spec"]["names"]["kind"] != "MPIJob"]
            self.client.install(*chosen)

    def install_all(self) -> None:
        """Install the CRDs of all partners, selected or not."""
        self.install(*(partner.name for partner in PARTNERS if partner.files))

    def run(self, name: str, binary: Path, *arguments: str, environment: Mapping[str, str]) -> None:
        """Run a program until the host is closed; `check` fails when it ends before."""
        running = real.process(self.log(name), binary, *arguments, environment=environment)
        self._running[name] = self._closing.enter_context(running)

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def port(self) -> int:
        return self._closing.enter_context(held_port())

    def put_certificates(self, folder: Path) -> None:
        """Copy the certificate to a folder that an operator has fixed; files that are there stay, ours go at the end."""
        folder.mkdir(parents=True, exist_ok=True)
        for path in self.certificates.iterdir():
            if not (folder / path.name).exists():
                (folder / path.name).write_bytes(path.read_bytes())
                self._closing.callback((folder / path.name).unlink, missing_ok=True)

    def write(self, name: str, tree: Tree) -> str:
        path = self.folder / name
        path.write_bytes(encoded(tree))
        return str(path)

    def apply(self, path: str, *trees: Tree) -> None:
        """Create objects; those that exist stay."""
        for tree in trees:
            answer = self.client.request("POST", path, tree)
            assert answer.code in (201, 409), answer.body

    def check(self) -> None:
        """Fail if a partner ended by itself."""
        for name, process in self._running.items():
            assert process.poll() is None, f"{name} ended:\n{_end_of(self.log(name))}"

    def check_manager(self) -> None:
        """Fail if the manager that runs beside, if one does, reported a broken invariant."""
        log = self.log("manager").read_text() if "manager" in self._running else ""
        broken = [line for line in log.splitlines() if "Traceback" in line]
        assert not broken, f"{len(broken)} reconciliations failed; the first:\n{broken[0][:2000]}"

    def close(self) -> None:
        self._closing.close()

    def _start(self, name: str, built: assets.BuiltPartner) -> None:
        self.install(name)
        start = STARTS[name](self, built)
        environment = {"KUBECONFIG": str(self.kubeconfig), "TMPDIR": str(self.folder), **start.environment}
        self.run(name, built.binary, *start.arguments, environment=environment)
        if start.health_port:
            until(lambda: self._is_ready(name, start.health_port), f"{name} is ready; its log is {self.log(name)}")
        if start.webhooks:
            self._closing.enter_context(self._registered(name, built, start))

    def _is_ready(self, name: str, port: int) -> bool:
        self.check()
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        return False

    @contextlib.contextmanager
    def _registered(self, name: str, built: assets.BuiltPartner, start: Start) -> Iterator[None]:
        (path,) = built.paths(start.webhooks)
        made = []
        for tree in _documents(path):
            tree["metadata"]["name"] = f"{name}-{tree['metadata']['name']}"
            for webhook in tree["webhooks"]:
                self._by_url(webhook, start)
            resource = f"{_REGISTRATIONS}/{tree['kind'].lower()}s"
            self.apply(resource, tree)
            made.append(f"{resource}/{tree['metadata']['name']}")
        try:
            yield
        finally:
            for one in made:
                self.client.request("DELETE", one)

    def _by_url(self, webhook: Tree, start: Start) -> None:
        url = f"https://127.0.0.1:{start.webhook_port}{webhook['clientConfig']['service']['path']}"
        bundle = base64.b64encode(self._authority.key_pair.certificate).decode()
        webhook["clientConfig"] = {"url": url, "caBundle": bundle}
        if any("pods" in rule["resources"] for rule in webhook["rules"]):
            webhook["objectSelector"] = {"matchExpressions": [{"key": start.pods_with, "operator": "Exists"}]}


@contextlib.contextmanager
def beside(client: real.Client, kubeconfig: Path, folder: Path) -> Iterator[OperatorHost]:
    """A host without partners yet; those that are started end with the block."""
    host = OperatorHost(client, kubeconfig, folder)
    try:
        yield host
        host.check()
        host.check_manager()
    finally:
        host.close()


def encoded(tree: Tree) -> bytes:
    """A configuration file: JSON, which is YAML too."""
    return msgspec.json.encode(tree)


def _documents(path: Path) -> list[Tree]:
    return [tree for tree in yaml.load_all(path.read_text(), _LOADER) if tree]


def _end_of(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-30:])


# --- How each is started ----------------------------------------------------------------------------------------------


def _controller_manager(host: OperatorHost, built: assets.BuiltPartner) -> Start:
    return Start(
        (
            f"--kubeconfig={host.kubeconfig}",
            f"--controllers={','.join(_CONTROLLERS)}",
            "--leader-elect=false",
            "--use-service-account-credentials=false",
            "--secure-port=0",
        )
    )


def _scheduler(host: OperatorHost, built: assets.BuiltPartner) -> Start:
    return Start((f"--kubeconfig={host.kubeconfig}", "--leader-elect=false", "--secure-port=0"))


def _kwok(host: OperatorHost, built: assets.BuiltPartner) -> Start:
    """kwok with its own stages for nodes and running pods; pods end when a test annotates them (`stages`)."""
    names = ("node-initialize", "pod-ready", "pod-delete")
    paths = [*(built.paths(f"**/{name}.yaml")[0] for name in names), *sorted(STAGES.glob("*.yaml"))]
    stages = tuple(f"--config={path}" for path in paths)
    arguments = (f"--kubeconfig={host.kubeconfig}", "--manage-all-nodes", "--node-lease-duration-seconds=0")
    return Start((*arguments, f"--server-address=127.0.0.1:{host.port()}", *stages))


def _configured(host: OperatorHost, name: str, group: str, **more: Any) -> tuple[str, int, int]:
    """The configuration file of an operator of kubernetes-sigs, with its ports for probes and webhooks."""
    health, webhook = host.port(), host.port()
    tree = {
        "apiVersion": group,
        "kind": "Configuration",
        "webhook": {"host": "127.0.0.1", "port": webhook, "certDir": str(host.certificates)},
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
        "metrics": {"bindAddress": "0"},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        **more,
    }
    return host.write(f"{name}.yaml", tree), health, webhook


def _jobset(host: OperatorHost, built: assets.BuiltPartner) -> Start:
    path, health, webhook = _configured(host, "jobset", "config.jobset.x-k8s.io/v1alpha1")
    manifests, label = "config/components/webhook/manifests.yaml", "jobset.sigs.k8s.io/jobset-name"
    return Start((f"--config={path}",), {}, health, webhook, manifests, label)


def _lws(host: OperatorHost, built: assets.BuiltPartner) -> Start:
    path, health, webhook = _configured(host, "lws", "config.lws.x-k8s.io/v1alpha1")
    manifests, label = "config/webhook/manifests.yaml", "leaderworkerset.sigs.k8s.io/name"
    return Start((f"--config={path}",), {}, health, webhook, manifests, label)


def _trainer(host: OperatorHost, built: assets.BuiltPartner) -> Start:
    host.start("jobset")
    health, webhook = host.port(), host.port()
    tree = {
        "apiVersion": "config.trainer.kubeflow.org/v1alpha1",
        "kind": "Configuration",
        "webhook": {"host": "127.0.0.1", "port": webhook},
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
        "metrics": {"bindAddress": "0"},
        "leaderElection": {"leaderElect": False},
        "certManagement": {"enable": False},
    }
    path = host.write("trainer.yaml", tree)
    return Start((f"--config={path}",), {}, health, webhook, "manifests/base/webhook/manifests.yaml")


def _training_operator(host: OperatorHost, built: assets.BuiltPartner) -> Start:
    """Training Operator with a certificate rotator that finds its Secret, and an empty list of webhooks to inject into.

    The rotator waits for a certificate at a path that has no setting; the webhook server reads another.
    """
    host.put_certificates(Path("/tmp/k8s-webhook-server/serving-certs"))
    name = "training-operator"
    host.apply("/api/v1/namespaces", _object("v1", "Namespace", name))
    secret = _object("v1", "Secret", f"{name}-webhook-cert")
    host.apply(f"/api/v1/namespaces/{name}/secrets", secret)
    validator = _object(
        "admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", f"validator.{name}.kubeflow.org"
    )
    host.apply(f"{_REGISTRATIONS}/validatingwebhookconfigurations", {**validator, "webhooks": []})
    health = host.port()
    kinds = ("pytorchjob", "tfjob", "xgboostjob", "paddlejob", "jaxjob")
    arguments = (
        *(f"--enable-scheme={kind}" for kind in kinds),
        "--metrics-bind-address=0",
        f"--health-probe-bind-address=127.0.0.1:{health}",
        f"--webhook-server-port={host.port()}",
    )
    return Start(arguments, {"MY_POD_NAMESPACE": name}, health)


def _mpi_operator(host: OperatorHost, built: assets.BuiltPartner) -> Start:
    host.apply("/api/v1/namespaces", _object("v1", "Namespace", "mpi-operator"))
    return Start(("--kube-api-qps=50", "--kube-api-burst=100", "--monitoring-port=0"))


def _kuberay(host: OperatorHost, built: assets.BuiltPartner) -> Start:
    """KubeRay, whose requests to dashboards of Ray go to the stand-in: no pod of a test is a Ray head."""
    health = host.port()
    arguments = (
        "--enable-leader-election=false",
        "--metrics-addr=0",
        f"--health-probe-bind-address=127.0.0.1:{health}",
    )
    return Start(arguments, {"HTTP_PROXY": host.dashboards.url}, health)


def _appwrapper(host: OperatorHost, built: assets.BuiltPartner) -> Start:
    health, name = host.port(), "appwrapper-system"
    host.apply("/api/v1/namespaces", _object("v1", "Namespace", name))
    settings = {
        "webhooksEnabled": False,
        "appwrapper": {"userRBACAdmissionCheck": False},
        "controllerManager": {
            "leaderElection": False,
            "metrics": {"bindAddress": "0"},
            "health": {"bindAddress": f"127.0.0.1:{health}"},
        },
    }
    config = _object("v1", "ConfigMap", "appwrapper-operator-config")
    host.apply(f"/api/v1/namespaces/{name}/configmaps", {**config, "data": {"config.yaml": yaml.safe_dump(settings)}})
    return Start((), {"NAMESPACE": name}, health)


def _spark_operator(host: OperatorHost, built: assets.BuiltPartner) -> Start:
    health = host.port()
    arguments = (
        "controller",
        "start",
        "--namespaces=",
        "--enable-ui-service=false",
        "--enable-metrics=false",
        f"--health-probe-bind-address=127.0.0.1:{health}",
        f"--kubeconfig={host.kubeconfig}",
    )
    return Start(arguments, stand_ins.spark_home(host.folder), health)


def _object(api_version: str, kind: str, name: str) -> Tree:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}}


STARTS: Final[Mapping[str, Callable[[OperatorHost, assets.BuiltPartner], Start]]] = {
    "kube-controller-manager": _controller_manager,
    "kube-scheduler": _scheduler,
    "kwok": _kwok,
    "jobset": _jobset,
    "lws": _lws,
    "trainer": _trainer,
    "training-operator": _training_operator,
    "mpi-operator": _mpi_operator,
    "kuberay": _kuberay,
    "appwrapper": _appwrapper,
    "spark-operator": _spark_operator,
}
