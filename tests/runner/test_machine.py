"""What this machine has, as it tells itself."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from pykueue.runner import machine
from pykueue.runner.machine import Machine


def test_it_has_processors_memory_and_a_name_that_an_object_can_have(tmp_path: Path) -> None:
    here = machine.detect(tmp_path)
    assert 1 <= here.cpus <= (os.cpu_count() or 1)
    assert here.memory_bytes > 2**20
    assert here.name == here.name.lower().strip("-.")


def test_it_keeps_its_name_when_it_is_called_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A laptop changes its host name with the network; its pods must not lose their node over that."""
    monkeypatch.setattr(socket, "gethostname", lambda: "Office_PC.local")
    assert machine.detect(tmp_path / "data").name == "office-pc.local"
    monkeypatch.setattr(socket, "gethostname", lambda: "at-home")
    assert machine.detect(tmp_path / "data").name == "office-pc.local"
    assert machine.detect(tmp_path / "other").name == "at-home"


def test_capacity_is_written_as_a_node_has_it() -> None:
    here = Machine("n", cpus=8, memory_bytes=2**30, devices={"nvidia.com/gpu": 2})
    assert here.capacity == {"cpu": "8", "memory": "1048576Ki", "pods": "110", "nvidia.com/gpu": "2"}
