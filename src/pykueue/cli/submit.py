"""`pykueue submit`: a job in one line."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from kubemachinery.errors import UsageError
from pykueue.api import labels
from pykueue.cli import completion_candidates, flags, printing
from pykueue.cli.connection import Connection, connects
from pykueue.cli.printing import OutputFormat
from pykueue.cli.progress import aside, progress
from pykueue.errors import NegativeResult

if TYPE_CHECKING:
    from kubemachinery.client.client import ApiClient
    from pykueue.client.job_service import JobService
    from pykueue.client.queued_job import QueuedJob


def _amount(context: click.Context, option: click.Parameter, text: str) -> str:
    from pykueue.client import job_request

    return job_request.amount(text, option.opts[0]) if text else ""


def _seconds(context: click.Context, option: click.Parameter, text: str) -> int | None:
    from pykueue.client import job_request

    if (found := _SBATCH_TIME.fullmatch(text)) and (duration := _of_sbatch(found)):
        raise UsageError(f"{option.opts[0]} {text}: is a time of sbatch; write {duration}")
    return job_request.seconds(text, option.opts[0]) if text else None


# MINUTES, MINUTES:SECONDS, HOURS:MINUTES:SECONDS, and the same with DAYS-, where hours come first.
_SBATCH_TIME: Final = re.compile(r"(?:(\d{1,4})-)?(\d{1,6})(?::(\d{1,2}))?(?::(\d{1,2}))?")


def _of_sbatch(found: re.Match[str]) -> str:
    """A time of sbatch as a duration such as 26h30m; empty for zero, which is no limit there."""
    days, *parts = (int(part) if part else None for part in found.groups())
    first, second, third = (part or 0 for part in parts)
    if days is not None or parts[2] is not None:
        total = ((days or 0) * 24 + first) * 3600 + second * 60 + third
    else:
        total = first * 60 + second
    hours, minutes, seconds = total // 3600, total // 60 % 60, total % 60
    return "".join(f"{amount}{unit}" for amount, unit in ((hours, "h"), (minutes, "m"), (seconds, "s")) if amount)


def _variables(context: click.Context, option: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    from pykueue.client import job_request

    return job_request.variables(texts, os.environ)


# Options of sbatch and srun that people type: the option here, or why there is none.
_SLURM: Final[Mapping[str, str]] = {
    "--mem": "use --memory",
    "--mem-per-cpu": "use --memory, which is for the whole pod",
    "--gpu": "use --gpus",
    "--gres": "use --gpus",
    "--gpus-per-node": "use --gpus",
    "--gpus-per-task": "use --gpus",
    "-G": "use --gpus",
    "--cpus": "use --cpu",
    "--cpus-per-task": "use --cpu",
    "-c": "use --cpu",
    "--job-name": "use --name",
    "-J": "use --name",
    "--partition": "use --queue",
    "-p": "use --queue",
    "--qos": "use --priority-class",
    "-t": "use --time",
    "--chdir": "use --workdir",
    "-D": "use --workdir",
    "--export": "use --env, once for each variable",
    "--ntasks": "use --parallelism",
    "--nodes": "a job is a number of pods and not of nodes: use --parallelism",
    "-N": "a job is a number of pods and not of nodes: use --parallelism",
    "--array": "job arrays do not exist; --parallelism N runs N pods at once, numbered by JOB_COMPLETION_INDEX",
    "-a": "job arrays do not exist; --parallelism N runs N pods at once, numbered by JOB_COMPLETION_INDEX",
    "--dependency": "dependencies between jobs do not exist; `pykueue wait NAME` before the next submit",
    "-d": "dependencies between jobs do not exist; `pykueue wait NAME` before the next submit",
    "--account": "accounts do not exist; quota belongs to the queue",
    "-A": "accounts do not exist; quota belongs to the queue",
    "--nodelist": "nodes are not chosen by name; the queue's flavors choose them",
    "-w": "nodes are not chosen by name; the queue's flavors choose them",
    "--exclusive": "nodes are not reserved as a whole; ask for all of their cpu",
    "--pty": "interactive jobs do not exist; --follow shows the log",
    "--begin": "a start time does not exist; the job starts when quota is available",
    "--wrap": "write the command after --, such as -- sh -c 'COMMAND'",
    "--constraint": "features of nodes are flavors of the queue; use --queue",
    "-C": "features of nodes are flavors of the queue; use --queue",
    "--reservation": "a reservation belongs to a queue (`pykueue reserve`); use --queue",
    "--hold": "jobs are held after they are submitted: `pykueue stop workload NAME`",
    "-H": "jobs are held after they are submitted: `pykueue stop workload NAME`",
    "--nice": "use --priority-class",
    "--requeue": "an evicted job is always requeued; --retries is for failed pods",
    "--no-requeue": "an evicted job is always requeued; --retries is for failed pods",
    "--error": "both outputs are in the log: `pykueue logs NAME`",
    "--mail-type": "mail is not sent; `pykueue wait NAME` returns when the job has finished",
    "--mail-user": "mail is not sent; `pykueue wait NAME` returns when the job has finished",
    "--test-only": "use --dry-run for the Job, or `pykueue whatif --eta -f FILE` for its start",
}


_MANIFESTS: Final = (".yaml", ".yml", ".json")


class SubmitCommand(click.Command):
    """Options end at `--` or at the first word that is none: the rest is the command. An unknown option before that is
    refused, for it would become the command, together with every option after it.

    `-f` has two meanings: with the name of a manifest after it, the one that it has for kubectl, else that of `logs`.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, self._with_files(args))
        except click.NoSuchOption as error:
            name = error.option_name
            raise UsageError(f"submit has no option {name}{self._advice(name)}") from None

    def _with_files(self, args: list[str]) -> list[str]:
        """The arguments with `--filename` for each `-f` that a manifest follows. The command is left as it is."""
        takes_value = {
            name
            for option in self.params
            if isinstance(option, click.Option) and not option.is_flag
            for name in option.opts
        }
        words, position = list(args), 0
        while position < len(words) and words[position].startswith("-") and words[position] not in ("-", "--"):
            following = words[position + 1] if position + 1 < len(words) else ""
            if words[position] == "-f" and (following == "-" or following.endswith((*_MANIFESTS, "/"))):
                words[position] = "--filename"
            position += 2 if words[position] in takes_value else 1
        return words

    def _advice(self, name: str) -> str:
        if name in _SLURM:
            return f": {_SLURM[name]}"
        known = [long for option in self.params for long in option.opts if long.startswith("--")]
        nearest = difflib.get_close_matches(name, known, n=1) if name.startswith("--") else []
        return f"; did you mean {nearest[0]}?" if nearest else "; `pykueue submit --help` lists them"


@click.command("submit", cls=SubmitCommand, context_settings={"allow_interspersed_args": False})
@flags.files(
    "Submit the jobs of a manifest (.yaml, .yml, .json, a folder/ or -) instead of a command; may be repeated.",
    "--filename",
)
@click.option("--name", default="", help="The job's name; made from the command by default.")
@click.option(
    "-q",
    "--queue",
    default="",
    shell_complete=completion_candidates.objects("localqueue"),
    help="The LocalQueue; `default`, or the only one there is, by default.",
)
@click.option(
    "--cpu", default="1", show_default=True, callback=_amount, help="Processors for each pod, such as 2 or 500m."
)
@click.option("--memory", default="", callback=_amount, help="Memory for each pod, such as 4Gi; it cannot have more.")
@click.option(
    "--gpus", type=flags.IntegerRange(0), default=0, help="Graphics processors (nvidia.com/gpu) for each pod."
)
@click.option(
    "--parallelism",
    type=flags.IntegerRange(1),
    default=1,
    show_default=True,
    help="Pods at the same time; each finds its number in JOB_COMPLETION_INDEX.",
)
@click.option(
    "--retries", type=flags.IntegerRange(0), default=0, show_default=True, help="How often a failed pod is tried again."
)
@click.option(
    "--time-limit",
    "--time",
    "time_limit_seconds",
    default="",
    callback=_seconds,
    help="Stop the job after this long, such as 90s or 2h30m.",
)
@click.option(
    "--expected-time",
    "expected_seconds",
    default="",
    callback=_seconds,
    help="How long the job is expected to run, such as 2h; for estimates, it stops nothing.",
)
@click.option(
    "-e",
    "--env",
    "environment",
    multiple=True,
    callback=_variables,
    help="NAME=VALUE, or NAME for the value that it has here; may be repeated.",
)
@click.option(
    "--priority-class",
    default="",
    shell_complete=completion_candidates.objects("workloadpriorityclass"),
    help="The WorkloadPriorityClass.",
)
@click.option("--image", default="", help="The image to run in. Needed on a cluster; not used by `pykueue up`.")
@click.option(
    "--workdir", "directory", default="", help="The directory to start in; the current one with `pykueue up`."
)
@click.option("--wait", is_flag=True, help="Return when the job has finished: 0 if it succeeded, 1 if not.")
@click.option(
    "-f", "--follow", is_flag=True, help="The same, and show the log meanwhile. `-f FILE` is short for --filename."
)
@click.option(
    "--timeout",
    "timeout_seconds",
    default="",
    callback=_seconds,
    help="With --wait or -f: stop waiting after this long, such as 90s or 2h; the job continues.",
)
@click.option("--dry-run", is_flag=True, help="Print the Job, and submit nothing.")
@printing.prints("name", "json", "yaml")
@connects
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="-- COMMAND [ARGUMENT]...")
@click.pass_context
def command(
    context: click.Context,
    /,
    connection: Connection,
    files: tuple[str, ...],
    queue: str,
    priority_class: str,
    image: str,
    wait: bool,
    follow: bool,
    timeout_seconds: int | None,
    dry_run: bool,
    form: OutputFormat,
    words: tuple[str, ...],
    **options: Any,
) -> None:
    """Submit a command as a job, or the jobs of a manifest. They wait in their queue until quota is available.

    \b
    pykueue submit -- python train.py --epochs 3
    pykueue submit --cpu 4 --memory 8Gi --gpus 1 -q research -f -- ./train.sh
    pykueue submit -q research -f pytorchjob.yaml

    A manifest may have jobs of every kind that the server queues; one that it would run outside quota is refused.
    --queue and --priority-class replace those of the manifest.

    The command runs as it is written: dollar signs reach it unchanged, and appear doubled in the Job, as Kubernetes
    writes them.
    """
    from kubemachinery.clock import SystemClock
    from pykueue.client import job_request, job_service

    if files:
        _refuse_with_files(context, words)
        connection.talk(lambda client, namespace: _submit_files(
            job_service.JobService(client, namespace, aside), files, queue, priority_class, form,
            dry_run=dry_run, wait=wait, follow=follow, timeout_seconds=timeout_seconds,
        ))  # fmt: skip
        return
    if not words:
        raise UsageError("submit needs a command after `--`, or a manifest with -f FILE")

    async def work(client: ApiClient, namespace: str) -> None:
        service = job_service.JobService(client, namespace, aside)
        here = await service.runs_processes()
        if not here and not image:
            raise UsageError("this server runs containers: name an image with --image")
        wanted = job_request.JobRequest(
            command=words,
            namespace=namespace,
            queue=await service.queue(queue),
            priority_class=await service.priority_class(priority_class),
            image=image or job_request.NO_IMAGE,
            **options,
        )
        if here:
            wanted = job_request.with_local_environment(wanted, os.environ, wanted.directory or os.getcwd())
        tree = job_request.job(wanted, SystemClock().now())
        if dry_run:
            (form if form.is_document else OutputFormat("yaml")).document(tree)
            return
        job = await service.submit(tree)
        _print_job(job, wanted.queue, form)
        if follow or wait:
            await _watch(service, job, timeout_seconds, follow=follow)

    connection.talk(work)


# The options that describe a Job. A manifest has them itself.
_OF_COMMANDS: Final = frozenset({
    "name", "cpu", "memory", "gpus", "parallelism", "retries", "time_limit_seconds", "environment", "image",
    "directory",
})  # fmt: skip


def _refuse_with_files(context: click.Context, words: tuple[str, ...]) -> None:
    """Raise UsageError for a command, or an option of one, together with a manifest."""
    if words:
        raise UsageError(f"submit takes a manifest or a command, not both; the command is {' '.join(words)!r}")
    for option in context.command.params:
        is_written = context.get_parameter_source(option.name or "") is ParameterSource.COMMANDLINE
        if option.name in _OF_COMMANDS and is_written:
            raise UsageError(f"{option.opts[0]} does not go with a manifest: write it there")


async def _submit_files(
    service: JobService,
    files: tuple[str, ...],
    queue: str,
    priority_class: str,
    form: OutputFormat,
    *,
    dry_run: bool,
    wait: bool,
    follow: bool,
    timeout_seconds: int | None,
) -> None:
    """Submit the jobs of manifests, after all of them were read, and were tried without being stored."""
    from kubemachinery.clock import SystemClock
    from pykueue.cli.plan import documents
    from pykueue.client import manifests

    given = manifests.jobs((each for name in files for each in documents(name)), service.namespace)
    priority_class = await service.priority_class(priority_class)
    trees = [
        (each.row, each.submitted(await service.queue(queue or each.queue), priority_class, SystemClock().now()))
        for each in given
    ]
    for row, tree in trees:
        await service.check_is_queued(tree, row)
    if dry_run:
        for _, tree in trees:
            (form if form.is_document else OutputFormat("yaml")).document(tree)
        return
    jobs = [await service.submit(tree, row) for row, tree in trees]
    for job in jobs:
        _print_job(job, job.labels[labels.QUEUE_NAME], form)
    for job in jobs:
        if follow or wait:
            await _watch(service, job, timeout_seconds, follow=follow)


def _print_job(job: QueuedJob, queue: str, form: OutputFormat) -> None:
    if form.is_document:
        form.document(job.tree)
    else:
        click.echo(job.resource if form.word == "name" else f"{job.title} submitted to queue {queue}")


async def _watch(service: JobService, job: QueuedJob, timeout_seconds: int | None, *, follow: bool) -> None:
    """Wait until the job has finished; a failure is the answer no."""
    from pykueue.cli.logs import printed
    from pykueue.cli.wait import warn_if_pods_do_not_run
    from pykueue.client import job_service, job_status, pod_logs

    await warn_if_pods_do_not_run(service)
    with progress() as report:
        async with job_service.within(job.title, timeout_seconds):
            if follow:
                write = printed(several=job.has_several_pods)
                await service.logs(job.reference, pod_logs.PodLogOptions(follow=True), write, report)
            over = await service.finished(job.reference, report)
    if over.state is not job_status.JobState.SUCCEEDED:
        raise NegativeResult(f"{job.title} {over.outcome}")
