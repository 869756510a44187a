"""`pykueue` as it runs in a pod: `python in_pod.py FOLDER manager …`, where FOLDER is what a kubelet would mount.

In a pod the directory has a fixed path, which a test cannot create on this machine. A token that the kubelet has
renewed
is read within a second here, and not within a minute.
"""

from __future__ import annotations

import sys
from pathlib import Path

from kubemachinery.client import client_config
from pykueue import cli

if __name__ == "__main__":
    folder = Path(sys.argv.pop(1))
    client_config.SERVICE_ACCOUNT = folder  # type: ignore[misc]
    client_config.in_cluster.__defaults__ = client_config.own_namespace.__defaults__ = (folder,)
    client_config._TOKEN_SECONDS = 1.0  # type: ignore[misc]
    cli.main()
