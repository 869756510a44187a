"""The gates that decide what is refused are gates that exist, and have the defaults of the table."""

from __future__ import annotations

import msgspec

from pykueue import features
from pykueue.api.validation import ValidationGates


def test_every_gate_is_in_the_table_with_its_default() -> None:
    ours = {field.encode_name: field.default for field in msgspec.structs.fields(ValidationGates)}
    assert ours == {name: features.GATES[name].default for name in ours}


def test_gates_are_taken_from_a_mapping_by_name() -> None:
    assert msgspec.convert(dict(features.DEFAULTS), ValidationGates) == ValidationGates()
    off = {**features.DEFAULTS, "TASMultiLayerTopology": False}
    assert msgspec.convert(off, ValidationGates) == ValidationGates(tas_multi_layer_topology=False)
