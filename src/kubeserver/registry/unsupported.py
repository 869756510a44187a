"""What this server does not support, in one table: responses, the document and the docs page are made from it."""

from __future__ import annotations

from typing import Final

import msgspec

from kubeserver.registry.strategy import Tree


class Limit(msgspec.Struct, frozen=True):
    """One feature of a cluster that this server lacks, what a client sees of that, and the reason.

    `subresources` (`pods/log`) and `paths` return 404 with `words`; objects of the groups in `warns` are stored with
    `words` as a warning. A limit with none of these is visible by absence from discovery.
    """

    name: str
    shows: str
    words: str
    subresources: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    warns: tuple[str, ...] = ()


LIMITS: Final = (
    Limit(
        "pod-logs",
        "pods/log returns 404 unless a runner keeps logs",
        "no logs are available: pods are simulated or not run; only --runner process keeps logs",
        subresources=("pods/log",),
    ),
    Limit(
        "exec",
        "pods/exec, attach, portforward and proxy return 404",
        "exec, attach, port-forward and proxy are not supported by this server",
        subresources=(
            "pods/exec",
            "pods/attach",
            "pods/portforward",
            "pods/proxy",
            "services/proxy",
            "nodes/proxy",
            "pods/ephemeralcontainers",
        ),
    ),
    Limit(
        "token-requests",
        "serviceaccounts/token returns 404",
        "this server issues no tokens for service accounts; use the kubeconfig that it wrote",
        subresources=("serviceaccounts/token",),
    ),
    Limit(
        "openapi-v2",
        "/openapi/v2 returns 404; clients that accept only its protobuf get a document without kinds",
        "OpenAPI v2 is not served; the documents are at /openapi/v3",
        paths=("/openapi/v2", "/swagger.json"),
    ),
    Limit(
        "metrics-api",
        "metrics.k8s.io is absent from discovery",
        "the resource usage of pods is not measured",
    ),
    Limit(
        "stored-workloads",
        "the kinds of apps/v1, CronJob and PersistentVolumeClaim are stored; the server makes nothing of them",
        "the server runs no controllers; the runner of `pykueue up` runs those of Deployment, ReplicaSet, StatefulSet"
        " and CronJob; no volume is bound to a claim",
    ),
    Limit(
        "service-addresses",
        "a Service without clusterIP or nodePort is stored without, with a warning; no Endpoints follow from it",
        "this server has no cluster network: no cluster IP and no node port is allocated",
    ),
    Limit(
        "other-kinds",
        "Ingress, NetworkPolicy, PersistentVolume, StorageClass and their like are absent from discovery",
        "only the kinds that batch work and its tests need are built in; a CRD brings others, in groups with a dot",
    ),
    Limit(
        "protobuf-answers",
        "responses are JSON or YAML; a client that accepts neither gets 406",
        "protobuf is read but not written, and CBOR is neither (415)",
    ),
    Limit("http2", "not offered in ALPN", "HTTP/1.1 only"),
    Limit(
        "rbac",
        "RBAC objects are stored with a warning",
        "RBAC is stored but not enforced by the embedded server",
        warns=("rbac.authorization.k8s.io",),
    ),
    Limit(
        "resource-quota",
        "ResourceQuota is absent from discovery",
        "namespaces are not limited by this server",
    ),
    Limit(
        "admission-policies",
        "ValidatingAdmissionPolicy and MutatingAdmissionPolicy are absent from discovery",
        "policies in CEL are not evaluated; use a webhook or a hook of this process",
    ),
    Limit(
        "webhook-services",
        "422 at creation names clientConfig.url",
        "there is no cluster network: a webhook needs clientConfig.url, and by default on a loopback address",
    ),
    Limit(
        "conversion-webhooks",
        "422 at creation of a CRD with strategy Webhook and several served versions",
        "objects of foreign CRDs are not converted by webhooks; serve one version, or use strategy None",
    ),
    Limit(
        "cel-cost-estimate",
        "a CRD whose rules kube-apiserver would refuse as too expensive is accepted",
        "the cost of rules is not estimated at creation: it is bounded when they run, and beyond it an object gets 422",
    ),
    Limit("aggregation", "APIService is absent from discovery", "requests are not passed on to other API servers"),
    Limit(
        "flow-control",
        "flowcontrol.apiserver.k8s.io is absent from discovery",
        "there is one cap on requests in flight and one rate for each user; beyond them 429",
    ),
    Limit("impersonation", "requests with impersonation headers get 403", "impersonation is not supported"),
    Limit(
        "controllers",
        "without a runner, Jobs and Nodes are only stored",
        "a runner runs or simulates pods; without one, only garbage collection runs",
    ),
    Limit(
        "deletion-of-jobs",
        "a Job deleted without propagationPolicy takes its pods along; kube-apiserver lets them run on, with a warning",
        "name propagationPolicy Background, as kubectl does, or Orphan, and both servers do the same",
    ),
    Limit(
        "one-process",
        "a second server on the same data directory refuses to start, naming the first one's process",
        "one data directory, one server; where one machine is not enough, use a cluster",
    ),
)


_BY_NAME: Final = {one.name: one for one in LIMITS}
_WARNINGS: Final = {group: one.words for one in LIMITS for group in one.warns}


def words(name: str) -> str:
    """Return the message of a limit."""
    return _BY_NAME[name].words


def document() -> Tree:
    """`/.well-known/embedded-limits`."""
    return {"limits": [{"name": one.name, "shows": one.shows, "words": one.words} for one in LIMITS]}


def page() -> str:
    """The same as a docs page."""
    rows = "\n".join(f"| {one.name} | {one.shows} | {one.words} |" for one in LIMITS)
    return (
        "# What the embedded server does not support\n\n"
        "A running server returns the same list at `/.well-known/embedded-limits`.\n\n"
        f"| feature | what a client sees | message |\n|---|---|---|\n{rows}\n"
    )


def of_subresource(plural: str, subresource: str) -> str:
    """Return why a subresource is not served; "" where the table has no row for it."""
    wanted = (f"{plural}/{subresource}", f"*/{subresource}")
    return next((one.words for one in LIMITS if any(name in one.subresources for name in wanted)), "")


def of_path(path: str) -> str:
    return next((one.words for one in LIMITS if path in one.paths), "")


def warning(group: str) -> str:
    """Return the warning of a write to a group; "" without one."""
    return _WARNINGS.get(group, "")
