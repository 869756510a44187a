"""The reference pages, made from the tables the program runs on. `python -m pykueue.reference` writes them.

Each page is a function without arguments that returns Markdown; `PAGES` says where it goes. `--check` writes nothing
and ends with 1 when a page on disk differs from what the tables say; `make check` asks that.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec

from kubemachinery.kinds import Kind, Version
from kubemachinery.versions import (
    FieldRenamed,
    FieldsAdded,
    FieldsRemoved,
    LimitsChanged,
    RequiredFields,
    RulesReplaced,
)
from kubeserver.registry import unsupported
from pykueue import cli, features, settings
from pykueue.api import conditions, config, effects, registry, schema
from pykueue.install import chart, kustomize
from pykueue.install.manifests import InstallPlan
from pykueue.install.names import MANAGER
from pykueue.jobs.kinds import BUILT_IN, JobKinds
from pykueue.observe import custom_labels, metrics

_MADE: Final = "<!-- Made by `python -m pykueue.reference` from the program's own tables. Do not edit. -->"


# --- Markdown ---------------------------------------------------------------------------------------------------------


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "|" + " --- |" * len(head)
    for row in rows:
        yield "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |"
    yield ""


def code(text: object) -> str:
    return f"`{text}`" if text not in ("", None) else ""


# --- Pages ------------------------------------------------------------------------------------------------------------


def gates_page() -> Iterator[str]:
    """Feature gates."""
    yield "# Feature gates\n"
    yield (
        "Set them under `featureGates` in the Configuration, or with `--feature-gates=A=true,B=false` of `pykueue up`,"
        " `manager` and `install`; as in Kueue, not in both. A gate whose parent is off must be off too. A gate that is"
        " not implemented is off, and turning it on is refused at start. `AllAlpha` and `AllBeta` switch the gates of a"
        " stage that are implemented and not locked, and a notice at start names the others; a gate named by itself"
        " overrides them.\n"
    )
    yield (
        "The column *here* says: **yes**, the gate can be set and has its effect; **speed only**, the gate changes how"
        " fast Kueue decides, and neither decisions nor speed here (turning it off gives a notice); **not yet**, the"
        " gate is refused.\n"
    )
    missing = features.missing_by_default()
    yield f"## On in Kueue, not implemented here yet ({len(missing)})\n"
    yield from table(["gate", "what is missing"], ([code(gate.name), gate.meaning] for gate in missing))
    yield f"## All {len(features.GATES)} gates\n"
    yield from table(
        ["gate", "default", "stage", "since", "here", "needs", "what it decides"],
        (
            [
                code(gate.name),
                _on(gate.default)
                + (", locked" if gate.locked else "")
                + ("" if gate.default_in_kueue == gate.default else f" ({_on(gate.default_in_kueue)} in Kueue)"),
                gate.stage,
                gate.history,
                "not yet" if not gate.implemented else "speed only" if gate.speed_only else "yes",
                ", ".join(map(code, gate.needs)),
                gate.meaning + (f" ({gate.proposal})" if gate.proposal else ""),
            ]
            for gate in sorted(features.GATES.values(), key=lambda gate: gate.name)
        ),
    )
    yield "## Names that are no longer gates\n"
    yield from table(["gate", "why"], ([code(name), why] for name, why in sorted(features.REMOVED.items())))


def _on(value: bool) -> str:
    return "on" if value else "off"


def commands_page() -> Iterator[str]:
    """Commands."""
    yield "# Commands\n"
    yield "Exit codes: 0 done, 1 the answer is no, 2 the call or the input is wrong (one sentence on stderr).\n"
    yield from table(
        ["command", "what it does"],
        ([f"[`pykueue {name}`](#pykueue-{name})", verb.summary] for name, verb in cli.VERBS.items()),
    )
    for path, text in cli.help_texts():
        yield f"## {path}\n"
        yield f"```text\n{text}\n```\n"


def _fields(lines: Iterable[schema.FieldDescription]) -> Iterator[str]:
    yield from table(
        ["field", "type", "default", "meaning", "limits"],
        (
            [
                code(line.path) + (" **required**" if line.required else ""),
                line.type,
                code(line.default),
                line.meaning,
                "; ".join(
                    [
                        *([f"one of {', '.join(map(code, line.choices))}"] if line.choices else []),
                        *(code(limit) for limit in line.limits if not limit.startswith("pattern")),
                        *dict.fromkeys(line.rules),
                    ]
                ),
            ]
            for line in lines
            if line.path not in ("apiVersion", "kind", "metadata")
        ),
    )


def configuration_page() -> Iterator[str]:
    """The Configuration file."""
    yield "# Configuration\n"
    yield (
        "The kind `Configuration` of `config.kueue.x-k8s.io`, read once at start. `pykueue config check FILE` prints"
        " the effective configuration, or every error with its path. An unknown field is an error.\n"
    )
    yield "## v1beta2\n"
    yield from _fields(schema.describe(settings.ROW, "v1beta2"))
    yield "## What v1beta1 says otherwise\n"
    yield "v1beta1 is deprecated; it is accepted, converted at the door, and a notice says so.\n"
    yield from table(["place", "difference"], _differences(settings.ROW.version("v1beta1")))


def api_index_page() -> Iterator[str]:
    """The kinds of `kueue.x-k8s.io`."""
    yield "# API\n"
    yield "All kinds of `kueue.x-k8s.io`. v1beta2 is stored; v1beta1 is served and converted at the edge.\n"
    yield from table(
        ["kind", "short names", "scope", "what it is"],
        (
            [
                f"[{row.kind}]({row.singular}.md)",
                ", ".join(map(code, row.short_names)),
                row.scope,
                str(schema.of(row, row.storage.name)["description"]).partition("\n\n")[0],
            ]
            for row in sorted(registry.KUEUE, key=lambda row: row.kind)
        ),
    )


def _kind_page(row: Kind) -> Callable[[], Iterator[str]]:
    def page() -> Iterator[str]:
        yield f"# {row.kind}\n"
        yield str(schema.of(row, row.storage.name)["description"]) + "\n"
        yield from table(
            ["", ""],
            [
                ["resource", code(row.name)],
                ["scope", row.scope],
                ["short names", ", ".join(map(code, row.short_names)) or "none"],
                ["subresources", ", ".join(map(code, row.subresources)) or "none"],
                ["`kubectl get` shows", ", ".join(column.name for column in row.storage.columns) or "Name, Age"],
            ],
        )
        yield f"## Fields of {row.storage.name}\n"
        yield from _fields(schema.describe(row))
        older = row.version("v1beta1")
        if older is not None and older.changes:
            yield "## What v1beta1 says otherwise\n"
            yield from table(["place", "difference"], _differences(older))

    return page


def _differences(version: Version | None) -> Iterator[Sequence[str]]:
    """A line for each thing that an older version says otherwise."""
    for change in version.changes if version else ():
        place = code(change.place) or "the object"
        match change:
            case FieldRenamed(name=name):
                yield place, f"is called {code(name)}"
            case FieldsRemoved(names=names):
                yield place, f"has no {', '.join(map(code, names))}"
            case FieldsAdded(fields=fields):
                added = ", ".join(code(field.encode_name) for field in msgspec.structs.fields(fields))
                yield place, f"has {added} as well, or with another type"
            case LimitsChanged():
                yield place, "has other limits or another default"
            case RequiredFields(names=names):
                yield place, f"requires {', '.join(map(code, names)) or 'nothing'}"
            case RulesReplaced():
                yield place, "has other rules"


def conditions_page() -> Iterator[str]:
    """Condition types and reasons."""
    yield "# Conditions and reasons\n"
    yield "Every condition type of the API and every reason that goes with one, spelt as they are stored.\n"
    for name, group in sorted(vars(conditions).items()):
        if isinstance(group, type) and issubclass(group, StrEnum) and group.__module__ == conditions.__name__:
            yield f"## {re.sub(r'(?<!^)(?=[A-Z])', ' ', name)}\n"
            if own := group.__dict__.get("__doc__"):
                yield inspect.cleandoc(own) + "\n"
            yield ", ".join(code(str(member)) for member in group) + "\n"


def fields_page() -> Iterator[str]:
    """What becomes of every field."""
    yield "# What becomes of every field\n"
    yield (
        "Nothing that is accepted is inert: every field takes effect, is refused, or is named in a warning. A row"
        " covers everything below its path unless another row does. Warnings about objects are shown by `kubectl` on"
        " create and update, and by `pykueue lint`; those about the Configuration by `pykueue config check` and in the"
        " log at start. Where a gate is named, the field takes effect while the gate is on, and gives a warning while"
        " it is off.\n"
    )
    for kind, rows in effects.ROWS.items():
        yield f"## {kind}\n"
        yield from table(["field", "", "where", "gate"], map(_effect, rows))
        if older := effects.V1BETA1_ROWS.get(kind):
            yield "In v1beta1 only:\n"
            yield from table(["field", "", "where", "gate"], map(_effect, older))


def _effect(row: effects.FieldEffect) -> Sequence[str]:
    note = f"{row.fate}: {row.note}" if row.note else row.fate.value
    return code(row.path), note, ", ".join(map(code, row.modules)), ", ".join(map(code, row.gates))


def metrics_page() -> Iterator[str]:
    """Metrics."""
    yield "# Metrics\n"
    yield (
        "What `/metrics` of a manager shows. Names, types, labels and buckets are those of Kueue. Gauges are read when"
        " the page is requested; counters and histograms count what this replica did. `replica_role` is leader,"
        " follower or standalone. Series of a queue or cohort go when it is deleted.\n"
    )
    yield (
        "With the gate `CustomMetricLabels`, `metrics.customLabels` of the Configuration adds labels: each row names a"
        " label or an annotation of ClusterQueues, Cohorts, LocalQueues or Workloads, whose value becomes the label"
        " `custom_` + its `name`. The column *custom labels of* says which kinds count for a metric. Values that"
        f" `trackedValues` does not list are one value, `{custom_labels.UNTRACKED}`.\n"
    )
    yield from table(
        ["metric", "type", "labels", "custom labels of", "fed", "meaning"],
        (
            [
                code(metric.name),
                metric.type,
                ", ".join(map(code, metric.labels)),
                ", ".join(metrics.custom_sources(metric)),
                metric.enabled_by,
                metric.help,
            ]
            for metric in metrics.METRICS
        ),
    )


def limits_page() -> Iterator[str]:
    """What the embedded server does not offer."""
    yield unsupported.page()


def migration_page() -> Iterator[str]:
    """Move from Kueue: what is the same, what differs, what is missing."""
    yield "# Move from Kueue\n"
    yield (
        "pykueue implements the API of Kueue: the same kinds, labels, conditions and Configuration, and the same"
        " decisions. [What becomes of every field](../reference/fields.md) says which fields have no effect here, the"
        " tables below what is missing.\n"
    )
    yield "## Do it\n"
    yield (
        "1. `pykueue config check FILE` on the Configuration of your manager: gates and frameworks that are not"
        " implemented are errors, and fields without effect are named.\n"
    )
    yield "2. `pykueue lint` looks at the queues of the cluster that your kubeconfig names. It changes nothing.\n"
    yield (
        f"3. Take Kueue's manager away and leave everything else: `kubectl -n {config.DEFAULT_NAMESPACE}"
        f" delete deployment {MANAGER}`. Jobs that run go on running; new ones are refused until somebody answers for"
        " the webhooks again. Do not `helm uninstall` it: it takes the CRDs, and with them every queue and Workload.\n"
    )
    yield (
        "4. `pykueue install --config FILE --image IMAGE` ([the image](cluster.md)). Roles, Services and webhooks of"
        " the same names are taken over. Reservations are read from the API and counted before anything is decided.\n"
    )
    yield (
        "5. Back again: `pykueue uninstall` leaves every object. Apply Kueue's manifests anew, and it picks them up.\n"
    )
    yield "## What differs on purpose\n"
    yield "Each is a page of the [decisions](../decisions/index.md), with its scenario.\n"
    yield from table(
        ["", "what pykueue does"],
        ([f"[{number}](../decisions/{name})", title] for number, name, title in _decisions()),
    )
    yield "Without an entry there, a decision that differs is a bug.\n"
    yield "## Messages\n"
    yield (
        "These messages of conditions and Events are equal to Kueue's, figures and punctuation included: why a Workload"
        " got no flavors or no place (`couldn't assign flavors to pod set …`), preemption with its UIDs and paths,"
        " reservation and admission, evictions by queues, checks, deactivation, time limits and readiness of pods,"
        " `PodsReady`, gates of admission, reset checks, and `Active` of ClusterQueues and LocalQueues. Figures beyond"
        " them are in `pykueue explain` and `pykueue plan`. Not equal: messages of what only pykueue does (a"
        " reservation that does not hold when its checks have passed, preemption loops, a Workload that cannot be"
        " evaluated), of ProvisioningRequests, of malformed node affinity, and of refusals by webhooks and schemas.\n"
    )
    missing = features.missing_by_default()
    yield f"## What is missing: gates that are on in Kueue ({len(missing)})\n"
    yield from table(["gate", "what is missing"], ([code(gate.name), gate.meaning] for gate in missing))
    off = [gate for gate in features.GATES.values() if not gate.implemented and not gate.default_in_kueue]
    yield f"## What is missing: gates that are off in Kueue ({len(off)})\n"
    yield from table(["gate", "what is missing"], ([code(gate.name), gate.meaning] for gate in off))
    yield "## Kinds of jobs\n"
    here = {row.framework for row in BUILT_IN if row.implementation is not None}
    yield from table(
        ["framework", "here"], ([code(name), "yes" if name in here else "not yet"] for name in config.FRAMEWORKS)
    )


def _decisions() -> Iterator[tuple[str, str, str]]:
    """Number, file and title of every page of the decisions that says what is done otherwise than by Kueue."""
    for page in sorted((Path.cwd() / "docs" / "decisions").glob("0*.md")):
        text = page.read_text(encoding="utf-8")
        if "Kueue" in text:
            yield page.name[:4], page.name, text.splitlines()[0].removeprefix("# ")


PAGES: Final[Mapping[str, Callable[[], Iterator[str]]]] = {
    "docs/reference/feature-gates.md": gates_page,
    "docs/reference/commands.md": commands_page,
    "docs/reference/configuration.md": configuration_page,
    "docs/reference/fields.md": fields_page,
    "docs/reference/conditions.md": conditions_page,
    "docs/reference/metrics.md": metrics_page,
    "docs/reference/api/index.md": api_index_page,
    "docs/reference/embedded-limits.md": limits_page,
    "docs/operations/migration.md": migration_page,
    **{f"docs/reference/api/{row.singular}.md": _kind_page(row) for row in registry.KUEUE},
}


def files() -> Iterator[tuple[str, str]]:
    """Every generated file of the project: its path, and what it should hold."""
    for name, page in PAGES.items():
        yield name, _MADE + "\n\n" + "\n".join(page()).rstrip() + "\n"
    # Kinds of jobs that other packages bring along here belong to this machine, not to the project.
    plan = InstallPlan(kinds=JobKinds(BUILT_IN))
    for name, text in kustomize.files(plan):
        yield f"deploy/{name}", text
    for name, text in chart.files(plan):
        yield f"deploy/chart/{name}", text


def stale(root: Path) -> dict[str, str]:
    """The generated files that do not say what the tables say, and what they should say."""
    return {
        name: text
        for name, text in files()
        if not (root / name).is_file() or (root / name).read_text(encoding="utf-8") != text
    }


def main(arguments: Sequence[str]) -> int:
    root = Path.cwd()
    if "--check" in arguments:
        old = stale(root)
        for name in old:
            print(f"{name} is stale; run make docs", file=sys.stderr)
        return 1 if old else 0
    for name, text in stale(root).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
        print(f"wrote {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
