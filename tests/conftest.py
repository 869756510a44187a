"""What holds for every test: a slow machine is not a failure."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# How long one example takes is nobody's business here, nor how long it takes to think of one.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")
