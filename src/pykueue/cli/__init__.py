"""The command line: one click group whose commands are loaded only when they are called.

To start fast, the module of a command (and its imports) is loaded when that command runs or
shows its help. The table below is the whole list of commands, in the order in which help shows them.
"""

from __future__ import annotations

import atexit
import difflib
import gc
import importlib
import os
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from os import EX_SOFTWARE
from typing import Any, Final, NamedTuple

import click

from pykueue.cli import flags
from pykueue.errors import NegativeResult, PykueueError
from pykueue.version import __version__


class Verb(NamedTuple):
    module: str
    summary: str
    attribute: str = "command"


# name -> its module, and its line in `pykueue --help`. A test compares the line with the command's help.
VERBS: Final[dict[str, Verb]] = {
    "up": Verb("up", "Run an API server and the queueing system on this machine."),
    "manager": Verb("manager", "Run the queueing system for an existing API server."),
    "submit": Verb("submit", "Submit a command as a job."),
    "queue": Verb("queue", "Show waiting and running jobs."),
    "wait": Verb("wait", "Wait until jobs have finished."),
    "logs": Verb("logs", "Show the log of a job."),
    "cancel": Verb("cancel", "Cancel jobs."),
    "history": Verb("history", "Show the history of jobs, also of deleted ones."),
    "report": Verb("report", "Report usage and waiting from the history."),
    "reserve": Verb("reserve", "Reserve quota for a time: create, list and delete QuotaSchedules."),
    "top": Verb("top", "Watch cohorts, queues and pending Workloads, live."),
    "plan": Verb("plan", "Compute scheduling decisions offline, from objects in files."),
    "replay": Verb("replay", "Replay the trace of a manager, and compare the decisions."),
    "explain": Verb("explain", "Explain why a Workload waits, and the smallest change that would admit it."),
    "whatif": Verb("whatif", "Show which Workloads would start, wait or be evicted if objects changed."),
    "lint": Verb("lint", "Find configurations that can never work, or that have unexpected effects."),
    "create": Verb("create", "Create a ClusterQueue, a LocalQueue or a ResourceFlavor."),
    "list": Verb("list_command", "List ClusterQueues, LocalQueues, Workloads, ResourceFlavors or pods."),
    "stop": Verb("stop", "Stop a ClusterQueue, a LocalQueue or a Workload."),
    "resume": Verb("resume", "Resume a ClusterQueue, a LocalQueue or a Workload."),
    "delete": Verb("delete", "Delete a Workload with its job, or a queue or flavor."),
    "get": Verb("kubectl", "Get a Workload, a queue or a flavor, with kubectl.", "get"),
    "describe": Verb("kubectl", "Describe a Workload, a queue or a flavor, with kubectl.", "describe"),
    "edit": Verb("kubectl", "Edit a Workload, a queue or a flavor, with kubectl.", "edit"),
    "patch": Verb("kubectl", "Patch a Workload, a queue or a flavor, with kubectl.", "patch"),
    "config": Verb("config", "Check a Configuration file."),
    "install": Verb("install", "Install the manager in a cluster, or render its manifests."),
    "uninstall": Verb("uninstall", "Delete what install created, and keep objects of users."),
    "populator": Verb("populator", "Create a LocalQueue in every namespace that a ClusterQueue selects."),
    "testenv": Verb("testenv", "Stand in for kube-apiserver and etcd in envtest suites."),
    "options": Verb("options", "List the connection flags shared by all commands."),
    "completion": Verb("completion", "Print shell completion for bash, zsh or fish."),
    "version": Verb("version", "Print the version."),
}


class OutputClosed(Exception):
    """The reader of stdout (`| head`) closed it. Not an OSError: clients treat those as broken connections."""


@contextmanager
def output_may_close() -> Iterator[None]:
    """Raise OutputClosed when stdout is closed."""
    try:
        yield
    except BrokenPipeError:
        raise OutputClosed from None


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        verb = VERBS.get(cmd_name)
        if verb is None:
            return None
        command: click.Command = getattr(importlib.import_module(f"pykueue.cli.{verb.module}"), verb.attribute)
        return command

    # click would exit with 1 when stdout is closed, which means a negative result here. Help is printed while the
    # context is created, everything else by the command.
    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        with output_may_close():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with output_may_close():
            return super().invoke(ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, verb.summary) for name, verb in VERBS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            name, command, rest = super().resolve_command(ctx, args)
            return name, command, rest if command is None else flags.short_values(ctx, command, rest)
        except click.UsageError as error:
            nearest = difflib.get_close_matches(args[0], VERBS, n=1) if args else []
            if not nearest or "Did you mean" in error.format_message():
                raise
            raise click.UsageError(f"{error.format_message()} Did you mean {nearest[0]!r}?", ctx=ctx) from None


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, "-V", "--version", prog_name="pykueue", message="%(prog)s %(version)s")
def program() -> None:
    """Job queueing for Kubernetes: quotas, cohorts that lend and borrow, priorities, fair sharing.

    Compatible with the Kueue API. Exit codes: 0 success, 1 negative result, 2 wrong usage or input.
    """


def help_texts() -> Iterator[tuple[str, str]]:
    """Every command and subcommand with its help, in the order of `VERBS`."""

    def below(command: click.Command, context: click.Context) -> Iterator[tuple[str, str]]:
        yield context.command_path, command.get_help(context).replace("\b\n", "").rstrip()
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                child = command.get_command(context, name)
                assert child is not None, name
                if child.hidden:
                    continue  # a stand-in for a program with its own flags
                yield from below(child, click.Context(child, info_name=name, parent=context, max_content_width=100))

    root = click.Context(program, info_name="pykueue")
    for name in VERBS:
        verb = program.get_command(root, name)
        assert verb is not None, name
        yield from below(verb, click.Context(verb, info_name=name, parent=root, max_content_width=100))


# The exit code that shells report for a program ended by SIGPIPE, such as `yes | head`.
_CLOSED_OUTPUT_CODE: Final = 128 + signal.SIGPIPE


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the program. Input errors never show a traceback; a closed stdout ends it silently."""
    if arguments is None:
        _collect_garbage_rarely()
    try:
        try:
            _main(arguments)
        finally:
            if sys.stdout is not None:
                with output_may_close():
                    sys.stdout.flush()
    except OutputClosed:
        # Python flushes stdout again at exit, and would print an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(_CLOSED_OUTPUT_CODE)


def _collect_garbage_rarely() -> None:
    """Make the garbage collector run rarely, and not at the end of the process: most of what a command allocates are
    modules, which live as long as it does. Servers set thresholds of their own."""
    gc.set_threshold(200_000, 20, 20)
    atexit.register(gc.freeze)


def _main(arguments: Sequence[str] | None) -> None:
    try:
        _run(arguments)
    except click.exceptions.Exit as exit_:
        sys.exit(exit_.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except click.Abort:
        click.echo("interrupted", err=True)
        sys.exit(130)
    except NegativeResult as answer:
        if str(answer):
            click.echo(str(answer), err=True)
        sys.exit(1)
    except PykueueError as error:
        click.echo(f"pykueue: {error}", err=True)
        sys.exit(2)
    except OSError as error:
        # Most likely the target of stdout is full; Python would report it again at exit.
        sys.stdout = None
        click.echo(f"pykueue: {error.filename or 'the output cannot be written'}: {error.strerror or error}", err=True)
        sys.exit(2)
    except OutputClosed:
        raise
    except Exception as error:
        if os.environ.get("PYKUEUE_TRACEBACK"):
            raise
        report_internal_error(error)
        sys.exit(EX_SOFTWARE)


def report_internal_error(error: Exception) -> None:
    """Report an error that is none of the input: of a server, which writes a log, as a line of it with the traceback,
    and of any other command as a sentence without one."""
    import logging  # takes longer than the rest of a short command's start

    log = logging.getLogger("pykueue")
    if log.handlers:
        log.critical("internal error: %s", _described(error), exc_info=error)
    else:
        click.echo(f"pykueue: internal error: {_described(error)}; PYKUEUE_TRACEBACK=1 shows the traceback", err=True)


def _run(arguments: Sequence[str] | None) -> None:
    """Run the program. Of an error group, the first error is reported."""
    try:
        program.main(None if arguments is None else list(arguments), prog_name="pykueue", standalone_mode=False)
    except ExceptionGroup as group:
        leaves = list(_leaves(group))
        if all(isinstance(leaf, PykueueError) for leaf in leaves):
            raise leaves[0] from None
        raise


def _leaves(error: Exception) -> Iterator[Exception]:
    if isinstance(error, ExceptionGroup):
        for part in error.exceptions:
            yield from _leaves(part)
    else:
        yield error


def _described(error: Exception) -> str:
    """The type, message and place of an error; of an error group, those of the first error that is not one of input."""
    leaves = list(_leaves(error))
    cause = next((leaf for leaf in leaves if not isinstance(leaf, PykueueError)), leaves[0])
    *_, last = traceback.extract_tb(cause.__traceback__)
    return f"{type(cause).__name__}: {cause} ({last.filename}, line {last.lineno})"
