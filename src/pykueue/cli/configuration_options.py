"""The options of the commands that run a manager: its Configuration, its feature gates, an address."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from kubemachinery import meta
from kubemachinery.errors import UsageError
from pykueue.errors import ConfigurationError

if TYPE_CHECKING:
    from pykueue.dashboard.summaries import ExplainFunction
    from pykueue.settings import Settings

log = logging.getLogger(__name__)

CONFIG = click.option(
    "--config",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    help="A Configuration file (default: built-in defaults).",
)
FEATURE_GATES = click.option(
    "--feature-gates",
    default="",
    metavar="A=true,B=false",
    help="Feature gates, as for Kueue's manager. They cannot be combined with featureGates of the Configuration.",
)


# The value of --history that turns it off.
OFF: Final = "off"


def _retention(context: click.Context, option: click.Parameter, text: str) -> int | None:
    """A number of days, in seconds; None for ever."""
    if text == "forever":
        return None
    days = text.removesuffix("d")
    if not days.isascii() or not days.isdecimal() or not 1 <= int(days) <= 100_000:
        raise UsageError(f"{option.opts[0]} {text}: must be a number of days, such as 400d, or forever")
    return int(days) * 86_400


HISTORY = click.option(
    "--history",
    default="",
    metavar="FILE|off",
    help="The file for the history of Workloads (default: history.db in the data directory), or off.",
)
HISTORY_RETENTION = click.option(
    "--history-retention",
    default="400d",
    show_default=True,
    callback=_retention,
    help="How long records are kept after their Workload ended, in days, or forever. Usage by day is always kept.",
)


def _waiting(context: click.Context, option: click.Parameter, text: str) -> int:
    """A positive duration in nanoseconds; days are allowed too."""
    days = text.removesuffix("d")
    if text.endswith("d") and days.isascii() and days.isdecimal() and 1 <= int(days) <= 10_000:
        return int(days) * 86_400 * meta.SECOND
    try:
        found = meta.parse_duration(text)
    except meta.TimeError:
        found = 0
    if found <= 0:
        raise UsageError(f"{option.opts[0]} {text}: must be a positive duration, such as 24h or 3d")
    return found


STARVING_AFTER = click.option(
    "--starving-after",
    default="24h",
    show_default=True,
    callback=_waiting,
    help="How long a Workload waits, while ten behind it start, before it is reported as starving.",
)
HISTORY_USER_LABEL = click.option(
    "--history-user-label",
    default="",
    help="The label of Workloads that names the user, for those without the annotation pykueue.io/submitted-by.",
)


def address(option: str, text: str) -> tuple[str, int]:
    """The host and the port of an option HOST:PORT."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise UsageError(f"{option} {text}: must be HOST:PORT, such as 127.0.0.1:6443")
    return host, int(port)


def configured(
    path: Path | None, namespace: str = "", *, feature_gates: str = "", defaults: Mapping[str, bool] | None = None
) -> Settings:
    """The settings of a file and of the flag `--feature-gates`. A Configuration that no manager can start with is
    refused before anything starts. `namespace` is the manager's own, for a Configuration that names none;
    `defaults` are gates that the flag overrides."""
    from pykueue import settings

    flagged = {**(defaults or {}), **settings.flagged_gates(feature_gates)}
    source = str(path) if path is not None else "--feature-gates"
    chosen = settings.load(written(path), source, namespace=namespace, flagged=flagged)
    if found := settings.obstacles(chosen):
        raise ConfigurationError(source, found)
    return chosen


def explainer(chosen: Settings) -> ExplainFunction:
    """The explanations of the dashboard. The planner is imported when the first one is asked for."""

    @cache
    def explain() -> ExplainFunction:
        from pykueue.analysis import explanation

        return explanation.explainer(chosen.tree)

    return lambda objects, key, now, suggest: explain()(objects, key, now, suggest)


def written(path: Path | None) -> object:
    """The one document of a Configuration file; without a file, an empty Configuration."""
    from kubemachinery import yaml_documents
    from pykueue.api import config

    if path is None:
        return {"apiVersion": config.V1BETA2, "kind": config.KIND}
    found = list(yaml_documents.read(path))
    if len(found) != 1:
        raise UsageError(f"{path}: contains {len(found)} documents; a Configuration is one document")
    return found[0].tree


def log_notices(settings: Settings, path: Path | None) -> None:
    """Log notices about the Configuration: fields without effect, deprecated spellings."""
    for notice in settings.notices:
        log.warning("configuration: %s", notice, extra={"file": str(path)} if path is not None else {})
