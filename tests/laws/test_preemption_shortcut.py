"""A preemptor that cannot end within its quota is not offered the candidates that it could take only then. Decisions are
the same as with all of them."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

from hypothesis import event, given

from laws.random_clusters import NOW, ClusterCase, clusters
from pykueue.core.decision import Preempt
from pykueue.core.preemption import classical


@given(clusters())
def test_candidates_that_are_left_out_change_no_decision(cluster: ClusterCase) -> None:
    cluster = replace(cluster, fair=False)
    found = list(cluster.world().decide(NOW))
    with mock.patch.object(classical, "_can_end_within_quota", return_value=True):
        assert list(cluster.world().decide(NOW)) == found
    event(f"preempts: {any(isinstance(each, Preempt) for each in found)}")
