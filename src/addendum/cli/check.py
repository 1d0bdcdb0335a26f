"""`addendum check`: do captured requests, ours or anybody's, keep their prefix?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal
from xml.sax.saxutils import escape, quoteattr

import click
from msgspec import structs

from addendum.cache.examine import CAUSES, RULES, Examined, Finding
from addendum.cli.terminal import line, print_json, style
from addendum.lab.checking import check_files

_TEXT = 400
"""Characters of one finding."""


@click.command()
@click.argument("captures", nargs=-1, required=True, metavar="CAPTURE...")
@click.option(
    "--format",
    "form",
    type=click.Choice(("text", "json", "junit", "github")),
    default="text",
    show_default=True,
    help="How findings are told.",
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option(
    "--allow",
    multiple=True,
    type=click.Choice((*CAUSES, *RULES)),
    metavar="WHAT",
    help=f"What may change ({', '.join(CAUSES)}), or a rule that need not hold, such as V10; "
    "may be repeated.",
)
def check(
    captures: tuple[str, ...],
    form: Literal["text", "json", "junit", "github"],
    as_json: bool,
    allow: tuple[str, ...],
) -> None:
    """Check captured requests: does each one begin with what was sent before it?

    A CAPTURE is a file of JSON lines (bodies, or url, headers, body, usage), a HAR file, a
    cassette of vcrpy, or what `addendum export` wrote. Of requests that are not addendum's own
    every break is reported with its cause. Exit code 1 if something does not hold, 2 if a file
    cannot be read.
    """
    done = check_files(captures, allow)
    if as_json or form == "json":
        print_json(
            {
                "holds": not done.findings,
                "requests": len(done.records),
                "conversations": done.conversations,
                "findings": [structs.asdict(each) for each in done.findings],
            }
        )
    elif form == "junit":
        click.echo("\n".join(_junit(done)))
    elif form == "github":
        click.echo("\n".join([*map(_github, done.findings), _summary(done)]))
    else:
        told = [style(_plain(each), fg="red") for each in done.findings]
        click.echo("\n".join([*told, _summary(done)]))
    if done.findings:
        raise click.exceptions.Exit(1)


def _summary(done: Examined) -> str:
    requests, talks = len(done.records), done.conversations
    return (
        f"{requests} request{'' if requests == 1 else 's'} in {talks} "
        f"conversation{'' if talks == 1 else 's'}: "
        + ("all rules hold" if not done.findings else f"{len(done.findings)} findings")
    )


def _said(finding: Finding) -> str:
    path = f"{finding.path}: " if finding.path else ""
    return line(f"{finding.rule} {path}{finding.text}", _TEXT)


def _plain(finding: Finding) -> str:
    return f"{line(finding.where, _TEXT)}: {_said(finding)}"


def _github(finding: Finding) -> str:
    """Return a finding as a command of GitHub's runners, in their own escapes."""
    name, _, number = finding.where.rpartition(":")
    place = f"file={_property(name)},line={number}" if number.strip().isdigit() else ""
    if not place:
        place = f"file={_property(finding.where.partition(': ')[0])}"
    text = _plain(finding).replace("%", "%25")
    return f"::error {place},title={_property(f'addendum {finding.rule}')}::{text}"


def _property(text: str) -> str:
    clean = line(text, _TEXT).replace("%", "%25")
    return clean.replace(":", "%3A").replace(",", "%2C")


def _junit(done: Examined) -> Iterator[str]:
    """Yield a report of one test a request."""
    failed = len({each.n for each in done.findings})
    yield '<?xml version="1.0" encoding="UTF-8"?>'
    yield (
        f'<testsuites><testsuite name="addendum check" tests="{len(done.records)}" '
        f'failures="{failed}" errors="0">'
    )
    for record, where in zip(done.records, done.where, strict=True):
        own = [each for each in done.findings if each.n == record.n]
        name = quoteattr(line(where, _TEXT))
        suite = quoteattr(line(record.session, _TEXT))
        if not own:
            yield f"<testcase classname={suite} name={name}/>"
            continue
        message = quoteattr(_said(own[0]))
        yield f"<testcase classname={suite} name={name}><failure message={message}>"
        yield "\n".join(escape(_said(each)) for each in own)
        yield "</failure></testcase>"
    yield "</testsuite></testsuites>"
