"""The table of webhooks against the public one: names, paths, operations."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from pykueue.api import extensions
from pykueue.jobs.kinds import BUILT_IN
from pykueue.webhooks.table import WebhookEndpoint, endpoints
from webhooks.conftest import choices

PUBLIC = Path(__file__).resolve().parents[3] / "shared" / "reference" / "webhooks.tsv"


def line(endpoint: WebhookEndpoint) -> str:
    group_version = f"{endpoint.kind.group}/{endpoint.kind.storage.name}"
    return f"{endpoint.name} {endpoint.path} {','.join(endpoint.operations)} {group_version}/{','.join(endpoint.resources)}"


def test_reviewed_kinds_and_operations() -> None:
    assert sorted(map(line, endpoints(choices()))) == [
        "mclusterqueue.kb.io /mutate-kueue-x-k8s-io-v1beta2-clusterqueue CREATE kueue.x-k8s.io/v1beta2/clusterqueues",
        "mjob.kb.io /mutate-batch-v1-job CREATE batch/v1/jobs",
        "mpod.kb.io /mutate--v1-pod CREATE /v1/pods",
        "mresourceflavor.kb.io /mutate-kueue-x-k8s-io-v1beta2-resourceflavor CREATE kueue.x-k8s.io/v1beta2/resourceflavors",
        "mworkload.kb.io /mutate-kueue-x-k8s-io-v1beta2-workload CREATE kueue.x-k8s.io/v1beta2/workloads",
        "vadmissioncheck.kb.io /validate-kueue-x-k8s-io-v1beta2-admissioncheck CREATE,UPDATE kueue.x-k8s.io/v1beta2/admissionchecks",
        "vbudget.kb.io /validate-pykueue-io-v1alpha1-budget CREATE,UPDATE pykueue.io/v1alpha1/budgets",
        "vclusterqueue.kb.io /validate-kueue-x-k8s-io-v1beta2-clusterqueue CREATE,UPDATE kueue.x-k8s.io/v1beta2/clusterqueues",
        "vcohort.kb.io /validate-kueue-x-k8s-io-v1beta2-cohort CREATE,UPDATE kueue.x-k8s.io/v1beta2/cohorts",
        "vjob.kb.io /validate-batch-v1-job CREATE,UPDATE batch/v1/jobs",
        "vmultikueuecluster.kb.io /validate-kueue-x-k8s-io-v1beta2-multikueuecluster CREATE,UPDATE kueue.x-k8s.io/v1beta2/multikueueclusters",
        "vmultikueueconfig.kb.io /validate-kueue-x-k8s-io-v1beta2-multikueueconfig CREATE,UPDATE kueue.x-k8s.io/v1beta2/multikueueconfigs",
        "vpod.kb.io /validate--v1-pod CREATE,UPDATE /v1/pods",
        "vquotaschedule.kb.io /validate-pykueue-io-v1alpha1-quotaschedule CREATE,UPDATE pykueue.io/v1alpha1/quotaschedules",
        "vresourceflavor.kb.io /validate-kueue-x-k8s-io-v1beta2-resourceflavor CREATE,UPDATE kueue.x-k8s.io/v1beta2/resourceflavors",
        "vworkload.kb.io /validate-kueue-x-k8s-io-v1beta2-workload CREATE,UPDATE kueue.x-k8s.io/v1beta2/workloads,workloads/status",
    ]


@pytest.mark.skipif(not PUBLIC.is_file(), reason="the public table is not here")
def test_every_row_that_can_refuse_is_the_public_one() -> None:
    with PUBLIC.open() as file:
        public = {
            f"{row['name']} {row['path']} {row['operations']} {row['resources']}"
            for row in csv.DictReader(file, delimiter="\t")
        }
    every_kind = choices(
        integrations={"frameworks": [row.framework for row in BUILT_IN if row.implementation is not None]},
        featureGates={row.required_gate: True for row in BUILT_IN if row.required_gate},
    )
    of_kueue = [row for row in endpoints(every_kind) if row.kind.group != extensions.GROUP]
    assert {line(endpoint) for endpoint in of_kueue if not endpoint.only_warns} <= public


def test_kinds_of_jobs_that_are_switched_off_have_no_row() -> None:
    rows = endpoints(choices(integrations={"frameworks": ["batch/job"]}))
    assert not [row for row in rows if row.kind.kind == "Pod"]
