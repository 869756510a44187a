"""Enabled frameworks whose kind the API server does not serve yet (JF11).

A framework waits while its own kind, or a second kind that its jobs need, is not served. The manager runs without it:
informers ask for the kind again, at once when the webhook of the kind is called, and list it once its CRD is installed.
Which frameworks wait is logged, emitted as an Event on the CRD, and exported as a metric.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from kubemachinery.client.event_recorder import NORMAL, WARNING, EventRecorder, EventReference, PendingEvent
from kubemachinery.client.informer import Informer
from kubemachinery.kinds import Kind
from kubemachinery.unstructured import Tree
from pykueue.jobs.kinds import JobIntegration, JobKinds

log = logging.getLogger(__name__)

_CRD: Final = ("apiextensions.k8s.io/v1", "CustomResourceDefinition")
NOT_SERVED: Final = "JobKindNotServed"
SERVED: Final = "JobKindServed"


class WaitingFrameworks:
    """Which frameworks wait for which kinds."""

    def __init__(
        self,
        kinds: JobKinds,
        rows: Sequence[JobIntegration],
        informers: Mapping[str, Informer[Tree]],
        recorder: EventRecorder,
    ) -> None:
        self._kinds = kinds
        self._recorder = recorder
        self._absent: dict[str, set[str]] = {row.framework: set() for row in rows}
        self._rows: dict[str, list[JobIntegration]] = {}
        for row in rows:
            for kind in (row.kind, *row.second_kinds):
                self._rows.setdefault(kind.name, []).append(row)
        self._informers = informers
        for name in self._rows:
            informers[name].add_served_handler(partial(self._served, informers[name].kind))
        kinds.found_handlers.append(self._found)

    def counts(self) -> Mapping[str, int]:
        """For each enabled framework, how many of the kinds that it needs are not served."""
        return {framework: len(absent) for framework, absent in self._absent.items()}

    def _found(self, framework: str) -> None:
        """Ask at once for the kinds that a framework waits for: one of its objects exists."""
        for name in self._absent.get(framework, ()):
            self._informers[name].ask_again()

    def _served(self, kind: Kind, served: bool) -> None:
        for row in self._rows[kind.name]:
            absent = self._absent[row.framework]
            (absent.discard if served else absent.add)(kind.name)
            if kind.name == row.kind.name:
                (self._kinds.not_served.discard if served else self._kinds.not_served.add)(row.framework)
            if served:
                message = f"The API server serves {kind.kind} of {kind.api_version} now: the framework {row.framework}"
                message += " is reconciled" if not absent else f" still waits for {', '.join(sorted(absent))}"
            else:
                message = (
                    f"The framework {row.framework} waits: the API server does not serve {kind.kind} of"
                    f" {kind.api_version}. Other frameworks are reconciled meanwhile"
                )
            log.info("%s", message)
            self._emit(kind, row, message, served=served)

    def _emit(self, kind: Kind, row: JobIntegration, message: str, *, served: bool) -> None:
        type_, reason = (NORMAL, SERVED) if served else (WARNING, NOT_SERVED)
        regarding = EventReference(*_CRD, kind.name, "", "", "")
        self._recorder.emit(PendingEvent(regarding, type_, reason, message, row.controller, reason))
