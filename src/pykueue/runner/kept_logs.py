"""The logs of deleted pods: kept by job until there are too many, so that a cancelled job can still be looked at.

    FOLDER/NAMESPACE/UID OF THE JOB/POD.CONTAINER.log

A file has the entries of the supervisor, as the log of a running pod has them.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from kubemachinery import status
from kubemachinery.serving.views import CollectionView, VirtualResource
from pykueue.runner.logs import LogSelection, log_text

log = logging.getLogger(__name__)

GROUP: Final = "views.pykueue.io"
VERSION: Final = "v1alpha1"
PLURAL: Final = "joblogs"

# Of more jobs, or of more bytes, the logs of those that were deleted first are removed.
JOBS_MAX: Final = 1_000
BYTES_MAX: Final = 1024**3
# Of a log, as much of its end is returned.
_SHOWN_BYTES: Final = 4 * 1024**2


class KeptLogs:
    """The logs of deleted pods in a folder."""

    def __init__(self, folder: Path, *, jobs_max: int = JOBS_MAX, bytes_max: int = BYTES_MAX) -> None:
        self._folder = folder
        self._jobs_max = jobs_max
        self._bytes_max = bytes_max

    def keep(self, namespace: str, owner: str, pod: str, logs: Mapping[str, Sequence[Path]]) -> None:
        """Move the last log of each container of a pod here. A failure loses the log, and stops nothing."""
        if not (_is_plain(namespace) and _is_plain(owner) and _is_plain(pod)):
            return
        place = self._folder / namespace / owner
        try:
            for container, files in logs.items():
                if files and files[-1].is_file() and files[-1].stat().st_size and _is_plain(container):
                    place.mkdir(mode=0o700, parents=True, exist_ok=True)
                    shutil.move(files[-1], place / f"{pod}.{container}.log")
            self._prune()
        except OSError as error:
            log.warning("the log of pod %s/%s is not kept: %s", namespace, pod, error)

    def _prune(self) -> None:
        """Remove the oldest logs beyond the bounds."""
        jobs = sorted(self._jobs(), reverse=True)
        total = 0
        for number, (_, size, place) in enumerate(jobs):
            total += size
            if number >= self._jobs_max or (total > self._bytes_max and number):
                shutil.rmtree(place, ignore_errors=True)

    def _jobs(self) -> Iterator[tuple[float, int, Path]]:
        """Each job with when its last log came here, and its size."""
        for place in self._folder.glob("*/*"):
            files = [file.stat() for file in place.iterdir()]
            if files:
                yield (
                    max(place.stat().st_mtime, *(file.st_mtime for file in files)),
                    sum(f.st_size for f in files),
                    place,
                )

    def read(self, namespace: str, owner: str, tail: int | None = None) -> list[dict[str, str]]:
        """The logs of a job, by pod and container."""
        if not (_is_plain(namespace) and _is_plain(owner)):
            return []
        found = []
        for file in sorted((self._folder / namespace / owner).glob("*.log")):
            pod, _, container = file.stem.rpartition(".")
            with file.open("rb") as opened:
                opened.seek(max(0, os.fstat(opened.fileno()).st_size - _SHOWN_BYTES))
                text = b"".join(log_text(iter(line.rstrip(b"\n") for line in opened), LogSelection(tail=tail)))
            found.append({"pod": pod, "container": container, "text": text.decode("utf-8", "replace")})
        return found

    def resource(self) -> VirtualResource:
        """The API of the logs: a list, for one job by its UID."""

        async def read(namespace: str, given: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
            owner, tail = given.get("job", ("",))[0], given.get("tail", ("",))[0]
            if not namespace or not owner or (tail and not tail.isdecimal()):
                raise status.bad_request("joblogs: name a namespace, the UID of a job, and optionally a number as tail")
            return {"metadata": {}, "items": self.read(namespace, owner, int(tail) if tail else None)}

        parameters = {"job": "The UID of the job.", "tail": "Only so many last lines of each container."}
        view = CollectionView(kind="JobLogList", read=read, parameters=parameters)
        return VirtualResource(group=GROUP, version=VERSION, kind="JobLog", plural=PLURAL, collection=view)


def _is_plain(name: str) -> bool:
    """Whether a name is one part of a path."""
    return bool(name) and "/" not in name and name not in (".", "..") and "\0" not in name
