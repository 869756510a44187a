"""What this server does not offer, in one table: the answers, the document and the page are all made from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kubeserver.registry.strategy import Tree


@dataclass(frozen=True, slots=True)
class Limit:
    """One thing that a cluster has and this server has not, how that shows, and why.

    `subresources` (`pods/log`) answer 404 with `words`; `paths` answer 404 with `words`; `warns` names groups whose
    objects are stored with `words` as a warning. A limit with none of these shows by absence.
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
        "pods/log answers 404 unless a runner keeps logs",
        "there are no logs here: pods are simulated, or nobody runs them; only --runner process keeps logs",
        subresources=("pods/log",),
    ),
    Limit(
        "exec",
        "pods/exec, attach, portforward and proxy answer 404",
        "this server cannot reach into pods: exec, attach, port-forward and proxy are not offered",
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
        "serviceaccounts/token answers 404",
        "this server issues no tokens for service accounts; use the kubeconfig that it wrote",
        subresources=("serviceaccounts/token",),
    ),
    Limit(
        "openapi-v2",
        "/openapi/v2 answers 404, and those who read only its protobuf are told of no kinds",
        "OpenAPI v2 is not served; the documents are at /openapi/v3",
        paths=("/openapi/v2", "/swagger.json"),
    ),
    Limit(
        "metrics-api",
        "metrics.k8s.io is absent from discovery",
        "nobody measures pods here",
    ),
    Limit(
        "stored-workloads",
        "Deployment, StatefulSet, ReplicaSet, DaemonSet and CronJob are stored; no pod or Job follows from them",
        "these kinds are served for the suites and controllers of others; no controller of theirs runs here",
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
        "answers are JSON or YAML; a client that accepts nothing else gets 406",
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
    Limit("aggregation", "APIService is absent from discovery", "no other API server stands behind this one"),
    Limit(
        "flow-control",
        "flowcontrol.apiserver.k8s.io is absent from discovery",
        "there is one cap on requests in flight and one rate for each user; beyond them 429",
    ),
    Limit("impersonation", "impersonation headers answer 403", "nobody can act as somebody else"),
    Limit(
        "controllers",
        "without a runner, Jobs and Nodes are only stored",
        "a runner runs pods on this machine (or pretends to); without one nobody does, only garbage is collected",
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
    """What a limit says of itself."""
    return _BY_NAME[name].words


def document() -> Tree:
    """`/.well-known/embedded-limits`."""
    return {"limits": [{"name": one.name, "shows": one.shows, "words": one.words} for one in LIMITS]}


def page() -> str:
    """The same as a page for people."""
    rows = "\n".join(f"| {one.name} | {one.shows} | {one.words} |" for one in LIMITS)
    return (
        "# What the embedded server does not offer\n\n"
        "A running server tells the same at `/.well-known/embedded-limits`.\n\n"
        f"| what | how it shows | in its own words |\n|---|---|---|\n{rows}\n"
    )


def of_subresource(plural: str, subresource: str) -> str:
    """Why a subresource is not served; "" where nobody has said so."""
    wanted = (f"{plural}/{subresource}", f"*/{subresource}")
    return next((one.words for one in LIMITS if any(name in one.subresources for name in wanted)), "")


def of_path(path: str) -> str:
    return next((one.words for one in LIMITS if path in one.paths), "")


def warning(group: str) -> str:
    """What a write to a group is warned of."""
    return _WARNINGS.get(group, "")
