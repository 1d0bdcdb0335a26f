"""`addendum check`: do captured requests, ours or anybody's, keep their prefix?"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Literal, TextIO
from xml.sax.saxutils import escape, quoteattr

import click
from msgspec import structs

from addendum.cache.examine import CAUSES, RULES, Examined, Finding
from addendum.cli.flags import FILE
from addendum.cli.terminal import echo, print_json, style
from addendum.lab.checking import check_files
from addendum.lines import one_line
from addendum.tell.figures import number

_TEXT = 400
"""Characters of one finding."""

MEANING = {
    "V1": "the tool list stays as it is",
    "V2": "the system text stays as it is",
    "V3": "each request begins with all of the one before",
    "V4": "cache marks are few enough, legal, the longest lived first",
    "V5": "a tool that the history names was declared",
    "V6": "each call has exactly one result, right behind it",
    "V7": "text for one turn stands where its mode says",
    "V8": "a session reopened from its store sends the same bytes",
    "V9": "a compaction breaks the prefix once, over a restart too",
    "V10": "the next request's marks find what was stored",
    "V11": "a miss was declared before sending, or is the provider's",
    "V12": "the provider, or its strict stand-in, takes the request",
}
"""What each rule says, between two declared breaks. V8 and V12 need more than a capture."""


_RULES = "\n".join(["\b", "Rules:", *(f"  {rule:4} {MEANING[rule]}" for rule in RULES)])


@click.command(epilog=_RULES)
@click.argument("captures", type=FILE, nargs=-1, required=True, metavar="CAPTURE...")
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
    cassette of vcrpy, what `addendum export` or `addendum record` wrote, or a session log of
    Claude Code or Codex, which tells no more than what was counted. Of requests that are not
    addendum's own every break is reported with its cause. Exit code 1 if something does not hold,
    2 if a file cannot be read.
    """
    if form == "junit" and not as_json:
        # One line a request, and there may be millions: they wait on the disk.
        with tempfile.TemporaryFile("w+", encoding="utf-8", newline="\n") as tests:
            done = check_files(captures, allow, _noting(tests))
            tests.seek(0)
            for finding in _junit(done, tests):
                echo(finding)
    else:
        done = check_files(captures, allow)
        if as_json or form == "json":
            print_json(
                {
                    "holds": not done.findings,
                    "requests": done.requests,
                    "conversations": done.conversations,
                    "findings": [structs.asdict(finding) for finding in done.findings],
                    "more": done.more,
                    "notes": done.notes,
                }
            )
        else:
            told = map(_github, done.findings) if form == "github" else map(_red, done.findings)
            echo("\n".join([*told, *_end(done, legend=form == "text")]))
    if done.findings:
        raise click.exceptions.Exit(1)


def _end(done: Examined, *, legend: bool) -> Iterator[str]:
    if done.more:
        yield f"and {number(done.more)} more"
    if legend:
        broken = {finding.rule for finding in done.findings}
        yield from (f"rule {rule}: {MEANING[rule]}" for rule in RULES if rule in broken)
    for note in done.notes:
        yield one_line(f"note: {note}", _TEXT)
    requests, talks, count = done.requests, done.conversations, len(done.findings) + done.more
    yield (
        f"{number(requests)} request{'' if requests == 1 else 's'} in {number(talks)} "
        f"conversation{'' if talks == 1 else 's'}: "
        + (f"{number(count)} finding{'' if count == 1 else 's'}" if count else "all rules hold")
    )


def _red(finding: Finding) -> str:
    return style(_plain(finding), fg="red")


def _said(finding: Finding) -> str:
    path = f"{finding.path}: " if finding.path else ""
    return one_line(f"{finding.rule} {path}{finding.text}", _TEXT)


def _plain(finding: Finding) -> str:
    return f"{one_line(finding.where, _TEXT)}: {_said(finding)}"


def _github(finding: Finding) -> str:
    """Return a finding as a command of GitHub's runners, in their own escapes."""
    name, _, number = finding.where.rpartition(":")
    place = f"file={_property(name)},line={number}" if number.strip().isdigit() else ""
    if not place:
        place = f"file={_property(finding.where.partition(': ')[0])}"
    text = _plain(finding).replace("%", "%25")
    return f"::error {place},title={_property(f'addendum {finding.rule}')}::{text}"


def _property(text: str) -> str:
    clean = one_line(text, _TEXT).replace("%", "%25")
    return clean.replace(":", "%3A").replace(",", "%2C")


def _noting(tests: TextIO) -> Callable[[int, str, str], None]:
    def note(n: int, where: str, session: str) -> None:
        tests.write(f"{one_line(where, _TEXT)}\t{one_line(session, _TEXT)}\n")

    return note


def _junit(done: Examined, tests: TextIO) -> Iterator[str]:
    """Yield a report of one test a request.

    Args:
        done: What was found.
        tests: Where each request was read from, and its conversation: a line each.
    """
    own = {n: list(each) for n, each in groupby(done.findings, key=lambda each: each.n)}
    yield '<?xml version="1.0" encoding="UTF-8"?>'
    yield (
        f'<testsuites><testsuite name="addendum check" tests="{done.requests}" '
        f'failures="{len(own)}" errors="0">'
    )
    for n, test in enumerate(tests, 1):
        where, _, session = test.rstrip("\n").partition("\t")
        names = f"classname={quoteattr(session)} name={quoteattr(where)}"
        broken = own.get(n)
        if broken is None:
            yield f"<testcase {names}/>"
            continue
        yield f"<testcase {names}><failure message={quoteattr(_said(broken[0]))}>"
        yield "\n".join(escape(_said(each)) for each in broken)
        yield "</failure></testcase>"
    yield "</testsuite></testsuites>"
