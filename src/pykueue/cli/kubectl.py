"""`pykueue get`, `describe`, `edit` and `patch`: run by kubectl, for the kinds of Kueue."""

from __future__ import annotations

import click

from pykueue.cli import kinds


def _group(verb: str) -> click.Group:
    group = kinds.KindGroup(verb, help=f"{verb.title()} a Workload, a queue or a flavor, with kubectl.")
    for kind in kinds.OURS:
        group.add_command(kinds.through_kubectl(verb, kind))
    return group


get, describe, edit, patch = map(_group, ("get", "describe", "edit", "patch"))
