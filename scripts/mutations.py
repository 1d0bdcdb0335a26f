"""Break the fold, the projections and the gates on purpose, and see that the tests notice.

Each mutation changes a copy of `src/` in a temporary folder, and the tests named with it run
against that copy. A mutation under which they all pass has survived: a test is missing.

    python scripts/mutations.py [WORD]      WORD picks the mutations whose name holds it
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

HISTORIES = "150"
"""Random histories that a mutation has to survive, over all kinds of routes."""

LONGEST = 90
"""Seconds that the tests of one mutation may take: a fault may make them wait for ever."""


@dataclass(frozen=True)
class Mutation:
    """One fault.

    Attributes:
        name: Where it is, and what it is.
        path: The file, under `src/addendum`.
        old: Text that stands in the file exactly once.
        new: What stands there instead.
        tests: Test files: `fold` is `tests/cases/test_fold_cases.py`, and `agent/gate` is
            `tests/agent/test_gate.py`.
        only: Expression that selects tests, as for `pytest -k`; all if empty.
        histories: Whether the random histories run instead, a few on each kind of route.
    """

    name: str
    path: str
    old: str
    new: str
    tests: tuple[str, ...]
    only: str = ""
    histories: bool = False

    def apply(self, source: str) -> str:
        """Return the faulty text of the file.

        Raises:
            ValueError: The text to replace is not there exactly once.
        """
        count = source.count(self.old)
        if count != 1:
            raise ValueError(f"{self.name}: its text stands {count} times in {self.path}")
        return source.replace(self.old, self.new)


def file_of(name: str) -> str:
    """Return the file that a mutation's test is in."""
    folder, _, rest = name.rpartition("/")
    return f"tests/{folder}/test_{rest}.py" if folder else f"tests/cases/test_{name}_cases.py"


HISTORY, LEDGER = "tools/history.py", "tools/ledger.py"
PROJECTOR, ROUNDS = "prompt/projector.py", "prompt/rounds.py"
UPDATES, HEADER = "prompt/updates.py", "log/headers.py"
GATE, BATCH, REGISTRY = "agent/calls/gate.py", "agent/calls/batch.py", "tools/registry.py"
GATES = ("agent/gate", "agent/gate_paths")

MUTATIONS = (
    Mutation(
        "fold: never rebuild on redefinition",
        HISTORY,
        "and self._declared[tool.name].identity() != tool.identity()",
        "and False",
        ("fold", "projection"),
    ),
    Mutation(
        "fold: removal deletes the declaration",
        HISTORY,
        "self._available.discard(block.tool_name)",
        "self._available.discard(block.tool_name); self._declared.pop(block.tool_name, None)",
        ("fold",),
    ),
    Mutation(
        "fold: baseline kept on series",
        HISTORY,
        "            or data.new_series\n",
        "",
        ("fold", "projection"),
    ),
    Mutation(
        "fold: baseline kept after a missing message",
        HISTORY,
        "            or not self._complete\n",
        "",
        ("fold",),
    ),
    Mutation(
        "projection: no updates, but the flag is kept",
        HISTORY,
        "undeferred(_known_order(active_tools, history))",
        "_known_order(active_tools, history)",
        ("projection",),
    ),
    Mutation(
        "projection: mode A keeps removed names",
        HISTORY,
        "tuple(tool for tool in declared if tool.name in active)",
        "tuple(declared)",
        ("projection",),
    ),
    Mutation(
        "projection: removal blocks kept although not offered",
        HISTORY,
        'if mode != "in-history" or block.tool_name not in offered:',
        'if mode != "in-history":',
        ("projection",),
    ),
    Mutation(
        "projection: guard off",
        HISTORY,
        "if declared and all(tool.defer_loading for tool in declared):",
        "if False:",
        ("projection",),
    ),
    Mutation(
        "projection: identity order ignored",
        HISTORY,
        "    wanted = {update.message_id for update in history.updates}\n    if [\n",
        "    wanted = {update.message_id for update in history.updates}\n"
        "    messages = sorted(messages, key=lambda message: message.seq)\n    if [\n",
        ("projection",),
    ),
    Mutation(
        "projection: partly filtered message mutates the stored one",
        HISTORY,
        "copy = msgspec.structs.replace(data, content=content)",
        'msgspec.structs.force_setattr(copy := data, "content", content)',
        ("projection",),
    ),
    Mutation(
        "blocks: numbered anew when others are left out",
        UPDATES,
        "enumerate(logged.content)",
        "enumerate(data.content)",
        ("wire",),
        "partly",
    ),
    Mutation(
        "ledger: series update not derived",
        LEDGER,
        "        if data.new_series:\n",
        "        if False:\n",
        ("lifecycle",),
        "told_again",
    ),
    Mutation(
        "place: update in front of the user message",
        ROUNDS,
        "        said.extend(native)\n",
        "        said[:0] = native\n",
        ("wire",),
        "case_69 or case_72",
    ),
    Mutation(
        "prompt: an emptied prompt hides the one in use",
        PROJECTOR,
        "            if settling and not data.empty:\n",
        "            if settling:\n",
        ("header",),
        "case_27",
    ),
    Mutation(
        "header: removals in front of additions",
        HEADER,
        "(*added, *removed)",
        "(*removed, *added)",
        ("header",),
        "case_17",
    ),
    Mutation(
        "marks: no lagging mark",
        "prompt/marks.py",
        "lag = None if stored is None else blocks.last_markable(stored + 1)",
        "lag = None",
        (),
        "by-value or by-reference",
        histories=True,
    ),
    Mutation(
        "place: an update in front of the user message",
        ROUNDS,
        "said.extend(native)",
        "said[:0] = native",
        (),
        "by-value",
        histories=True,
    ),
    Mutation(
        "replay: answers are written anew",
        ROUNDS,
        """            data.native
            and data.wire == context.wire""",
        """            not data.native
            and data.wire == context.wire""",
        (),
        "by-value or chat",
        histories=True,
    ),
    Mutation(
        "gate: what was changed in the store runs",
        GATE,
        "    if not scene.doubtful:\n",
        "    if True:\n",
        GATES,
    ),
    Mutation(
        "gate: what is excluded is there",
        GATE,
        "    if not is_excluded(item.call.name, scene.excluded):\n",
        "    if True:\n",
        GATES,
    ),
    Mutation(
        "gate: what is gone is there",
        GATE,
        "    if scene.entry(item.call.name) is not None:\n",
        "    if True:\n",
        GATES,
    ),
    Mutation(
        "gate: what is disabled runs",
        GATE,
        "if item.call.name in scene.disabled else None",
        "if False else None",
        GATES,
    ),
    Mutation(
        "gate: can_dispatch says no in vain",
        GATE,
        "return None if allows(scene.can_dispatch, schema) else",
        "return None if True else",
        GATES,
    ),
    Mutation(
        "gate: can_dispatch means yes by anything",
        "tools/dispatcher.py",
        "    return answer is True\n",
        "    return bool(answer)\n",
        GATES,
    ),
    Mutation(
        "gate: an answer holds for another tool",
        GATE,
        "if item.terms is not None and item.terms != terms:",
        "if False:",
        GATES,
    ),
    Mutation(
        "gate: what is defined anew is not asked about",
        GATE,
        'if scene.on_redefinition == "ask" and',
        "if False and",
        GATES,
    ),
    Mutation(
        "gate: arguments that do not fit run",
        GATE,
        "    if isinstance(found, Refused):\n        return _refusal(found)\n",
        "",
        GATES,
    ),
    Mutation(
        "gate: a hook that was not asked has no say",
        GATE,
        "    if any(hook not in item.heard for",
        "    if False and any(hook not in item.heard for",
        GATES,
    ),
    Mutation(
        "gate: what hooks want asked is not",
        GATE,
        'return Wants("; ".join(item.asks)) if item.asks else None',
        "return None",
        GATES,
    ),
    Mutation(
        "gate: what a policy denies runs",
        GATE,
        'return Wants(reason) if action == "ask" else blocked(reason)',
        'return Wants(reason) if action == "ask" else None',
        GATES,
    ),
    Mutation(
        "gate: a predicate means yes by anything",
        "agent/calls/approval.py",
        "        if not isinstance(answer, bool):\n",
        "        if False:\n",
        GATES,
    ),
    Mutation(
        "gate: what was not asked about in time runs",
        GATE,
        "return blocked(NOT_ASKED) if scene.late else",
        "return None if scene.late else",
        GATES,
    ),
    Mutation(
        "gate: where nobody can be asked it runs",
        GATE,
        'return blocked(f"{asks[0]}; it needs an approval, and nobody can be asked")',
        "return None",
        GATES,
    ),
    Mutation(
        "gate: one that fails lets through",
        GATE,
        'answer = faulty(f"Blocked: a check of this call failed ({described(error)})")',
        "answer = None",
        GATES,
    ),
    Mutation(
        "gate: what was not told loosens",
        GATE,
        "        return entry.with_hints(\n",
        "        return entry or entry.with_hints(\n",
        GATES,
    ),
    Mutation(
        "terms: hints are none",
        "tools/entries.py",
        "parts = [digest, server, hints.read_only, hints.destructive]",
        "parts = [digest, server]",
        GATES,
    ),
    Mutation(
        "terms: a server is none",
        "tools/entries.py",
        "parts = [digest, server, hints.read_only, hints.destructive]",
        "parts = [digest, hints.read_only, hints.destructive]",
        GATES,
    ),
    Mutation(
        "batch: the gate is not asked last",
        BATCH,
        "items = [self._judged(item, late=True) for item in items]",
        "items = list(items)",
        GATES,
    ),
    Mutation(
        "batch: hooks are not asked again behind an answer",
        BATCH,
        "passed = await run_before(hooks, item.call,",
        "passed = await run_before(() if item.terms else hooks, item.call,",
        GATES,
    ),
    Mutation(
        "early: the gate is not asked",
        BATCH,
        "item = self._judged(Planned(found.call, entry))",
        "item = Planned(found.call, entry)",
        ("agent/early_start", *GATES),
        "early or passed_over",
    ),
    Mutation(
        "server: its tool runs whatever it has become",
        "tools/mcp/connection.py",
        "if same is not None and listed is not None and not same(listed):",
        "if False:",
        ("agent/known_tools",),
    ),
    Mutation(
        "restore: hints are lost",
        REGISTRY,
        "same = self._held.same(schema, hints)",
        "hints = None; same = self._held.same(schema, hints)",
        ("agent/known_tools", "property/decisions"),
    ),
    Mutation(
        "restore: a server's own text is lost",
        REGISTRY,
        "server.instructions = instructions.get(name)",
        "server.instructions = None",
        ("agent/known_tools",),
    ),
    Mutation(
        "log: what is known of tools is not kept",
        "agent/calls/redefinition.py",
        "        record(log, snapshot.entries.values())\n",
        "",
        ("agent/known_tools",),
    ),
)


def run(chosen: Sequence[Mutation], folder: Path, *, faulty: bool) -> tuple[int, list[str]]:
    """Run the tests of mutations against a copy of `src/` in `folder`.

    Args:
        chosen: The mutations.
        folder: An empty folder.
        faulty: Whether they are applied.

    Returns:
        pytest's exit status, and the tests that failed.
    """
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for mutation in chosen if faulty else ():
        path = folder / "src" / "addendum" / mutation.path
        path.write_text(mutation.apply(path.read_text("utf-8")), "utf-8")
    files = sorted({file_of(name) for each in chosen for name in each.tests})
    # `test` is in every name: where one of them wants a whole file, all is run but the long one.
    only = " or ".join(f"({each.only or 'test and not case_96'})" for each in chosen)
    if any(each.histories for each in chosen):
        files.append("tests/property/test_histories.py")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--tb=no", "-rfE"]
    try:
        done = subprocess.run(
            [*command, "-k", only, *files],
            cwd=ROOT,
            env=os.environ
            | {
                "PYTHONPATH": str(folder / "src"),
                "PYTHONDONTWRITEBYTECODE": "1",
                "ADDENDUM_HISTORIES": HISTORIES,
            },
            capture_output=True,
            text=True,
            check=False,
            # Without a fault nothing waits, but there all tests run together.
            timeout=LONGEST if faulty else 10 * LONGEST,
        )
    except subprocess.TimeoutExpired:
        return 1, [f"(no end within {LONGEST} s)"]
    failed = re.findall(r"^(?:FAILED|ERROR) \S+?::(\S+)", done.stdout, re.MULTILINE)
    return done.returncode, failed


def shown(failed: Sequence[str]) -> str:
    """Return the numbers of the cases among failed tests, then the other tests' names."""
    numbers = {int(number) for test in failed for number in re.findall(r"case_(\d+)", test)}
    others = {test.partition("[")[0] for test in failed if "case_" not in test}
    return ", ".join([*map(str, sorted(numbers)), *sorted(others)]) or "-"


def main(word: str = "") -> int:
    """Print which cases each mutation turns red; return the exit status."""
    chosen = [each for each in MUTATIONS if word in each.name]
    if not chosen:
        print(f"no mutation's name holds {word!r}", file=sys.stderr)
        return 2
    began = time.monotonic()
    problems: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        status, failed = run(chosen, Path(folder), faulty=False)
    if status != 0:
        print(f"without a fault there already fail: {shown(failed)}", file=sys.stderr)
        return 2
    for mutation in chosen:
        with tempfile.TemporaryDirectory() as folder:
            status, failed = run([mutation], Path(folder), faulty=True)
        print(f"{mutation.name:<60} {shown(failed)}", flush=True)
        if status == 0:
            problems.append(f"{mutation.name}: survived")
        elif status != 1:
            problems.append(f"{mutation.name}: its tests could not run (pytest: {status})")
    for line in problems:
        print(line, file=sys.stderr)
    print(f"{len(chosen) - len(problems)} of {len(chosen)} mutations were noticed")
    print(f"{time.monotonic() - began:.0f} s")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
