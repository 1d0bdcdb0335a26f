"""Other frameworks on g2 with the lab as their provider, beside addendum and the hand-made best.

Each framework of `requirements.txt` runs in an environment of its own (`.venv/peers`, made on the
first run) and plays the very conversation of the scenario `g2`: the same words, tools, results and
switches. What it sends is captured by the lab, checked by its bytes alone, and judged by the same
rules as ours. `--findings` prints the first break of each run with its cause.

Usage: python bench/peers/run.py [--findings] [WORD]     WORD picks rows whose name holds it
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import msgspec
from hand_made import play
from msgspec import Struct, structs

from addendum import encoding
from addendum.cache.capture import Capture, record_of, wire_of
from addendum.cache.cost import price, summed
from addendum.cache.examine import Examined, examine
from addendum.cache.figures import Report, judge
from addendum.cache.record import RequestRecord
from addendum.cache.reported import usage_of
from addendum.lab.checking import rules_by_name
from addendum.lab.records import lab_count, rules_of
from addendum.lab.runner import run_scenario
from addendum.lab.scenario import Say, Scenario, Toggle
from addendum.lab.scenario_file import find
from addendum.lab.script import Entry, ScriptCall
from addendum.lab.server import Lab, open_lab
from addendum.routes import resolve

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PEERS = ROOT / ".venv" / "peers"
WAIT = 300

ROUTES = {
    "anthropic": ("anthropic:claude-opus-5-5", "anthropic"),
    "responses": ("openai:gpt-6.1-sol", "openai"),
    "chat": ("openai-chat:gpt-4.1", "openai-chat"),
}
"""The route of each wire, and the lab's provider that plays it."""


class Subject(Struct, frozen=True):
    """A row: a framework's script on a wire, or one of ours.

    Attributes:
        name: What it is.
        wire: The wire.
        script: The file that plays it; empty for addendum and what is made by hand.
        how: A word for the script: its default if empty.
        share: Share of the prompts read, in percent, that another meter gave for it.
    """

    name: str
    wire: str
    script: str = ""
    how: str = ""
    share: float | None = None


MID_RUN = "mid-run"
"""The word for scripts whose agent makes the switches itself, by a call more for each."""

SUBJECTS = (
    Subject("addendum", "anthropic"),
    Subject("addendum, tools rebound", "anthropic", share=86.5),
    Subject("made by hand: inline, 4 marks", "anthropic", share=94.6),
    Subject("pydantic-ai 2.68.0", "anthropic", "pydantic_ai_g2.py", share=86.5),
    Subject("pydantic-ai, changes mid-run", "anthropic", "pydantic_ai_g2.py", MID_RUN, 90.3),
    Subject("pydantic-ai, deltas by hand", "anthropic", "pydantic_ai_g2.py", "deltas", 92.9),
    Subject("langchain 1.5.2", "anthropic", "langchain_g2.py", share=86.5),
    Subject("langchain, deltas by hand", "anthropic", "langchain_g2.py", "deltas", share=92.9),
    Subject("addendum", "responses"),
    Subject("addendum, tools rebound", "responses"),
    Subject("made by hand: additional_tools", "responses", share=94.0),
    Subject("pydantic-ai 2.68.0", "responses", "pydantic_ai_g2.py", share=87.5),
    Subject("pydantic-ai, changes mid-run", "responses", "pydantic_ai_g2.py", MID_RUN, 92.3),
    Subject("pydantic-ai, deltas by hand", "responses", "pydantic_ai_g2.py", "deltas", 94.2),
    Subject("langchain 1.5.2", "responses", "langchain_g2.py", share=87.4),
    Subject("openai-agents 0.24.0", "responses", "openai_agents_g2.py", share=87.4),
    Subject("addendum", "chat"),
    Subject("addendum, tools rebound", "chat"),
    Subject("made by hand: dispatcher", "chat", share=94.4),
    Subject("pydantic-ai 2.68.0", "chat", "pydantic_ai_g2.py", share=87.5),
    Subject("pydantic-ai, changes mid-run", "chat", "pydantic_ai_g2.py", MID_RUN, 88.7),
    Subject("pydantic-ai, deltas by hand", "chat", "pydantic_ai_g2.py", "deltas", 91.5),
    Subject("langchain 1.5.2", "chat", "langchain_g2.py", share=87.5),
    Subject("openai-agents 0.24.0", "chat", "openai_agents_g2.py", share=87.5),
)


class Outcome(Struct, frozen=True):
    """What a subject sent, judged.

    Attributes:
        report: Figures.
        examined: What its bodies alone show; None for addendum, which declares its breaks.
        cost: US dollars for the prompts.
    """

    report: Report
    examined: Examined | None
    cost: float | None


def plan(scenario: Scenario) -> dict[str, Any]:
    """Return a scenario as the frameworks' scripts read it."""

    def tools(listed: Sequence[Any], prefix: str = "") -> list[dict[str, Any]]:
        return [
            {
                "name": f"{prefix}{tool.name}",
                "description": tool.description,
                "parameters": encoding.decode(bytes(tool.parameters)),
                "result": tool.result,
            }
            for tool in listed
        ]

    steps: list[dict[str, str]] = []
    for step in scenario.steps:
        if isinstance(step, Say):
            steps.append({"user": step.user})
        elif isinstance(step, Toggle):
            steps.append({"enable" if step.on else "disable": step.server})
    return {
        "instructions": f"{scenario.instructions}\n\n{scenario.conversation_instructions}",
        "tools": tools(scenario.tools),
        "servers": {each.name: tools(each.tools, f"{each.name}__") for each in scenario.servers},
        "steps": steps,
    }


def python() -> Path:
    """Return the frameworks' interpreter; its environment is made if it is not there."""
    found = PEERS / "bin" / "python"
    if not (PEERS / "with-addendum").exists():
        print(f"Making {PEERS} (once)", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", str(PEERS)], check=True)
        pip = [str(found), "-m", "pip", "--disable-pip-version-check", "-qq", "install"]
        subprocess.run([*pip, "-r", str(HERE / "requirements.txt"), "-e", str(ROOT)], check=True)
        (PEERS / "with-addendum").touch()
    return found


def mid_run(scenario: Scenario) -> Scenario:
    """Return the scenario in which the model calls `switch_server` before it answers."""
    steps: list[Any] = []
    ahead: list[Entry] = []
    for step in scenario.steps:
        if isinstance(step, Toggle):
            call = ScriptCall("switch_server", {"server": step.server, "on_": step.on})
            ahead.append(Entry(calls=(call,)))
        elif isinstance(step, Say):
            step = structs.replace(step, entries=(*ahead, *step.entries))
            ahead = []
        steps.append(step)
    return structs.replace(scenario, steps=tuple(steps))


async def played(subject: Subject, scenario: Scenario) -> Outcome:
    """Run a subject against a lab of its own.

    Raises:
        RuntimeError: Its script failed; the message is the end of what it said.
    """
    route, provider = ROUTES[subject.wire]
    if subject.name.startswith("addendum"):
        changes = "rebind" if "rebound" in subject.name else "auto"
        run = await run_scenario(scenario, route, tool_changes=changes)
        return Outcome(run.report, None, dollars(run.records))
    if subject.how == MID_RUN:
        scenario = mid_run(scenario)
    said = plan(scenario)
    async with open_lab(scenario.script()) as lab:
        base = lab.base_url(provider)
        if not subject.script:
            await play(said, base, subject.wire)
        else:
            await script(subject, said, base)
        captures = list(taken(lab))
    refused = [each for each in captures if each.status != 200]
    if refused:
        raise RuntimeError(f"{len(refused)} requests were refused")
    examined = examine([captures], rules_by_name)
    known = resolve(route, environ={})
    # The lab's address says nothing of whose prices hold.
    records = [
        structs.replace(record_of(each, n, "g2"), route=known.name)
        for n, each in enumerate(captures, 1)
    ]
    rules = rules_of(known.cache)
    return Outcome(judge(records, rules, lab_count), examined, dollars(records))


async def script(subject: Subject, said: dict[str, Any], base: str) -> bytes:
    """Run a framework's script in its own interpreter; return what its own code saw."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plan.json"
        path.write_bytes(msgspec.json.encode(said))
        command = [str(python()), str(HERE / subject.script), str(path), base, subject.wire]
        with anyio.fail_after(WAIT):
            done = await anyio.run_process([*command, *filter(None, [subject.how])], check=False)
    if done.returncode:
        raise RuntimeError(" ".join(done.stderr.decode().split())[-300:])
    return done.stdout


def taken(lab: Lab) -> list[Capture]:
    """Return what a lab received as captures."""
    found: list[Capture] = []
    for each in lab.captures:
        wire = wire_of(each.path, each.headers, encoding.decode(each.body))
        found.append(
            Capture(
                where=f"request {each.n + 1}",
                body=each.body,
                url=f"http://127.0.0.1{each.path}",
                headers=each.headers,
                usage=usage_of(wire, each.usage),
                time=each.time,
                status=each.status,
            )
        )
    return found


def dollars(records: Sequence[RequestRecord]) -> float | None:
    """Return the price of the prompts of records, or None if one is not known."""
    whole = summed([price(resolve(r.route, environ={}), r.usage, r.time_sent) for r in records])
    return None if whole is None else float(whole.amount)


def money(amount: float | None) -> str:
    """Return dollars, or nothing if they are not known."""
    return "" if amount is None else f"${amount:.3f}"


def main(arguments: Sequence[str]) -> int:
    """Print the table; return 1 if a run is more than two points from what another meter gave."""
    findings = "--findings" in arguments
    word = next((each for each in arguments if not each.startswith("-")), "")
    scenario = find("g2")
    heads = ("of expected", "uncached", "prompt", "misses", "cost", "other meter")
    print(f"{'':<34}{'share':>8}" + "".join(f"{each:>12}" for each in heads))
    wire, far = "", 0
    for subject in SUBJECTS:
        if word not in f"{subject.name} {subject.wire}":
            continue
        if subject.wire != wire:
            wire = subject.wire
            print(ROUTES[wire][0])
        try:
            outcome = anyio.run(played, subject, scenario)
        except RuntimeError as error:
            print(f"  {subject.name:<32}{error}")
            far += 1
            continue
        totals = outcome.report.totals
        share = 100 * (totals.share or 0)
        other = "" if subject.share is None else f"{subject.share:.1f} %"
        far += subject.share is not None and abs(subject.share - share) > 2
        print(
            f"  {subject.name:<32}{share:>6.1f} %{100 * (totals.expected_share or 0):>10.1f} %"
            f"{totals.prompt_tokens - totals.cache_read:>12,}{totals.prompt_tokens:>12,}"
            f"{totals.misses:>12}{money(outcome.cost):>12}{other:>12}",
            flush=True,
        )
        if findings and outcome.examined is not None:
            for each in outcome.examined.findings:
                if each.rule in ("V1", "V2", "V3", "V10"):
                    print(f"      {each.where}: {each.rule} {each.path}: {each.text}")
    return 1 if far else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
