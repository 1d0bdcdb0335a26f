"""`addendum lab`: the lab's providers alone, for whatever speaks to them."""

from __future__ import annotations

import sys
from typing import Any

import anyio
import click

from addendum.cli.flags import FILE
from addendum.cli.terminal import echo, print_json, run_async
from addendum.lines import one_line


@click.command()
@click.argument("file", type=FILE, required=False)
@click.option("--port", type=click.IntRange(0, 65_535), default=0, help="0 takes a free one.")
@click.option("--set", "values", multiple=True, metavar="NAME=VALUE", help="A scenario variable.")
@click.option("--json", "as_json", is_flag=True, help="Print the addresses as JSON.")
def lab(file: str | None, port: int, values: tuple[str, ...], as_json: bool) -> None:
    """Serve the lab's providers on 127.0.0.1 until it is interrupted; print their addresses.

    The model plays the script of the scenario FILE. Without one it answers in text and obeys
    `/call NAME JSON` in the last user message. Other programs are pointed at an address by the
    variables of the vendors' SDKs (ANTHROPIC_BASE_URL, OPENAI_BASE_URL, GOOGLE_GEMINI_BASE_URL and
    the like); any key will do.
    """
    if values and file is None:
        raise click.UsageError(f"--set {values[0]} goes with a scenario; name its FILE")
    run_async(_serve, file, port, values, as_json)


async def _serve(file: str | None, port: int, values: tuple[str, ...], as_json: bool) -> None:
    from addendum.lab.places import given_values
    from addendum.lab.scenario_file import find
    from addendum.lab.server import PROVIDERS, open_lab

    scenario = find(file, given_values(values)) if file is not None else None
    script = scenario.script() if scenario is not None else None
    async with open_lab(script, port=port) as served:
        bases = {name: served.base_url(name) for name in PROVIDERS}
        if as_json:
            print_json(_addresses(served.url, bases, scenario.name if scenario else None))
        else:
            playing = (
                f"playing {one_line(scenario.name, 40)}" if scenario else "a free model speaks"
            )
            echo(f"lab on {served.url}, {playing}; Ctrl+C ends it")
            for name, base in bases.items():
                echo(f"  {name:14} {base}")
        # Whoever started this waits for the addresses.
        sys.stdout.flush()
        await anyio.sleep_forever()


def _addresses(url: str, bases: dict[str, str], scenario: str | None) -> dict[str, Any]:
    return {"url": url, "scenario": scenario, "base_urls": bases}
