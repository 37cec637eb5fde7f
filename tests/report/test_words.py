import pytest

from imir_lens.errors import CoordinateError
from imir_lens.report.words import EVIDENCE_LEVELS, describe, evidence_step


@pytest.mark.parametrize(
    ("identity", "role", "value", "sentence"),
    [
        ("L0H0/score/q:res/k:res/offset+1", "alpha", 6.7, "Head L0H0 attends to the position one back."),
        ("L0H0/score/q:res/k:res/offset+2", "alpha", -6.7, "Head L0H0 attends away from the position two back."),
        ("L0H0/score/q:res/k:res/offset+0", "auxiliary", 5.2, "Head L0H0 attends to the current position itself."),
        (
            "L1H0/score/q:res/k:L0H0/offset+1",
            "auxiliary",
            1.0,
            "Head L1H0 attends to keys where the position fetched by L0H0 is one position before the current position.",
        ),
        (
            "L1H0/score/q:res/k:L0H0/same",
            "beta",
            27.7,
            "Head L1H0 attends where the token fetched by L0H0 equals the current token.",
        ),
        (
            "L2H0/score/q:L1H0/k:L0H0/same",
            "beta_2",
            1.0,
            "Head L2H0 attends where the token fetched by L0H0 equals the token fetched by L1H0.",
        ),
        (
            "L2H0/score/q:L1H0/k:res/same",
            "beta",
            1.0,
            "Head L2H0 attends where the key token equals the token fetched by L1H0.",
        ),
        ("L1H0/score/q:res/k:res/same", "auxiliary", -2.0, "Head L1H0 is pushed away from the same token itself."),
        ("L1H0/score/q:res/k:res/same", "auxiliary", 2.0, "Head L1H0 is drawn to the same token itself."),
        ("L1H0/score/q:res/k:res/same", "beta", 2.0, "Head L1H0 attends where the key token equals the current token."),
        (
            "L1H0/score/q:res/k:res/assoc",
            "auxiliary",
            1.0,
            "Head L1H0 attends where the key token is the associate of the current token.",
        ),
        (
            "L0H0/score/q:res/k:res/word>filler",
            "auxiliary",
            -1.0,
            "Head L0H0 attends away from filler tokens when the current token is of class word.",
        ),
        (
            "L1H0/score/q:const/k:res/word",
            "auxiliary",
            1.0,
            "Head L1H0 attends to word tokens, whatever the query.",
        ),
        ("readout/via:L1H0/same", "gamma", 18.6, "The token attended by L1H0 is copied to the output."),
        ("readout/via:L1H0/same", "auxiliary", -1.0, "The token attended by L1H0 is suppressed at the output."),
        (
            "readout/via:L0H0.L1H0.L2H1/same",
            "gamma",
            1.0,
            "The token fetched by L0H0 and passed on by L1H0 and passed on by L2H1 is copied to the output.",
        ),
        (
            "readout/via:res/assoc",
            "delta_1",
            2.2,
            "The output is raised for the associate of the current token (memorised association).",
        ),
        (
            "readout/via:L1H0/assoc-reverse",
            "auxiliary",
            1.0,
            "The output is raised for the token whose associate is the token attended by L1H0.",
        ),
        (
            "readout/via:res/word>filler",
            "auxiliary",
            -0.7,
            "The output is lowered for filler tokens when the current token is of class word.",
        ),
        ("readout/via:const/word", "auxiliary", 0.4, "The output is raised for word tokens, whatever the context."),
    ],
)
def test_every_kind_of_coordinate_has_its_sentence(identity, role, value, sentence):
    assert describe(identity, role, value) == sentence


def test_without_a_value_the_sentence_is_the_positive_one():
    assert describe("L1H0/score/q:res/k:res/same", "auxiliary") == "Head L1H0 is drawn to the same token itself."


def test_an_unreadable_id_is_refused_by_name():
    with pytest.raises(CoordinateError, match="'L1H0/nonsense'"):
        describe("L1H0/nonsense", "beta", 1.0)


def test_evidence_levels_are_a_ladder():
    assert [evidence_step(level) for level in EVIDENCE_LEVELS] == [1, 2, 3, 4, 5]
    assert evidence_step("Sufficiency-and-necessity") == 4
    assert evidence_step("hearsay") == 0
