"""`scripts/mutations.py`: that its faults still fit the sources. `make mutations` runs them."""

from __future__ import annotations

import ast
import inspect

import pytest
from tests.scripts.loading import ROOT, load

from addendum.agent.calls.gate import GATES

SCRIPT = load("mutations")


@pytest.mark.parametrize("mutation", SCRIPT.MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_fault_fits_the_sources(mutation) -> None:
    source = (ROOT / "src" / "addendum" / mutation.path).read_text("utf-8")
    faulty = mutation.apply(source)
    assert ast.dump(ast.parse(faulty)) != ast.dump(ast.parse(source))
    for name in mutation.tests:
        assert (ROOT / SCRIPT.file_of(name)).is_file()


def test_each_gate_has_a_fault() -> None:
    text = (ROOT / "src" / "addendum" / SCRIPT.GATE).read_text("utf-8")
    bodies = {
        gate.name: inspect.getsource(gate.rule)
        for gate in GATES
        if inspect.getsource(gate.rule) in text
    }
    assert len(bodies) == len(GATES)
    faults = [each for each in SCRIPT.MUTATIONS if each.path == SCRIPT.GATE]
    for name, body in bodies.items():
        assert any(each.old in body for each in faults), name


def test_ten_faults_at_least_each_with_a_name_of_its_own() -> None:
    names = [mutation.name for mutation in SCRIPT.MUTATIONS]
    assert len(set(names)) == len(names) >= 10


def test_a_text_that_is_not_there_once_is_refused() -> None:
    mutation = SCRIPT.MUTATIONS[0]
    for source in ("", mutation.old * 2):
        with pytest.raises(ValueError, match="its text stands"):
            mutation.apply(source)


def test_what_failed_is_shown_by_case() -> None:
    failed = ["test_case_35_restored", "test_told[case_43_added]", "test_other[a]", "test_other[b]"]
    assert SCRIPT.shown(failed) == "35, 43, test_other"
    assert SCRIPT.shown([]) == "-"
