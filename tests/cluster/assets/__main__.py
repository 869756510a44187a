"""Build the real API server, its store and the programs of the tests where they are missing; print the folder."""

from __future__ import annotations

import shutil
import sys

from cluster import assets

if __name__ == "__main__":
    try:
        folder = assets.ensure()
        # With existing binaries there may be no Go: then the tests of these programs are skipped with that reason.
        for name in assets.PROGRAMS if shutil.which("go") else ():
            assets.program(name)
        print(folder)
    except assets.AssetsError as wrong:
        print(wrong, file=sys.stderr)
        sys.exit(2)
