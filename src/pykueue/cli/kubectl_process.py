"""kubectl as a child process or in place of this one: for its own verbs, and for output formats that only it prints."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn

import click
import msgspec

from kubemachinery.errors import UsageError
from pykueue import paths

# The output formats that are delegated. Those in _EXAMPLES take a template, or the name of its file.
FORMATS: Final = (
    "jsonpath",
    "jsonpath-as-json",
    "jsonpath-file",
    "go-template",
    "go-template-file",
    "template",
    "templatefile",
    "kyaml",
)
_EXAMPLES: Final = {
    **dict.fromkeys(("jsonpath", "jsonpath-as-json"), "'{.items[*].metadata.name}'"),
    **dict.fromkeys(("go-template", "template"), "'{{.metadata.name}}'"),
    **dict.fromkeys(("jsonpath-file", "go-template-file", "templatefile"), "FILE"),
}


class KubectlPrinter(msgspec.Struct, frozen=True):
    """Prints objects with kubectl: `output` are its output flags, `connection` its connection flags."""

    output: tuple[str, ...]
    connection: tuple[str, ...] = ()

    def print_object(self, tree: Mapping[str, Any]) -> None:
        """Print one object as it is here, without asking the server: after a dry run it is stored nowhere."""
        _print(("patch", "--local", "--filename=-", "--type=merge", "--patch={}", *self.output), tree)

    def print_list(self, items: Sequence[Mapping[str, Any]]) -> None:
        """Print objects of the server as one List. kubectl reads them again, by kind, namespace and name."""
        if not items:
            click.echo("No resources found", err=True)
            return
        listed = {"apiVersion": "v1", "kind": "List", "items": [_identity(item) for item in items]}
        _print(("get", "--filename=-", *self.output, *self.connection), listed)


def printer(
    output: str, template: str, *, allow_missing_keys: bool, show_managed_fields: bool, connection: Sequence[str]
) -> KubectlPrinter:
    """The printer for `-o FORMAT[=TEMPLATE]`. Raises UsageError without kubectl, or without a template."""
    format_, equals, text = output.partition("=")
    if equals and template:
        raise UsageError(f"-o {format_}= and --template: give the template once")
    if format_ in _EXAMPLES and not (text or template):
        raise UsageError(f"-o {format_}: needs a template, such as {format_}={_EXAMPLES[format_]}")
    if shutil.which("kubectl") is None:
        raise UsageError(f"-o {format_}: kubectl prints this format and is not on the PATH; install it, or use -o json")
    flags = [f"--output={output}"]
    flags += [f"--template={template}"] if template else []
    flags += [f"--allow-missing-template-keys={str(allow_missing_keys).lower()}"] if format_ in _EXAMPLES else []
    flags += ["--show-managed-fields"] if show_managed_fields else []
    return KubectlPrinter(tuple(flags), tuple(connection))


def replace_process(*arguments: str) -> NoReturn:
    """Replace this process by kubectl."""
    program = shutil.which("kubectl")
    if program is None:
        raise UsageError("kubectl is not on the PATH; this command is run by kubectl")
    os.execve(program, ["kubectl", *arguments], _environment())


def _identity(tree: Mapping[str, Any]) -> dict[str, Any]:
    metadata = {name: tree["metadata"][name] for name in ("name", "namespace") if tree["metadata"].get(name)}
    return {"apiVersion": tree["apiVersion"], "kind": tree["kind"], "metadata": metadata}


def _print(arguments: Sequence[str], tree: Mapping[str, Any]) -> None:
    done = subprocess.run(
        ["kubectl", *arguments], input=json.dumps(tree).encode(), capture_output=True, env=_environment(), check=False
    )
    click.echo(done.stdout, nl=False)
    if done.returncode:
        raise UsageError(f"kubectl: {done.stderr.decode(errors='replace').strip()}")


def _environment() -> dict[str, str]:
    """The environment, with the kubeconfig of the last `pykueue up` where kubectl would find none."""
    last, default = paths.kubeconfig(), os.path.expanduser("~/.kube/config")
    environment = dict(os.environ)
    if "KUBECONFIG" not in environment and not os.path.exists(default) and last.exists():
        environment["KUBECONFIG"] = str(last)
    return environment
