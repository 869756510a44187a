"""The composition root: the only room that builds servers and clocks, and wires the rooms to each other.

    server      the embedded API server on a port
    embedding   a manager and a runner in its process
    managing    a manager for any cluster; the populator
    ports       what a manager serves on ports of its own
    choices     what the operator said, in the words of each room
    process     what a process does for itself when it is a server

Everybody else asks this module, by the names below.
"""

from kubeserver.storage.sqlite import Durability
from pykueue.app.cluster_manager import manage, populate
from pykueue.app.embedded_manager import RunnerName, embedded_manager, embedded_runner
from pykueue.app.options import for_manager as manager_options
from pykueue.app.options import for_webhooks as webhook_choices
from pykueue.app.ports import LOOPBACK, metrics_address
from pykueue.app.process import allow_many_files, calm_collector, dump_on_signal
from pykueue.app.server import (
    UNATTENDED_ORPHAN_SECONDS,
    ServerSettings,
    Serving,
    announce,
    api_server,
    bare_parts,
    etcd_stand_in,
    kueue_parts,
    managed_parts,
)

__all__ = [
    "LOOPBACK",
    "UNATTENDED_ORPHAN_SECONDS",
    "Durability",
    "RunnerName",
    "ServerSettings",
    "Serving",
    "allow_many_files",
    "announce",
    "api_server",
    "bare_parts",
    "calm_collector",
    "dump_on_signal",
    "embedded_manager",
    "embedded_runner",
    "etcd_stand_in",
    "kueue_parts",
    "manage",
    "managed_parts",
    "manager_options",
    "metrics_address",
    "populate",
    "webhook_choices",
]
