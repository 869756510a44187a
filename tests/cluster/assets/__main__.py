"""Build the real API server, its store, the programs and the partners of the tests where missing; print the folder."""

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
        for partner in assets.selected() if shutil.which("go") else ():
            assets.partner(partner.name)
        print(folder)
    except assets.AssetsError as wrong:
        print(wrong, file=sys.stderr)
        sys.exit(2)
