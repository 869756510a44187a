"""`pykueue submit`: a job in one line."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from pykueue.cli import completing, printing
from pykueue.cli.connection import Connection, connects
from pykueue.cli.printing import Form
from pykueue.cli.progress import aside, progress
from pykueue.errors import AnswerIsNo, UsageError

if TYPE_CHECKING:
    from pykueue.api import kube
    from pykueue.kube.client import Client
    from pykueue.work.desk import Desk


def _amount(context: click.Context, option: click.Parameter, text: str) -> str:
    from pykueue.work import order

    return order.amount(text, option.opts[0]) if text else ""


def _seconds(context: click.Context, option: click.Parameter, text: str) -> int | None:
    from pykueue.work import order

    return order.seconds(text, option.opts[0]) if text else None


def _variables(context: click.Context, option: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    from pykueue.work import order

    return order.variables(texts, os.environ)


@click.command("submit", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--name", default="", help="The job's name; made from the command by default.")
@click.option(
    "-q",
    "--queue",
    default="",
    shell_complete=completing.objects("localqueue"),
    help="The LocalQueue; `default`, or the only one there is, by default.",
)
@click.option(
    "--cpu", default="1", show_default=True, callback=_amount, help="Processors for each pod, such as 2 or 500m."
)
@click.option("--memory", default="", callback=_amount, help="Memory for each pod, such as 4Gi; it cannot have more.")
@click.option("--gpus", type=click.IntRange(0), default=0, help="Graphics processors (nvidia.com/gpu) for each pod.")
@click.option(
    "--parallelism",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Pods at the same time; each finds its number in JOB_COMPLETION_INDEX.",
)
@click.option(
    "--retries", type=click.IntRange(0), default=0, show_default=True, help="How often it may fail and be tried again."
)
@click.option(
    "--time-limit",
    "time_limit_seconds",
    default="",
    callback=_seconds,
    help="When to give up, such as 90s or 2h30m.",
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
    shell_complete=completing.objects("workloadpriorityclass"),
    help="The WorkloadPriorityClass.",
)
@click.option("--image", default="", help="The image to run in. Needed on a cluster; not used by `pykueue up`.")
@click.option(
    "--workdir", "directory", default="", help="The directory to start in; the current one with `pykueue up`."
)
@click.option("--wait", is_flag=True, help="Return when it is over: 0 when it succeeded, 1 when not.")
@click.option("-f", "--follow", is_flag=True, help="The same, and show its log meanwhile.")
@click.option(
    "--timeout",
    "timeout_seconds",
    default="",
    callback=_seconds,
    help="With these: stop waiting after this long, such as 90s or 2h; the job goes on.",
)
@click.option("--dry-run", is_flag=True, help="Print the Job, and submit nothing.")
@printing.prints("name", "json", "yaml", "kyaml")
@connects
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND [ARGUMENT]...")
def command(
    connection: Connection,
    queue: str,
    priority_class: str,
    image: str,
    wait: bool,
    follow: bool,
    timeout_seconds: int | None,
    dry_run: bool,
    form: Form,
    words: tuple[str, ...],
    **wishes: Any,
) -> None:
    """Submit a command as a job: it waits in a queue until there is room, and then runs.

    \b
    pykueue submit -- python train.py --epochs 3
    pykueue submit --cpu 4 --memory 8Gi --gpus 1 -q research -f -- ./train.sh
    """
    from pykueue.clock import SystemClock
    from pykueue.work import desk, order

    async def work(client: Client, namespace: str) -> None:
        clerk = desk.Desk(client, namespace, aside)
        here = await clerk.runs_processes()
        if not here and not image:
            raise UsageError("this server runs containers: name an image with --image")
        wanted = order.Order(
            command=words,
            namespace=namespace,
            queue=await clerk.queue(queue),
            priority_class=await clerk.priority_class(priority_class),
            image=image or order.NO_IMAGE,
            **wishes,
        )
        if here:
            wanted = order.at_home(wanted, os.environ, wanted.directory or os.getcwd())
        tree = order.job(wanted, SystemClock().now())
        if dry_run:
            (form if form.is_document else Form("yaml")).document(tree)
            return
        job = await clerk.submit(tree)
        _tell(job, wanted.queue, form)
        if follow or wait:
            await _watch(clerk, job, timeout_seconds, follow=follow)

    connection.talk(work)


def _tell(job: kube.Job, queue: str, form: Form) -> None:
    from pykueue.api import codec

    if form.is_document:
        form.document(codec.to_tree(job))
    else:
        name = job.metadata.name
        click.echo(f"job.batch/{name}" if form.word == "name" else f"job {name} submitted to queue {queue}")


async def _watch(clerk: Desk, job: kube.Job, timeout_seconds: int | None, *, follow: bool) -> None:
    """Until it is over; a failure is the answer no."""
    from pykueue.cli.logs import printed
    from pykueue.cli.wait import say_if_nobody_runs_pods
    from pykueue.work import desk, podlog, standing

    name = job.metadata.name
    await say_if_nobody_runs_pods(clerk)
    with progress() as told:
        async with desk.within(name, timeout_seconds):
            if follow:
                say = printed(several=(job.spec.parallelism or 1) > 1)
                await clerk.logs(name, podlog.Wish(follow=True), say, told)
            over = await clerk.finished(name, told)
    if over.word is not standing.Word.SUCCEEDED:
        raise AnswerIsNo(f"job {name} failed: {over.why}")
