"""The capacity of this machine: processors, memory, devices; and its name."""

from __future__ import annotations

import os
import platform
import re
import shutil
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from kubemachinery.key_pairs import write_private

PODS: Final = 110
_NVIDIA_SECONDS: Final = 3.0
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}


class Machine(msgspec.Struct, frozen=True):
    """A machine with the fields that its Node needs."""

    name: str
    cpus: int
    memory_bytes: int
    devices: Mapping[str, int] = msgspec.field(default_factory=dict)
    system: str = "linux"
    architecture: str = "amd64"

    @property
    def capacity(self) -> dict[str, str]:
        return {
            "cpu": str(self.cpus),
            "memory": f"{self.memory_bytes // 1024}Ki",
            "pods": str(PODS),
            **{name: str(count) for name, count in sorted(self.devices.items())},
        }


def detect(data_dir: Path) -> Machine:
    """Return this machine. Limits of the control group of this process lower its capacity.

    Its name is stored in the data directory, so that it stays the same Node when the hostname changes.
    """
    kept = data_dir / "node-name"
    name = kept.read_text().strip() if kept.exists() else ""
    if not name:
        name = re.sub("[^a-z0-9.-]+", "-", socket.gethostname().lower()).strip("-.")[:63] or "localhost"
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(kept, name.encode())
    devices = {"nvidia.com/gpu": _nvidia()}
    return Machine(
        name=name,
        cpus=_cpus(),
        memory_bytes=_memory(),
        devices={name: count for name, count in devices.items() if count},
        system=platform.system().lower(),
        architecture=_ARCHITECTURES.get(platform.machine(), platform.machine()),
    )


def _cpus() -> int:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota, _, period = _limit("cpu.max").partition(" ")
    if quota.isdigit() and period.isdigit():
        usable = min(usable, max(int(quota) // int(period), 1))
    return usable


def _memory() -> int:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = _limit("memory.max")
    return min(total, int(limit)) if limit.isdigit() else total


def _limit(name: str) -> str:
    """Return a limit of the control group of this process; "" if there is none."""
    try:
        own = Path("/proc/self/cgroup").read_text().partition("0::")[2].strip().lstrip("/")
        return (Path("/sys/fs/cgroup") / own / name).read_text().strip()
    except OSError:
        return ""


def _nvidia() -> int:
    """Return the number of NVIDIA GPUs: by their device files, else by nvidia-smi."""
    if found := len([path for path in Path("/dev").glob("nvidia*") if path.name[6:].isdigit()]):
        return found
    program = shutil.which("nvidia-smi")
    if program is None:
        return 0
    try:
        listed = subprocess.run([program, "-L"], capture_output=True, text=True, timeout=_NVIDIA_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return 0
    return sum(line.startswith("GPU ") for line in listed.stdout.splitlines())
