"""Events of the controllers: the object they regard, and the name of the reporting controller."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeAlias

from kubemachinery import meta
from kubemachinery.client.event_recorder import EventRecorder, EventReference, PendingEvent
from pykueue.api import kueue
from pykueue.lifecycle.workload_changes import Change, EmitEvent, EventType

# The reporting controllers of Kueue's Events; dashboards and users filter by them.
SCHEDULER: Final = "kueue-admission"
WORKLOADS: Final = "kueue-workload-controller"
POD_TERMINATION: Final = "kueue-pod-termination-controller"
CONCURRENT_ADMISSION: Final = "concurrent-admission-controller"
PROVISIONING: Final = "kueue-provisioning-request-controller"
MULTIKUEUE: Final = "kueue-multikueue-controller"
# That of this project.
BUDGET: Final = "pykueue-budget-controller"


# Events of admissions, which the conditions of the Workload repeat.
_ROUTINE: Final = frozenset({"QuotaReserved", "Admitted"})

# Called with a Workload after changes were written, and with the changes.
Count: TypeAlias = Callable[[kueue.Workload, Sequence[Change]], None]


class _Object(Protocol):
    """Anything with a kind and metadata."""

    @property
    def api_version(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def metadata(self) -> meta.ObjectMeta: ...


def reference(thing: _Object) -> EventReference:
    metadata = thing.metadata
    return EventReference(
        thing.api_version,
        thing.kind,
        metadata.name,
        metadata.namespace,
        metadata.uid,
        metadata.resource_version,
    )


class Reporter:
    """Emits the Events of the controllers, and passes every change to `count`, for the metrics."""

    def __init__(self, recorder: EventRecorder, count: Count = lambda workload, changes: None) -> None:
        self._recorder = recorder
        self._count = count

    def changes(self, workload: kueue.Workload, changes: Sequence[Change], controller: str) -> None:
        """Count the changes that were written to a Workload, and emit their Events."""
        self._count(workload, changes)
        events = [change for change in changes if isinstance(change, EmitEvent)]
        follows_admission = any(change.reason == "Admitted" for change in events)
        for change in events:
            redundant = change.reason == "QuotaReserved" and follows_admission
            self._emit(reference(workload), change, controller, redundant=redundant)

    def event(
        self,
        thing: _Object,
        type_: EventType,
        reason: str,
        note: str,
        controller: str,
        related: _Object | None = None,
        *,
        important: bool = False,
    ) -> None:
        """Emit an Event on any object. Events with different `related` objects are never merged into one series, so
        an Event whose note matters for each of them names it; important Events with different notes are not either."""
        second = reference(related) if related is not None else None
        self._emit(reference(thing), EmitEvent(type_, reason, note, important), controller, related=second)

    def _emit(
        self,
        about: EventReference,
        change: EmitEvent,
        controller: str,
        *,
        redundant: bool = False,
        related: EventReference | None = None,
    ) -> None:
        self._recorder.emit(
            PendingEvent(
                about,
                change.type,
                change.reason,
                change.note,
                controller,
                related=related,
                redundant=redundant,
                important=change.important,
                routine=change.reason in _ROUTINE,
            )
        )
