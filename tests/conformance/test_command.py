"""`pykueue plan` as a command: files, folders, standard input, batches, and its errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from kubemachinery.errors import UsageError
from kubemachinery.yaml_documents import Document
from pykueue import cli
from pykueue.analysis import planner
from pykueue.cli.plan import command

NOW = "2026-01-01T00:00:00Z"
OBJECTS = """
apiVersion: v1
kind: Namespace
metadata: {name: x}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: f}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: a}
spec:
  namespaceSelector: {}
  resourceGroups: [{coveredResources: [cpu], flavors: [{name: f, resources: [{name: cpu, nominalQuota: 4}]}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: lq, namespace: x}
spec: {clusterQueue: a}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Workload
metadata: {name: w1, namespace: x, uid: u1}
spec: {queueName: lq, podSets: [{name: main, count: 3, template: {spec: {containers: [{name: c, resources: {requests: {cpu: 1}}}]}}}]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Workload
metadata: {name: w2, namespace: x, uid: u2}
spec: {queueName: lq, podSets: [{name: main, count: 3, template: {spec: {containers: [{name: c, resources: {requests: {cpu: 1}}}]}}}]}
"""


def run(*arguments: str, stdin: str = "") -> Result:
    return CliRunner().invoke(command, ["--now", NOW, *arguments], input=stdin)


def test_folder_is_read_whole_with_kinds_in_any_order(tmp_path: Path) -> None:
    for number, document in enumerate(reversed(OBJECTS.split("---"))):
        (tmp_path / f"{number}.yaml").write_text(document)
    answer = json.loads(run("-f", str(tmp_path), "-o", "json").output)
    assert answer["admitted"] == ["x/w1"]
    assert answer["active"] == {"a": ["x/w2"]}


def test_json_and_yaml_are_equal_as_input_and_output(tmp_path: Path) -> None:
    as_json = json.loads(run("-f", "-", "-o", "json", stdin=OBJECTS).output)
    assert yaml.safe_load(run("-f", "-", "-o", "yaml", stdin=OBJECTS).output) == as_json
    listed = {"apiVersion": "v1", "kind": "List", "items": list(yaml.safe_load_all(OBJECTS))}
    file = tmp_path / "case.json"
    file.write_text(json.dumps(listed))
    assert json.loads(run("-f", str(file), "-o", "json").output) == as_json


def test_a_placement_that_is_delayed_is_printed_as_yaml() -> None:
    check = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "AdmissionCheck",
        "metadata": {"name": "nodes"},
        "spec": {"controllerName": "kueue.x-k8s.io/provisioning-request"},
        "status": {
            "conditions": [
                {"type": "Active", "status": "True", "reason": "Active", "message": "", "lastTransitionTime": NOW}
            ]
        },
    }
    topology = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Topology",
        "metadata": {"name": "t"},
        "spec": {"levels": [{"nodeLabel": "kubernetes.io/hostname"}]},
    }
    case = list(yaml.safe_load_all(OBJECTS))
    case[1]["spec"] = {"topologyName": "t", "nodeLabels": {"pool": "x"}}
    case[2]["spec"]["admissionChecksStrategy"] = {"admissionChecks": [{"name": "nodes"}]}
    result = run("-f", "-", "-o", "yaml", stdin=yaml.safe_dump_all([*case, check, topology]))
    assert not result.exit_code, result.output
    shown = yaml.safe_load(result.output)
    (assigned,) = shown["assignments"]["x/w1"]["podSetAssignments"]
    assert assigned["delayedTopologyRequest"] == "Pending"


def test_table_shows_why_a_workload_waits() -> None:
    output = run("-f", "-", "--until-stable", stdin=OBJECTS).output
    assert "x/w1      a             admitted" in output
    assert "cpu in flavor f: requested 3, unused 1" in output


def test_explain_lists_quota_holders_and_what_protects_them() -> None:
    output = run("-f", "-", "--until-stable", "--explain", stdin=OBJECTS).output
    assert "x/w1 holds 3 cpu of f, protected: withinClusterQueue is Never" in output
    answer = json.loads(run("-f", "-", "--until-stable", "--explain", "-o", "json", stdin=OBJECTS).output)
    explained = answer["explanations"]["x/w2"]
    assert explained["tried"] == [
        {"podSet": "main", "flavor": "f", "outcome": "NO_CANDIDATES", "borrowingLevel": 0, "short": {"cpu": "2"}}
    ]
    assert [held["workload"] for held in explained["holders"]] == ["x/w1"]


def test_the_same_input_gives_the_same_bytes() -> None:
    assert run("-f", "-", "-o", "json", stdin=OBJECTS).output == run("-f", "-", "-o", "json", stdin=OBJECTS).output


def test_batch_continues_after_a_bad_case_and_keeps_the_order() -> None:
    good = {"id": "one", "now": NOW, "case": {"kind": "List", "items": list(yaml.safe_load_all(OBJECTS))}}
    bad = {"id": "two", "now": NOW, "case": {"kind": "List", "items": [{"kind": 3}]}}
    lines = [json.dumps(good), "not json", json.dumps(bad), json.dumps({"case": 7}), json.dumps(good)]
    answers = [json.loads(line) for line in run("--batch", stdin="\n".join(lines)).output.splitlines()]
    assert [sorted(answer)[:1] == ["error"] for answer in answers] == [False, True, True, True, False]
    assert answers[2]["error"] == "two item 1: has no apiVersion"


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        (
            "nominalQuota: 4, borrowingLimit: x",
            "ClusterQueue a: spec.resourceGroups[0].flavors[0].resources[0].borrowingLimit",
        ),
        ("nominalQuota: [4]", "ClusterQueue a: spec.resourceGroups[0].flavors[0].resources[0].nominalQuota"),
    ],
)
def test_a_bad_object_is_refused_with_document_field_and_reason(wrong: str, expected: str) -> None:
    error = run("-f", "-", stdin=OBJECTS.replace("nominalQuota: 4", wrong)).exception
    assert isinstance(error, UsageError)
    assert str(error).startswith(f"standard input document 3: {expected}")
    assert "\n" not in str(error)


def test_bad_job_is_refused_with_its_name() -> None:
    error = run("-f", "-", stdin=f"{QUEUES}---{JOB.replace('containers', 'container')}").exception
    assert isinstance(error, UsageError)
    assert str(error).startswith("standard input document 5: Job x/train-5: Workload job-train-5-")
    assert "spec.podSets[0].template.spec.containers: Required value" in str(error)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["-f", "no/such/file"], "no/such/file: No such file or directory"),
        (["-f", "/dev/null"], "/dev/null: contains no object"),
        (["-f", ""], "-f '': names no file"),
        ([], "nothing to plan: give files with -f, or - for standard input"),
        (["--batch", "-f", "x"], "--batch reads its cases from standard input; leave out -f"),
    ],
)
def test_wrong_call_prints_one_sentence_and_exits_with_two(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["plan", *arguments])
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"pykueue: {expected}\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"kind": "A", "kind": "B"}', r"line 1, column 15: the key 'kind' is written twice"),
        ('{"a": ' * 100_000 + "1" + "}" * 100_000, "nested deeper than 200 levels"),
        ('{"a": 1', "did not find expected"),
    ],
    ids=["twice", "deep", "cut off"],
)
def test_json_file_is_read_as_strictly_as_yaml(text: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "case.json").write_text(text)
    error = run("-f", str(tmp_path / "case.json")).exception
    assert isinstance(error, UsageError)
    assert expected in str(error)


QUEUES = OBJECTS.partition("---\napiVersion: kueue.x-k8s.io/v1beta2\nkind: Workload")[0]
JOB = """
apiVersion: batch/v1
kind: Job
metadata: {generateName: train-, namespace: x, labels: {kueue.x-k8s.io/queue-name: lq}}
spec: {parallelism: 2, template: {spec: {containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]}}}
"""


def test_jobs_in_files_are_planned_as_the_workloads_they_would_get() -> None:
    """Two of them with one cpu for each of two pods fill a queue of four; names that are left to a server are made up."""
    answer = json.loads(run("-f", "-", "--cycles", "3", "-o", "json", stdin=f"{QUEUES}---{JOB}---{JOB}---{JOB}").stdout)
    first, second = answer["admitted"]
    assert first.startswith("x/job-train-5-")
    assert second.startswith("x/job-train-6-")
    assert [name.rpartition("-")[0] for name in answer["inadmissible"]["a"]] == ["x/job-train-7"]


POD = """
apiVersion: v1
kind: Pod
metadata: {name: POD, namespace: x, labels: {kueue.x-k8s.io/queue-name: lq}}
spec: {containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]}
"""


def member(name: str) -> str:
    group = "kueue.x-k8s.io/pod-group-name: g}, annotations: {kueue.x-k8s.io/pod-group-total-count: '2'}}"
    return POD.replace("POD", name).replace("queue-name: lq}}", f"queue-name: lq, {group}")


def test_pods_that_name_a_queue_are_planned_as_jobs_and_groups_of_them_as_one() -> None:
    text = "---".join((QUEUES, POD.replace("POD", "alone"), member("a"), member("b")))
    group, alone = json.loads(run("-f", "-", "--cycles", "3", "-o", "json", stdin=text).stdout)["admitted"]
    assert group == "x/g"
    assert alone.startswith("x/pod-alone-")


BATCH_ONLY = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (member("a"), "Pod x/a is in a group that waits: 'g' group has fewer runnable pods than expected: ignored\n"),
        (f"{POD}---\n{BATCH_ONLY}", "integrations.frameworks of the Configuration does not name pod: ignored\n"),
        (POD.replace("queue-name: lq", "team: x"), ""),
        (POD.replace("spec: {", "spec: {nodeName: n1, "), ""),
        (POD.replace("{name: POD", "{name: POD, ownerReferences: [{apiVersion: v1, kind: X, name: x, uid: u, controller: true}]"), ""),
    ],
    ids=["part of a group", "not configured", "no queue", "on a node", "of another controller"],
)  # fmt: skip
def test_other_pods_are_not_queued(text: str, expected: str) -> None:
    result = run("-f", "-", "-o", "json", stdin=f"{OBJECTS}---{text}")
    assert json.loads(result.stdout)["admitted"] == ["x/w1"]
    assert result.stderr.endswith(expected) if expected else not result.stderr


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("queue-name: lq", "team: x", "Job x/train-7 names no queue: ignored"),
        (
            "queue-name: lq",
            "queue-name: lq, kueue.x-k8s.io/priority-class: p",
            "WorkloadPriorityClass p, which does not exist",
        ),
        ("Job", "CronJob", "CronJob x/train-7 has no part in scheduling: ignored"),
        (
            "batch/v1\nkind: Job",
            "jobset.x-k8s.io/v1alpha2\nkind: JobSet",
            "JobSet x/train-7 gets no Workload: it has no pod templates: ignored",
        ),
        (
            "batch/v1\nkind: Job",
            "kubeflow.org/v1\nkind: PyTorchJob",
            "PyTorchJob x/train-7 gets no Workload: it has no pod templates: ignored",
        ),
    ],
)
def test_objects_without_effect_on_the_plan_are_reported(before: str, after: str, expected: str) -> None:
    result = run("-f", "-", stdin=f"{OBJECTS}---{JOB.replace(before, after, 1)}")
    assert expected in result.stderr
    assert "x/w1" in result.stdout


def test_objects_without_namespace_are_in_default() -> None:
    text = (
        OBJECTS.partition("---")[2]
        .replace(", namespace: x", "")
        .replace("namespaceSelector: {}", "namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: default}}")
    )
    assert json.loads(run("-f", "-", "-o", "json", stdin=text).stdout)["admitted"] == ["default/w1"]


@pytest.mark.parametrize(
    ("version", "kind", "expected"),
    [
        ("v1beta2", "ClusterQueu", "kueue.x-k8s.io/v1beta2 has no kind ClusterQueu; did you mean ClusterQueue?"),
        ("v1", "Cohort", "has no kind Cohort; kueue.x-k8s.io/v1beta1 and kueue.x-k8s.io/v1beta2 have"),
    ],
)
def test_unknown_kueue_kind_is_refused(version: str, kind: str, expected: str) -> None:
    error = run(
        "-f", "-", stdin=f"apiVersion: kueue.x-k8s.io/{version}\nkind: {kind}\nmetadata: {{name: x}}\n"
    ).exception
    assert isinstance(error, UsageError)
    assert expected in str(error)


@pytest.mark.parametrize(
    ("head", "place"),
    [("apiVersion: v1\nkind: Namespace", "Namespace x"), ("apiVersion: batch/v1\nkind: Job", "Job default/x")],
)
def test_the_same_object_twice_is_refused(head: str, place: str) -> None:
    with pytest.raises(UsageError, match=f"document 2: {place} is already in s document 1"):
        planner.read(planning_documents(f"{head}\nmetadata: {{name: x}}\n---\n" * 2))


def planning_documents(text: str) -> list[Document]:
    from kubemachinery import yaml_documents

    return list(yaml_documents.parse(text, "s"))


def test_each_cycle_continues_from_the_last_one() -> None:
    """In the second cycle the target of the first one has ended, and its preemptor is admitted."""
    objects = OBJECTS.replace(
        "namespaceSelector: {}", "namespaceSelector: {}\n  preemption: {withinClusterQueue: LowerPriority}"
    )
    objects = objects.replace("spec: {queueName: lq, podSets", "spec: {priority: 5, queueName: lq, podSets", 1)
    holder = yaml.safe_load(OBJECTS.split("---")[5])
    holder["status"] = {
        "admission": {
            "clusterQueue": "a",
            "podSetAssignments": [{"name": "main", "count": 3, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": 3}}],
        },
        "conditions": [
            {
                "type": "QuotaReserved",
                "status": "True",
                "reason": "QuotaReserved",
                "message": "-",
                "lastTransitionTime": NOW,
            }
        ],
    }
    text = "---\n".join([*objects.split("---")[:5], "\n" + yaml.safe_dump(holder)])
    answer = json.loads(run("-f", "-", "--cycles", "2", "-o", "json", stdin=text).output)
    assert answer["preempted"] == {"x/w2": {"by": "x/w1", "reason": "InClusterQueue"}}
    assert answer["admitted"] == ["x/w1"]
    assert list(answer["assignments"]) == ["x/w1"]


def test_only_declared_ignores_undeclared_resources() -> None:
    """KEP-7513, the proposal's own spelling."""
    configuration = (
        "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
        "featureGates: {QuotaCheck: GATE}\nresources: {quotaCheck: OnlyDeclared}\n---\n"
    )
    objects = OBJECTS.replace("requests: {cpu: 1}", "requests: {cpu: 1, example.com/gpu: 1}")
    for gate, admitted in (("true", ["x/w1"]), ("false", [])):
        text = configuration.replace("GATE", gate) + objects
        assert json.loads(run("-f", "-", "-o", "json", stdin=text).output)["admitted"] == admitted
