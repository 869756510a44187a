"""`pykueue submit`: a job in one line."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from pykueue.cli.connection import Connection, connects, progress
from pykueue.errors import AnswerIsNo, UsageError

if TYPE_CHECKING:
    from pykueue.api import kube
    from pykueue.kube.client import Client


@click.command("submit", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--name", default="", help="The job's name; made from the command by default.")
@click.option("-q", "--queue", default="", help="The LocalQueue; `default`, or the only one there is, by default.")
@click.option("--cpu", default="1", show_default=True, help="Processors for each pod, such as 2 or 500m.")
@click.option("--memory", default="", help="Memory for each pod, such as 4Gi; it cannot have more.")
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
@click.option("--time-limit", default="", help="When to give up, such as 90s or 2h30m.")
@click.option("-e", "--env", "environment", multiple=True, help="NAME=VALUE, or NAME for the value that it has here.")
@click.option("--priority-class", default="", help="The WorkloadPriorityClass.")
@click.option("--image", default="", help="The image to run in. Needed on a cluster; not used by `pykueue up`.")
@click.option("--workdir", default="", help="The directory to start in; the current one with `pykueue up`.")
@click.option("--wait", is_flag=True, help="Return when it is over: 0 when it succeeded, 1 when not.")
@click.option("-f", "--follow", is_flag=True, help="The same, and show its log meanwhile.")
@click.option("--dry-run", is_flag=True, help="Print the Job, and submit nothing.")
@click.option("-o", "--output", type=click.Choice(["name", "json", "yaml"]), default=None, help="How to print it.")
@connects
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND [ARGUMENT]...")
def command(
    connection: Connection,
    name: str,
    queue: str,
    cpu: str,
    memory: str,
    gpus: int,
    parallelism: int,
    retries: int,
    time_limit: str,
    environment: tuple[str, ...],
    priority_class: str,
    image: str,
    workdir: str,
    wait: bool,
    follow: bool,
    dry_run: bool,
    output: str | None,
    words: tuple[str, ...],
) -> None:
    """Submit a command as a job: it waits in a queue until there is room, and then runs.

    \b
    pykueue submit -- python train.py --epochs 3
    pykueue submit --cpu 4 --memory 8Gi --gpus 1 -q research -f -- ./train.sh
    """
    from pykueue.cli import printing
    from pykueue.cli.logs import printed
    from pykueue.cli.wait import say_if_nobody_runs_pods
    from pykueue.clock import SystemClock
    from pykueue.work import desk, order, standing

    variables = order.variables(environment, os.environ)

    async def work(client: Client, namespace: str) -> None:
        clerk = desk.Desk(client, namespace)
        here = await clerk.runs_processes()
        if not here and not image:
            raise UsageError("this server runs containers: name an image with --image")
        wanted = order.Order(
            command=words,
            name=name,
            queue=await clerk.queue(queue),
            namespace=namespace,
            cpu=order.amount(cpu, "--cpu"),
            memory=order.amount(memory, "--memory") if memory else "",
            gpus=gpus,
            parallelism=parallelism,
            retries=retries,
            time_limit_seconds=order.seconds(time_limit, "--time-limit") if time_limit else None,
            # What is found by name here is found there as well, for it is the same machine.
            environment={**({"PATH": os.environ["PATH"]} if here and "PATH" in os.environ else {}), **variables},
            priority_class=await clerk.priority_class(priority_class),
            image=image or order.NO_IMAGE,
            directory=workdir or (os.getcwd() if here else ""),
        )
        tree = order.job(wanted, SystemClock().now())
        if dry_run:
            printing.document(tree, "json" if output == "json" else "yaml")
            return
        job = await clerk.submit(tree)
        _tell(job, wanted.queue, output)
        if follow or wait:
            await say_if_nobody_runs_pods(clerk)
            with progress() as told:
                if follow:
                    await clerk.logs(job.metadata.name, desk.LogWish(follow=True), printed(parallelism > 1), told)
                over = await clerk.finished(job.metadata.name, told)
            if over.word is not standing.Word.SUCCEEDED:
                raise AnswerIsNo(f"job {job.metadata.name} failed: {over.why}")

    connection.talk(work)


def _tell(job: kube.Job, queue: str, output: str | None) -> None:
    from pykueue.api import codec
    from pykueue.cli import printing

    match output:
        case "name":
            click.echo(f"job.batch/{job.metadata.name}")
        case "json" | "yaml":
            printing.document(codec.to_tree(job), output)
        case _:
            click.echo(f"job {job.metadata.name} submitted to queue {queue}")
