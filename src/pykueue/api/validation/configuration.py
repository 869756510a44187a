"""Rules of a Configuration (v1beta2, defaulted) that its schema cannot express: durations, sets, and fields that depend
on each other. Pure: a tree and the gates in, field errors out.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from kubemachinery import meta, quantity, selectors, unstructured
from kubemachinery.field_errors import ErrorType, FieldError
from kubemachinery.unstructured import Tree
from pykueue.api import labels
from pykueue.api.config import FRAMEWORKS, MetricLabelSource, PreemptionStrategy, QuotaCheck
from pykueue.api.validation.nearest import did_you_mean

PROTECTED_NAMESPACE: Final = "kube-system"
_GROUP_KIND: Final = re.compile(r"[^.]+\.[^.]+\..*")


def errors(tree: Tree, gates: Mapping[str, bool], frameworks: Mapping[str, str] = FRAMEWORKS) -> tuple[FieldError, ...]:
    """The errors of a Configuration that is valid by its schema. `frameworks` are the supported ones, each with its
    kind in the format of `externalFrameworks`."""
    return (*_frameworks(tree, frameworks), *(error for rule in _RULES for error in rule(tree, gates)))


# --- Durations --------------------------------------------------------------------------------------------------------


class _Bound(NamedTuple):
    path: str
    positive: bool = False  # more than zero, where zero would otherwise do


_DURATIONS: Final = (
    _Bound("leaderElection.leaseDuration", positive=True),
    _Bound("leaderElection.renewDeadline", positive=True),
    _Bound("leaderElection.retryPeriod", positive=True),
    _Bound("controller.cacheSyncTimeout"),
    _Bound("waitForPodsReady.timeout"),
    _Bound("waitForPodsReady.recoveryTimeout"),
    _Bound("multiKueue.gcInterval"),
    _Bound("multiKueue.workerLostTimeout"),
    _Bound("admissionFairSharing.usageHalfLifeTime"),
    _Bound("admissionFairSharing.usageSamplingInterval"),
    _Bound("objectRetentionPolicies.workloads.afterFinished"),
    _Bound("objectRetentionPolicies.workloads.afterDeactivatedByKueue"),
)


def _durations(tree: Tree, gates: Mapping[str, bool]) -> Iterator[FieldError]:
    for path, positive in _DURATIONS:
        text = unstructured.get(tree, *path.split("."))
        if not isinstance(text, str):
            continue
        try:
            duration = meta.parse_duration(text)
        except ValueError:
            yield FieldError(path, ErrorType.INVALID, "must be a duration such as 30s, 5m or 1h30m", text)
            continue
        if duration < 0 or (positive and duration == 0):
            wanted = "more than 0s" if positive else "0s or more"
            yield FieldError(path, ErrorType.INVALID, f"must be {wanted}", text)


# Candidates in a cluster add jitter of up to a fifth to the retry period; the deadline leaves time for that.
_LONGEST_RETRY: Final = 1.2


def _leader_election(tree: Tree, gates: Mapping[str, bool]) -> Iterator[FieldError]:
    """A leader must stop before another candidate may start, or two could lead at once."""
    if not unstructured.get(tree, "leaderElection", "leaderElect"):
        return
    names = ("retryPeriod", "renewDeadline", "leaseDuration")
    try:
        retry, renew, lease = (
            meta.parse_duration(unstructured.text(unstructured.get(tree, "leaderElection", name))) for name in names
        )
    except ValueError:
        return  # absent, or reported by the rule above
    if not retry * _LONGEST_RETRY < renew:
        message = f"must be longer than {_LONGEST_RETRY} times retryPeriod"
        yield FieldError("leaderElection.renewDeadline", ErrorType.INVALID, message)
    if not renew < lease:
        yield FieldError("leaderElection.leaseDuration", ErrorType.INVALID, "must be longer than renewDeadline")


# --- Jobs -------------------------------------------------------------------------------------------------------------


def _frameworks(tree: Tree, known: Mapping[str, str]) -> Iterator[FieldError]:
    kinds: dict[str, str] = {}
    for index, written in enumerate(unstructured.sequence(unstructured.get(tree, "integrations", "frameworks"))):
        path, name = f"integrations.frameworks[{index}]", unstructured.text(written)
        if name not in known:
            message = "is not a supported framework" + did_you_mean(name, known)
            yield FieldError(path, ErrorType.NOT_SUPPORTED, message, written)
        elif name in kinds.values():
            yield FieldError(path, ErrorType.DUPLICATE, "is listed twice", name)
        else:
            kinds[known[name]] = name
    for index, kind in enumerate(unstructured.sequence(unstructured.get(tree, "integrations", "externalFrameworks"))):
        path = f"integrations.externalFrameworks[{index}]"
        if not isinstance(kind, str) or not _GROUP_KIND.fullmatch(kind):
            yield FieldError(path, ErrorType.INVALID, "must be spelt Kind.version.group", kind)
        elif kind in kinds:
            yield FieldError(path, ErrorType.DUPLICATE, f"is managed as {kinds[kind]} already", kind)
        else:
            kinds[kind] = kind


def _namespaces(tree: Tree, gates: Mapping[str, bool]) -> Iterator[FieldError]:
    """The system's own namespaces are never managed: a queue that stops its own pods could never start them again."""
    path = "managedJobsNamespaceSelector"
    selector = tree.get(path)
    if selector is None:
        return
    found = selectors.check(selector, path)
    yield from found
    if found:
        return
    compiled = selectors.compile(msgspec.convert(selector, meta.LabelSelector))
    for namespace in (PROTECTED_NAMESPACE, unstructured.text(tree.get("namespace"))):
        if compiled.matches({labels.NAMESPACE_NAME: namespace}):
            yield FieldError(path, ErrorType.INVALID, f"must not match the namespace {namespace}")


# --- Decisions --------------------------------------------------------------------------------------------------------

_FINAL, _INITIAL = (str(strategy) for strategy in PreemptionStrategy)
_STRATEGIES: Final = ([_FINAL], [_INITIAL], [_FINAL, _INITIAL])


def _fair_sharing(tree: Tree, gates: Mapping[str, bool]) -> Iterator[FieldError]:
    if isinstance(tree.get("fairSharing"), dict):
        found = tree["fairSharing"].get("preemptionStrategies")
        if found not in _STRATEGIES:
            allowed = " or ".join(str(list(each)) for each in _STRATEGIES)
            error_type = ErrorType.INVALID if found else ErrorType.REQUIRED
            yield FieldError("fairSharing.preemptionStrategies", error_type, f"must be {allowed}", found)
    weights = unstructured.mapping(unstructured.get(tree, "admissionFairSharing", "resourceWeights"))
    for name, weight in weights.items():
        if isinstance(weight, int | float) and weight < 0:
            path = f"admissionFairSharing.resourceWeights[{name}]"
            yield FieldError(path, ErrorType.INVALID, "must not be negative", weight)


def _quota_check(tree: Tree, gates: Mapping[str, bool]) -> Iterator[FieldError]:
    """Two spellings of one question (KEP-7513), each under its own gate; they may not contradict each other."""
    ignores = unstructured.get(tree, "resources", "quotaCheckStrategy") == "IgnoreUndeclared"
    if ignores and gates["QuotaCheckStrategy"] and unstructured.get(tree, "resources", "excludeResourcePrefixes"):
        message = (
            "cannot be combined with quotaCheckStrategy IgnoreUndeclared, which already ignores what is not declared"
        )
        yield FieldError("resources.excludeResourcePrefixes", ErrorType.FORBIDDEN, message)


def contradicting_quota_checks(written: Tree, gates: Mapping[str, bool]) -> tuple[FieldError, ...]:
    """The same, for the Configuration as written: defaults cannot conflict."""
    ours, theirs = (unstructured.get(written, "resources", name) for name in ("quotaCheck", "quotaCheckStrategy"))
    if not (ours and theirs and gates["QuotaCheck"] and gates["QuotaCheckStrategy"]):
        return ()
    if (ours == QuotaCheck.ONLY_DECLARED) == (theirs == "IgnoreUndeclared"):
        return ()
    message = f"contradicts resources.quotaCheckStrategy {theirs}; set one of the two"
    return (FieldError("resources.quotaCheck", ErrorType.INVALID, message, ours),)


def _transformations(tree: Tree, gates: Mapping[str, bool]) -> Iterator[FieldError]:
    seen: set[str] = set()
    for index, row in unstructured.entries(tree, "resources", "transformations"):
        path = f"resources.transformations[{index}]"
        name = unstructured.text(row.get("input"))
        if name in seen:
            yield FieldError(f"{path}.input", ErrorType.DUPLICATE, "has a transformation already", name)
        seen.add(name)
        for output, amount in unstructured.mapping(row.get("outputs")).items():
            try:
                quantity.parse(amount)
            except quantity.QuantityError as error:
                yield FieldError(f"{path}.outputs[{output}]", ErrorType.INVALID, str(error), amount)


def _device_classes(tree: Tree, gates: Mapping[str, bool]) -> Iterator[FieldError]:
    names: set[str] = set()
    classes: dict[str, set[str]] = {}  # by what each is charged: counters, or the number of devices, which has no name
    for index, mapping in unstructured.entries(tree, "resources", "deviceClassMappings"):
        path = f"resources.deviceClassMappings[{index}]"
        name = unstructured.text(mapping.get("name"))
        for message in meta.check_qualified_name(name):
            yield FieldError(f"{path}.name", ErrorType.INVALID, message, name)
        if name in names:
            yield FieldError(f"{path}.name", ErrorType.DUPLICATE, "is mapped already", name)
        names.add(name)
        sources = unstructured.sequence(mapping.get("sources"))
        counter = unstructured.text(unstructured.get(sources[0], "counter", "name")) if sources else ""
        own = [unstructured.text(written) for written in unstructured.sequence(mapping.get("deviceClassNames"))]
        if "deviceClassNames" not in mapping:
            yield FieldError(f"{path}.deviceClassNames", ErrorType.REQUIRED, "must name at least one device class")
        for position, device_class in enumerate(own):
            place, charged = f"{path}.deviceClassNames[{position}]", classes.get(device_class, set())
            for message in meta.check_qualified_name(device_class):
                yield FieldError(place, ErrorType.INVALID, message, device_class)
            if device_class in own[:position] or charged & {counter, ""} or (charged and not counter):
                yield FieldError(place, ErrorType.DUPLICATE, "counts as a resource already", device_class)
        for device_class in own:
            classes.setdefault(device_class, set()).add(counter)
        yield from _device_sources(mapping, path, gates)


_CAPACITY_GATE: Final = "KueueDRAIntegrationConsumableCapacity"


def _device_sources(mapping: Mapping[str, Any], path: str, gates: Mapping[str, bool]) -> Iterator[FieldError]:
    kinds: set[str] = set()
    for index, source in unstructured.entries(mapping, "sources"):
        place = f"{path}.sources[{index}]"
        chosen = [kind for kind in ("counter", "capacity") if isinstance(source.get(kind), dict)]
        if len(chosen) != 1:
            yield FieldError(place, ErrorType.INVALID, "must have either counter or capacity")
            continue
        kinds.update(chosen)
        if chosen == ["capacity"] and not gates[_CAPACITY_GATE]:
            yield FieldError(f"{place}.capacity", ErrorType.INVALID, f"needs the gate {_CAPACITY_GATE}")
        rules = {"counter": meta.check_label_name, "capacity": meta.check_qualified_name}
        inner = source[chosen[0]]
        for key, check in (("name", rules[chosen[0]]), ("driver", meta.check_subdomain_name)):
            for message in check(unstructured.text(inner.get(key))):
                yield FieldError(f"{place}.{chosen[0]}.{key}", ErrorType.INVALID, message, inner.get(key))
        if not unstructured.get(inner, "deviceSelector", "cel", "expression"):
            path_of_expression = f"{place}.{chosen[0]}.deviceSelector.cel.expression"
            yield FieldError(path_of_expression, ErrorType.REQUIRED, "must name the devices")
    if len(kinds) > 1:
        yield FieldError(f"{path}.sources", ErrorType.INVALID, "must be all counters or all capacities")


# --- The process ------------------------------------------------------------------------------------------------------


def _servers(tree: Tree, gates: Mapping[str, bool]) -> Iterator[FieldError]:
    address = unstructured.get(tree, "visibilityServer", "bindAddress")
    if isinstance(address, str):
        try:
            ipaddress.ip_address(address)
        except ValueError:
            yield FieldError("visibilityServer.bindAddress", ErrorType.INVALID, "must be an IP address", address)
    if unstructured.get(tree, "internalCertManagement", "enable"):
        checks: dict[str, Callable[[str], tuple[str, ...]]] = {
            "webhookServiceName": meta.check_label_1035_name,
            "webhookSecretName": meta.check_subdomain_name,
        }
        for name, check in checks.items():
            value = unstructured.text(unstructured.get(tree, "internalCertManagement", name))
            for message in check(value):
                yield FieldError(f"internalCertManagement.{name}", ErrorType.INVALID, message, value)


# The supported names. Names without a hash are older forms of those with one.
CIPHER_SUITES: Final = frozenset(
    f"TLS_{name}"
    for name in (
        *("AES_128_GCM_SHA256", "AES_256_GCM_SHA384", "CHACHA20_POLY1305_SHA256"),
        *("RSA_WITH_RC4_128_SHA", "RSA_WITH_3DES_EDE_CBC_SHA", "RSA_WITH_AES_128_CBC_SHA", "RSA_WITH_AES_256_CBC_SHA"),
        *("RSA_WITH_AES_128_CBC_SHA256", "RSA_WITH_AES_128_GCM_SHA256", "RSA_WITH_AES_256_GCM_SHA384"),
        *("ECDHE_ECDSA_WITH_RC4_128_SHA", "ECDHE_RSA_WITH_RC4_128_SHA", "ECDHE_RSA_WITH_3DES_EDE_CBC_SHA"),
        *(
            f"ECDHE_{key}_WITH_{cipher}"
            for key in ("ECDSA", "RSA")
            for cipher in (
                *("AES_128_CBC_SHA", "AES_256_CBC_SHA", "AES_128_CBC_SHA256", "AES_128_GCM_SHA256"),
                *("AES_256_GCM_SHA384", "CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305"),
            )
        ),
    )
)
# By their numbers in the registry of TLS groups: P-256, P-384, P-521, X25519, and these with ML-KEM.
CURVES: Final = frozenset({23, 24, 25, 29, 4587, 4588, 4589})


def _tls(tree: Tree, gates: Mapping[str, bool]) -> Iterator[FieldError]:
    suites = unstructured.sequence(unstructured.get(tree, "tls", "cipherSuites"))
    for index, suite in enumerate(suites):
        if unstructured.text(suite) not in CIPHER_SUITES:
            message = "is not a cipher suite" + did_you_mean(unstructured.text(suite), sorted(CIPHER_SUITES))
            yield FieldError(f"tls.cipherSuites[{index}]", ErrorType.NOT_SUPPORTED, message, suite)
    if suites and unstructured.get(tree, "tls", "minVersion") == "VersionTLS13":
        message = "cannot be chosen with minVersion VersionTLS13, which fixes them"
        yield FieldError("tls.cipherSuites", ErrorType.INVALID, message)
    curves = unstructured.sequence(unstructured.get(tree, "tls", "curvePreferences"))
    for index, curve in enumerate(curves):
        path = f"tls.curvePreferences[{index}]"
        if not isinstance(curve, int) or curve not in CURVES:
            message = f"is none of the groups {', '.join(map(str, sorted(CURVES)))}"
            yield FieldError(path, ErrorType.NOT_SUPPORTED, message, curve)
        elif curve in curves[:index]:
            yield FieldError(path, ErrorType.DUPLICATE, "is listed twice", curve)


def _multi_kueue(tree: Tree, gates: Mapping[str, bool]) -> Iterator[FieldError]:
    origin = unstructured.text(unstructured.get(tree, "multiKueue", "origin"))
    for message in meta.check_label_value(origin):
        yield FieldError("multiKueue.origin", ErrorType.INVALID, message, origin)
    incremental = unstructured.get(tree, "multiKueue", "incrementalDispatcherConfig") is not None
    if incremental and unstructured.get(tree, "multiKueue", "dispatcherName") != labels.DISPATCHER_INCREMENTAL:
        message = f"is only for the dispatcher {labels.DISPATCHER_INCREMENTAL}"
        yield FieldError("multiKueue.incrementalDispatcherConfig", ErrorType.INVALID, message)
    managed = unstructured.sequence(unstructured.get(tree, "integrations", "frameworks"))
    built_in = {kind for framework, kind in FRAMEWORKS.items() if framework in managed}
    seen: set[str] = set()
    for index, row in unstructured.entries(tree, "multiKueue", "externalFrameworks"):
        path, name = f"multiKueue.externalFrameworks[{index}].name", unstructured.text(row.get("name"))
        if not _GROUP_KIND.fullmatch(name):
            yield FieldError(path, ErrorType.INVALID, "must be spelt kind.version.group", name)
        elif name in built_in:
            yield FieldError(path, ErrorType.INVALID, "is built in", name)
        elif name in seen:
            yield FieldError(path, ErrorType.DUPLICATE, "is listed twice", name)
        seen.add(name)
    profile = unstructured.mapping(unstructured.get(tree, "multiKueue", "clusterProfile"))
    if profile.get("accessProviders") and profile.get("credentialsProviders"):
        message = "cannot be combined with accessProviders, of which it is the older name"
        yield FieldError("multiKueue.clusterProfile.credentialsProviders", ErrorType.FORBIDDEN, message)
    for providers in ("accessProviders", "credentialsProviders"):
        for index, provider in unstructured.entries(profile, providers):
            path = f"multiKueue.clusterProfile.{providers}[{index}].execConfig"
            yield from _credentials_program(unstructured.mapping(provider.get("execConfig")), path)


_INTERACTIVE_MODES: Final = ("Never", "IfAvailable", "Always")


def _credentials_program(program: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    for key in ("command", "apiVersion", "interactiveMode"):
        if not program.get(key):
            yield FieldError(f"{path}.{key}", ErrorType.REQUIRED, "must be set")
    mode = program.get("interactiveMode")
    if mode and mode not in _INTERACTIVE_MODES:
        message = f"must be one of {', '.join(_INTERACTIVE_MODES)}"
        yield FieldError(f"{path}.interactiveMode", ErrorType.NOT_SUPPORTED, message, mode)
    for index, variable in unstructured.entries(program, "env"):
        if not variable.get("name"):
            yield FieldError(f"{path}.env[{index}].name", ErrorType.REQUIRED, "must be set")


# How many labels may be read from one kind of object; every label multiplies series.
_LABELS_PER_KIND: Final = {kind: 2 if kind is MetricLabelSource.WORKLOAD else 6 for kind in MetricLabelSource}


def _metric_labels(tree: Tree, gates: Mapping[str, bool]) -> Iterator[FieldError]:
    names: set[str] = set()
    per_kind: dict[str, int] = {}
    for index, row in unstructured.entries(tree, "metrics", "customLabels"):
        path = f"metrics.customLabels[{index}]"
        name = unstructured.text(row.get("name"))
        if name in names:
            yield FieldError(f"{path}.name", ErrorType.DUPLICATE, "is a label already", name)
        names.add(name)
        kind = unstructured.text(row.get("sourceKind")) or str(MetricLabelSource.CLUSTER_QUEUE)
        per_kind[kind] = per_kind.get(kind, 0) + 1
        if row.get("sourceLabelKey") and row.get("sourceAnnotationKey"):
            yield FieldError(f"{path}.sourceAnnotationKey", ErrorType.INVALID, "cannot be set beside sourceLabelKey")
        # Without a source the name is the key of the label that is read.
        for key in [key for key in ("sourceLabelKey", "sourceAnnotationKey") if row.get(key)] or ["name"]:
            for message in meta.check_qualified_name(unstructured.text(row.get(key))):
                yield FieldError(f"{path}.{key}", ErrorType.INVALID, message, row.get(key))
        tracked = unstructured.sequence(row.get("trackedValues"))
        if kind == MetricLabelSource.WORKLOAD and not 1 <= len(tracked) <= 12:
            yield FieldError(f"{path}.trackedValues", ErrorType.INVALID, "must name 1 to 12 values for a Workload")
        for position, value in enumerate(tracked):
            if value in tracked[:position]:
                yield FieldError(f"{path}.trackedValues[{position}]", ErrorType.DUPLICATE, "is tracked already", value)
    for kind, count in per_kind.items():
        most = _LABELS_PER_KIND.get(MetricLabelSource(kind)) if kind in list(MetricLabelSource) else None
        if most is not None and count > most:
            message = f"must read at most {most} labels from a {kind}, not {count}"
            yield FieldError("metrics.customLabels", ErrorType.TOO_MANY, message)


_RULES: Final[tuple[Callable[[Tree, Mapping[str, bool]], Iterator[FieldError]], ...]] = (
    _durations,
    _leader_election,
    _namespaces,
    _fair_sharing,
    _quota_check,
    _transformations,
    _device_classes,
    _servers,
    _tls,
    _multi_kueue,
    _metric_labels,
)
