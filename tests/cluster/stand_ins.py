"""Stand-ins for what cannot run beside these tests: Ray's dashboard, and `spark-submit`.

kwok's pods run no program, so no Ray head answers and no Spark driver starts executors. The operators are real: they
send their requests to, and run, what is here.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import secrets
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import yaml

from cluster import real

_HERE: Final = Path(__file__).resolve()


class RayDashboards:
    """The dashboards of all Ray clusters, behind an HTTP proxy that KubeRay uses.

    A Ray job runs until its namespace is in `succeeded`; every Serve application runs; a deployment is accepted.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.succeeded: set[str] = set()

    def answer(self, method: str, url: str) -> tuple[int, Any]:
        parts = urlsplit(url)
        # <service>.<namespace>.svc.<domain>, or the address of a pod.
        labels = (parts.hostname or "").split(".")
        status = "SUCCEEDED" if len(labels) > 2 and labels[1] in self.succeeded else "RUNNING"
        if parts.path.startswith("/api/serve/applications/"):
            application = {"name": "app", "status": "RUNNING", "deployments": {}}
            return 200, {} if method == "PUT" else {"applications": {"app": application}}
        if parts.path.startswith("/api/jobs/"):
            name = parts.path.removeprefix("/api/jobs/")
            info = {"submission_id": name, "job_id": name, "status": status, "entrypoint": "", "message": ""}
            return 200, [info] if not name else info
        return (200, "success") if parts.path == "/-/healthz" else (404, {})


@contextlib.contextmanager
def ray_dashboards() -> Iterator[RayDashboards]:
    """Serve the dashboards on a port of this machine."""

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            code, body = dashboards.answer(self.command, self.path)
            data = (body if isinstance(body, str) else json.dumps(body)).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_PUT = do_POST = do_DELETE = _answer

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing: requests are not logged."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        dashboards = RayDashboards(f"http://127.0.0.1:{server.server_address[1]}")
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield dashboards
        finally:
            server.shutdown()
            thread.join()


def spark_home(folder: Path) -> dict[str, str]:
    """The environment of Spark Operator with a `spark-submit` that runs this file."""
    program = folder / "spark" / "bin" / "spark-submit"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {_HERE} "$@"\n')
    program.chmod(0o755)
    return {
        "SPARK_HOME": str(folder / "spark"),
        "PYTHONPATH": os.pathsep.join((str(_HERE.parents[1]), str(_HERE.parents[2] / "src"))),
        # The operator names the API server by these; the stand-in uses the kubeconfig.
        "KUBERNETES_SERVICE_HOST": "127.0.0.1",
        "KUBERNETES_SERVICE_PORT": "443",
    }


def spark_pods(arguments: list[str]) -> tuple[str, list[dict[str, Any]]]:
    """The namespace, and the driver and the executors that Spark makes of these arguments, the driver first.

    Real Spark lets the driver make the executors; here they are made together. The last argument, which is the program's,
    is how many seconds the pods run where they are simulated. Names of executors differ in each submission, as in Spark.
    """
    settings = {}
    for flag, value in itertools.pairwise(arguments):
        if flag == "--conf":
            key, _, text = value.partition("=")
            settings[key] = text
    driver = _spark_pod(settings, "driver", settings["spark.kubernetes.driver.pod.name"])
    count = int(settings.get("spark.executor.instances", "1"))
    name = driver["metadata"]["name"]
    unique = f"{name}-{secrets.token_hex(4)}"
    executors = [_spark_pod(settings, "executor", f"{unique}-exec-{number}") for number in range(1, count + 1)]
    for number, executor in enumerate(executors, 1):
        executor["metadata"]["labels"]["spark-exec-id"] = str(number)
    for pod in (driver, *executors):
        pod["spec"]["containers"][0]["command"] = ["sleep", arguments[-1]]
    return settings["spark.kubernetes.namespace"], [driver, *executors]


def _spark_pod(settings: dict[str, str], role: str, name: str) -> dict[str, Any]:
    def under(*prefixes: str) -> dict[str, str]:
        found: dict[str, str] = {}
        for prefix in prefixes:
            found |= {key.removeprefix(prefix): value for key, value in settings.items() if key.startswith(prefix)}
        return found

    template = _template(settings.get(f"spark.kubernetes.{role}.podTemplateFile", ""))
    metadata, spec = template.get("metadata") or {}, template.get("spec") or {}
    selector = under("spark.kubernetes.node.selector.", f"spark.kubernetes.{role}.node.selector.")
    cores = settings.get(f"spark.kubernetes.{role}.request.cores", "1")
    container = {"name": f"spark-kubernetes-{role}", "image": "none", "resources": {"requests": {"cpu": cores}}}
    labels = under(f"spark.kubernetes.{role}.label.") | {"spark-role": role, "spark-app-selector": "spark-1"}
    annotations = under(f"spark.kubernetes.{role}.annotation.")
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": (metadata.get("labels") or {}) | labels,
            "annotations": (metadata.get("annotations") or {}) | annotations,
        },
        "spec": {
            "restartPolicy": "Never",
            "containers": [container],
            "nodeSelector": (spec.get("nodeSelector") or {}) | selector,
            "tolerations": spec.get("tolerations") or [],
            "schedulingGates": spec.get("schedulingGates") or [],
        },
    }


def _template(path: str) -> dict[str, Any]:
    return (yaml.safe_load(Path(path.removeprefix("file://")).read_text()) or {}) if path else {}


def _identity(tree: dict[str, Any]) -> dict[str, Any]:
    return {key: tree["metadata"][key] for key in ("name", "uid")}


def _submit(arguments: list[str]) -> None:
    client = real.of_kubeconfig(Path(os.environ["KUBECONFIG"]))
    namespace, pods = spark_pods(arguments)
    name = pods[0]["metadata"]["labels"]["sparkoperator.k8s.io/app-name"]
    path = f"/apis/sparkoperator.k8s.io/v1beta2/namespaces/{namespace}/sparkapplications/{name}"
    application = client.request("GET", path).body
    owner = {"apiVersion": application["apiVersion"], "kind": "SparkApplication", **_identity(application)}
    for pod in pods:
        # The operator has a webhook of its own for pods, a second process that does not run here.
        role = application["spec"][pod["metadata"]["labels"]["spark-role"]]
        pod["spec"]["nodeSelector"] |= role.get("nodeSelector") or {}
        pod["spec"]["tolerations"] += role.get("tolerations") or []
        pod["metadata"]["ownerReferences"] = [{"controller": True, **owner}]
        answer = client.request("POST", f"/api/v1/namespaces/{namespace}/pods", pod)
        if answer.code != 201:
            sys.exit(f"{answer.code}: {answer.body}")
        if owner["kind"] != "Pod":
            owner = {"apiVersion": "v1", "kind": "Pod", **_identity(answer.body)}
    client.close()


if __name__ == "__main__":
    _submit(sys.argv[1:])
