"""Configuration file and gates become the frozen values that rooms are handed.

    tree -> what is given -> shape -> defaults -> (v1beta1: convert) -> rules -> gates -> `Settings`

Nothing is half used: with one error there are no settings, and `ConfigurationError` carries every finding. Read once,
at start; there is no reload.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any, Final

import msgspec

from kubemachinery import meta, selectors, structural, tls, unstructured
from kubemachinery.field_errors import ErrorType, FieldError
from kubemachinery.kinds import Kind, Scope, Version
from kubemachinery.unstructured import Tree
from pykueue import features
from pykueue.api import config, config_v1beta1, effects, labels, schema
from pykueue.api.validation import configuration as rules
from pykueue.api.validation.nearest import did_you_mean
from pykueue.controllers import concurrency
from pykueue.core.policy import FairSharingStrategy, SchedulingPolicy, UsageHistory
from pykueue.errors import ConfigurationError
from pykueue.jobs import kinds

ROW: Final = Kind(
    group=config.GROUP,
    kind=config.KIND,
    plural="configurations",
    scope=Scope.CLUSTER,
    versions=(
        Version("v1beta2", config.Configuration, storage=True),
        Version("v1beta1", deprecation="write v1beta2", changes=config_v1beta1.CHANGES),
    ),
)

# What people write out of habit, and what to write instead.
_MOVED: Final = {
    "integrations.podOptions": "use managedJobsNamespaceSelector, at the top",
    "integrations.managedJobsNamespaceSelector": "it stands at the top, not below integrations",
    "queueVisibility": "the visibility API took its place",
    "waitForPodsReady.enable": "in v1beta2 the block itself means on",
    "fairSharing.enable": "in v1beta2 the block itself means on",
}


@dataclass(frozen=True)
class Settings:
    """What the operator said, complete: every default filled in, every gate decided."""

    configuration: config.Configuration
    gates: features.FeatureGates
    # The effective configuration as it would be written, for people to read.
    tree: Tree
    # v1beta1 only: laid over `managedJobsNamespaceSelector` for Pod, Deployment and StatefulSet.
    pod_namespace_selector: meta.LabelSelector | None = None
    # What the operator should know: old spellings, settings without effect.
    notices: tuple[str, ...] = ()
    # What the operator wrote, without defaults.
    written: Tree = field(default_factory=dict)

    @cached_property
    def tls(self) -> tls.TlsProfileResult:
        """What every server of this program accepts as TLS."""
        chosen = self.configuration.tls or config.TLSOptions()
        own = self.configuration.internal_cert_management or config.InternalCertManagement()
        return tls.profile_of(
            chosen.min_version, chosen.cipher_suites, chosen.curve_preferences, own_certificate=bool(own.enable)
        )

    @property
    def policy(self) -> SchedulingPolicy:
        """The choices that a scheduling cycle runs under."""
        fair, history = self.configuration.fair_sharing, self.configuration.admission_fair_sharing
        ready = self.configuration.wait_for_pods_ready
        requeuing = ready.requeuing_strategy if ready else None
        return SchedulingPolicy(
            fair_sharing=tuple(FairSharingStrategy(name) for name in fair.preemption_strategies) if fair else (),
            usage_history=_usage_history(history) if history and self.gates["AdmissionFairSharing"] else None,
            ignore_undeclared=self.ignores_undeclared,
            order_by_eviction=requeuing is None or requeuing.timestamp != config.RequeuingTimestamp.CREATION,
        ).with_gates(self.gates)

    @property
    def ignores_undeclared(self) -> bool:
        """Whether quota is asked only for what a ClusterQueue declares, in either spelling (KEP-7513)."""
        resources = self.configuration.resources or config.Resources()
        ours = self.gates["QuotaCheck"] and resources.quota_check == config.QuotaCheck.ONLY_DECLARED
        theirs = resources.quota_check_strategy == config.QuotaCheckStrategy.IGNORE_UNDECLARED
        return ours or (theirs and self.gates["QuotaCheckStrategy"])


def _usage_history(history: config.AdmissionFairSharing) -> UsageHistory:
    def seconds(text: str | None) -> float:
        return meta.parse_duration(text) / meta.SECOND if text else 0.0

    return UsageHistory(
        half_life_seconds=seconds(history.usage_half_life_time),
        sampling_interval_seconds=seconds(history.usage_sampling_interval),
        resource_weights=dict(history.resource_weights),
    )


def load(
    tree: object, source: str = "configuration", *, namespace: str = "", flagged: Mapping[str, bool] | None = None
) -> Settings:
    """The settings that a Configuration stands for. `namespace` is the manager's own, where the file names none;
    `flagged` are the gates of the flag `--feature-gates`, which cannot be combined with those of the file."""
    if not isinstance(tree, dict):
        raise ConfigurationError(source, ["must be an object with apiVersion and kind"])
    version, kind = tree.get("apiVersion"), tree.get("kind")
    if kind != config.KIND:
        raise ConfigurationError(source, [f"kind: must be {config.KIND}, not {kind!r}"])
    if version not in (config.V1BETA2, config.V1BETA1):
        allowed = f"{config.V1BETA2} (or {config.V1BETA1}, deprecated)"
        raise ConfigurationError(source, [f"apiVersion: must be {allowed}, not {version!r}"])
    name = version.rpartition("/")[2]
    given: Tree = _given(with_flagged_gates(tree, flagged, source), shape_schema(name))
    written = {**_without_zeros(given), "namespace": given.get("namespace") or namespace or config.DEFAULT_NAMESPACE}
    shape = _shape(name)
    findings = [*_unknown(shape, written), *shape.validate(written)]

    effective = shape.default(written)
    notices: tuple[str, ...] = ()
    pod_selector = None
    if version == config.V1BETA1:
        notices, pod_selector = config_v1beta1.notices(written), config_v1beta1.pod_namespace_selector(written)
        effective = config_v1beta1.upgrade(effective)
    if not findings:
        effective = _computed_defaults(effective)

    asked = unstructured.mapping(effective.get("featureGates"))
    overrides = {name: value for name, value in asked.items() if isinstance(value, bool)}
    gates, problems = features.resolve(overrides)
    if not findings and not problems:
        effective = _with_quota_check(effective, gates)
    findings += [FieldError(f"featureGates.{name}", ErrorType.INVALID, message) for name, message in problems]
    findings += [
        *rules.contradicting_quota_checks(written, gates),
        *rules.errors(effective, gates, _frameworks(effective)),
    ]
    if pod_selector is not None:
        findings += selectors.check(pod_selector, "integrations.podOptions.namespaceSelector")
    _refuse(source, findings)
    loaded = Settings(
        configuration=msgspec.convert(effective, config.Configuration),
        gates=gates,
        tree=effective,
        pod_namespace_selector=None if pod_selector is None else msgspec.convert(pod_selector, meta.LabelSelector),
        notices=(*notices, *features.notices(overrides), *_warnings(written, effective, gates)),
        written=given,
    )
    return replace(loaded, notices=(*loaded.notices, *loaded.tls.notices, *_idle_concurrency(loaded)))


# Fields that a manager outside of its cluster does not follow: it listens on the loopback address, on ports that it
# registers with the API server, with a certificate that it makes.
_IN_CLUSTER_ONLY: Final = (
    ("webhook", "host"),
    ("webhook", "port"),
    ("webhook", "certDir"),
    ("visibilityServer", "bindAddress"),
    ("visibilityServer", "bindPort"),
    ("internalCertManagement", "webhookServiceName"),
)


def notices_beside(settings: Settings) -> Iterator[str]:
    """Fields that are set and have no effect in a manager that runs outside of its cluster."""
    for path in _IN_CLUSTER_ONLY:
        if unstructured.get(settings.written, *path) is not None:
            yield (
                f"{'.'.join(path)}: has no effect outside of a cluster: the manager listens on the loopback address, on"
                " ports that it registers"
            )
    if unstructured.get(settings.written, "internalCertManagement", "enable") is False:
        yield (
            "internalCertManagement.enable: false has no effect outside of a cluster: the manager makes its certificate"
        )


def _idle_concurrency(settings: Settings) -> Iterator[str]:
    """Entries of `controller.groupKindConcurrency` that no controller looks at."""
    controller = settings.configuration.controller
    wanted = controller.group_kind_concurrency if controller is not None else {}
    known = concurrency.known(kinds.load()) if wanted else frozenset()
    for kind in sorted(wanted.keys() - known):
        yield f"controller.groupKindConcurrency[{kind}]: has no effect: no controller reconciles this kind"


def with_flagged_gates(tree: Tree, flagged: Mapping[str, bool] | None, source: str) -> Tree:
    """The Configuration with the gates of the flag in it. As in Kueue, gates come from the flag or from the file."""
    if not flagged:
        return tree
    if tree.get("featureGates") is not None:
        why = "featureGates: cannot be combined with the flag --feature-gates; set the gates in one of the two"
        raise ConfigurationError(source, [why])
    return {**tree, "featureGates": dict(flagged)}


def flagged_gates(text: str) -> dict[str, bool]:
    """What the flag `--feature-gates` says. Raises `ConfigurationError` with every part that cannot be read."""
    found, problems = features.parse(text)
    if problems:
        raise ConfigurationError("--feature-gates", [f"{name} {message}" for name, message in problems])
    return found


def obstacles(settings: Settings) -> tuple[str, ...]:
    """Why no manager can start with these settings, although they are well formed: one sentence for each reason.

    Kept apart from `load`, because `lint`, `explain` and `plan` also read the Configurations of other managers.
    """
    integrations = settings.configuration.integrations
    missing = kinds.load().missing(integrations.frameworks if integrations is not None else ())
    addresses = {
        "metrics.bindAddress": (settings.configuration.metrics or config.ControllerMetrics()).bind_address,
        "health.healthProbeBindAddress": (
            settings.configuration.health or config.ControllerHealth()
        ).health_probe_bind_address,
        "pprofBindAddress": settings.configuration.pprof_bind_address,
    }
    return (
        *([kinds.not_implemented(missing)] if missing else []),
        *settings.tls.problems,
        *(f"{field} {text}: {_ADDRESS}" for field, text in addresses.items() if not is_address(text)),
    )


_ADDRESS: Final = "must be HOST:PORT, :PORT or 0"


def is_address(text: str) -> bool:
    """Whether a server can be bound to an address as the Configuration writes it; empty and `0` mean no server."""
    port = text.rpartition(":")[2]
    return text in ("", "0") or (":" in text and port.isdecimal() and int(port) <= 65535)


def _frameworks(tree: Tree) -> Mapping[str, str]:
    """The kinds of jobs that can be asked for. Other packages are looked for only where a name is not our own."""
    asked = map(unstructured.text, unstructured.sequence(unstructured.get(tree, "integrations", "frameworks")))
    if all(name in config.FRAMEWORKS for name in asked):
        return config.FRAMEWORKS
    brought = {row.framework: row.kind for row in kinds.load()}
    return config.FRAMEWORKS | {
        name: f"{kind.kind}.{kind.versions[0].name}.{kind.group}" for name, kind in brought.items()
    }


def defaults(*, namespace: str = "") -> Settings:
    """The settings of an operator who said nothing."""
    return load({"apiVersion": config.V1BETA2, "kind": config.KIND}, namespace=namespace)


@cache
def _shape(version: str) -> structural.Structural:
    return structural.compile(shape_schema(version))


def shape_schema(version: str) -> dict[str, Any]:
    """The schema of a Configuration in one version. A file has no metadata, unlike an object on a server."""
    found = schema.of(ROW, version)
    del found["properties"]["metadata"]
    return found


def _given(value: Any, shape: Mapping[str, Any]) -> Any:
    """A file as Kueue reads it, so that its files work here: a field without a value is not given, and numbers may be
    spelt with a point."""
    if isinstance(value, dict):
        fields, rest = (
            unstructured.mapping(shape.get("properties")),
            unstructured.mapping(shape.get("additionalProperties")),
        )
        kept = {name: found for name, found in value.items() if found is not None or name not in fields}
        return {name: _given(found, fields.get(name, rest)) for name, found in kept.items()}
    if isinstance(value, list):
        return [_given(each, unstructured.mapping(shape.get("items"))) for each in value]
    if isinstance(value, float):
        if shape.get("type") == "integer" and value.is_integer():
            return int(value)
        if shape.get("x-kubernetes-int-or-string"):
            return str(value)
    return value


# Of these, none at all makes no sense: it is read as not given.
_NO_TIME: Final = (
    ("waitForPodsReady", "timeout"),
    ("admissionFairSharing", "usageSamplingInterval"),
    ("leaderElection", "leaseDuration"),
    ("leaderElection", "renewDeadline"),
    ("leaderElection", "retryPeriod"),
)
_NO_WORD: Final = (("leaderElection", "resourceLock"), ("tls", "minVersion"))
_PORT: Final = ("webhook", "port")
# The one time that Kueue wants as a number, of nanoseconds.
_IN_NANOSECONDS: Final = ("controller", "cacheSyncTimeout")


def _without_zeros(tree: Tree) -> Tree:
    for path in _NO_TIME:
        with contextlib.suppress(ValueError):
            if meta.parse_duration(unstructured.text(unstructured.get(tree, *path))) == 0:
                tree = unstructured.without(tree, path)
    for path in _NO_WORD:
        tree = unstructured.without(tree, path) if unstructured.get(tree, *path) == "" else tree
    port, patience = (unstructured.integer(unstructured.get(tree, *path)) for path in (_PORT, _IN_NANOSECONDS))
    if port is not None and port <= 0:
        tree = unstructured.without(tree, _PORT)
    if patience is not None:
        tree = unstructured.put(tree, _IN_NANOSECONDS, meta.format_duration(patience))
    return tree


def _computed_defaults(tree: Tree) -> Tree:
    """Defaults that depend on other fields, which a schema cannot express."""
    if unstructured.get(tree, "waitForPodsReady", "recoveryTimeout") is None and "waitForPodsReady" in tree:
        tree = unstructured.put(
            tree, ("waitForPodsReady", "recoveryTimeout"), unstructured.get(tree, "waitForPodsReady", "timeout")
        )
    if tree.get("managedJobsNamespaceSelector") is None:
        excluded = [rules.PROTECTED_NAMESPACE, tree["namespace"]]
        expression = {"key": labels.NAMESPACE_NAME, "operator": "NotIn", "values": excluded}
        tree = unstructured.put(tree, ("managedJobsNamespaceSelector",), {"matchExpressions": [expression]})
    if not unstructured.get(tree, "integrations", "frameworks"):
        tree = unstructured.put(tree, ("integrations", "frameworks"), ["batch/job"])
    return tree


def _with_quota_check(tree: Tree, gates: Mapping[str, bool]) -> Tree:
    """The default of `resources.quotaCheck`, which exists only under its gate (KEP-7513). Where the other spelling
    already ignores undeclared resources there is nothing to default."""
    resources = unstructured.mapping(tree.get("resources"))
    ignores = resources.get("quotaCheckStrategy") == config.QuotaCheckStrategy.IGNORE_UNDECLARED
    if not gates["QuotaCheck"] or "resources" not in tree or resources.get("quotaCheck") or ignores:
        return tree
    return unstructured.put(tree, ("resources", "quotaCheck"), config.QuotaCheck.ALL.value)


def _unknown(shape: structural.Structural, tree: Tree) -> Iterator[FieldError]:
    """Fields that nobody knows, each with the nearest name that somebody does."""
    if "metadata" in tree:
        yield FieldError("metadata", ErrorType.FORBIDDEN, "is not a field of a Configuration, which is a file")
    for path in shape.unknown_fields(tree):
        plain = re.sub(r"\[\d+\]", "[]", path)
        hint = f"; {_MOVED[plain]}" if plain in _MOVED else did_you_mean(plain.rpartition(".")[2], _names())
        yield FieldError(path, ErrorType.FORBIDDEN, f"is not a field of a Configuration{hint}")


@cache
def _names() -> tuple[str, ...]:
    """Every field name of a Configuration, wherever it stands: a typo is often in the wrong place as well."""
    return tuple(sorted({line.path.rpartition(".")[2].removesuffix("[]") for line in schema.describe(ROW)}))


def _refuse(source: str, findings: Sequence[FieldError]) -> None:
    """Raise with the first finding about each place: what comes after it there is mostly the same thing again."""
    if findings:
        raise ConfigurationError(
            source, list({finding.path: str(finding) for finding in reversed(findings)}.values())[::-1]
        )


def _warnings(written: Tree, effective: Tree, gates: Mapping[str, bool]) -> Iterator[str]:
    """Fields that are accepted and have no effect, or are deprecated."""
    yield from effects.configuration_warnings(written, [gate for gate, is_on in gates.items() if is_on])
    only_declared = unstructured.get(effective, "resources", "quotaCheck") == config.QuotaCheck.ONLY_DECLARED
    if gates["QuotaCheck"] and unstructured.get(effective, "resources", "excludeResourcePrefixes"):
        yield (
            "resources.excludeResourcePrefixes: has no effect with quotaCheck OnlyDeclared, which ignores the list"
            if only_declared
            else "resources.excludeResourcePrefixes: is deprecated (KEP-7513); with resources.quotaCheck OnlyDeclared "
            "quota counts declared resources only, and the list is not needed"
        )
    if "waitForPodsReady" in written and gates["DisableWaitForPodsReady"]:
        yield "waitForPodsReady: has no effect while the gate DisableWaitForPodsReady is on"
