"""The parts of the contract that only some kinds use, on a small kind: related objects, templates that are not written
yet, containers that only count, annotations that are kept, rules that apply only sometimes."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from jobs.batch_kind import A_PLAN, PLAN, ROW, batch
from jobs.job_harness import KINDS, NOW, OPTIONS, JobHarness, flavor
from kubemachinery import patches, unstructured
from kubemachinery.client.errors import ApiError, NoSuchKind
from kubemachinery.kinds import Kind
from kubemachinery.object_view import ObjectView
from kubemachinery.unstructured import Tree, get
from pykueue import settings
from pykueue.api import labels
from pykueue.install import rbac
from pykueue.jobs import admission, kinds, offline, podsets, related, selection, triggers
from pykueue.jobs.admission import JobAdmissionFacts
from pykueue.jobs.executor import JobKey
from pykueue.jobs.facts import Ancestry
from pykueue.jobs.integration import JobIntegration
from pykueue.jobs.interface import GenericJob, PodSetTemplate
from pykueue.jobs.offline import OfflineContext
from pykueue.lifecycle import states
from pykueue.webhooks import facts
from pykueue.webhooks.review import CREATE, UPDATE, AdmissionRequest, Phase, WebhookOptions, review
from pykueue.webhooks.table import endpoints

TABLE = kinds.JobKinds((*KINDS, ROW))
CHOSEN = replace(OPTIONS, frameworks=(*OPTIONS.frameworks, ROW.framework))


def harness(tree: Tree, *plans: Tree) -> JobHarness:
    return JobHarness(tree, row=ROW, options=CHOSEN, related_objects=plans)


def job(tree: Tree, *plans: Tree, row: JobIntegration = ROW) -> GenericJob:
    return row.job(tree, related.among(row, tree, OfflineContext(related=plans).find))


# --- Related objects (G1) ---------------------------------------------------------------------------------------------


def test_pod_sets_are_built_from_a_related_object() -> None:
    assert harness(batch(plan="three"), A_PLAN).settle().workload.spec.pod_sets[0].count == 3


def test_job_with_another_tree_keeps_its_related_objects() -> None:
    assert job(batch(plan="three"), A_PLAN).with_tree(batch(plan="three", x=1)).pod_sets(CHOSEN)[0]["count"] == 3


def test_job_without_a_required_object_gets_no_workload_and_is_retried() -> None:
    found = harness(batch(plan="three")).settle()
    assert found.workloads == {}
    assert found.events == ["Warning ErrWorkloadCompose"]
    assert found.retries == ["Batch b refers to Plan three, which does not exist"]


def test_running_job_that_lost_its_required_object_goes_on_and_can_be_evicted() -> None:
    found = harness(batch(plan="three"), A_PLAN).settle().admit().settle()
    found.around = OfflineContext()
    found.settle()
    assert get(found.job, "spec", "suspend") is False
    assert found.retries == []
    found.evict().settle()
    assert get(found.job, "spec", "suspend") is True
    assert not states.is_reserved(found.workload)


def test_admitted_job_that_lost_its_required_object_is_not_started() -> None:
    found = harness(batch(plan="three"), A_PLAN).settle().admit()
    found.around = OfflineContext()
    found.settle()
    assert get(found.job, "spec", "suspend") is True
    assert found.retries == ["Batch b refers to Plan three, which does not exist"]


async def test_related_object_of_a_kind_that_is_not_served_does_not_exist() -> None:
    async def find(kind: Kind, name: str, namespace: str) -> Tree | None:
        raise NoSuchKind(404, "NotFound", "no such kind")

    assert dict(await related.read(ROW, batch(plan="three"), find)) == {}


async def test_related_object_that_cannot_be_read_is_an_error() -> None:
    async def find(kind: Kind, name: str, namespace: str) -> Tree | None:
        raise ApiError(403, "Forbidden", "no right")

    with pytest.raises(ApiError):
        await related.read(ROW, batch(plan="three"), find)


def test_plan_without_a_server_finds_related_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offline, "_known", lambda: TABLE)
    found = offline.workloads_of(ROW, [batch(plan="three")], OfflineContext(related=(A_PLAN,)), CHOSEN, NOW)
    assert isinstance(found, tuple)
    assert found[0]["spec"]["podSets"][0]["count"] == 3
    assert offline.second_kind(A_PLAN) == PLAN
    missing = offline.workloads_of(ROW, [batch(plan="three")], OfflineContext(), CHOSEN, NOW)
    assert missing == "gets no Workload: Batch b refers to Plan three, which does not exist"


# --- Templates (G13, G14, G15) ----------------------------------------------------------------------------------------


def test_template_that_is_not_written_is_read_and_written_at_the_start() -> None:
    found = harness(batch())
    found.facts = replace(found.facts, flavors={"default": flavor(nodeLabels={"pool": "blue"})})
    found.settle()
    assert [each.name for each in found.workload.spec.pod_sets] == ["main", "submitter"]
    assert "submitter" not in found.job["spec"]
    found.admit().settle()
    assert get(found.job, "spec", "submitter", "spec", "nodeSelector") == {"pool": "blue"}
    found.evict().settle()
    assert "nodeSelector" not in found.job["spec"]["submitter"]["spec"]


def test_template_that_was_never_written_is_not_restored_either() -> None:
    tree = batch()
    infos = [podsets.PodSetInfo("main", 1), podsets.PodSetInfo("submitter", 1)]
    assert "submitter" not in job(tree).restored(infos)["spec"]


def test_counted_container_needs_quota_and_is_never_written_into_the_job() -> None:
    found = harness(batch()).settle()
    assert [each.name for each in found.workload.spec.pod_sets[0].template.spec.containers] == ["c", "sidecar"]
    writes = found.admit().settle().writes
    assert found.settle().writes == writes  # the Workload still matches
    assert "sidecar" not in str(found.job)


def test_path_of_a_template_in_messages() -> None:
    first, second = job(batch()).templates()
    assert (first.place, second.place) == ("spec.pods[main]", "spec.submitter")
    assert PodSetTemplate("a", ("spec", "jobs", 2, "template"), 1).place == "spec.jobs[2].template"
    both = {labels.PODSET_REQUIRED_TOPOLOGY: "a", labels.PODSET_PREFERRED_TOPOLOGY: "a"}
    tree = patches.merge(batch(), {"spec": {"template": {"metadata": {"annotations": both}}}})
    assert [each.path for each in job(tree).validate_create(CHOSEN)] == ["spec.pods[main].metadata.annotations"]


# --- Annotations that are kept (G8) -----------------------------------------------------------------------------------


def test_kept_annotation_is_written_before_workloads_are_looked_at() -> None:
    found = harness(batch()).status(generation=4)
    (write,) = found.decide()
    assert get(write.after, "metadata", "annotations") == {"example.com/seen": "4"}  # type: ignore[union-attr]
    writes = found.settle().writes
    assert found.status(generation=5).settle().writes == writes + 1
    assert found.settle().writes == writes + 1


# --- Validation (G11, G13) --------------------------------------------------------------------------------------------


def errors(tree: Tree, old: Tree | None = None, row: JobIntegration = ROW) -> list[str]:
    known = JobAdmissionFacts()
    if old is None:
        result = admission.validate_create(row, tree, known, TABLE, CHOSEN)
    else:
        result = admission.validate_update(row, tree, old, known, TABLE, CHOSEN)
    return [error.path for error in result.errors]


def test_job_that_is_not_validated_has_no_errors() -> None:
    wrong = batch(wrong=True)
    free = unstructured.put(wrong, ("metadata", "labels"), {})
    assert errors(wrong) == ["spec.wrong", "spec.alpha"]
    assert errors(free) == []
    assert errors(free, old=free) == []
    assert "spec.wrong" in errors(free, old=wrong)


def test_shared_rules_may_be_left_out() -> None:
    tree = unstructured.put(batch(), ("metadata", "labels", labels.QUEUE_NAME), "No Name")
    assert errors(tree) == [f"metadata.labels[{labels.QUEUE_NAME}]"]
    assert errors(patches.merge(tree, {"spec": {"free": True}})) == []


def test_errors_may_be_ordered_by_path() -> None:
    assert errors(batch(wrong=True), row=replace(ROW, sorts_errors=True)) == ["spec.alpha", "spec.wrong"]


# --- The webhook (G1, G3) ---------------------------------------------------------------------------------------------


class Store:
    """Objects by kind and name."""

    def __init__(self, *trees: Tree) -> None:
        self.trees = {(tree["kind"], tree["metadata"]["name"]): tree for tree in trees}

    async def find(self, kind: Kind, name: str, namespace: str) -> Tree | None:
        return self.trees.get((kind.kind, name))

    owner = find

    async def objects(self, kind: Kind) -> list[Tree]:
        return []

    def is_former_leader(self, manager: str) -> bool:
        return False


async def decide(phase: Phase, tree: Tree, *stored: Tree, old: Tree | None = None) -> tuple[Tree | None, str]:
    choices = WebhookOptions(TABLE, CHOSEN)
    request = AdmissionRequest(
        phase=phase, operation=CREATE if old is None else UPDATE, object=tree, old=old, namespace="main", name="b"
    )
    answer = review(request, await facts.gather(request, Store(*stored), choices), choices)
    return answer.object, "" if answer.refusal is None else answer.refusal.message


async def test_webhook_reads_related_objects_and_refuses_a_job_without_a_required_one() -> None:
    assert await decide(Phase.VALIDATE, batch(plan="three"), A_PLAN) == (None, "")
    _, refusal = await decide(Phase.VALIDATE, batch(plan="three"))
    assert refusal == "Batch b refers to Plan three, which does not exist"
    # A wrong field comes first.
    _, refusal = await decide(Phase.VALIDATE, batch(plan="three", wrong=True))
    assert "spec.wrong" in refusal


async def test_row_may_ask_for_mutation_on_update() -> None:
    changed, _ = await decide(Phase.MUTATE, batch(), old=batch())
    assert get(changed, "metadata", "annotations") == {"example.com/before": "b"}
    operations = {
        endpoint.job.framework: endpoint.operations
        for endpoint in endpoints(WebhookOptions(TABLE, CHOSEN))
        if endpoint.job is not None and endpoint.phase is Phase.MUTATE
    }
    assert operations == {"batch/job": (CREATE,), "pod": (CREATE,), ROW.framework: (CREATE, UPDATE)}


def test_job_of_another_kind_is_not_changed_on_update() -> None:
    quiet = replace(ROW, defaults_on_update=False)
    tree = batch(suspend=False)
    assert admission.default(quiet, tree, JobAdmissionFacts(), TABLE, CHOSEN, old=batch()) is tree


# --- Triggers and rights (G7, G18) ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("owner", "key"),
    [
        (None, None),
        ({"apiVersion": "example.com/v9", "kind": "Batch", "name": "b", "controller": True}, "b"),
        ({"apiVersion": "example.com/v1", "kind": "Batch", "name": "b"}, None),
        ({"apiVersion": "other.com/v1", "kind": "Batch", "name": "b", "controller": True}, None),
        ({"apiVersion": "example.com/v1", "kind": "Other", "name": "b", "controller": True}, None),
    ],
)
def test_object_of_a_second_kind_triggers_the_job_that_controls_it(owner: Tree | None, key: str | None) -> None:
    stage = {"metadata": {"name": "s", "namespace": "main", "ownerReferences": [owner] if owner else []}}
    assert triggers.controlled_by(ROW, stage) == (None if key is None else JobKey(ROW.framework, "main", key))


def test_rights_on_second_kinds_are_to_read() -> None:
    granted = {
        resource: set(rule["verbs"])
        for rule in rbac.manager_rules(TABLE)
        if rule["apiGroups"] == ["example.com"]
        for resource in rule["resources"]
    }
    assert granted == {
        "batchs": {"delete", "get", "list", "patch", "watch"},
        "batchs/status": {"get", "patch"},
        "batchs/finalizers": {"get", "update"},
        "plans": {"get", "list", "watch"},
        "stages": {"get", "list", "watch"},
    }


def test_rights_on_jobs_are_those_of_the_row() -> None:
    rules = rbac.manager_rules(kinds.JobKinds((replace(ROW, verbs=("get", "list", "watch")),)))
    (verbs,) = [rule["verbs"] for rule in rules if "batchs" in rule["resources"]]
    assert verbs == ["get", "list", "watch"]


# --- Frameworks (JF3, JF12) -------------------------------------------------------------------------------------------


def test_framework_that_is_not_served_is_no_managed_ancestor() -> None:
    table = kinds.JobKinds((*KINDS, ROW))
    owner = ObjectView({"apiVersion": "example.com/v1", "kind": "Batch"})
    assert selection.is_managed_kind(owner, table, CHOSEN)
    table.not_served.add(ROW.framework)
    assert not selection.is_managed_kind(owner, table, CHOSEN)
    assert selection.owner_kind(owner, table, CHOSEN) == ROW.kind  # still known: the walk goes on above it


@pytest.mark.parametrize(("version", "is_ancestor"), [("v1", True), ("v2", False)])
def test_owner_that_was_read_is_served_whatever_the_informer_knows(version: str, is_ancestor: bool) -> None:
    """In the version of the framework: an owner of another one is not reconciled, and its jobs would wait for ever."""
    table = kinds.JobKinds((*KINDS, ROW))
    table.not_served.add(ROW.framework)
    metadata = {"labels": {labels.QUEUE_NAME: "q"}}
    owner = ObjectView({"apiVersion": f"example.com/{version}", "kind": "Batch", "metadata": metadata})
    assert (selection.ancestor(Ancestry((owner,)), {}, table, CHOSEN) is owner) == is_ancestor


def test_implied_framework_is_a_managed_kind() -> None:
    table = kinds.JobKinds((*KINDS, replace(ROW, implies=("pod",))))
    only = replace(OPTIONS, frameworks=(ROW.framework,))
    pod = ObjectView({"apiVersion": "v1", "kind": "Pod"})
    assert selection.is_managed_kind(pod, table, only)
    assert not selection.is_managed_kind(pod, KINDS, replace(OPTIONS, frameworks=("batch/job",)))


def test_framework_whose_gate_is_off_keeps_the_manager_from_starting(monkeypatch: pytest.MonkeyPatch) -> None:
    table = kinds.JobKinds((*KINDS, replace(ROW, required_gate="PartialAdmission")))
    monkeypatch.setattr(kinds, "load", lambda: table)

    def start(*, gate: bool) -> tuple[str, ...]:
        chosen = {"integrations": {"frameworks": [ROW.framework]}, "featureGates": {"PartialAdmission": gate}}
        tree = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", **chosen}
        return settings.obstacles(settings.load(tree))

    assert start(gate=True) == ()
    assert start(gate=False) == (
        "integrations.frameworks[0]: example.com/batch needs the feature gate PartialAdmission, which is off",
    )
