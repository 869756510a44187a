"""The commands against a real kube-apiserver with a manager.

There are no nodes and no controllers of Kubernetes here: the statuses of a Job controller and a kubelet are written by
hand,
and the one log there is comes from a few lines that answer as a kubelet does.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster import assets, real
from kubemachinery.certificates import CertificateAuthority
from pykueue import cli
from pykueue.cli import progress
from pykueue.version import __version__
from shell import CommandResult, Shell
from waiting import PATIENCE_SECONDS, until

pytestmark = pytest.mark.cluster

JOBS = "/apis/batch/v1/namespaces/default/jobs"
PODS = "/api/v1/namespaces/default/pods"
CONFIGURATION = {
    "apiVersion": "config.kueue.x-k8s.io/v1beta2",
    "kind": "Configuration",
    "metrics": {"bindAddress": "0"},
    "health": {"healthProbeBindAddress": "0"},
    "leaderElection": {"leaderElect": False},
}
BIGGER = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: small}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{name: any, resources: [{name: cpu, nominalQuota: 2}]}]
"""


class Place:
    """A real API server and a manager beside it."""

    def __init__(self, server: real.Client, folder: Path) -> None:
        self.server = server
        self.folder = folder
        self.kubeconfig = folder / "kubeconfig"
        self.kubeconfig.write_text(server.kubeconfig())

    @contextlib.contextmanager
    def managed(self) -> Iterator[None]:
        (self.folder / "config.yaml").write_text(yaml.safe_dump(CONFIGURATION))
        words = [
            "manager",
            "--kubeconfig",
            str(self.kubeconfig),
            "--insecure-skip-tls-verify",
            "--config",
            "config.yaml",
        ]
        with (self.folder / "manager.log").open("w") as log:
            command = [sys.executable, "-m", "pykueue", *words]
            manager = subprocess.Popen(command, stderr=log, cwd=self.folder)
            try:
                yield
                assert manager.poll() is None, (self.folder / "manager.log").read_text()
            finally:
                manager.terminate()
                manager.wait(PATIENCE_SECONDS)

    # What Kubernetes would do by itself.

    def write(self, path: str, body: Any, method: str = "POST") -> Any:
        content = "application/merge-patch+json" if method == "PATCH" else "application/json"
        answer = self.server.request(method, path, body, content)
        assert answer.code < 300, answer.body
        return answer.body

    def start_pod(self, job: str) -> None:
        """The pod of a job runs on the only node, as soon as the job may start."""
        until(lambda: self.server.request("GET", f"{JOBS}/{job}").body.get("spec", {}).get("suspend") is False)
        uid = self.server.request("GET", f"{JOBS}/{job}").body["metadata"]["uid"]
        container = {"name": "main", "image": "busybox"}
        labels = {"batch.kubernetes.io/controller-uid": uid}
        self.write(PODS, {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{job}-0", "labels": labels},
            "spec": {"nodeName": "only", "restartPolicy": "Never", "containers": [container]},
        })  # fmt: skip
        state = {"running": {"startedAt": now()}}
        status = {"name": "main", "ready": True, "restartCount": 0, "image": "busybox", "imageID": "", "state": state}
        self.write(f"{PODS}/{job}-0/status", {"status": {"phase": "Running", "containerStatuses": [status]}}, "PATCH")
        self.write(f"{JOBS}/{job}/status", {"status": {"startTime": now(), "active": 1, "ready": 1}}, "PATCH")

    def end_job(self, job: str) -> None:
        self.write(f"{PODS}/{job}-0/status", {"status": {"phase": "Succeeded"}}, "PATCH")
        conditions = [
            {"type": type_, "status": "True", "lastProbeTime": now(), "lastTransitionTime": now()}
            for type_ in ("SuccessCriteriaMet", "Complete")
        ]
        over = {"active": 0, "ready": 0, "succeeded": 1, "conditions": conditions, "completionTime": now()}
        self.write(f"{JOBS}/{job}/status", {"status": over}, "PATCH")


def now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class _Kubelet(BaseHTTPRequestHandler):
    """A kubelet that serves container logs only."""

    def do_GET(self) -> None:
        is_log = self.path.startswith("/containerLogs/default/")
        self.send_response(200 if is_log else 404)
        self.end_headers()
        self.wfile.write(b"hi from the node\n" if is_log else b"")

    def log_message(self, *arguments: object) -> None:
        pass


@contextlib.contextmanager
def node(place: Place) -> Iterator[None]:
    """A node whose kubelet is a thread of this test."""
    moment = datetime.datetime.now(datetime.UTC)
    proof = CertificateAuthority.make("node-ca", moment).issue("node", ("127.0.0.1",), moment)
    both = place.folder / "kubelet.pem"
    both.write_bytes(proof.certificate + proof.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(both)
    with ThreadingHTTPServer(("127.0.0.1", 0), _Kubelet) as kubelet:
        kubelet.socket = context.wrap_socket(kubelet.socket, server_side=True)
        threading.Thread(target=kubelet.serve_forever, daemon=True).start()
        try:
            place.write("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "only"}})
            place.write("/api/v1/nodes/only/status", {"status": {
                "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet.server_address[1]}},
            }}, "PATCH")  # fmt: skip
            yield
        finally:
            kubelet.shutdown()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    try:
        assets.ensure()
    except assets.AssetsError as wrong:
        pytest.fail(str(wrong))
    folder = tmp_path_factory.mktemp("place")
    with real.started(*real.front(folder)) as server:
        found = Place(server, folder)
        cli.program.main(["install", "--kubeconfig", str(found.kubeconfig), "-s", server.url], standalone_mode=False)
        with found.managed(), node(found):
            yield found


@pytest.fixture
def shell(place: Place, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.setenv("KUBECONFIG", str(place.kubeconfig))
    monkeypatch.chdir(place.folder)
    return Shell(capsys)


def test_a_job_from_its_submission_to_its_end(place: Place, shell: Shell) -> None:
    def does(*words: str) -> None:
        """The API server learns a moment later where our webhooks are."""
        until(lambda: shell(*words).code == 0)

    does("create", "resourceflavor", "any")
    does("create", "clusterqueue", "small", "--nominal-quota", "any:cpu=1")
    does("create", "localqueue", "mine", "-c", "small")
    refused = shell("submit", "--", "true")
    assert (refused.code, refused.err) == (2, "pykueue: this server runs containers: name an image with --image\n")

    # Two ask for the only cpu: one gets it, and the other waits.
    does("submit", "--image", "busybox", "--name", "first", "--", "true")
    until(lambda: shell("queue", "-o", "jsonpath={.items[*].status.admission.clusterQueue}").out == "small")
    does("submit", "--image", "busybox", "--name", "second", "--", "true")
    until(lambda: "Waiting" in shell("queue").out)
    assert [row.split()[:4] for row in shell("queue").out.splitlines()[1:]] == [
        ["first", "Job", "mine", "Starting"],
        ["second", "Job", "mine", "Waiting"],
    ]
    [waiting] = shell("list", "workload", "--for", "job/second", "-o", "name").out.splitlines()
    assert (
        "raise nominalQuota of cpu in flavor any of ClusterQueue small by 1, to 2" in shell("explain", "job/second").out
    )
    Path("bigger.yaml").write_text(BIGGER)
    would = shell("whatif", "-f", "bigger.yaml").out
    assert would == f"Would start\n  default/{waiting.removeprefix('workload.kueue.x-k8s.io/')}\n"
    assert "small" in shell("top", "--once").out

    # Nothing runs pods: the command reports what it waits for, and times out.
    late = shell("wait", "first", "--timeout", "1s")
    assert (late.code, late.err) == (1, "job first has not finished after 1 s\n")
    assert shell("logs", "first").err == "job first has no log: starting, its pods do not exist yet\n"

    place.start_pod("first")
    assert shell("logs", "first").out == "hi from the node\n"
    place.end_job("first")
    assert shell("wait", "first").out == "job first succeeded\n"
    until(lambda: "Starting" in shell("queue").out)  # what the first one had is the second one's now

    assert shell("cancel", "second").out == "job second cancelled\n"
    assert shell("wait", "second").err == "pykueue: job second not found in namespace default\n"


def test_the_version_names_the_image_of_the_manager(shell: Shell) -> None:
    assert shell("version").out.splitlines()[1:] == [f"manager image pykueue:{__version__}"]
    assert json.loads(shell("version", "-o", "json").out)["managerImage"] == f"pykueue:{__version__}"
    assert "manager" not in shell("version", "--client").out


def test_installing_again_without_the_dashboard_deletes_its_service(place: Place, shell: Shell) -> None:
    service = "/api/v1/namespaces/kueue-system/services/kueue-dashboard"
    assert "service/kueue-dashboard created\n" in shell("install", "--dashboard").out
    assert place.server.request("GET", service).code == 200
    assert "service/kueue-dashboard deleted (not part of this configuration)\n" in shell("install").out
    assert place.server.request("GET", service).code == 404


def test_job_without_a_workload_has_the_reason(place: Place, shell: Shell) -> None:
    marks = {"kueue.x-k8s.io/queue-name": "any", "kueue.x-k8s.io/priority-class": "urgent"}
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "lost", "labels": marks}}
    until(lambda: place.server.request("POST", JOBS, {**job, "spec": {"template": {"spec": pod}}}).code == 201)
    why = 'WorkloadPriorityClass "urgent" not found'
    until(lambda: why in shell("queue").out)
    [row] = [row.split() for row in shell("queue").out.splitlines() if row.startswith("lost")]
    assert row[:4] == ["lost", "Job", "any", "Unqueued"]
    until(lambda: shell("queue", "-o", "name").out == "job.batch/lost\n")  # what was cancelled before is gone
    result = f"Job default/lost has no Workload and is not queued\n\nWhy\n  {why}\n"
    assert shell("explain", "lost").out == shell("explain", "job/lost").out == result
    assert json.loads(shell("explain", "lost", "-o", "json").out)["causes"] == [why]
    assert shell("wait", "lost", "--timeout", "1s").err == "job lost has not finished after 1 s\n"
    assert shell("cancel", "lost").code == 0


def test_submit_wait_reports_the_job_until_it_finishes(
    place: Place, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing runs pods here: the output has the observed states, and the command ends with the Job or with its
    timeout."""
    monkeypatch.setattr(progress, "_PATIENCE_OF_LOGS_SECONDS", 0.0)
    until(lambda: shell("create", "resourceflavor", "waiting").code == 0)
    until(lambda: shell("create", "clusterqueue", "waiting", "--nominal-quota", "waiting:cpu=1").code == 0)
    until(lambda: shell("create", "localqueue", "waiting", "-c", "waiting").code == 0)

    def submitted(name: str, *more: str) -> CommandResult:
        return shell("submit", "--wait", "--image", "busybox", "--name", name, "-q", "waiting", *more, "--", "true")

    late = submitted("late", "--timeout", "2s")
    assert (late.code, late.out) == (1, "job late submitted to queue waiting\n")
    assert late.err.splitlines()[-1] == "job late has not finished after 2 s"
    is_true = "job late: starting, its pods do not exist yet\n"
    until(lambda: is_true in shell("wait", "late", "--timeout", "1s").err)
    assert shell("cancel", "late").code == 0

    def ends() -> None:
        place.start_pod("waited")
        place.end_job("waited")

    kubernetes = threading.Thread(target=ends)
    kubernetes.start()
    result = submitted("waited", "--timeout", f"{PATIENCE_SECONDS:.0f}s")
    kubernetes.join()
    assert (result.code, result.out) == (0, "job waited submitted to queue waiting\n")
    lines = [line.removeprefix("job waited: ") for line in result.err.splitlines() if line.startswith("job waited: ")]
    assert {line.partition(",")[0] for line in lines} <= {"waiting", "starting", "running"}, result.err
    assert shell("cancel", "waited").code == 0


@pytest.mark.parametrize("words", [("queue",), ("explain", "any"), ("top",), ("whatif", "--delete", "cq/any")])
def test_missing_permission_is_one_sentence(shell: Shell, words: tuple[str, ...]) -> None:
    result = shell(*words, "--as", "nobody")
    assert result.code == 2
    assert 'User "nobody" cannot list resource' in result.err
    assert result.err.count("\n") == 1
