"""Write down what a real kube-apiserver answers, so that every test run can hold our pure parts against it.

    python -m contracts.record        (from `tests/`) rewrites `tests/server/recorded/`

The sequences and patches are those of the twin tests; the objects are the bases of the probes.
"""

from __future__ import annotations

import base64
import http.client
import ssl
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from cluster import real
from contracts import ownership, patching, probing
from contracts.ownership import SequenceGenerator

RECORDED: Final = Path(__file__).resolve().parents[1] / "server" / "recorded"
SEQUENCES: Final = range(12)
TEMPLATES: Final = range(12)
_BASE: Final = f"/apis/{ownership.GROUP}/v1/namespaces/default/{ownership.PLURAL}"
_TEMPLATES: Final = "/api/v1/namespaces/default/podtemplates"


def main() -> None:
    RECORDED.mkdir(parents=True, exist_ok=True)
    with real.started() as server:
        server.install(ownership.CRD)
        _write("ownership.jsonl", [line for seed in SEQUENCES for line in _sequence(server, seed)])
        _write("strategic.jsonl", [line for seed in TEMPLATES for line in _patches(server, seed)])
        server.request("POST", "/api/v1/namespaces", {"metadata": {"name": "twin-limits"}})
        _write("objects.jsonl", [line for kind in probing.kinds() for line in _forms(server, kind)])
        _write("validation.jsonl", [line for kind in probing.kinds() for line in _validations(server, kind)])


def _write(name: str, lines: list[Any]) -> None:
    encoder = msgspec.json.Encoder(order="sorted")
    (RECORDED / name).write_bytes(b"".join(encoder.encode(line) + b"\n" for line in lines))


def _sequence(server: real.Client, seed: int) -> list[Any]:
    """One sequence: for each step the request and the response."""
    name = f"story-{seed}"
    head = {"apiVersion": ownership.API_VERSION, "kind": ownership.KIND}
    out: list[Any] = []
    live: dict[str, Any] = {}
    for step in SequenceGenerator(seed).sequence(6):
        metadata = {"name": name, "namespace": "default", **step.body.get("metadata", {})}
        body: dict[str, Any] = {**head, **step.body, "metadata": metadata}
        path = f"{_BASE}/{name}" + (f"/{step.subresource}" if step.subresource else "")
        query = f"?fieldManager={step.manager}"
        match step.verb:
            case "create":
                answer = server.request("POST", _BASE + query, body)
            case "apply":
                query += f"&force={'true' if step.force else 'false'}"
                answer = server.request("PATCH", path + query, body, "application/apply-patch+yaml")
            case "merge":
                body = step.body
                answer = server.request("PATCH", path + query, body, "application/merge-patch+json")
            case _:
                body = dict(live)
                for part, fields in step.body.items():
                    body[part] = {**body.get(part, {}), **fields}
                answer = server.request("PUT", path + query, body)
        if answer.code not in (200, 201, 409):
            break
        line: dict[str, Any] = {"story": seed, "step": msgspec.to_builtins(step.__dict__), "sent": body}
        if answer.code == 409:
            line["conflicts"] = sorted((one["message"], one["field"]) for one in answer.body["details"]["causes"])
        else:
            line["object"] = live = answer.body
        out.append(line)
    return out


def _patches(server: real.Client, seed: int) -> list[Any]:
    name = f"strategic-{seed}"
    live = server.request("POST", _TEMPLATES, patching.pod_template(name, seed)).body
    out: list[Any] = []
    for patch in patching.patches(seed, 4):
        answer = server.request("PATCH", f"{_TEMPLATES}/{name}", patch, "application/strategic-merge-patch+json")
        if answer.code == 200:
            out.append({"before": _slim(live), "patch": patch, "after": _slim(answer.body)})
            live = answer.body
    return out


def _slim(tree: dict[str, Any]) -> dict[str, Any]:
    gone = ("managedFields", "resourceVersion", "generation", "uid", "creationTimestamp")
    return {**tree, "metadata": {key: value for key, value in tree["metadata"].items() if key not in gone}}


def _validations(server: real.Client, kind: probing.Kind) -> list[Any]:
    """For each row of a kind: whether it was accepted, and the fields that were refused."""
    out: list[Any] = []
    name = kind.base["metadata"]["name"]
    for number, row in enumerate(kind.create):
        answer = server.request("POST", f"{kind.path}?dryRun=All", probing.changed(kind.base, row))
        out.append(_outcome(kind, "create", number, answer))
    server.request("POST", kind.path, kind.base)
    stored = server.request("GET", f"{kind.path}/{name}").body
    for sort, endpoint, rows in (("update", "", kind.update), ("status", "/status", kind.status)):
        for number, row in enumerate(rows):
            answer = server.request("PUT", f"{kind.path}/{name}{endpoint}?dryRun=All", probing.changed(stored, row))
            out.append(_outcome(kind, sort, number, answer))
    options = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
    server.request("DELETE", f"{kind.path}/{name}", options)
    return out


def _outcome(kind: probing.Kind, sort: str, number: int, answer: real.Answer) -> Any:
    details = answer.body.get("details") or {} if isinstance(answer.body, dict) else {}
    causes = [] if answer.code < 300 else details.get("causes") or []
    reported = sorted({(one.get("reason", ""), one.get("field", "")) for one in causes})
    return {"kind": kind.name, "sort": sort, "row": number, "code": answer.code, "causes": reported}


def _forms(server: real.Client, kind: probing.Kind) -> list[Any]:
    """One object in all three forms: as JSON, as protobuf, and as kubectl prints it."""
    if "/twin-limits/" in kind.path:
        return []
    created = server.request("POST", kind.path, kind.base)
    assert created.code == 201, created.body
    path = f"{kind.path}/{kind.base['metadata']['name']}"
    wire = _raw(server, path)
    table = server.request("GET", path, Accept="application/json;as=Table;v=v1;g=meta.k8s.io").body
    line = {
        "kind": kind.name,
        "json": server.request("GET", path).body,
        "wire": base64.b64encode(wire).decode(),
        "columns": [[one[key] for key in ("name", "type", "format", "priority")] for one in table["columnDefinitions"]],
        "cells": table["rows"][0]["cells"],
    }
    if not kind.stays:
        server.request("DELETE", path, {"gracePeriodSeconds": 0, "propagationPolicy": "Background"})
    return [line]


def _raw(server: real.Client, path: str) -> bytes:
    parts = urlsplit(server.url)
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    connection = http.client.HTTPSConnection(str(parts.hostname), parts.port, context=context)
    headers = {"Authorization": f"Bearer {server.token}", "Accept": "application/vnd.kubernetes.protobuf"}
    connection.request("GET", path, headers=headers)
    data = connection.getresponse().read()
    connection.close()
    return data


if __name__ == "__main__":
    main()
