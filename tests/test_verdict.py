"""Every branch of the verdict, from evidence made up for it."""

from dataclasses import replace

import pytest
import torch
from toy_task import relations

from imir_lens.coordinates import Coordinates, CoordinateSpace
from imir_lens.detection import Circuit
from imir_lens.evaluation import Score
from imir_lens.evidence import Evidence, Removal
from imir_lens.paths import PathTable
from imir_lens.roles import units_of
from imir_lens.verdict import LEVELS, Verdict, judge

ALPHA, BETA, GAMMA = "L0H0/score/q:res/k:res/offset+1", "L1H0/score/q:res/k:L0H0/same", "readout/via:L1H0/same"
DELTA, GATE = "readout/via:res/assoc", "L1H0/score/q:res/k:res/same"
HERE, BIAS = "L1H0/score/q:res/k:res/same", "L1H0/score/q:const/k:res/noun"
NEAR, BACK = "readout/via:L0H0/same", "readout/via:L0H0.L1H0/same"
INDUCTION = {ALPHA: 6.0, BETA: 20.0, GAMMA: 15.0, GATE: -2.0}
BAYES, CHANCE, GOOD, GONE = Score(0.0, 1.0), Score(4.0, 0.02), Score(0.01, 0.99), Score(5.0, 0.02)


def circuit(values: dict[str, float], **changes: object) -> Circuit:
    space = CoordinateSpace(PathTable.full(2, 1), relations(), 4)
    flat = torch.zeros(space.size)
    places = [space.place(name) for name in values]
    flat[places] = torch.tensor(list(values.values()))
    coordinates = Coordinates(space, flat)
    return replace(
        Circuit(
            coordinates=coordinates,
            units=units_of(coordinates, places, lambda path: 0.1 if path.heads else 1.0),
            attribution=flat,
            budget=0.01,
            limit=0.1,
            projection=GOOD,
            nothing=GONE,
            surrogate=GOOD,
            minimal=True,
            backups=(),
            evaluations=20,
            gradient_passes=5,
            seconds=1.0,
        ),
        **changes,
    )


def evidence(found: Circuit, **changes: object) -> Evidence:
    """Evidence on which everything rests, unless it is changed."""
    costly = Removal(GONE, GONE)
    whole = Evidence(
        model=GOOD,
        projection=GOOD,
        surrogate=GOOD,
        circuit=GOOD,
        without_circuit=GONE,
        without_all=GONE,
        units={str(unit.id): costly for unit in found.units},
        roles=dict.fromkeys(found.by_role(), costly),
    )
    return replace(whole, **changes)


def verdict(
    values: dict[str, float] = INDUCTION,
    *,
    contexts: int = 256,
    stability: float | None = 0.95,
    notes: tuple[str, ...] = (),
    backups: tuple[str, ...] = (),
    **changes: object,
) -> Verdict:
    found = circuit(values, backups=backups)
    return judge(
        found,
        evidence(found, **changes),
        task="recall",
        contexts=contexts,
        bayes=BAYES,
        chance=CHANCE,
        stability=stability,
        notes=notes,
    )


@pytest.mark.parametrize(
    ("values", "mechanism"),
    [
        (INDUCTION, "in_context"),
        ({DELTA: 5.0}, "in_weights"),
        (INDUCTION | {DELTA: 5.0}, "mixed"),
        ({ALPHA: 6.0, BETA: 20.0, GAMMA: 15.0}, "in_context"),
        ({BETA: 20.0, GAMMA: 15.0}, "in_context"),  # what is copied depends on the match
        ({ALPHA: 6.0, BETA: 20.0}, "not_detected"),
        ({ALPHA: 6.0, GAMMA: 15.0}, "not_detected"),  # another head is read
        ({ALPHA: 6.0, NEAR: 15.0}, "in_context"),
        ({GAMMA: 15.0}, "not_detected"),  # nothing steers it
        ({GATE: -2.0, GAMMA: 15.0}, "not_detected"),
        ({BIAS: 2.0, GAMMA: 15.0}, "in_context"),
        ({BIAS: -2.0, GAMMA: 15.0}, "not_detected"),
        ({BIAS: 2.0, NEAR: 15.0}, "not_detected"),  # steers another head
        ({BIAS: 2.0, GAMMA: -15.0}, "not_detected"),
        ({BIAS: 2.0, DELTA: 5.0}, "in_weights"),
        ({GATE: -2.0}, "not_detected"),
        ({BETA: 20.0, GAMMA: 15.0, DELTA: 5.0}, "mixed"),
        ({ALPHA: 6.0, BETA: 20.0, GAMMA: -15.0}, "not_detected"),
    ],
)
def test_the_mechanism_follows_from_the_roles(values, mechanism):
    assert verdict(values).mechanism == mechanism


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (INDUCTION, "with an induction circuit: alpha"),
        (
            {ALPHA: 6.0, HERE: 20.0, BACK: 15.0},
            "by matching a token and copying what stands a fixed distance from it: alpha",
        ),
        ({HERE: 20.0, GAMMA: 15.0}, "by matching and copying: beta"),
        ({BETA: 20.0, GAMMA: 15.0}, "by matching and copying: beta"),
        ({ALPHA: 6.0, NEAR: 15.0}, "by looking a fixed distance back and copying: alpha"),
        ({BIAS: 2.0, GAMMA: 15.0}, "by attending and copying: gamma"),
        ({DELTA: 5.0}, "from memory, with associations stored in its weights: delta"),
        ({BIAS: 2.0, GAMMA: 15.0, DELTA: 5.0}, "both in context and from memory: gamma"),
    ],
)
def test_the_words_follow_from_what_steers_the_copying(values, words):
    assert words in verdict(values).text


def test_full_evidence_says_so():
    found = verdict()
    assert found.evidence_level == "stability" and found.caveats == ()
    for words in ("in context", "alpha (L0H0)", "beta (L1H0)", "gamma (via L1H0)", "1 auxiliary direction", "0.990"):
        assert words in found.text
    assert "from 0.990 to 0.020" in found.text and "Not detected" not in found.text


def test_each_level_needs_the_one_below_it():
    harmless = {role: Removal(GOOD, GOOD) for role in ("alpha", "beta", "gamma", "auxiliary")}
    weak = evidence(circuit(INDUCTION)).roles | {"beta": Removal(GONE, Score(0.15, 0.97))}  # costs 3.5 % of the gap
    found = [
        verdict(roles=harmless),
        verdict(roles=weak),
        verdict(without_circuit=GOOD),
        verdict(circuit=GONE),
        verdict(stability=0.79),
        verdict(stability=0.8),
    ]
    assert [one.evidence_level for one in found] == [
        "weights only",
        "weights only",
        "single ablation",
        "joint ablation",
        "sufficiency and necessity",
        "stability",
    ]
    assert [one.mechanism for one in found] == ["not_detected"] * 3 + ["in_context"] * 3
    assert set(LEVELS) == {one.evidence_level for one in found}


def test_without_a_circuit_there_is_nothing_but_weights():
    found = verdict({}, circuit=GONE, without_circuit=GOOD)
    assert (found.mechanism, found.evidence_level) == ("not_detected", "weights only")
    assert "none of its roles" in found.text


def test_a_model_that_does_not_do_the_task_has_no_mechanism():
    found = verdict(model=Score(3.9, 0.05))
    assert found.mechanism == "not_detected"
    assert "does not do recall (accuracy 0.050; chance 0.020, best possible 1.000)" in found.text
    assert found.evidence_level == "weights only"
    halfway = verdict(model=Score(1.0, 0.51))
    assert halfway.mechanism == "in_context"
    assert "only in part (accuracy 0.510; chance 0.020, best possible 1.000)" in halfway.caveats[0]


def test_a_handful_of_contexts_is_not_evidence():
    found = verdict(contexts=31)
    assert (found.mechanism, found.evidence_level) == ("not_detected", "weights only")
    assert "31 contexts are too few" in found.text
    assert verdict(contexts=32).mechanism == "in_context"


def test_where_mechanisms_back_each_other_up_no_role_need_cost_anything_alone():
    harmless = dict.fromkeys(("alpha", "beta", "gamma", "delta", "auxiliary"), Removal(GOOD, GOOD))
    both = INDUCTION | {DELTA: 5.0}
    found = verdict(both, roles=harmless, backups=(DELTA,))
    assert (found.mechanism, found.evidence_level) == ("mixed", "stability")
    assert verdict(both, roles=harmless).mechanism == "not_detected"


def test_what_was_not_resampled_is_not_called_unstable():
    found = verdict(stability=None)
    assert found.evidence_level == "sufficiency and necessity" and found.caveats == ()


def test_one_unit_is_one_coordinate():
    assert "Without this coordinate accuracy falls" in verdict({DELTA: 5.0}).text


def test_a_task_nobody_can_do_better_than_chance_is_not_solved_by_guessing():
    found = circuit(INDUCTION)
    guess = Score(4.0, 0.02)
    scores = {"bayes": CHANCE, "chance": CHANCE}
    one = judge(found, evidence(found, model=guess), task="noise", contexts=256, stability=1.0, **scores)
    assert one.mechanism == "not_detected" and "does not do noise" in one.text
    assert one.evidence_level == "weights only"  # there is no gain that an ablation could take away


def test_coordinates_that_look_right_but_do_not_matter_are_not_a_mechanism():
    found = verdict(without_circuit=Score(0.02, 0.985))
    assert found.mechanism == "not_detected"
    assert "does not take the behaviour away (accuracy 0.990, without them 0.985)" in found.text


def test_necessity_and_sufficiency_are_measured_against_chance():
    gain = GOOD.accuracy - CHANCE.accuracy
    half = GOOD.accuracy - gain / 2
    for nudge, level in ((-1e-3, "stability"), (1e-3, "single ablation")):
        assert verdict(without_circuit=Score(2.0, half + nudge)).evidence_level == level
    for nudge, level in ((1e-3, "stability"), (-1e-3, "joint ablation")):
        assert verdict(circuit=Score(2.0, half + nudge)).evidence_level == level


def test_auxiliary_directions_need_not_cost_anything_alone():
    roles = evidence(circuit(INDUCTION)).roles | {"auxiliary": Removal(GOOD, GOOD)}
    assert verdict(roles=roles).evidence_level == "stability"


def test_reservations():
    found = verdict(
        projection=Score(0.5, 0.8),
        circuit=Score(0.6, 0.8),
        stability=0.4,
        notes=("3 paths were cut.",),
        backups=(GAMMA, BETA, ALPHA, GATE, DELTA),
    )
    text = "\n".join(found.caveats)
    for words in (
        "part of the mechanism lies outside them",
        "accuracy is 0.800, not 0.990",
        "5 unit(s) are backups",
        ", …",
        "Jaccard index 0.40",
        "3 paths were cut.",
    ):
        assert words in text
    assert len(found.caveats) == 5 and all("\n" not in caveat for caveat in found.caveats)


def test_faithfulness_and_completeness():
    found = circuit(INDUCTION)
    scores = {"model": Score(1.0, 1.0), "circuit": Score(2.0, 0.9), "without_circuit": Score(4.0, 0.1)}
    given = evidence(found, without_all=Score(5.0, 0.0), **scores)
    assert given.faithfulness == pytest.approx(3 / 4) and given.completeness == pytest.approx(3 / 4)
    useless = evidence(found, without_all=Score(0.5, 0.0), **scores)
    assert (useless.faithfulness, useless.completeness) == (0.0, 0.0)
