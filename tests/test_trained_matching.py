"""A reference circuit is found whatever heads it stands in, and what is not there is said to be missing."""

from collections.abc import Sequence

import pytest

from benchmarks.trained.matching import match_circuit
from imir_lens.ids import CoordinateId, Head

INDUCTION = ("L0H0/score/q:res/k:res/offset+1", "L1H0/score/q:res/k:L0H0/same", "readout/via:L1H0/same")
TWO_LINKS = (
    "L0H0/score/q:res/k:res/offset+1",
    "L0H1/score/q:res/k:res/offset+2",
    "L1H0/score/q:res/k:L0H0/same",
    "L1H0/score/q:L0H0/k:L0H1/same",
    "readout/via:L1H0/same",
)


def _parse(units: Sequence[str], value: float = 1.0) -> dict[CoordinateId, float]:
    return dict.fromkeys(map(CoordinateId.parse, units), value)


def _hows(reference: Sequence[str], detected: Sequence[str]) -> list[str]:
    return [unit.how for unit in match_circuit(_parse(reference), _parse(detected)).units]


@pytest.mark.parametrize(
    ("first", "second"), [("L0H0", "L1H0"), ("L0H2", "L1H1"), ("L1H0", "L2H3"), ("L0H1", "L3H0")], ids=str
)
def test_a_circuit_is_found_in_other_heads_and_layers(first: str, second: str) -> None:
    names = {"L0H0": first, "L1H0": second}
    detected = [unit.replace("L0H0", "A").replace("L1H0", second).replace("A", first) for unit in INDUCTION]
    matching = match_circuit(_parse(INDUCTION), _parse(detected))
    assert [str(unit.found) for unit in matching.units] == detected
    assert {str(ours): str(theirs) for ours, theirs in matching.heads.items()} == names
    assert matching.count("found") == 3
    assert matching.extra == ()


def test_units_beyond_the_reference_are_listed() -> None:
    more = "readout/via:res/same"
    matching = match_circuit(_parse(INDUCTION), _parse([more, *INDUCTION]))
    assert matching.count("found") == 3
    assert [str(unit) for unit in matching.extra] == [more]


def test_a_match_through_another_head_is_equivalent_and_one_of_another_relation_is_missing() -> None:
    alpha, _, gamma = INDUCTION
    other = "L1H0/score/q:res/k:L0H1/same"
    assert _hows(INDUCTION, (alpha, other, gamma)) == ["found", "equivalent", "found"]
    assert _hows(INDUCTION, (alpha, other.replace("same", "assoc"), gamma)) == ["found", "missing", "found"]
    assert _hows(INDUCTION, ("L0H0/score/q:res/k:res/offset+2", *INDUCTION[1:])) == ["missing", "found", "found"]


def test_a_unit_of_the_other_sign_is_no_match() -> None:
    matching = match_circuit(_parse(INDUCTION), _parse(INDUCTION, -2.0))
    assert matching.count("missing") == 3
    assert len(matching.extra) == 3
    assert match_circuit(_parse(INDUCTION, -1.0), _parse(INDUCTION, -2.0)).count("found") == 3


def test_an_unmoved_match_is_no_form_of_a_moved_one() -> None:
    assert _hows(INDUCTION, (INDUCTION[0], "L1H0/score/q:res/k:res/same", INDUCTION[2]))[1] == "missing"


def test_one_head_may_do_the_job_of_two_but_two_are_preferred() -> None:
    shared = [unit.replace("L0H1", "L0H0") for unit in TWO_LINKS]
    matching = match_circuit(_parse(TWO_LINKS), _parse(shared))
    assert matching.count("found") == 5
    assert set(matching.heads.values()) == {Head(0, 0), Head(1, 0)}
    assert len(set(match_circuit(_parse(TWO_LINKS), _parse(TWO_LINKS)).heads.values())) == 3


def test_of_two_heads_with_one_job_the_stronger_stands_for_it() -> None:
    second = [unit.replace("L1H0", "L1H1") for unit in INDUCTION[1:]]
    matching = match_circuit(_parse(INDUCTION), {**_parse(INDUCTION, 1.0), **_parse(second, 3.0)})
    assert matching.heads[Head(1, 0)] == Head(1, 1)
    assert [str(unit) for unit in matching.extra] == list(INDUCTION[1:])


def test_a_detected_unit_stands_for_one_unit_of_the_reference_only() -> None:
    reference = ("readout/via:L0H0/same", "readout/via:L0H1/same")
    assert sorted(_hows(reference, ["readout/via:L2H1/same"])) == ["found", "missing"]


def test_the_order_of_layers_is_kept() -> None:
    upside_down = ("L1H0/score/q:res/k:res/offset+1", "L0H0/score/q:res/k:res/same", "readout/via:L0H0/same")
    assert _hows(INDUCTION, upside_down) != ["found", "found", "found"]


def test_everything_is_missing_from_an_empty_circuit() -> None:
    matching = match_circuit(_parse(INDUCTION), [])
    assert [unit.how for unit in matching.units] == ["missing"] * 3
    assert (matching.heads, matching.extra) == ({}, ())


def test_without_heads_to_rename_the_same_unit_is_the_match() -> None:
    memory = ("readout/via:res/assoc",)
    assert _hows(memory, memory) == ["found"]
    assert _hows(memory, ("readout/via:res/same",)) == ["missing"]
