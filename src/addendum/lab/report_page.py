"""Runs as one page: what was read, written and left uncached, ours beside rebinding.

The page is a single file without script: styles and charts are in it, and nothing is fetched. It
follows the reader's light or dark setting, and every figure of a chart is also in a table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape as escaped

from addendum.cache.figures import Row
from addendum.lab.report import Run
from addendum.masking import masked
from addendum.version import __version__

_WIDE, _HIGH, _LEFT, _TOP = 720, 170, 56, 14
_GAP = 0.22
"""Part of a request's place that stays empty."""

_STYLE = """
:root { color-scheme: light dark; --back: #fbfbf9; --text: #1d2126; --soft: #5b636c;
  --line: #d9dcd6; --card: #ffffff; --read: #2a78a8; --write: #d99a1c; --fresh: #b8402f; }
@media (prefers-color-scheme: dark) { :root { --back: #14171a; --text: #e6e8e6; --soft: #a0a8b0;
  --line: #333a41; --card: #1c2125; --read: #5fb0dd; --write: #e8b54a; --fresh: #ec7b68; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1rem 4rem; max-width: 56rem; background: var(--back);
  color: var(--text); font: 1rem/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: 0 0 .5rem; }
h2 { font-size: 1.15rem; margin: 2.5rem 0 .25rem; overflow-wrap: anywhere; }
h3 { font-size: .95rem; margin: 1rem 0 .25rem; }
p { margin: .25rem 0; } .soft, figcaption { color: var(--soft); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .3rem .6rem; border-bottom: 1px solid var(--line); }
td { white-space: nowrap; }
th:first-child, td:first-child { text-align: left; white-space: normal; min-width: 11rem; }
thead th { font-weight: 600; color: var(--soft); }
tbody th { font-weight: 600; padding-top: .9rem; }
figure { margin: .5rem 0; padding: .75rem; background: var(--card); border: 1px solid var(--line);
  border-radius: .4rem; }
svg { display: block; width: 100%; height: auto; }
svg text { fill: var(--soft); font: 11px system-ui, sans-serif; }
svg line { stroke: var(--line); } .read { fill: var(--read); } .write { fill: var(--write); }
.fresh { fill: var(--fresh); } .miss { fill: var(--text); }
.key span { display: inline-block; margin-right: 1em; } .key i { display: inline-block;
  width: .8em; height: .8em; margin-right: .35em; border-radius: .15em; }
i.read { background: var(--read); } i.write { background: var(--write); }
i.fresh { background: var(--fresh); }
ul { margin: .25rem 0; padding-left: 1.2rem; } details { margin: .5rem 0; }
summary { cursor: pointer; color: var(--soft); }
@media print { body { max-width: none; } }
"""


def escape(text: str) -> str:
    """Return text for the page: nothing in it acts, and no credential is left."""
    return escaped(masked(text))


def page(runs: Sequence[tuple[Run, ...]], unavailable: str | None = None) -> str:
    """Return the page of a comparison.

    Args:
        runs: The runs of each route, ours first.
        unavailable: Why the real engine is not among them, if that is so.
    """
    return "\n".join(_lines(runs, unavailable)) + "\n"


def _lines(runs: Sequence[tuple[Run, ...]], unavailable: str | None) -> Iterator[str]:
    names = ", ".join(dict.fromkeys(pair[0].scenario for pair in runs))
    yield "<!doctype html>"
    yield '<html lang="en"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    # Nothing can be fetched and nothing can run, whatever stands in the names.
    yield (
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">"
    )
    yield f"<title>addendum: {escape(names)}</title><style>{_STYLE}</style></head><body><main>"
    yield "<h1>What tool changes cost</h1>"
    count = f"{len(runs)} route{'' if len(runs) == 1 else 's'}"
    yield (
        f"<p>The scenario {escape(names)} on {count}: changes told by addendum, and "
        "the tool list written anew. Unless a real engine is named, figures are simulated by "
        "the providers' published rules.</p>"
    )
    yield (
        '<p class="key soft"><span><i class="read"></i>read from the cache</span> '
        '<span><i class="write"></i>written to it</span> '
        '<span><i class="fresh"></i>neither</span> <span>▾ a miss</span></p>'
    )
    yield from _table(runs)
    for pair in runs:
        yield from _section(pair)
    if unavailable is not None:
        yield f'<p class="soft">No real engine: {escape(unavailable)}</p>'
    yield f'<p class="soft">addendum {escape(__version__)}</p></main></body></html>'


def _table(runs: Sequence[tuple[Run, ...]]) -> Iterator[str]:
    heads = ("read", "of expected", "of ceiling", "not read", "misses", "undeclared")
    yield '<div class="scroll"><table><thead><tr><th scope="col">route</th>'
    yield "".join(f'<th scope="col">{each}</th>' for each in heads) + "</tr></thead><tbody>"
    for pair in runs:
        name = pair[0].route if pair[0].engine is None else f"{pair[0].route}, {pair[0].engine}"
        yield f'<tr><th scope="rowgroup" colspan="{len(heads) + 1}">{escape(name)}</th></tr>'
        for run in pair:
            totals = run.report.totals
            known = totals.share is not None
            cells = (
                _percent(totals.share),
                _percent(totals.expected_share),
                _percent(totals.ceiling_share),
                f"{totals.prompt_tokens - totals.cache_read:,}" if known else "-",
                str(totals.misses),
                str(totals.undeclared_misses),
            )
            data = "".join(f"<td>{each}</td>" for each in cells)
            yield f"<tr><td>{escape(_told(run))}</td>{data}</tr>"
    yield "</tbody></table></div>"


def _section(pair: Sequence[Run]) -> Iterator[str]:
    yield f"<section><h2>{escape(pair[0].route)}</h2>"
    for note in pair[0].notes():
        yield f'<p class="soft">{escape(note)}</p>'
    most = max((row.prompt_tokens or 0 for run in pair for row in run.report.requests), default=0)
    for run in pair:
        yield f"<figure><figcaption>{escape(_told(run))}: tokens of each request</figcaption>"
        yield from _chart(run, max(1, most))
        yield "</figure>"
        yield from _causes(run)
    yield "<details><summary>The figures</summary>"
    for run in pair:
        yield from _figures(run)
    yield "</details></section>"


def _chart(run: Run, most: int) -> Iterator[str]:
    rows = run.report.requests
    label = escape(f"{_told(run)} on {run.route}: {len(rows)} requests")
    yield (
        f'<svg viewBox="0 0 {_WIDE} {_HIGH + _TOP + 24}" role="img" aria-label="{label}" '
        'xmlns="http://www.w3.org/2000/svg">'
    )
    for part in (0.0, 0.5, 1.0):
        y = _TOP + _HIGH * (1 - part)
        yield f'<line x1="{_LEFT}" x2="{_WIDE}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{part * most:,.0f}</text>'
    place = (_WIDE - _LEFT) / max(1, len(rows))
    for at, row in enumerate(rows):
        yield from _bar(row, _LEFT + place * (at + _GAP / 2), place * (1 - _GAP), most)
        if at % 5 == 4 or at == 0:
            x = _LEFT + place * (at + 0.5)
            yield f'<text x="{x:.1f}" y="{_TOP + _HIGH + 16}" text-anchor="middle">{row.n}</text>'
    yield "</svg>"


def _bar(row: Row, x: float, wide: float, most: int) -> Iterator[str]:
    yield f"<g><title>{escape(_said(row))}</title>"
    y = float(_TOP + _HIGH)
    for name, tokens in _parts(row):
        high = _HIGH * tokens / most
        y -= high
        if tokens:
            yield (
                f'<rect class="{name}" x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" '
                f'height="{high:.1f}"/>'
            )
    if row.miss is not None:
        yield (
            f'<text class="miss" x="{x + wide / 2:.1f}" y="{y - 3:.1f}" '
            'text-anchor="middle">▾</text>'
        )
    yield "</g>"


def _parts(row: Row) -> tuple[tuple[str, int], ...]:
    """Return what a prompt is made of, from the bottom of its bar to the top."""
    prompt, read = row.prompt_tokens or 0, row.cache_read or 0
    written = min(row.cache_write or 0, prompt - read)
    return ("read", read), ("write", written), ("fresh", prompt - read - written)


def _said(row: Row) -> str:
    (_, read), (_, written), (_, fresh) = _parts(row)
    miss = "" if row.miss is None else f"; miss: {_reason(row)}"
    return f"request {row.n}: {read:,} read, {written:,} written, {fresh:,} neither{miss}"


def _reason(row: Row) -> str:
    if row.miss is None:
        return ""
    return f"{row.miss.reason}{'' if row.miss.declared else ' (undeclared)'}"


def _causes(run: Run) -> Iterator[str]:
    """Yield what broke the prefix: the misses by their reason."""
    causes: dict[str, tuple[int, int, list[int]]] = {}
    for row in run.report.requests:
        if row.miss is None:
            continue
        lost = max(0, (row.expected or 0) - (row.cache_read or 0))
        count, tokens, numbers = causes.get(_reason(row), (0, 0, []))
        causes[_reason(row)] = (count + 1, tokens + lost, [*numbers, row.n])
    if not causes:
        yield '<p class="soft">No prefix was broken.</p>'
        return
    yield "<ul>"
    for reason, (_, tokens, numbers) in causes.items():
        where = f"request{'' if len(numbers) == 1 else 's'} {', '.join(map(str, numbers))}"
        yield f"<li>{escape(reason)}: {tokens:,} tokens not read again, at {where}</li>"
    yield "</ul>"


def _figures(run: Run) -> Iterator[str]:
    heads = ("request", "prompt", "read", "written", "expected", "ceiling", "miss")
    yield f'<h3>{escape(_told(run))}</h3><div class="scroll"><table><thead><tr>'
    yield "".join(f'<th scope="col">{each}</th>' for each in heads) + "</tr></thead><tbody>"
    for row in run.report.requests:
        counts = (row.prompt_tokens, row.cache_read, row.cache_write, row.expected, row.ceiling)
        cells = "".join(f"<td>{'-' if each is None else f'{each:,}'}</td>" for each in counts)
        yield f"<tr><td>{row.n}</td>{cells}<td>{escape(_reason(row))}</td></tr>"
    yield "</tbody></table></div>"


def _told(run: Run) -> str:
    context = run.context
    if context.projection == "rebind":
        return "tool list written anew"
    return f"addendum, {context.projection}, definitions {context.definitions.replace('-', ' ')}"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{int(share * 1000 + 1e-9) / 10:.1f} %"
