"""Spaces and vectors of coordinates: ids and places, arithmetic, files."""

import pytest
import torch
from safetensors.torch import save_file
from toy_task import relations

from imir_lens.coordinates import Coordinates, CoordinateSpace
from imir_lens.errors import CoordinateError
from imir_lens.ids import CoordinateId, Head, Path
from imir_lens.paths import PathTable


def space(n_layers: int = 2, n_heads: int = 2, n_positions: int = 3, **options: object) -> CoordinateSpace:
    return CoordinateSpace(PathTable.full(n_layers, n_heads), relations(), n_positions, **options)


@pytest.fixture
def coordinates() -> Coordinates:
    here = space()
    return Coordinates(here, torch.randn(here.size))


def test_every_place_has_an_id_of_its_own_that_leads_back():
    here = space()
    names = [here.id(place) for place in range(here.size)]
    assert len(set(map(str, names))) == here.size
    assert [here.place(name) for name in names] == list(range(here.size))
    assert [here.place(str(name)) for name in names] == list(range(here.size))


def test_the_size_of_a_space():
    # Token relations: 3 matchings + 4 query classes x 3 free key classes; offsets -2 … 2; 3 paths enter layer 1.
    scores = 15 + 5
    assert space().size == 2 * (scores + 3) + 2 * (9 * scores + 3 * 3) + 9 * 15 + 3
    # A query read directly sees no key ahead: 2 offsets less for each key path.
    assert space().n_active == space().size - 2 * (2 * 1) - 2 * (2 * 3)
    assert len(list(Coordinates(space(), torch.zeros(space().size)))) == space().n_active


def test_only_keys_ahead_of_a_directly_read_query_are_inactive():
    here = space()
    for place, active in enumerate(here.active.tolist()):
        name = here.id(place)
        ahead = name.is_score and name.query == Path() and name.offset is not None and name.offset < 0
        assert active == (not ahead), name


def test_what_reads_through_a_head_has_it_in_one_of_its_paths():
    here = space(3, 1)
    for heads in ({Head(0, 0)}, {Head(1, 0)}, {Head(0, 0), Head(2, 0)}, set()):
        mask = here.reading_through(heads)
        for place, found in enumerate(mask.tolist()):
            reads = any(head in heads for path in here.id(place).paths for head in path.heads)
            assert found == (reads and bool(here.active[place])), here.id(place)
        assert bool(mask.any()) == bool(heads)


def test_inactive_values_are_dropped():
    here = space()
    ones = Coordinates(here, torch.ones(here.size))
    assert ones["L0H0/score/q:res/k:res/offset-1"] == 0
    assert ones["L0H0/score/q:res/k:res/offset+1"] == 1
    assert ones["L1H0/score/q:L0H0/k:res/offset-1"] == 1
    assert len(ones) == int(ones.values.sum()) == here.n_active


def test_values_are_found_by_id(coordinates):
    name = "L1H1/score/q:L0H0/k:L0H1/assoc-reverse"
    head, block = Head(1, 1), coordinates.space.block("score", Head(1, 1))
    by_hand = block.view(coordinates.values)[1, 2, coordinates.space.relations.names.index("assoc-reverse")]
    assert coordinates.space.id(coordinates.space.place(name)).head == head
    assert coordinates[name] == float(by_hand) != 0


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("L5H0/score/q:res/k:res/same", "head L5H0"),
        ("L0H2/score/q:res/k:res/same", "head L0H2"),
        ("L1H0/score/q:res/k:res/sane", "did you mean 'same'?"),
        ("L1H0/score/q:res/k:res/offset+3", "no relation 'offset+3'"),
        ("L1H0/score/q:res/k:res/noun>filler", "no relation 'noun>filler'"),
        ("L1H0/score/q:const/k:res/same", "no relation 'same'"),
        ("L1H0/score/q:const/k:res/filler", "no relation 'filler'"),
        ("readout/via:res/offset+1", "no relation 'offset+1'"),
        ("readout/via:L0H7/same", "path L0H7"),
        ("L1H0/score/q:res/k:L0H3/same", "path L0H3"),
        ("nonsense", "is not a coordinate id"),
    ],
)
def test_an_unknown_id_is_quoted_with_the_part_that_is_wrong(coordinates, name, part):
    with pytest.raises(CoordinateError) as error:
        coordinates[name]
    assert part in str(error.value) and "\n" not in str(error.value)


def test_arithmetic_and_cosine():
    here = space()
    a, b = (Coordinates(here, torch.randn(here.size)) for _ in range(2))
    name = "L1H0/score/q:res/k:L0H0/same"
    assert (a - b)[name] == pytest.approx(a[name] - b[name])
    assert (a + b)[name] == pytest.approx(a[name] + b[name])
    assert (a * -2.0)[name] == pytest.approx(-2 * a[name])
    assert a.cosine(a * 3.0) == pytest.approx(1) and a.cosine(a * -0.1) == pytest.approx(-1)
    expected = torch.nn.functional.cosine_similarity(a.values, b.values, dim=0)
    assert a.cosine(b) == pytest.approx(float(expected), abs=1e-6) and abs(a.cosine(b)) < 0.5
    assert a.cosine(a * 0.0) == 0


def test_different_spaces_do_not_mix(coordinates):
    other = space(n_positions=4)
    with pytest.raises(CoordinateError, match=r"3 positions.*4 positions|4 positions.*3 positions"):
        coordinates - Coordinates(other, torch.zeros(other.size))
    swapped = CoordinateSpace(coordinates.space.paths, relations("noun"), 3)
    with pytest.raises(CoordinateError, match="different spaces"):
        coordinates.cosine(Coordinates(swapped, torch.zeros(swapped.size)))


def test_a_vector_of_the_wrong_length_is_refused():
    with pytest.raises(CoordinateError, match=f"expected {space().size} values"):
        Coordinates(space(), torch.zeros(5))


def test_only_keeps_what_it_names(coordinates):
    names = ["readout/via:L1H0/same", "L0H0/score/q:const/k:res/verb"]
    kept = coordinates.only(names)
    assert {str(name) for name in kept if kept[name] != 0} == set(names)
    assert [kept[name] for name in names] == [coordinates[name] for name in names]
    assert int((coordinates.values != 0).sum()) > 300  # the original is as it was


def test_the_largest_come_first(coordinates):
    ranked = coordinates.largest(10)
    sizes = [abs(value) for _, value in ranked]
    assert sizes == sorted(sizes, reverse=True) and sizes[0] == float(coordinates.values.abs().max())
    assert all(coordinates[name] == value for name, value in ranked)
    assert str(ranked[0][0]) in repr(coordinates)


def test_files_bring_back_values_and_names(tmp_path, coordinates):
    cut = coordinates.space.paths.restricted([Path.parse("L0H0.L1H1")])
    here = CoordinateSpace(cut, relations("verb"), 3, query_positions=(1, 2))
    saved = Coordinates(here, torch.randn(here.size, dtype=torch.float64))
    saved.save(tmp_path / "c.safetensors")
    loaded = Coordinates.load(tmp_path / "c.safetensors")
    assert torch.equal(loaded.values, saved.values) and loaded.values.dtype == torch.float64
    assert list(map(str, loaded)) == list(map(str, saved)) and len(loaded) == len(saved)
    assert loaded.space.query_positions == (1, 2) and loaded.space.relations.reference == "verb"
    assert loaded.cosine(saved) == pytest.approx(1)


def test_other_files_are_refused_in_one_line(tmp_path):
    missing, text, other = tmp_path / "none", tmp_path / "text", tmp_path / "other.safetensors"
    text.write_text("not a file of ours")
    save_file({"values": torch.zeros(3)}, other)
    for path in (missing, text, other):
        with pytest.raises(CoordinateError) as error:
            Coordinates.load(path)
        assert str(path) in str(error.value) and "\n" not in str(error.value)


def test_an_id_that_reads_above_its_head_has_no_place():
    with pytest.raises(CoordinateError):
        space(3, 1).place(CoordinateId(Head(1, 0), Path(), Path((Head(1, 0),)), "same"))
