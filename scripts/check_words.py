"""Fail when the project's text holds words that do not belong; name source files that are long.

What does not belong: paths and hosts of one machine, documents that the project does not have,
references to numbered threads that do not say whose they are, and marks of unfinished work.

    python scripts/check_words.py [FOLDER]      FOLDER is the checkout; `.` if left out
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

MANY_LINES = 500
"""Above this a file under `src/` is named: can it be understood alone? A class that owns a state
may need more; a file with two ideas is split, by direction."""

MOST_LINES = 700
"""Lines that a file under `src/` may have."""

NOBODYS = "a number without its owner/repo#n"

# Each pattern is written so that it does not match its own source.
WORDS = {
    re.compile(pattern): reason
    for pattern, reason in {
        r"(?<![\w.])/(?:wor[k]|roo[t]|far[m]|tmp/[w]|tmp/bash_job[s][\w.]*)/"
        r"|/opt/(?:pyp[i]|wheel[s])": "a path of one machine",
        r"(?<![\w-])share[d]/": "a folder that the project does not have",
        r"\b(?:desig[n]|missio[n]|peer[s]|exampl[e]|tool-update[s]|style-and-librarie[s]|"
        r"anthropic-bedroc[k]|openai-compatibl[e]|gemini-and-local-engin[e])\.md\b"
        r"|\bspec/dispatche[r]": "a document that the project does not have",
        r"(?i)\bindex[-_]url\b|\bfind[-_]links\b|pythonhoste[d]\.org|registry\.npmj[s]|"
        r"pypi\.[\w.]+/simpl[e]": "the address of a package index",
        r"(?i)\b(?:issue|pull request|pr)\s+#?\d|\b(?:issues|prs)\s+#\d": NOBODYS,
        r"\b(?:TO[D]O|FIXM[E]|XX[X]|HAC[K])\b": "unfinished work",
    }.items()
}
BARE_NUMBER = re.compile(r"(?<![\w/&#])#\d{1,6}\b(?!-)")
"""`#12` alone. Looked for in prose only: elsewhere it may be a colour."""

SKIPPED = {"build", "dist", "__pycache__", "node_modules"}


def files(root: Path) -> Iterator[Path]:
    """Yield the files that are, or could be, under version control; all files without git."""
    git = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(git, capture_output=True, check=False) if shutil.which("git") else None
    if listing and listing.returncode == 0:
        names = {Path(name) for name in listing.stdout.decode().split("\0") if name}
    else:
        names = {path.relative_to(root) for path in root.rglob("*")}
        names = {name for name in names if not SKIPPED.intersection(name.parts)}
        names = {name for name in names if name.parts[0] == ".ci" or name.parts[0][0] != "."}
    for name in sorted(names):
        if (root / name).is_file():
            yield name


def is_long(name: Path, lines: list[str], limit: int) -> bool:
    """Say whether a file of the source has more lines than that."""
    return name.parts[0] == "src" and name.suffix == ".py" and len(lines) > limit


def problems(name: Path, text: str) -> Iterator[str]:
    """Yield one line for each thing in `text` that does not belong."""
    lines = text.splitlines()
    if is_long(name, lines, MOST_LINES):
        yield f"{name.as_posix()}: {len(lines)} lines, {MOST_LINES} at most: split it"
    patterns = dict(WORDS)
    if name.suffix == ".md":
        patterns[BARE_NUMBER] = NOBODYS
    for number, line in enumerate(lines, 1):
        for pattern, reason in patterns.items():
            if match := pattern.search(line):
                yield f"{name.as_posix()}:{number}: {reason}: {match.group().strip()}"


def main(root: Path) -> int:
    """Print what does not belong; return the exit status."""
    found: list[str] = []
    count = 0
    for name in files(root):
        try:
            text = (root / name).read_text("utf-8")
        except UnicodeDecodeError:
            continue  # not text
        count += 1
        found.extend(problems(name, text))
        if is_long(name, lines := text.splitlines(), MANY_LINES):
            print(f"long: {name.as_posix()} ({len(lines)} lines)")
    for line in found:
        print(line, file=sys.stderr)
    print(f"words: {len(found)} problems in {count} files")
    return 1 if found or not count else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else ".")))
