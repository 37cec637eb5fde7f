"""Roles by what a coordinate reads and by who reads it."""

import pytest

from imir_lens.ids import CoordinateId, Path
from imir_lens.roles import assign_roles, base_of, base_role

ALPHA, BETA, GAMMA = "L0H0/score/q:res/k:res/offset+1", "L1H0/score/q:res/k:L0H0/same", "readout/via:L1H0/same"
INDUCTION = (ALPHA, BETA, GAMMA)


def moves(*still: str):
    """A `stay`: every head moves content elsewhere, but for the paths named."""
    return lambda path: 1.0 if not path.heads or str(path) in still else 0.1


def role(name: str, value: float = 5.0, *, circuit: tuple[str, ...] = INDUCTION, still: tuple[str, ...] = ()) -> str:
    units = [(CoordinateId.parse(other), 1.0) for other in circuit]
    return base_role(CoordinateId.parse(name), value, units, moves(*still))


def test_the_canonical_induction_head():
    assert [role(name) for name in INDUCTION] == ["alpha", "beta", "gamma"]
    assert role("L1H0/score/q:res/k:res/same", -2.0) == "auxiliary"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("L0H0/score/q:res/k:res/offset+3", "alpha"),  # any fixed offset but 0
        ("L0H0/score/q:res/k:res/offset+0", "auxiliary"),  # attention to oneself
        ("L0H1/score/q:res/k:res/offset+1", "auxiliary"),  # nothing reads this head
        ("L1H0/score/q:res/k:res/offset+1", "alpha"),  # gamma reads L1H0
        ("L1H0/score/q:res/k:res/same", "beta"),  # matches where the token stands, and gamma reads L1H0
        ("L0H0/score/q:res/k:res/same", "auxiliary"),  # the same in a head that no gamma reads
        ("L1H0/score/q:L0H0/k:res/same", "beta"),  # either side may have come through a head
        ("L1H0/score/q:res/k:L0H0/assoc", "auxiliary"),
        ("L1H0/score/q:const/k:L0H0/word", "auxiliary"),
        ("L0H0/score/q:res/k:res/word>filler", "auxiliary"),
        ("readout/via:res/same", "auxiliary"),
        ("readout/via:L0H0.L1H0/same", "gamma"),
        ("readout/via:res/assoc", "delta"),
        ("readout/via:res/assoc-reverse", "delta"),
        ("readout/via:L1H0/assoc", "auxiliary"),  # the associate of another token than the query's
        ("readout/via:res/word>filler", "auxiliary"),
        ("readout/via:const/word", "auxiliary"),
    ],
)
def test_each_kind_of_coordinate(name, expected):
    assert role(name) == expected


@pytest.mark.parametrize("name", [*INDUCTION, "readout/via:res/assoc"])
@pytest.mark.parametrize("value", [0.0, -3.0])
def test_only_positive_coordinates_have_a_named_role(name, value):
    assert role(name, value) == "auxiliary"


def test_a_head_that_attends_to_the_query_itself_moves_nothing():
    assert role("readout/via:L1H0/assoc", still=("L1H0",)) == "delta"
    assert role("readout/via:L1H0/same", still=("L1H0",)) == "auxiliary"
    # The token then stands where it is matched, which is a beta only where a gamma reads it.
    assert role("L1H0/score/q:res/k:L0H0/same", still=("L0H0",), circuit=()) == "auxiliary"
    assert role("L1H0/score/q:res/k:L0H0/same", still=("L0H0",)) == "beta"


@pytest.mark.parametrize(
    ("readout", "value", "still", "expected"),
    [
        ("readout/via:L1H0/same", 5.0, (), "beta"),
        ("readout/via:L0H0.L1H0/same", 5.0, (), "beta"),  # read back: what a lower head had brought there
        ("readout/via:L1H0.L2H0/same", 5.0, (), "beta"),  # passed on
        ("readout/via:L1H0/same", -5.0, (), "auxiliary"),  # inhibition is no copying
        ("readout/via:L1H0/same", 5.0, ("L1H0",), "auxiliary"),  # the head attends to the query itself
        ("readout/via:L1H1/same", 5.0, (), "auxiliary"),  # another head is read
        ("readout/via:L1H0/assoc", 5.0, (), "auxiliary"),
    ],
)
def test_a_match_where_the_token_stands_is_a_beta_when_a_gamma_reads_its_head(readout, value, still, expected):
    match, other = CoordinateId.parse("L1H0/score/q:res/k:res/same"), CoordinateId.parse(readout)
    assert base_role(match, 5.0, [(match, 5.0), (other, value)], moves(*still)) == expected
    assert base_role(match, -5.0, [(match, -5.0), (other, value)], moves(*still)) == "auxiliary"


def test_content_moved_exactly_half_counts_as_staying():
    name = CoordinateId.parse(GAMMA)
    assert base_role(name, 1.0, [(name, 1.0)], lambda path: 0.5) == "auxiliary"
    assert base_role(name, 1.0, [(name, 1.0)], lambda path: 0.49) == "gamma"


def assign(*names: str) -> dict[str, str]:
    units = [(CoordinateId.parse(name), 1.0) for name in names]
    return {str(name): role for name, role in assign_roles(units, moves()).items()}


def test_a_role_held_in_several_layers_is_numbered_in_their_order():
    found = assign(
        "readout/via:L2H0/same",
        "L2H0/score/q:L1H0/k:L0H0/same",
        "L1H0/score/q:res/k:L0H0/same",
        "L2H1/score/q:L1H0/k:L0H0/same",
        ALPHA,
        "L1H0/score/q:res/k:res/same",
        "L2H0/score/q:res/k:res/same",
    )
    assert found == {
        "readout/via:L2H0/same": "gamma",
        "L2H0/score/q:L1H0/k:L0H0/same": "beta_2",
        "L1H0/score/q:res/k:L0H0/same": "beta_1",
        "L2H1/score/q:L1H0/k:L0H0/same": "beta_2",
        ALPHA: "alpha",
        "L1H0/score/q:res/k:res/same": "auxiliary",
        "L2H0/score/q:res/k:res/same": "beta_2",
    }


def test_readouts_are_numbered_by_their_last_head():
    found = assign("readout/via:L0H0.L2H0/same", "readout/via:L1H0/same", "readout/via:res/assoc")
    assert list(found.values()) == ["gamma_2", "gamma_1", "delta"]


def test_an_alpha_needs_a_reader_among_the_units():
    assert assign(ALPHA, "readout/via:L1H0/same")[ALPHA] == "auxiliary"
    assert assign(ALPHA, "L1H0/score/q:L0H0/k:res/assoc")[ALPHA] == "alpha"


def test_the_base_of_a_numbered_role():
    assert [base_of(role) for role in ("beta_2", "gamma", "auxiliary")] == ["beta", "gamma", "auxiliary"]


def test_the_empty_path_stays_whatever_it_is_asked():
    """`stay` is never consulted for content that no head moved."""
    never = lambda path: 1 / 0  # noqa: E731
    name = CoordinateId.parse("readout/via:res/assoc")
    assert name.paths == (Path(),) and base_role(name, 1.0, [(name, 1.0)], never) == "delta"
