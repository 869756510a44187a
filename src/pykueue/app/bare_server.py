"""The parts of an API server without CRDs and webhooks of Kueue, as test suites start it.

The module imports no controller, which would double the time until the server is ready.
"""

from __future__ import annotations

from msgspec.structs import replace

from kubeserver import serve
from kubeserver.assembly import Parts
from pykueue.api import conversion, registry


def bare_parts() -> Parts:
    """Return the parts of a server with the built-in kinds alone; it converts Kueue's kinds once CRDs define them."""
    conversions = {row.group: conversion.convert for row in registry.KUEUE if row.converts}
    return replace(serve.bare_parts(), conversions=conversions)
