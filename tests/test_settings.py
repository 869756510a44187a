"""From a Configuration to settings: defaults, refusals, both versions, both spellings of the quota check."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykueue import settings
from pykueue.api import config
from pykueue.core.policy import FairSharingStrategy, SchedulingPolicy
from pykueue.errors import ConfigurationError
from pykueue.jobs.options import IntegrationOptions
from pykueue.lifecycle.facts import LifecycleOptions


def load(version: str = "v1beta2", **fields: Any) -> settings.Settings:
    return settings.load({"apiVersion": f"config.kueue.x-k8s.io/{version}", "kind": "Configuration", **fields})


def findings(version: str = "v1beta2", **fields: Any) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        load(version, **fields)
    return list(caught.value.findings)


NOT_SYSTEM = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", "kueue-system"]}


class TestDefaults:
    def test_defaults_equal_kueue(self) -> None:
        found = settings.defaults().configuration
        assert found.namespace == "kueue-system"
        assert found.leader_election is not None
        assert found.leader_election.resource_name == "c1f6bfd2.kueue.x-k8s.io"
        assert found.client_connection == config.ClientConnection(qps=300.0, burst=500)
        assert found.integrations is not None
        assert found.integrations.frameworks == ("batch/job",)
        assert found.fair_sharing is None
        assert settings.defaults().policy == SchedulingPolicy()

    def test_waiting_for_pods_is_on_with_half_an_hour_and_the_recovery_time_follows(self) -> None:
        ready = settings.defaults().configuration.wait_for_pods_ready
        assert ready is not None
        assert (ready.timeout, ready.recovery_timeout, ready.block_admission) == ("30m", "30m", False)
        shorter = load(waitForPodsReady={"timeout": "7m"}).configuration.wait_for_pods_ready
        assert shorter is not None
        assert shorter.recovery_timeout == "7m"

    def test_the_managers_own_namespace_is_never_managed(self) -> None:
        tree = settings.load({"apiVersion": config.V1BETA2, "kind": config.KIND}, namespace="queues").tree[
            "managedJobsNamespaceSelector"
        ]
        assert tree == {"matchExpressions": [{**NOT_SYSTEM, "values": ["kube-system", "queues"]}]}

    def test_the_effective_configuration_loads_to_itself(self) -> None:
        once = load(fairSharing={"preemptionStrategies": ["LessThanInitialShare"]})
        assert settings.load(once.tree).tree == once.tree

    def test_zero_durations_count_as_not_set(self) -> None:
        read = load(waitForPodsReady={"timeout": "0s"}, admissionFairSharing={"usageSamplingInterval": "0s"}).tree
        assert read["waitForPodsReady"]["timeout"] == read["waitForPodsReady"]["recoveryTimeout"] == "30m"
        assert read["admissionFairSharing"]["usageSamplingInterval"] == "5m"


class TestReading:
    """A file that was written for Kueue is read as Kueue reads it."""

    @pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
    def test_field_without_a_value_counts_as_not_set(self, version: str) -> None:
        names = ("featureGates", "resources", "webhook", "fairSharing", "managedJobsNamespaceSelector", "multiKueue")
        assert load(version, **dict.fromkeys(names)).tree == load(version).tree
        inner = {"frameworks": ["pod"], "externalFrameworks": None, "labelKeysToCopy": None}
        assert load(version, integrations=inner).tree == load(version, integrations={"frameworks": ["pod"]}).tree

    def test_gate_without_a_value_is_refused(self) -> None:
        assert findings(featureGates={"PartialAdmission": None})[0].startswith("featureGates.PartialAdmission")

    def test_integers_may_have_a_decimal_point(self) -> None:
        found = load(clientConnection={"qps": 5.5, "burst": 1e1}, webhook={"port": 9000.0}).configuration
        assert found.client_connection == config.ClientConnection(qps=5.5, burst=10)
        assert found.webhook is not None
        assert found.webhook.port == 9000
        assert findings(clientConnection={"burst": 1.5})[0].startswith("clientConnection.burst")

    def test_an_amount_may_be_a_number(self) -> None:
        found = load(resources={"transformations": [{"input": "gpu", "outputs": {"credits": 0.5}}]})
        assert found.tree["resources"]["transformations"][0]["outputs"] == {"credits": "0.5"}

    @pytest.mark.parametrize(("nanoseconds", "shown"), [(90_000_000_000, "1m30s"), (0, "0s")])
    def test_cache_sync_timeout_is_a_number_of_nanoseconds(self, nanoseconds: int, shown: str) -> None:
        assert load(controller={"cacheSyncTimeout": nanoseconds}).tree["controller"]["cacheSyncTimeout"] == shown

    @pytest.mark.parametrize(
        ("block", "field", "nothing"),
        [
            ("webhook", "port", 0),
            ("webhook", "port", -1),
            ("leaderElection", "leaseDuration", "0s"),
            ("leaderElection", "resourceLock", ""),
            ("tls", "minVersion", ""),
        ],
    )
    def test_empty_values_count_as_not_set(self, block: str, field: str, nothing: object) -> None:
        given: dict[str, Any] = {block: {field: nothing}}
        empty: dict[str, Any] = {block: {}}
        assert load(**given).tree[block] == load(**empty).tree[block]


class TestRefusals:
    def test_a_file_has_no_metadata(self) -> None:
        assert findings(metadata={"name": "x"})[0].startswith("metadata: Forbidden")

    def test_device_class_mapping_without_classes_is_refused(self) -> None:
        reported = findings(resources={"deviceClassMappings": [{"name": "gpus"}]})
        assert reported[0].startswith("resources.deviceClassMappings[0].deviceClassNames: Required")

    @pytest.mark.parametrize(
        ("fields", "sentence"),
        [
            ({"managJobsWithoutQueueName": True}, "managJobsWithoutQueueName: Forbidden: is not a field of a Configuration; did you mean manageJobsWithoutQueueName?"),
            ({"integrations": {"podOptions": {}}}, "integrations.podOptions: Forbidden: is not a field of a Configuration; use managedJobsNamespaceSelector at the top level"),
            ({"waitForPodsReady": {"timeout": "-1s"}}, 'waitForPodsReady.timeout: Invalid value: "-1s": must be 0s or more'),
            ({"integrations": {"frameworks": ["batch/jobs"]}}, 'integrations.frameworks[0]: Unsupported value: "batch/jobs": is not a supported framework; did you mean batch/job?'),
            ({"integrations": {"frameworks": ["pod", "pod"]}}, 'integrations.frameworks[1]: Duplicate value: "pod": is listed twice'),
            ({"integrations": {"externalFrameworks": ["Foo"]}}, 'integrations.externalFrameworks[0]: Invalid value: "Foo": must be spelt Kind.version.group'),
            ({"featureGates": {"Nope": True}}, "featureGates.Nope: Invalid value: is not a known gate"),
            ({"visibilityServer": {"bindAddress": "here"}}, 'visibilityServer.bindAddress: Invalid value: "here": must be an IP address'),
            ({"tls": {"minVersion": "VersionTLS13", "cipherSuites": ["X"]}}, "tls.cipherSuites: Invalid value: cannot be chosen with minVersion VersionTLS13, which fixes them"),
            ({"tls": {"cipherSuites": ["TLS_RSA_WITH_AES_128_GCM_SHA2"]}}, 'tls.cipherSuites[0]: Unsupported value: "TLS_RSA_WITH_AES_128_GCM_SHA2": is not a cipher suite; did you mean TLS_RSA_WITH_AES_128_GCM_SHA256?'),
            ({"tls": {"curvePreferences": [29, 1]}}, "tls.curvePreferences[1]: Unsupported value: 1: is none of the groups 23, 24, 25, 29, 4587, 4588, 4589"),
            ({"tls": {"curvePreferences": [29, 29]}}, "tls.curvePreferences[1]: Duplicate value: 29: is listed twice"),
            ({"visibilityServer": {"bindAddress": ""}}, 'visibilityServer.bindAddress: Invalid value: "": must be an IP address'),
            ({"leaderElection": {"retryPeriod": "9s"}}, "leaderElection.renewDeadline: Invalid value: must be longer than 1.2 times retryPeriod"),
            ({"leaderElection": {"leaseDuration": "5s"}}, "leaderElection.leaseDuration: Invalid value: must be longer than renewDeadline"),
            ({"multiKueue": {"incrementalDispatcherConfig": {"stepSize": 2}}}, "multiKueue.incrementalDispatcherConfig: Invalid value: is only for the dispatcher kueue.x-k8s.io/multikueue-dispatcher-incremental"),
            ({"admissionFairSharing": {"resourceWeights": {"cpu": -1}}}, "admissionFairSharing.resourceWeights[cpu]: Invalid value: -1: must not be negative"),
            ({"resources": {"transformations": [{"input": "a"}, {"input": "a"}]}}, 'resources.transformations[1].input: Duplicate value: "a": has a transformation already'),
            ({"resources": {"deviceClassMappings": [{"name": "gpu", "deviceClassNames": ["a", "a"]}]}}, 'resources.deviceClassMappings[0].deviceClassNames[1]: Duplicate value: "a": counts as a resource already'),
            ({"resources": {"deviceClassMappings": [{"name": "gpu", "deviceClassNames": ["a"]}, {"name": "card", "deviceClassNames": ["a"]}]}}, 'resources.deviceClassMappings[1].deviceClassNames[0]: Duplicate value: "a": counts as a resource already'),
            ({"resources": {"deviceClassMappings": [{"name": "gpu", "deviceClassNames": ["a"], "sources": [{"capacity": {"name": "memory"}}]}]}}, "resources.deviceClassMappings[0].sources[0].capacity: Invalid value: needs the gate KueueDRAIntegrationConsumableCapacity"),
            ({"multiKueue": {"externalFrameworks": [{"name": "Job.v1.batch"}]}}, 'multiKueue.externalFrameworks[0].name: Invalid value: "Job.v1.batch": is built in'),
            ({"multiKueue": {"clusterProfile": {"accessProviders": [{"name": "a", "execConfig": {"command": "c", "apiVersion": "v1", "interactiveMode": "Now"}}]}}}, 'multiKueue.clusterProfile.accessProviders[0].execConfig.interactiveMode: Unsupported value: "Now": must be one of Never, IfAvailable, Always'),
            ({"metrics": {"customLabels": [{"name": "team_"}]}}, "metrics.customLabels[0].name: Invalid value: \"team_\": the name must be letters, digits, '-', '_' and '.', with a letter or digit first and last"),
            ({"metrics": {"customLabels": [{"name": "a"}, {"name": "a"}]}}, 'metrics.customLabels[1].name: Duplicate value: "a": is a label already'),
        ],
    )  # fmt: skip
    def test_error_has_the_path_of_the_field(self, fields: dict[str, Any], sentence: str) -> None:
        assert sentence in findings(**fields)

    @pytest.mark.parametrize(
        "fields",
        [
            {"integrations": {"labelKeysToCopy": ["no such key!"]}},
            {"integrations": {"externalFrameworks": ["Foo.alpha.example.com"]}},
            {"tls": {"cipherSuites": ["TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305"], "curvePreferences": [29, 4588]}},
            {"leaderElection": {"leaderElect": False, "leaseDuration": "5s"}},
            {"multiKueue": {"externalFrameworks": [{"name": "RayJob.v1.ray.io"}]}},
            {"metrics": {"customLabels": [{"name": "team_", "sourceLabelKey": "team"}]}},
            {"resources": {"deviceClassMappings": [
                {"name": name, "deviceClassNames": ["gpu.example.com"], "sources": [{"counter": {
                    "name": name, "driver": "gpu.example.com", "deviceSelector": {"cel": {"expression": "true"}},
                }}]}
                for name in ("memory", "compute")
            ]}},
        ],
    )  # fmt: skip
    def test_odd_configurations_that_kueue_accepts_are_accepted(self, fields: dict[str, Any]) -> None:
        assert isinstance(load(**fields), settings.Settings)

    def test_all_errors_are_reported_at_once(self) -> None:
        found = findings(
            nonsense=1, featureGates={"Nope": True}, integrations={"frameworks": ["x"]}, waitForPodsReady={"timeout": 3}
        )
        assert [finding.split(":")[0] for finding in found] == [
            "nonsense",
            "waitForPodsReady.timeout",
            "featureGates.Nope",
            "integrations.frameworks[0]",
        ]

    @pytest.mark.parametrize("strategies", [[], ["LessThanInitialShare", "LessThanOrEqualToFinalShare"], ["Other"]])
    def test_only_three_lists_of_strategies_are_legal(self, strategies: list[str]) -> None:
        assert findings(fairSharing={"preemptionStrategies": strategies})[0].startswith(
            "fairSharing.preemptionStrategies"
        )

    @pytest.mark.parametrize(
        "selector",
        [
            {},
            {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
            {"matchExpressions": [{**NOT_SYSTEM, "values": ["kube-system"]}]},
            {"matchExpressions": [{"key": "a", "operator": "Near"}]},
            {"matchExpressions": [{"key": "team", "operator": "In"}]},
        ],
    )
    def test_the_systems_own_namespaces_cannot_be_managed_and_a_selector_must_be_usable(self, selector: Any) -> None:
        assert findings(managedJobsNamespaceSelector=selector)[0].startswith("managedJobsNamespaceSelector")

    @pytest.mark.parametrize(
        "tree", [None, [], "x", {}, {"kind": "Configuration"}, {"kind": "Pod", "apiVersion": "v1"}]
    )
    def test_other_documents_are_refused(self, tree: Any) -> None:
        with pytest.raises(ConfigurationError):
            settings.load(tree)


class TestQuotaCheck:
    """KEP-7513: two spellings of one question, each under its own gate."""

    def test_off_by_default(self) -> None:
        assert not settings.defaults().ignores_undeclared

    def test_todays_spelling(self) -> None:
        assert load(resources={"quotaCheckStrategy": "IgnoreUndeclared"}).ignores_undeclared

    def test_todays_spelling_without_its_gate_has_no_effect_and_a_notice(self) -> None:
        found = load(resources={"quotaCheckStrategy": "IgnoreUndeclared"}, featureGates={"QuotaCheckStrategy": False})
        assert not found.ignores_undeclared
        assert any("QuotaCheckStrategy is off" in notice for notice in found.notices)

    def test_todays_spelling_excludes_the_prefix_list(self) -> None:
        found = findings(resources={"quotaCheckStrategy": "IgnoreUndeclared", "excludeResourcePrefixes": ["x"]})
        assert found[0].startswith("resources.excludeResourcePrefixes: Forbidden")

    def test_the_proposals_spelling_without_its_gate_is_accepted_and_ignored(self) -> None:
        found = load(resources={"quotaCheck": "OnlyDeclared"})
        assert not found.ignores_undeclared
        assert any("QuotaCheck is off" in notice for notice in found.notices)

    def test_an_unknown_value_is_refused(self) -> None:
        assert findings(resources={"quotaCheck": "Some"})[0].startswith("resources.quotaCheck: Unsupported value")


class TestOldVersion:
    def test_an_absent_block_means_off(self) -> None:
        found = load("v1beta1").configuration
        assert found.wait_for_pods_ready is None
        assert found.fair_sharing is None

    def test_enable_turns_a_block_on_with_the_old_defaults(self) -> None:
        found = load("v1beta1", waitForPodsReady={"enable": True}, fairSharing={"enable": True})
        ready, fair = found.configuration.wait_for_pods_ready, found.configuration.fair_sharing
        assert ready is not None
        assert (ready.timeout, ready.recovery_timeout, ready.block_admission) == ("5m", "5m", True)
        assert fair is not None
        assert found.policy.fair_sharing == tuple(FairSharingStrategy)

    def test_enable_false_means_off(self) -> None:
        found = load("v1beta1", waitForPodsReady={"enable": False, "timeout": "1m"}, fairSharing={"enable": False})
        assert (found.configuration.wait_for_pods_ready, found.configuration.fair_sharing) == (None, None)

    def test_pod_options_are_kept_beside_the_selector_with_a_notice(self) -> None:
        found = load("v1beta1", integrations={"podOptions": {"namespaceSelector": {"matchLabels": {"pods": "yes"}}}})
        assert found.pod_namespace_selector is not None
        assert found.pod_namespace_selector.match_labels == {"pods": "yes"}
        assert any("podOptions.namespaceSelector: deprecated" in notice for notice in found.notices)
        assert "podOptions" not in found.tree["integrations"]

    def test_later_fields_are_unknown(self) -> None:
        assert findings("v1beta1", visibilityServer={})[0].startswith("visibilityServer: Forbidden")

    def test_old_version_gives_a_deprecation_notice(self) -> None:
        assert load("v1beta1").notices[0].startswith("apiVersion: config.kueue.x-k8s.io/v1beta1 is deprecated")


def test_list_instead_of_a_name_is_refused_with_a_message() -> None:
    assert findings(integrations={"frameworks": [["pod"]]})[0].startswith("integrations.frameworks[0]")
    mappings = [{"name": ["x"], "deviceClassNames": [{}, []]}]
    assert findings(resources={"deviceClassMappings": mappings})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=8), children, max_size=3),
    max_leaves=8,
)
FIELDS = sorted(settings.shape_schema("v1beta2")["properties"].keys() - {"apiVersion", "kind"})


@given(
    version=st.sampled_from(["v1beta1", "v1beta2"]), fields=st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=3)
)
def test_any_json_is_loaded_or_refused_with_a_message(version: str, fields: dict[str, Any]) -> None:
    try:
        load(version, **fields)
    except ConfigurationError as error:
        reported = error.findings
    else:
        reported = ()
    assert all(": " in finding for finding in reported)


def test_workloads_with_resource_claims_are_refused_by_default() -> None:
    """The integration cannot be enabled before it is implemented, and Workloads that claim devices are not admitted uncounted."""
    loaded = settings.defaults()
    options = LifecycleOptions.of(loaded.configuration, loaded.gates)
    assert options.refuse_claims
    assert not options.dynamic_resources
    assert "KueueDRAIntegration" in findings(featureGates={"KueueDRAIntegration": True})[0]


class TestBesideACluster:
    """A manager outside its cluster ignores the fields for listening inside it."""

    def test_fields_that_only_count_in_a_cluster_are_named(self) -> None:
        chosen = load(
            webhook={"port": 9000, "certDir": "/certs"},
            visibilityServer={"bindPort": 9001},
            internalCertManagement={"enable": False},
        )
        named = [notice.partition(":")[0] for notice in settings.notices_beside(chosen)]
        assert named == [
            "webhook.port",
            "webhook.certDir",
            "visibilityServer.bindPort",
            "internalCertManagement.enable",
        ]

    def test_defaults_are_not_named(self) -> None:
        assert not list(settings.notices_beside(settings.defaults()))


@pytest.mark.parametrize(
    ("rows", "gate", "label_keys", "annotation_keys"),
    [
        (({"name": "a", "sourceLabelKey": "kept"}, {"name": "own"}), True, ("team", "kept", "own"), ()),
        (({"name": "a", "sourceLabelKey": "team"}, {"name": "b", "sourceAnnotationKey": "x"}), True, ("team",), ("x",)),
        (({"name": "own"}, {"name": "b", "sourceAnnotationKey": "x"}), False, ("team",), ()),
    ],
)
def test_jobs_pass_on_what_metrics_read_from_workloads(
    rows: tuple[dict[str, Any], ...], gate: bool, label_keys: tuple[str, ...], annotation_keys: tuple[str, ...]
) -> None:
    others = [
        {"name": "q", "sourceLabelKey": "of-a-queue"},
        {"name": "c", "sourceKind": "Cohort", "sourceAnnotationKey": "y"},
    ]
    measured = [{**row, "sourceKind": "Workload", "trackedValues": ["1"]} for row in rows]
    found = load(
        metrics={"customLabels": [*others, *measured]},
        integrations={"labelKeysToCopy": ["team"]},
        featureGates={"CustomMetricLabels": gate},
    )
    options = IntegrationOptions.of(found.configuration, found.gates)
    assert (options.label_keys_to_copy, options.annotation_keys_to_copy) == (label_keys, annotation_keys)
