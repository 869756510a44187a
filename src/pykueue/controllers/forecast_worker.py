"""The process that computes forecasts: questions on standard input, answers on standard output, one at a time.

Its priority is lower than that of the manager, and not the lowest: beside jobs that use all cores of the machine, as
under `pykueue up`, no question would be answered in its time [RA6]. A message is a length of eight bytes and a body; an
empty answer means that the question failed, and the reason is on standard error.
"""

from __future__ import annotations

import os
import pickle
import struct
import sys
import traceback
from pathlib import Path
from typing import BinaryIO, Final

from pykueue.controllers import forecast_question
from pykueue.history.store import HistoryStore, HistoryStoreError

LENGTH: Final = struct.Struct(">Q")
_NICENESS: Final = 5


def main() -> None:
    os.nice(_NICENESS)
    questions, answers = sys.stdin.buffer, sys.stdout.buffer
    stores: dict[Path, HistoryStore] = {}
    while (message := _read(questions)) is not None:
        try:
            question = forecast_question.decode(message)
            body = pickle.dumps(forecast_question.answer(question, _store(question.history, stores)))
        except Exception:
            traceback.print_exc()
            body = b""
        try:
            answers.write(LENGTH.pack(len(body)) + body)
            answers.flush()
        except BrokenPipeError:
            # The manager was killed. What is left of the answer is not written when this process ends either.
            os._exit(0)


def _store(path: Path | None, stores: dict[Path, HistoryStore]) -> HistoryStore | None:
    """The history at a path, open for reading; None if it cannot be read."""
    if path is None:
        return None
    known = stores.get(path)
    if known is not None and not known.is_in_place():
        # A damaged file was renamed, or a deleted one was written again.
        stores.pop(path).close()
    if path not in stores:
        try:
            stores[path] = HistoryStore(path, reads_only=True)
        except HistoryStoreError as error:
            print(f"forecasts do not use the history: {error}", file=sys.stderr)
            return None
    return stores[path]


def _read(source: BinaryIO) -> bytes | None:
    head = source.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    return source.read(LENGTH.unpack(head)[0])


if __name__ == "__main__":
    main()
