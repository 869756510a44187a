"""An API server whose answers a test decides, and a kubeconfig for it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import yaml

# The code and the body of the answer to a GET of a path.
Answer = Callable[[str], tuple[int, dict[str, Any]]]


@contextmanager
def answering(answer: Answer, folder: Path) -> Iterator[Path]:
    """The kubeconfig of a server that answers every GET: of user `ana`, in namespace `research`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            code, tree = answer(self.path)
            body = json.dumps(tree).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Write no log."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    place = {"name": "it", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}
    context = {"name": "it", "context": {"cluster": "it", "user": "ana", "namespace": "research"}}
    user = {"name": "ana", "user": {"token": "x"}}
    tree = {"apiVersion": "v1", "kind": "Config", "clusters": [place], "contexts": [context], "users": [user],
            "current-context": "it"}  # fmt: skip
    kubeconfig = folder / "config"
    kubeconfig.write_text(yaml.safe_dump(tree))
    try:
        yield kubeconfig
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
