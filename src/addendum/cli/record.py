"""`addendum record`: run a program and write down what it sends to models."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import anyio
import click
from anyio.abc import Process, TaskStatus

from addendum.cli.flags import NEW_FILE
from addendum.cli.terminal import echo, run_async
from addendum.errors import ConfigurationError
from addendum.lines import one_line
from addendum.paths import FOREIGN, reason, shown
from addendum.tell.figures import number

_SIGNALLED = 128


@click.command(context_settings={"ignore_unknown_options": True})
@click.option(
    "--out",
    default="captures.jsonl",
    show_default=True,
    type=NEW_FILE,
    metavar="FILE",
    help="Where requests are written, without credentials.",
)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
def record(out: Path, command: tuple[str, ...]) -> None:
    """Run COMMAND and write the requests that it sends to models into FILE.

    A proxy on 127.0.0.1 stands in between: COMMAND gets the variables that the vendors' SDKs read
    their address from (ANTHROPIC_BASE_URL, OPENAI_BASE_URL and the like), and what these say now is
    where requests go on to. `addendum check FILE` then says whether each request keeps its prefix.
    The exit code is COMMAND's own.
    """
    if out.exists() or out.is_symlink():
        raise ConfigurationError(f"{shown(out)} is there already; name another file with --out")
    if not command[0]:
        raise click.UsageError("the command is empty ('')")
    code = run_async(_record, out, command, dict(os.environ))
    raise click.exceptions.Exit(code)


async def _record(out: Path, command: tuple[str, ...], environ: Mapping[str, str]) -> int:
    from addendum.lab.proxy import open_proxy

    async with open_proxy(out, environ) as proxy:
        try:
            process = await anyio.open_process(
                command, stdin=None, stdout=None, stderr=None, env={**environ, **proxy.variables}
            )
        except FOREIGN as error:
            raise ConfigurationError(
                f"cannot run {shown(command[0])}: {reason(error)}; name a program behind --"
            ) from error
        # Ctrl+C reaches the command as well; what it was sending is still written down.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        code = 0
        try:
            async with anyio.create_task_group() as tasks:
                await tasks.start(_pass_on, process)
                code = await process.wait()
                tasks.cancel_scope.cancel()
        finally:
            signal.signal(signal.SIGINT, before)
    echo(one_line(_said(out, sorted(proxy.targets)), 400), err=True)
    return _SIGNALLED - code if code < 0 else code


async def _pass_on(process: Process, *, task_status: TaskStatus[None]) -> None:
    """Give the command the signals that would end this process and leave it behind."""
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGHUP) as signals:
        task_status.started()
        async for number in signals:
            with suppress(ProcessLookupError):
                process.send_signal(number)


def _said(out: Path, variables: list[str]) -> str:
    if not out.exists():
        return (
            "addendum: no request to a model came by; does the command read its address from "
            f"{', '.join(variables[:2])} or the like?"
        )
    with out.open("rb") as file:
        count = sum(1 for _ in file)
    requests = f"{number(count)} request{'' if count == 1 else 's'}"
    return f"addendum: {requests} written; now: addendum check {out}"
