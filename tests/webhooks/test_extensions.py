"""Objects of `pykueue.io` behind the webhooks of the embedded server."""

from __future__ import annotations

from api.test_extensions import SCHEDULE, changed
from pykueue.webhooks.review import CREATE, AdmissionFacts, AdmissionRequest, Phase, review
from webhooks.conftest import choices


def test_a_schedule_is_accepted_with_a_warning_while_the_gate_is_off() -> None:
    response = review(
        AdmissionRequest(phase=Phase.VALIDATE, operation=CREATE, object=SCHEDULE), AdmissionFacts(), choices()
    )
    assert response.refusal is None
    assert "spec.windows has no effect while the gate QuotaCalendar is off" in response.warnings


def test_a_schedule_with_an_unknown_time_zone_is_refused() -> None:
    response = review(
        AdmissionRequest(phase=Phase.VALIDATE, operation=CREATE, object=changed("spec.timeZone", "Mars/Olympus")),
        AdmissionFacts(),
        choices(),
    )
    assert response.refusal is not None
    assert [cause["field"] for cause in response.refusal.causes] == ["spec.timeZone"]
