"""`pykueue up` as a process of its own; and free ports."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from waiting import PATIENCE_SECONDS, until


class Up:
    """A server that is ready once this is made; it can be ended and started again on the same data."""

    def __init__(
        self,
        kubeconfig: Path,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        open_files_max: int | None = None,
    ) -> None:
        self.kubeconfig = kubeconfig
        # Its stderr: a file, and no pipe, in which a server that logs more than fits waits for a reader for ever.
        self.log = kubeconfig.with_name(f"{kubeconfig.name}.log")
        self._open_files_max = open_files_max
        self._arguments = arguments
        self._environment = environment
        self.start()

    def start(self) -> None:
        # A server takes the file of its predecessor away, but not before it has begun to run.
        self.kubeconfig.unlink(missing_ok=True)
        command = [sys.executable, "-m", "pykueue", "up", *self._arguments]
        if self._open_files_max is not None:
            command = ["sh", "-c", f'ulimit -n {self._open_files_max}; exec "$@"', "sh", *command]
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("w") as output:
            self.process = subprocess.Popen(command, env=self._environment, stderr=output, text=True)
        try:
            until(self._is_ready)
        except BaseException:
            self.process.kill()  # nothing else would end it
            raise

    def _is_ready(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        return self.kubeconfig.exists()

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Its exit code and output."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_SECONDS), self.log.read_text()


def up(folder: Path, *arguments: str) -> Up:
    """One with its data and its kubeconfig in a folder."""
    kubeconfig = folder / "kubeconfig"
    return Up(kubeconfig, "--data-dir", str(folder / "data"), "--kubeconfig", str(kubeconfig), *arguments)


def free_port() -> int:
    """A port that is free at the moment. Where possible, let the system choose one, or hold it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def held_port(host: str = "127.0.0.1") -> Iterator[int]:
    """A port that the system gives to no other process. A process that names its number can still listen there."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind((host, 0))
        yield held.getsockname()[1]
