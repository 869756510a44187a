"""Labels and annotations of objects as labels of metrics (`metrics.customLabels`, gate CustomMetricLabels)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from kubemachinery import meta
from pykueue.api.config import CustomMetricLabel, MetricLabelSource

UNTRACKED: Final = "kueue.x-k8s.io/_UNTRACKED_VALUE_"
_PREFIX: Final = "custom_"
_NOTHING: Final = meta.ObjectMeta()


class CustomLabels(msgspec.Struct, frozen=True):
    """The labels that the Configuration adds, with the kind of object that each value is read from."""

    rows: tuple[CustomMetricLabel, ...] = ()

    def has(self, source: MetricLabelSource) -> bool:
        return bool(self._of(source))

    def names(self, sources: Iterable[MetricLabelSource]) -> tuple[str, ...]:
        """Return the labels of a metric with these sources: by kind in alphabetical order, then in configured order."""
        return tuple(f"{_PREFIX}{row.name}" for source in sorted(sources) for row in self._of(source))

    def values(self, source: MetricLabelSource, metadata: meta.ObjectMeta | None) -> tuple[str, ...]:
        """Return the values for one object; empty strings for an object that does not exist."""
        return tuple(_value(row, metadata or _NOTHING) for row in self._of(source))

    def _of(self, source: MetricLabelSource) -> list[CustomMetricLabel]:
        return [row for row in self.rows if (row.source_kind or MetricLabelSource.CLUSTER_QUEUE) == source]


def _value(row: CustomMetricLabel, metadata: meta.ObjectMeta) -> str:
    """Return the value of the configured annotation or label, else of the label with the same name. All untracked
    values
    share one value."""
    if row.source_annotation_key:
        value = metadata.annotations.get(row.source_annotation_key, "")
    else:
        value = metadata.labels.get(row.source_label_key or row.name, "")
    return value if not row.tracked_values or value in row.tracked_values else UNTRACKED
