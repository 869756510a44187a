"""`pykueue get`, `describe`, `edit` and `patch`: kubectl's own, for the kinds of queueing."""

from __future__ import annotations

import click

from pykueue.cli import kinds


def _group(verb: str) -> click.Group:
    group = kinds.KindGroup(verb, help=f"{verb.title()} a Workload, a queue or a flavor, as kubectl does.")
    for kind in kinds.OURS:
        group.add_command(kinds.through_kubectl(verb, kind))
    return group


get, describe, edit, patch = map(_group, ("get", "describe", "edit", "patch"))
