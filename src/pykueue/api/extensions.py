"""The group `pykueue.io`: kinds that Kueue does not have, each in a module of its own.

Kueue's kinds get no field of ours: what they lack is in these kinds, and a manager of Kueue ignores them. A new
kind is a module beside this one, a row in `registry.EXTENSIONS`, and what the page
docs/contributing/own-kinds.md lists.
"""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

from kubemachinery.fields import Field

GROUP: Final = "pykueue.io"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"

# Spelt as Go spells durations, without fractions of a second: `90s`, `2h`, `1h30m`. Never negative.
DURATION_PATTERN: Final = r"^([0-9]{1,9}(\.[0-9]{1,3})?(s|m|h))+$"
Duration: TypeAlias = Annotated[str, Field(max_length=32, pattern=DURATION_PATTERN)]
# A name of the IANA database: `Europe/Berlin`. That the zone exists is checked by the webhook.
TimeZone: TypeAlias = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_+\-/]+$")]
