"""`python -m pykueue` is the command `pykueue`."""

import os
import signal
from types import FrameType


def main() -> None:
    """Run the command. An interrupt while its modules are imported ends it as one that comes later does."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # not if SIGINT is ignored, as that of a background process is
        signal.signal(signal.SIGINT, _interrupted)
    from pykueue import cli

    signal.signal(signal.SIGINT, before)
    cli.main()


def _interrupted(number: int, frame: FrameType | None) -> None:
    """End the process at once: an exception in the middle of an import would be printed with its traceback."""
    os.write(2, b"\ninterrupted\n")
    os._exit(130)


if __name__ == "__main__":
    main()
