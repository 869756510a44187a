"""Parsing of the Configuration file and the feature gates into the immutable `Settings`.

    tree -> set fields -> schema -> defaults -> (v1beta1: convert) -> validation -> gates -> `Settings`

With any error there are no settings, and `ConfigurationError` holds every finding. The Configuration is read once, at
start; there is no reload.
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

# Fields of older versions and frequent mistakes, with what to write instead.
_MOVED: Final = {
    "integrations.podOptions": "use managedJobsNamespaceSelector at the top level",
    "integrations.managedJobsNamespaceSelector": "it is a top-level field",
    "queueVisibility": "the visibility API replaces it",
    "waitForPodsReady.enable": "in v1beta2 the presence of the block enables it",
    "fairSharing.enable": "in v1beta2 the presence of the block enables it",
}


@dataclass(frozen=True)
class Settings:
    """The complete configuration: with all defaults, and all gates resolved."""

    configuration: config.Configuration
    gates: features.FeatureGates
    # The effective Configuration as a tree, for display.
    tree: Tree
    # v1beta1 only: overrides `managedJobsNamespaceSelector` for Pod, Deployment and StatefulSet.
    pod_namespace_selector: meta.LabelSelector | None = None
    # Warnings for the operator: deprecated fields, settings without effect.
    notices: tuple[str, ...] = ()
    # What the operator wrote, without defaults.
    written: Tree = field(default_factory=dict)

    @cached_property
    def tls(self) -> tls.TlsProfileResult:
        """The TLS profile of every server of this program."""
        chosen = self.configuration.tls or config.TLSOptions()
        own = self.configuration.internal_cert_management or config.InternalCertManagement()
        return tls.profile_of(
            chosen.min_version, chosen.cipher_suites, chosen.curve_preferences, own_certificate=bool(own.enable)
        )

    @cached_property
    def job_kinds(self) -> kinds.JobKinds:
        """The job integrations, shared by the manager and the webhooks of one program: one finds which kinds are not
        served, the other that an object of such a kind is written (JF12)."""
        return kinds.load()

    @property
    def policy(self) -> SchedulingPolicy:
        """The policy of scheduling cycles."""
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
        """Whether quota counts only resources that a ClusterQueue declares, in either spelling (KEP-7513)."""
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
    """Return the settings of a Configuration. `namespace` is the namespace of the manager, if the file names none;
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


def of_manager(tree: Tree) -> Settings:
    """Return the settings of the effective Configuration that a manager runs with. The manager has validated it and
    filled in the defaults, so no schema is compiled here. Where the tree is one of another version of the program, it
    is loaded like a file."""
    asked = unstructured.mapping(tree.get("featureGates"))
    gates, problems = features.resolve({name: value for name, value in asked.items() if isinstance(value, bool)})
    try:
        configuration = msgspec.convert(tree, config.Configuration)
    except msgspec.ValidationError:
        return load(tree)
    if problems or tree.get("apiVersion") != config.V1BETA2:
        return load(tree)
    return Settings(configuration=configuration, gates=gates, tree=tree, written=tree)


# Fields without effect in a manager outside its cluster: it listens on the loopback address, on ports that it registers
# with the API server, with a certificate that it creates.
_IN_CLUSTER_ONLY: Final = (
    ("webhook", "host"),
    ("webhook", "port"),
    ("webhook", "certDir"),
    ("visibilityServer", "bindAddress"),
    ("visibilityServer", "bindPort"),
    ("internalCertManagement", "webhookServiceName"),
)


def notices_beside(settings: Settings) -> Iterator[str]:
    """Yield a warning for each field that is set and has no effect in a manager outside its cluster."""
    for path in _IN_CLUSTER_ONLY:
        if unstructured.get(settings.written, *path) is not None:
            yield (
                f"{'.'.join(path)}: has no effect outside the cluster: the manager listens on the loopback address, on"
                " ports that it registers"
            )
    if unstructured.get(settings.written, "internalCertManagement", "enable") is False:
        yield (
            "internalCertManagement.enable: false has no effect outside the cluster: the manager creates a certificate"
        )


def _idle_concurrency(settings: Settings) -> Iterator[str]:
    """Yield a warning for each entry of `controller.groupKindConcurrency` without a controller."""
    controller = settings.configuration.controller
    wanted = controller.group_kind_concurrency if controller is not None else {}
    if not wanted:
        return
    from pykueue.controllers import concurrency  # commands read settings, and import no controllers

    known = concurrency.known(kinds.load())
    for kind in sorted(wanted.keys() - known):
        yield f"controller.groupKindConcurrency[{kind}]: has no effect: no controller reconciles this kind"


def with_flagged_gates(tree: Tree, flagged: Mapping[str, bool] | None, source: str) -> Tree:
    """Return the Configuration with the gates of the flag. As in Kueue, gates come from the flag or from the file."""
    if not flagged:
        return tree
    if tree.get("featureGates") is not None:
        why = "featureGates: cannot be combined with the flag --feature-gates; set the gates in one of the two"
        raise ConfigurationError(source, [why])
    return {**tree, "featureGates": dict(flagged)}


def flagged_gates(text: str) -> dict[str, bool]:
    """Return the gates of the flag `--feature-gates`. Raise `ConfigurationError` with every invalid part."""
    found, problems = features.parse(text)
    if problems:
        raise ConfigurationError("--feature-gates", [f"{name} {message}" for name, message in problems])
    return found


def obstacles(settings: Settings) -> tuple[str, ...]:
    """Return why no manager can start with these valid settings: one message for each reason.

    Kept apart from `load`, because `lint`, `explain` and `plan` also read the Configurations of other managers.
    """
    integrations = settings.configuration.integrations
    known, frameworks = kinds.load(), integrations.frameworks if integrations is not None else ()
    missing = known.missing(frameworks)
    addresses = {
        "metrics.bindAddress": (settings.configuration.metrics or config.ControllerMetrics()).bind_address,
        "health.healthProbeBindAddress": (
            settings.configuration.health or config.ControllerHealth()
        ).health_probe_bind_address,
        "pprofBindAddress": settings.configuration.pprof_bind_address,
    }
    return (
        *([kinds.not_implemented(missing)] if missing else []),
        *_gates_off(known, frameworks, settings.gates),
        *settings.tls.problems,
        *(f"{field} {text}: {_ADDRESS}" for field, text in addresses.items() if not is_address(text)),
    )


def _gates_off(known: kinds.JobKinds, frameworks: Sequence[str], gates: Mapping[str, bool]) -> Iterator[str]:
    """Yield a message for each framework whose feature gate is off (JF3)."""
    for index, name in enumerate(frameworks):
        row = known.framework(name)
        if row is not None and row.required_gate and not gates[row.required_gate]:
            yield f"integrations.frameworks[{index}]: {name} needs the feature gate {row.required_gate}, which is off"


_ADDRESS: Final = "must be HOST:PORT, :PORT or 0"


def is_address(text: str) -> bool:
    """Whether a bind address of the Configuration is valid; empty and `0` disable the server."""
    port = text.rpartition(":")[2]
    return text in ("", "0") or (":" in text and port.isdecimal() and int(port) <= 65535)


def _frameworks(tree: Tree) -> Mapping[str, str]:
    """Return the frameworks that can be enabled. Plugins are loaded only if a name is not built in."""
    asked = map(unstructured.text, unstructured.sequence(unstructured.get(tree, "integrations", "frameworks")))
    if all(name in config.FRAMEWORKS for name in asked):
        return config.FRAMEWORKS
    plugins = {row.framework: row.kind for row in kinds.load()}
    return config.FRAMEWORKS | {
        name: f"{kind.kind}.{kind.versions[0].name}.{kind.group}" for name, kind in plugins.items()
    }


def defaults(*, namespace: str = "") -> Settings:
    """Return the default settings."""
    return load({"apiVersion": config.V1BETA2, "kind": config.KIND}, namespace=namespace)


@cache
def _shape(version: str) -> structural.Structural:
    return structural.compile(shape_schema(version))


def shape_schema(version: str) -> dict[str, Any]:
    """Return the schema of a Configuration in one version. A file has no metadata, unlike an API object."""
    found = schema.of(ROW, version)
    del found["properties"]["metadata"]
    return found


def _given(value: Any, shape: Mapping[str, Any]) -> Any:
    """Return a file as Kueue reads it: a field without a value is not set, and integers may be written with a decimal
    point."""
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


# Fields for which zero or empty means not set, as in Kueue.
_ZERO_DURATIONS: Final = (
    ("waitForPodsReady", "timeout"),
    ("admissionFairSharing", "usageSamplingInterval"),
    ("leaderElection", "leaseDuration"),
    ("leaderElection", "renewDeadline"),
    ("leaderElection", "retryPeriod"),
)
_EMPTY_STRINGS: Final = (("leaderElection", "resourceLock"), ("tls", "minVersion"))
_PORT: Final = ("webhook", "port")
# The one duration that Kueue reads as a number of nanoseconds.
_IN_NANOSECONDS: Final = ("controller", "cacheSyncTimeout")


def _without_zeros(tree: Tree) -> Tree:
    for path in _ZERO_DURATIONS:
        with contextlib.suppress(ValueError):
            if meta.parse_duration(unstructured.text(unstructured.get(tree, *path))) == 0:
                tree = unstructured.without(tree, path)
    for path in _EMPTY_STRINGS:
        tree = unstructured.without(tree, path) if unstructured.get(tree, *path) == "" else tree
    port, timeout = (unstructured.integer(unstructured.get(tree, *path)) for path in (_PORT, _IN_NANOSECONDS))
    if port is not None and port <= 0:
        tree = unstructured.without(tree, _PORT)
    if timeout is not None:
        tree = unstructured.put(tree, _IN_NANOSECONDS, meta.format_duration(timeout))
    return tree


def _computed_defaults(tree: Tree) -> Tree:
    """Return the tree with the defaults that depend on other fields, which a schema cannot express."""
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
    """Return the tree with the default of `resources.quotaCheck`, which exists only with its gate (KEP-7513). If
    `quotaCheckStrategy` already ignores undeclared resources, there is nothing to default."""
    resources = unstructured.mapping(tree.get("resources"))
    ignores = resources.get("quotaCheckStrategy") == config.QuotaCheckStrategy.IGNORE_UNDECLARED
    if not gates["QuotaCheck"] or "resources" not in tree or resources.get("quotaCheck") or ignores:
        return tree
    return unstructured.put(tree, ("resources", "quotaCheck"), config.QuotaCheck.ALL.value)


def _unknown(shape: structural.Structural, tree: Tree) -> Iterator[FieldError]:
    """Yield an error for each unknown field, with the nearest known name."""
    if "metadata" in tree:
        yield FieldError("metadata", ErrorType.FORBIDDEN, "is not a field of a Configuration")
    for path in shape.unknown_fields(tree):
        plain = re.sub(r"\[\d+\]", "[]", path)
        hint = f"; {_MOVED[plain]}" if plain in _MOVED else did_you_mean(plain.rpartition(".")[2], _names())
        yield FieldError(path, ErrorType.FORBIDDEN, f"is not a field of a Configuration{hint}")


@cache
def _names() -> tuple[str, ...]:
    """Return every field name of a Configuration at any level: a misspelled field is often at the wrong level too."""
    return tuple(sorted({line.path.rpartition(".")[2].removesuffix("[]") for line in schema.describe(ROW)}))


def _refuse(source: str, findings: Sequence[FieldError]) -> None:
    """Raise with the first finding for each path: further findings mostly repeat it."""
    if findings:
        raise ConfigurationError(
            source, list({finding.path: str(finding) for finding in reversed(findings)}.values())[::-1]
        )


def _warnings(written: Tree, effective: Tree, gates: Mapping[str, bool]) -> Iterator[str]:
    """Yield a warning for each field that has no effect or is deprecated."""
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
