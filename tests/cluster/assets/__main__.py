"""Build the real API server and its store where they are missing; print the folder."""

from __future__ import annotations

import sys

from cluster import assets

if __name__ == "__main__":
    try:
        print(assets.ensure())
    except assets.AssetsError as wrong:
        print(wrong, file=sys.stderr)
        sys.exit(2)
