"""A user without permission gets one sentence: the answer of the API server."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import yaml

from shell import Shell


class Refusing(BaseHTTPRequestHandler):
    """An API server on which the user may read one namespace only, and there is nothing in it."""

    def do_GET(self) -> None:
        resource = self.path.partition("?")[0].rpartition("/")[2]
        tree: dict[str, object]
        if "/namespaces/" in self.path:
            code, tree = 200, {"kind": "List", "apiVersion": "v1", "metadata": {}, "items": []}
        else:
            sentence = f'{resource}.views.pykueue.io is forbidden: User "ana" cannot list resource "{resource}"'
            code = 403
            tree = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403,
                    "message": sentence}  # fmt: skip
        body = json.dumps(tree).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Write no log."""


@pytest.fixture
def shell(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    server = HTTPServer(("127.0.0.1", 0), Refusing)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    place = {"name": "it", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}
    context = {"name": "it", "context": {"cluster": "it", "user": "ana", "namespace": "research"}}
    user = {"name": "ana", "user": {"token": "x"}}
    tree = {"apiVersion": "v1", "kind": "Config", "clusters": [place], "contexts": [context], "users": [user],
            "current-context": "it"}  # fmt: skip
    (tmp_path / "config").write_text(yaml.safe_dump(tree))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    try:
        yield Shell(capsys)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    ("arguments", "resource"),
    [
        (("history", "-A"), "workloadrecords"),
        (("report", "usage", "-A"), "usage"),
        (("queue", "--trouble", "-A"), "troubles"),
    ],
    ids=["history", "report", "troubles"],
)
def test_list_of_all_namespaces_is_refused_in_one_sentence(
    shell: Shell, arguments: tuple[str, ...], resource: str
) -> None:
    refused = shell(*arguments)
    assert refused.code != 0
    assert refused.out == ""
    assert refused.err.count("\n") == 1
    assert f'{resource}.views.pykueue.io is forbidden: User "ana" cannot list resource "{resource}"' in refused.err


def test_own_namespace_is_listed(shell: Shell) -> None:
    assert shell("queue", "--trouble") == (0, "", "no jobs are in trouble\n")
    assert shell("history").code == 1  # nothing matched
