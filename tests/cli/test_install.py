"""`pykueue install` and `uninstall`: what is rendered, and what is applied to a server and taken away again."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from kubemachinery import unstructured
from kubemachinery.client.client import ApiClient
from kubemachinery.client.local_transport import LocalTransport
from kubeserver.protocol import authentication
from kubeserver.serve import ServerSettings, api_server
from kubeserver.storage.sqlite import Durability
from pykueue.api import config, labels, registry
from pykueue.app.bare_server import bare_parts
from pykueue.cli import install
from pykueue.install import apply, chart, kustomize, manifests, rbac
from pykueue.install.manifests import InstallPlan
from pykueue.jobs.kinds import BUILT_IN, JobKinds

Tree = dict[str, Any]
ROOT = Path(__file__).resolve().parents[2]


def rendered(*arguments: str) -> list[Tree]:
    result = CliRunner().invoke(install.command, ["--dry-run", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return list(yaml.safe_load_all(result.output))


def named(objects: Sequence[Tree], kind: str, name: str) -> Tree:
    return next(one for one in objects if (one["kind"], one["metadata"]["name"]) == (kind, name))


# --- Rendered ---------------------------------------------------------------------------------------------------------


def test_the_image_that_can_be_built_is_the_one_that_the_deployment_runs() -> None:
    recipe = (ROOT / "deploy" / "Containerfile").read_text()
    pod = named(rendered(), "Deployment", "kueue-controller-manager")["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert f"$REGISTRY/{container['image']}" in recipe
    assert f"USER {pod['securityContext']['runAsUser']}:{pod['securityContext']['runAsGroup']}" in recipe
    assert 'ENTRYPOINT ["pykueue"]' in recipe
    assert "command" not in container
    for copied in re.findall(r"^COPY (?!--)(.+) \S+$", recipe, re.MULTILINE):
        assert all((ROOT / name).exists() for name in copied.split())


def test_others_are_there_before_who_refers_to_them_and_webhooks_come_last() -> None:
    """Webhooks without a server block writes, so everything else has to exist before them."""
    kinds = [one["kind"] for one in rendered()]
    assert kinds[0] == "Namespace"
    assert kinds[-2:] == ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"]
    assert kinds.index("ServiceAccount") < kinds.index("ClusterRoleBinding") < kinds.index("Deployment")
    assert kinds.count("CustomResourceDefinition") == len(registry.CUSTOM)


def test_everything_in_a_namespace_follows_the_namespace() -> None:
    objects = rendered("--namespace", "batch-system")
    named(objects, "Namespace", "batch-system")
    assert "kueue-system" not in yaml.safe_dump_all(objects)


def test_the_manager_runs_unprivileged_on_a_read_only_root() -> None:
    spec = named(rendered(), "Deployment", "kueue-controller-manager")["spec"]["template"]["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    (container,) = spec["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
    ports = {port["name"] for port in container["ports"]}
    assert {container[probe]["httpGet"]["port"] for probe in ("livenessProbe", "readinessProbe")} <= ports


def opened(policy: Tree) -> dict[int, list[Tree]]:
    """Port -> the sources from which a NetworkPolicy admits connections; none is every source."""
    return {port["port"]: rule.get("from", []) for rule in policy["spec"]["ingress"] for port in rule["ports"]}


def test_network_policy_opens_the_ports_of_the_pod_and_no_others() -> None:
    objects = rendered()
    policy = named(objects, "NetworkPolicy", "kueue-controller-manager")
    template = named(objects, "Deployment", "kueue-controller-manager")["spec"]["template"]
    (container,) = template["spec"]["containers"]
    assert policy["spec"]["podSelector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    assert opened(policy) == {port["containerPort"]: [] for port in container["ports"]}


def test_network_policy_admits_the_api_server_alone_to_webhooks_and_visibility() -> None:
    objects = rendered("--api-server-cidr", "10.1.0.0/24", "--api-server-cidr", "fd00::/64", "--dashboard")
    blocks = [{"ipBlock": {"cidr": "10.1.0.0/24"}}, {"ipBlock": {"cidr": "fd00::/64"}}]
    policy = named(objects, "NetworkPolicy", "kueue-controller-manager")
    assert opened(policy) == {9443: blocks, 8082: blocks, 8443: [], 8081: []}
    assert opened(named(objects, "NetworkPolicy", "kueue-dashboard")) == {8444: []}
    values = unstructured.put(chart.values(InstallPlan()), ("networkPolicy", "apiServer"), blocks)
    assert helm(values, "kueue-system")["NetworkPolicy", "kueue-controller-manager"] == policy


def test_address_range_that_is_none_is_refused() -> None:
    result = CliRunner().invoke(install.command, ["--dry-run", "--api-server-cidr", "10.1.0.1/24"])
    assert "--api-server-cidr: 10.1.0.1/24 has host bits set" in str(result.exception)


def test_disruption_budget_lets_one_replica_go_at_a_time() -> None:
    objects = rendered()
    budget = named(objects, "PodDisruptionBudget", "kueue-controller-manager")["spec"]
    selector = named(objects, "Deployment", "kueue-controller-manager")["spec"]["selector"]
    assert budget == {"maxUnavailable": 1, "selector": selector}


def test_only_the_pod_of_the_manager_gets_its_token() -> None:
    objects = rendered()
    assert named(objects, "ServiceAccount", "kueue-controller-manager")["automountServiceAccountToken"] is False
    pod = named(objects, "Deployment", "kueue-controller-manager")["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is True


def test_the_configuration_goes_along_as_it_was_written_and_decides_about_webhooks(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    written = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "integrations": {"frameworks": ["pod"]},
        "webhook": {"port": 10443},
    }
    file.write_text(yaml.safe_dump(written))
    objects = rendered("--config", str(file))
    stored = named(objects, "ConfigMap", "kueue-manager-config")["data"]["controller_manager_config.yaml"]
    assert yaml.safe_load(stored) == written
    webhooks = named(objects, "MutatingWebhookConfiguration", "kueue-mutating-webhook-configuration")["webhooks"]
    assert "mpod.kb.io" in [one["name"] for one in webhooks]
    assert "mjob.kb.io" not in [one["name"] for one in webhooks]
    (container,) = named(objects, "Deployment", "kueue-controller-manager")["spec"]["template"]["spec"]["containers"]
    assert {"name": "webhook-server", "containerPort": 10443, "protocol": "TCP"} in container["ports"]


def test_files_for_kustomize_hold_the_very_same_objects(tmp_path: Path) -> None:
    result = CliRunner().invoke(install.command, ["--dry-run", "--to", str(tmp_path)], catch_exceptions=False)
    assert result.exit_code == 0
    listed = yaml.safe_load((tmp_path / "kustomization.yaml").read_text())["resources"]
    found = [one for name in listed for one in yaml.safe_load_all((tmp_path / name).read_text())]

    def key(one: Tree) -> tuple[str, str]:
        return one["kind"], one["metadata"]["name"]

    assert sorted(found, key=key) == sorted(rendered(), key=key)


# --- As a chart -------------------------------------------------------------------------------------------------------

_FORM = re.compile(r"\{\{ (toJson )?\.([A-Za-z.]+) \}\}")
_LINES = re.compile(r"\{\{- if \.([A-Za-z.]+) \}\}\n(.*?)\{\{- end \}\}\n", re.DOTALL)


def helm(values: Tree, namespace: str) -> dict[tuple[str, str], Tree]:
    """What Helm makes of the chart, by kind and name: its templates have three forms and no others."""
    context = {"Values": values, "Release": {"Namespace": namespace}}

    def filled(found: re.Match[str]) -> str:
        value = unstructured.get(context, *found[2].split("."))
        return json.dumps(value) if found[1] else str(value)

    def kept(found: re.Match[str]) -> str:
        return found[2] if unstructured.get(context, *found[1].split(".")) else ""

    texts = [_LINES.sub(kept, text) for name, text in chart.files(InstallPlan()) if name.startswith("templates/")]
    made = [one for text in texts for one in yaml.safe_load_all(_FORM.sub(filled, text))]
    return {(one["kind"], one["metadata"]["name"]): one for one in made}


def test_a_chart_with_its_own_values_is_the_very_same_installation() -> None:
    values = yaml.safe_load(dict(chart.files(InstallPlan()))["values.yaml"])
    wanted = {(one["kind"], one["metadata"]["name"]): one for one in rendered() if one["kind"] != "Namespace"}
    made = helm(values, "kueue-system")
    for (kind, _), one in made.items():
        if kind == "CustomResourceDefinition":
            assert one["metadata"]["annotations"].pop("helm.sh/resource-policy") == "keep"
        if kind == "Deployment":
            pod = one["spec"]["template"]["spec"]
            for name in ("priorityClassName", "imagePullSecrets", "nodeSelector", "tolerations"):
                assert not pod.pop(name)
            assert not pod.pop("topologySpreadConstraints")
            assert pod["containers"][0].pop("imagePullPolicy") == "IfNotPresent"
    assert {key: _without_empty(one) for key, one in made.items()} == {
        key: _without_empty(one) for key, one in wanted.items()
    }


def _without_empty(tree: Tree) -> Tree:
    """As a server stores it: without empty annotations, and without an empty `from`, which means every source."""
    if tree["kind"] == "NetworkPolicy":
        rules = [{k: v for k, v in rule.items() if k != "from" or v} for rule in tree["spec"]["ingress"]]
        tree = unstructured.put(tree, ("spec", "ingress"), rules)
    notes = tree["metadata"].get("annotations")
    return tree if notes != {} else unstructured.without(tree, ("metadata", "annotations"))


def test_a_chart_follows_its_values_and_its_namespace() -> None:
    values = chart.values(InstallPlan())
    text = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nwebhook: {port: 1}\n"
    values["managerConfig"]["controllerManagerConfigYaml"] = text
    values["controllerManager"]["replicas"] = 2
    values["controllerManager"]["manager"]["image"] = {"repository": "here/pykueue", "tag": "9", "pullPolicy": "Always"}
    made = helm(values, "batch")
    spec = made["Deployment", "kueue-controller-manager"]["spec"]
    assert (spec["replicas"], spec["template"]["spec"]["containers"][0]["image"]) == (2, "here/pykueue:9")
    assert made["ConfigMap", "kueue-manager-config"]["data"]["controller_manager_config.yaml"] == text
    assert {one["metadata"].get("namespace", "batch") for one in made.values()} == {"batch", "kube-system"}
    assert "kueue-system" not in json.dumps(list(made.values()))


def test_the_dashboard_is_installed_by_one_option() -> None:
    """The same Service and argument: by the command, by the chart, and by the component for kustomize."""
    objects = rendered("--dashboard")
    by_command = {(one["kind"], one["metadata"]["name"]): one for one in objects}
    [port] = by_command["Service", "kueue-dashboard"]["spec"]["ports"]
    (container,) = by_command["Deployment", "kueue-controller-manager"]["spec"]["template"]["spec"]["containers"]
    assert f"--dashboard=0.0.0.0:{port['targetPort']}" in container["args"]

    by_helm = helm({**chart.values(InstallPlan()), "enableDashboard": True}, "kueue-system")
    assert by_helm["Service", "kueue-dashboard"] == by_command["Service", "kueue-dashboard"]
    (by_chart,) = by_helm["Deployment", "kueue-controller-manager"]["spec"]["template"]["spec"]["containers"]
    assert by_chart["args"] == container["args"]

    files = dict(kustomize.files(InstallPlan()))
    component = yaml.safe_load(files["dashboard/kustomization.yaml"])
    assert list(yaml.safe_load_all(files["dashboard/service.yaml"])) == [
        by_command["Service", "kueue-dashboard"],
        by_command["NetworkPolicy", "kueue-dashboard"],
    ]
    assert json.loads(component["patches"][0]["patch"])[0]["value"] == container["args"][-1]


def test_an_unimplemented_framework_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(
        "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nintegrations: {frameworks: [example.com/flow]}\n"
    )
    result = CliRunner().invoke(install.command, ["--dry-run", "--config", str(file)])
    assert "example.com/flow" in str(result.exception)


# --- Who may do what --------------------------------------------------------------------------------------------------

KINDS = JobKinds(BUILT_IN)


def allowed(group: str, resource: str) -> set[str]:
    return {
        verb
        for rule in rbac.manager_rules(KINDS)
        if group in rule["apiGroups"] and resource in rule["resources"]
        for verb in rule["verbs"]
    }


@pytest.mark.parametrize(
    ("group", "resource", "verbs"),
    [
        ("kueue.x-k8s.io", "workloads", "create delete get list patch watch"),
        ("kueue.x-k8s.io", "workloads/status", "get patch"),
        ("kueue.x-k8s.io", "clusterqueues", "get list patch watch"),
        ("kueue.x-k8s.io", "cohorts", "get list watch"),
        ("batch", "jobs", "delete get list patch watch"),
        ("batch", "jobs/status", "get patch"),
        ("", "pods", "delete get list patch watch"),
        ("", "nodes", "get list watch"),
        ("", "secrets", ""),
        ("", "configmaps", ""),
        ("ray.io", "rayjobs", "delete get list patch watch"),
        ("apps", "replicasets", "get"),
        ("rbac.authorization.k8s.io", "clusterroles", ""),
    ],
)
def test_the_manager_may_do_what_it_needs_and_no_more(group: str, resource: str, verbs: str) -> None:
    assert allowed(group, resource) == set(verbs.split())


def test_nothing_is_allowed_with_a_star() -> None:
    for one in rbac.documents("kueue-system", "cert", KINDS):
        for rule in one.get("rules", ()):
            assert "*" not in [*rule["verbs"], *rule.get("resources", ()), *rule.get("apiGroups", ())]


def test_every_kind_that_may_own_a_job_can_be_read() -> None:
    """The owner walk reads any kind of the table, run by this program or not."""
    for row in KINDS:
        assert "get" in allowed(row.kind.group, row.kind.plural), row.framework
    assert "get" in allowed("apps", "replicasets")


def external(*frameworks: str) -> list[dict[str, Any]]:
    """The rules for external frameworks that are rendered for a Configuration."""
    written = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration",
               "integrations": {"externalFrameworks": list(frameworks)}}  # fmt: skip
    found = {
        one["metadata"]["name"]: one
        for one in manifests.all_manifests(InstallPlan(written))
        if one["kind"] == "ClusterRole"
    }
    rules: list[dict[str, Any]] = found[rbac.EXTERNAL_ROLE].get("rules", [])
    return rules


def test_role_without_rules_has_no_field_that_would_conflict() -> None:
    """The API server stores an empty list as null, which differs from the list of the next field manager."""
    roles = [one for one in rendered() if one["kind"] in ("ClusterRole", "Role")]
    assert rbac.EXTERNAL_ROLE in {role["metadata"]["name"] for role in roles}
    assert all(role.get("rules", "absent") for role in roles)


def test_an_external_framework_can_be_read_whatever_its_plural_is() -> None:
    """Rights are rendered without a cluster, and only a cluster knows the plural: the API group stands for it."""
    assert external() == []
    assert external("Flow.v1.example.com") == [{"apiGroups": ["example.com"], "resources": ["*"], "verbs": ["get"]}]
    assert external("RayJob.v1.ray.io") == [], "a kind of the table is read with the rights of the table"


def test_an_external_framework_of_kubernetes_itself_opens_no_other_kind() -> None:
    assert external("DaemonSet.v1.apps") == [{"apiGroups": ["apps"], "resources": ["daemonsets"], "verbs": ["get"]}]
    assert rbac.external_rules(KINDS, [("v1", "ReplicationController")]) == [
        {"apiGroups": [""], "resources": ["replicationcontrollers"], "verbs": ["get"]}
    ]


def test_the_chart_takes_the_rules_for_external_frameworks_as_a_value() -> None:
    rules = external("Flow.v1.example.com")
    values = chart.values(InstallPlan())
    values["managerConfig"]["externalFrameworksRules"] = rules
    assert helm(values, "kueue-system")["ClusterRole", rbac.EXTERNAL_ROLE]["rules"] == rules


def test_only_our_own_secret_and_our_own_webhook_configurations_can_be_touched() -> None:
    (secret,) = rbac.secret_rules("cert")
    assert (secret["resourceNames"], secret["verbs"]) == (["cert"], ["get", "update"])
    for rule in rbac.manager_rules(KINDS):
        if rule["apiGroups"][0] in ("admissionregistration.k8s.io", "apiextensions.k8s.io"):
            assert rule["resourceNames"]


def test_people_who_batch_get_their_roles_by_label() -> None:
    """As published: who takes in the role to edit queues, and who the one to look at them."""
    roles = {one["metadata"]["name"]: one["metadata"]["labels"] for one in rbac.user_roles(KINDS)}

    def takers(name: str) -> set[str]:
        return {key.rpartition("/")[2] for key, value in roles[name].items() if value == "true"}

    all_roles = {"aggregate-to-view", "aggregate-to-edit", "aggregate-to-admin"}
    assert takers("kueue-clusterqueue-editor-role") == {"batch-admin"}
    assert takers("kueue-clusterqueue-viewer-role") == {"batch-admin", "aggregate-to-admin"}
    assert takers("kueue-localqueue-viewer-role") == {"batch-admin", "batch-user", *all_roles}
    assert takers("kueue-job-editor-role") == {"batch-admin", "batch-user"}


@pytest.mark.parametrize("kind", ["job", "rayjob", "leaderworkerset", "workload"])
def test_roles_for_users_show_the_status(kind: str) -> None:
    roles = {one["metadata"]["name"]: one for one in rbac.user_roles(KINDS)}
    for role in (f"kueue-{kind}-editor-role", f"kueue-{kind}-viewer-role"):
        assert {f"{kind}s/status": ["get"]} in [{one["resources"][0]: one["verbs"]} for one in roles[role]["rules"]]


def test_roles_for_users_can_be_selected_one_by_one() -> None:
    """As published: each role that others take in has its name as a label."""
    roles = {one["metadata"]["name"]: one["metadata"]["labels"] for one in rbac.user_roles(KINDS)}
    found = {name: marks[labels.RBAC_ROLE] for name, marks in roles.items() if labels.RBAC_ROLE in marks}
    assert found.keys() == roles.keys() - {"kueue-batch-admin-role", "kueue-batch-user-role", "kueue-metrics-reader"}
    assert found["kueue-clusterqueue-viewer-role"] == "clusterqueue-viewer"
    assert found["kueue-rayjob-editor-role"] == "rayjob-editor"
    assert found["kueue-pending-workloads-lq-viewer-role"] == "pending-workloads-lq-viewer"


# --- Applied ----------------------------------------------------------------------------------------------------------


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[ApiClient]:
    """A server that does not know our kinds yet."""
    place = ServerSettings(data_dir=tmp_path, durability=Durability.MEMORY)
    async with api_server(place, bare_parts(), rng=random.Random(1)) as server:
        yield ApiClient(
            LocalTransport(partial(server.embedded.server.handle_as, authentication.ADMIN)), random.Random(1)
        )


def applicable(plan: InstallPlan) -> list[Tree]:
    """What the embedded server knows to keep: it has no Deployments to run and no roles to enforce."""
    kept = {"Namespace", "CustomResourceDefinition", "ConfigMap", "Secret"}
    return [one for one in manifests.all_manifests(plan) if one["kind"] in kept]


async def test_installing_twice_changes_nothing_the_second_time(client: ApiClient) -> None:
    first: list[str] = []
    await apply.install(client, applicable(InstallPlan()), first.append)
    assert first[0] == "namespace/kueue-system created"
    assert first[-1] == "the CustomResourceDefinitions of kueue.x-k8s.io are established"
    second: list[str] = []
    await apply.install(client, applicable(InstallPlan()), second.append)
    assert [line for line in second[:-1] if not line.endswith(" unchanged")] == []


async def test_another_configuration_is_brought_up_to_date(client: ApiClient) -> None:
    await apply.install(client, applicable(InstallPlan()), lambda line: None)
    other = InstallPlan(
        {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", "webhook": {"port": 1}}
    )
    messages: list[str] = []
    await apply.install(client, applicable(other), messages.append)
    assert [line for line in messages[:-1] if not line.endswith(" unchanged")] == [
        "configmap/kueue-manager-config configured"
    ]


def test_a_service_that_leads_nowhere_any_more_is_superseded() -> None:
    def names(plan: InstallPlan) -> list[str]:
        return [f"{one['kind']} {one['metadata']['name']}" for one in manifests.superseded(plan)]

    dashboard = ["Service kueue-dashboard", "NetworkPolicy kueue-dashboard"]
    assert names(InstallPlan(dashboard=True, history_size="1Gi")) == []
    assert names(InstallPlan(dashboard=True)) == []
    assert names(InstallPlan()) == dashboard
    silent = {"apiVersion": config.V1BETA2, "kind": config.KIND, "metrics": {"bindAddress": "0"}}
    assert names(InstallPlan(silent)) == ["Service kueue-controller-manager-metrics-service", *dashboard]


def test_the_history_is_on_a_volume_of_one_manager() -> None:
    found = {one["kind"]: one for one in manifests.all_manifests(InstallPlan(history_size="2Gi"))}
    deployment, claim = found["Deployment"]["spec"], found["PersistentVolumeClaim"]
    assert (deployment["replicas"], deployment["strategy"]) == (1, {"type": "Recreate"})
    pod = deployment["template"]["spec"]
    (manager,) = pod["containers"]
    assert "--history=/var/lib/pykueue/history.db" in manager["args"]
    assert {"name": "history", "mountPath": "/var/lib/pykueue"} in manager["volumeMounts"]
    assert {"name": "history", "persistentVolumeClaim": {"claimName": claim["metadata"]["name"]}} in pod["volumes"]
    assert pod["securityContext"]["fsGroup"] == pod["securityContext"]["runAsGroup"]
    assert claim["spec"] == {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}}


def test_without_history_an_installation_has_no_volume_and_still_has_the_views() -> None:
    """Troubles are in `views.pykueue.io` too, and need no volume."""
    names = [f"{one['kind']} {one['metadata']['name']}" for one in manifests.all_manifests(InstallPlan())]
    assert not [name for name in names if "PersistentVolumeClaim" in name]
    assert "APIService v1alpha1.views.pykueue.io" in names


def test_the_chart_has_the_same_history_by_the_size_of_its_volume() -> None:
    wanted = {
        (one["kind"], one["metadata"]["name"]): one for one in manifests.all_manifests(InstallPlan(history_size="2Gi"))
    }
    made = helm({**chart.values(InstallPlan()), "history": {"size": "2Gi"}}, "kueue-system")
    claim = made["PersistentVolumeClaim", "pykueue-history"]
    assert claim["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
    assert claim == wanted["PersistentVolumeClaim", "pykueue-history"]
    by_chart, by_command = (each["Deployment", "kueue-controller-manager"]["spec"] for each in (made, wanted))
    assert by_chart["strategy"] == by_command["strategy"]
    pods = [each["template"]["spec"] for each in (by_chart, by_command)]
    for field in ("volumes", "securityContext"):
        assert pods[0][field] == pods[1][field]
    for field in ("args", "volumeMounts"):
        assert pods[0]["containers"][0][field] == pods[1]["containers"][0][field]


def test_a_history_without_its_gate_is_refused() -> None:
    result = CliRunner().invoke(install.command, ["--dry-run", "--history", "--feature-gates", "History=false"])
    assert "--history needs the gate History" in str(result.exception)


async def test_what_is_superseded_goes_if_it_is_ours(client: ApiClient) -> None:
    def settings(name: str, labels: Tree) -> Tree:
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels, **place}}

    place = {"namespace": "default"}
    ours, others = settings("ours", {"app.kubernetes.io/managed-by": "pykueue"}), settings("others", {})
    for each in (ours, others):
        await client.create(apply.kind_of(each), each)
    messages: list[str] = []
    for _ in range(2):
        await apply.install(client, (), messages.append, superseded=[ours, others])
    assert [line for line in messages if "established" not in line] == [
        "configmap/ours deleted (not part of this configuration)"
    ]
    assert await client.find(apply.kind_of(others), "others", "default") is not None


async def test_where_conversion_leads_is_left_as_the_manager_wrote_it(client: ApiClient) -> None:
    objects = applicable(InstallPlan())
    await apply.install(client, objects, lambda line: None)
    kind = apply.kind_of(next(one for one in objects if one["kind"] == "CustomResourceDefinition"))
    name = "workloads.kueue.x-k8s.io"
    stored = await client.get(kind, name)
    stored["spec"]["conversion"]["webhook"]["clientConfig"] = {"url": "https://127.0.0.1:1/convert"}
    await client.replace(kind, stored)
    await apply.install(client, objects, lambda line: None)
    found = (await client.get(kind, name))["spec"]["conversion"]["webhook"]["clientConfig"]
    assert found == {"url": "https://127.0.0.1:1/convert"}


async def test_uninstalling_leaves_what_people_made(client: ApiClient) -> None:
    objects = applicable(InstallPlan())
    await apply.install(client, objects, lambda line: None)
    flavor = registry.KUEUE.named("ResourceFlavor")
    assert flavor is not None
    metadata = {"name": "plain", "finalizers": ["kueue.x-k8s.io/resource-in-use", "example.com/mine"]}
    await client.create(flavor, {"apiVersion": flavor.api_version, "kind": flavor.kind, "metadata": metadata})
    messages: list[str] = []
    await apply.uninstall(client, objects, messages.append, kinds_too=False)
    assert "configmap/kueue-manager-config deleted" in messages
    assert await client.find(flavor, "plain") is not None
    again: list[str] = []
    await apply.uninstall(client, objects, again.append, kinds_too=False)
    assert "configmap/kueue-manager-config not found" in again


async def test_uninstalling_the_kinds_takes_our_finalizers_off_and_no_others(client: ApiClient) -> None:
    """Without the manager no controller would, and the objects could never be deleted."""
    objects = applicable(InstallPlan())
    await apply.install(client, objects, lambda line: None)
    flavor = registry.KUEUE.named("ResourceFlavor")
    assert flavor is not None
    metadata = {"name": "plain", "finalizers": ["kueue.x-k8s.io/resource-in-use", "example.com/mine"]}
    await client.create(flavor, {"apiVersion": flavor.api_version, "kind": flavor.kind, "metadata": metadata})
    await apply.uninstall(client, objects, lambda line: None, kinds_too=True)
    left = await client.find(flavor, "plain")
    assert left is None or left["metadata"]["finalizers"] == ["example.com/mine"]


async def test_a_kind_that_is_still_being_deleted_is_awaited(client: ApiClient) -> None:
    """What is applied to it would go with it."""
    objects = applicable(InstallPlan())
    await apply.install(client, objects, lambda line: None)
    flavor = registry.KUEUE.named("ResourceFlavor")
    assert flavor is not None
    metadata = {"name": "plain", "finalizers": ["example.com/mine"]}
    await client.create(flavor, {"apiVersion": flavor.api_version, "kind": flavor.kind, "metadata": metadata})
    await apply.uninstall(client, objects, lambda line: None, kinds_too=True)
    messages: list[str] = []
    installing = asyncio.create_task(apply.install(client, objects, messages.append))
    await asyncio.wait({installing}, timeout=0.5)
    assert messages == []
    await client.patch(flavor, "plain", {"metadata": {"finalizers": None}})
    await installing
    assert await client.find(flavor, "plain") is None
    definition = next(one for one in objects if one["metadata"]["name"] == flavor.name)
    found = await client.get(apply.kind_of(definition), flavor.name)
    assert "deletionTimestamp" not in found["metadata"]


def test_the_folder_deploy_holds_what_is_installed() -> None:
    root = Path(__file__).resolve().parents[2] / "deploy"
    for name, text in kustomize.files(InstallPlan(kinds=KINDS)):
        assert (root / name).read_text() == text, f"deploy/{name} is stale; run make docs"


async def test_a_namespace_that_was_there_before_is_neither_taken_nor_taken_away(client: ApiClient) -> None:
    objects = applicable(InstallPlan(namespace="default"))
    messages: list[str] = []
    await apply.install(client, objects, messages.append)
    assert messages[0] == "namespace/default unchanged (existed before)"
    gone: list[str] = []
    await apply.uninstall(client, objects, gone.append, kinds_too=False)
    assert "namespace/default kept (existed before)" in gone
    assert await client.find(apply.kind_of(objects[0]), "default") is not None
