"""`python -m pykueue` is the command `pykueue`."""

from pykueue.cli import main

if __name__ == "__main__":
    main()
