"""The id grammar: every id prints to what parses back to it, and what is not an id says why."""

import pytest

from imir_lens.errors import CoordinateError
from imir_lens.ids import CoordinateId, Head, Path, offset_name

IDS = [
    "L1H0/score/q:res/k:L0H0/same",
    "L0H0/score/q:res/k:res/offset+1",
    "L2H3/score/q:L0H1.L1H2/k:L1H0/offset-12",
    "L1H0/score/q:const/k:res/word",
    "L0H0/score/q:res/k:res/word>filler",
    "L10H11/score/q:res/k:L9H10/assoc-reverse",
    "readout/via:L1H0/same",
    "readout/via:res/assoc",
    "readout/via:L0H0.L1H0.L2H5/word>filler",
    "readout/via:const/word",
]


@pytest.mark.parametrize("text", IDS)
def test_an_id_prints_as_it_was_read(text):
    assert str(CoordinateId.parse(text)) == text


def test_the_parts_of_a_score():
    name = CoordinateId.parse("L2H3/score/q:L0H1.L1H2/k:L1H0/offset-12")
    assert (name.head, name.query, name.key) == (
        Head(2, 3),
        Path((Head(0, 1), Head(1, 2))),
        Path((Head(1, 0),)),
    )
    assert name.is_score and name.offset == -12
    assert name.paths == (name.query, name.key)


def test_the_parts_of_a_readout_and_of_constants():
    readout = CoordinateId.parse("readout/via:L1H0/same")
    assert not readout.is_score and readout.offset is None
    assert readout.paths == (Path((Head(1, 0),)),)
    bias = CoordinateId.parse("L1H0/score/q:const/k:res/word")
    assert bias.query is None and bias.paths == (Path(),)
    assert CoordinateId.parse("readout/via:const/word").paths == ()


def test_offsets_carry_a_sign():
    assert [offset_name(k) for k in (-2, 0, 1)] == ["offset-2", "offset+0", "offset+1"]
    assert CoordinateId.parse("L0H0/score/q:res/k:res/offset+0").offset == 0


def test_heads_are_ordered_by_layer_then_index():
    heads = [Head(1, 0), Head(0, 10), Head(0, 2)]
    assert sorted(heads) == [Head(0, 2), Head(0, 10), Head(1, 0)]


def test_a_path_grows_upwards():
    path = Path().then(Head(0, 1)).then(Head(2, 0))
    assert str(path) == "L0H1.L2H0" and Path.parse("L0H1.L2H0") == path
    with pytest.raises(CoordinateError, match=r"L0H1\.L0H0 does not go up"):
        Path((Head(0, 1), Head(0, 0)))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("L0H0/score/q:res/same", "is not a coordinate id"),
        ("", "is not a coordinate id"),
        ("readout/via:L1H0/same/extra", "is not a coordinate id"),
        ("readout/via:L1/same", "'L1' is not a head"),
        ("L1H0/score/q:res/k:const/same", "'const' is not a head"),
        ("L1H0/score/q:L1H0/k:res/same", "path L1H0 does not end below layer 1"),
        ("L0H0/score/q:res/k:L2H0/same", "path L2H0 does not end below layer 0"),
        ("readout/via:L1H0.L0H0/same", "does not go up in layers"),
        ("L1H0/score/q:res/k:L-1H0/same", "'L-1H0' is not a head"),
    ],
)
def test_what_is_not_an_id_is_quoted_with_the_reason(text, complaint):
    with pytest.raises(CoordinateError) as error:
        CoordinateId.parse(text)
    assert complaint in str(error.value)
    assert "\n" not in str(error.value)


def test_an_id_built_by_hand_cannot_read_its_own_output():
    with pytest.raises(CoordinateError, match="does not end below layer 0"):
        CoordinateId(Head(0, 0), Path(), Path((Head(1, 0),)), "same")
