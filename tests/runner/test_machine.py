"""Detection of the capacity of this machine."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from pykueue.runner import machine
from pykueue.runner.machine import Machine


def test_machine_has_cpus_memory_and_a_valid_name(tmp_path: Path) -> None:
    here = machine.detect(tmp_path)
    assert 1 <= here.cpus <= (os.cpu_count() or 1)
    assert here.memory_bytes > 2**20
    assert here.name == here.name.lower().strip("-.")


def test_node_name_is_kept_when_the_hostname_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A laptop changes its host name with the network; its pods must not lose their node over that."""
    monkeypatch.setattr(socket, "gethostname", lambda: "Office_PC.local")
    assert machine.detect(tmp_path / "data").name == "office-pc.local"
    monkeypatch.setattr(socket, "gethostname", lambda: "at-home")
    assert machine.detect(tmp_path / "data").name == "office-pc.local"
    assert machine.detect(tmp_path / "other").name == "at-home"


def test_capacity_has_the_format_of_a_node() -> None:
    here = Machine("n", cpus=8, memory_bytes=2**30, devices={"nvidia.com/gpu": 2})
    assert here.capacity == {"cpu": "8", "memory": "1048576Ki", "pods": "110", "nvidia.com/gpu": "2"}
