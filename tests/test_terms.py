"""What coordinates add to scores and logits, term by term against dense matrices."""

import pytest
import torch
from brute_force import named, readout_term, rows, score_term
from toy_task import relations, toy_batch

from imir_lens.coordinates import Coordinates, CoordinateSpace
from imir_lens.errors import CoordinateError
from imir_lens.ids import Head
from imir_lens.paths import PathTable
from imir_lens.terms import Contents, ContextRelations, Reads, readout_terms, score_terms

P = 5
HEADS = [Head(0, 0), Head(0, 1), Head(1, 0), Head(1, 1)]


@pytest.fixture
def space() -> CoordinateSpace:
    return CoordinateSpace(PathTable.full(2, 2), relations(), P)


def random_patterns(contexts: int) -> dict[Head, torch.Tensor]:
    """Any causal patterns will do: terms take them as they are."""
    hidden = torch.ones(P, P, dtype=torch.bool).triu(1)
    scores = torch.randn(4, contexts, P, P, dtype=torch.float64) * 2
    return dict(zip(HEADS, scores.masked_fill(hidden, -torch.inf).softmax(-1), strict=True))


def run(space: CoordinateSpace, values: torch.Tensor, batch, patterns) -> tuple[Contents, ContextRelations]:
    contents = Contents(space, Reads.of(space, values != 0), len(batch), values)
    for head in HEADS:
        contents.extend(head, patterns[head])
    return contents, ContextRelations.evaluate(space, batch.tokens, dtype=values.dtype)


def test_each_coordinate_adds_its_own_relation_between_contents(space):
    """Every id of the space, one at a time: no sign, transpose or offset can be wrong in any of them."""
    batch = toy_batch(1, length=P)
    patterns = random_patterns(1)
    by_pair = {(head.layer, head.index): pattern for head, pattern in patterns.items()}
    for place in space.active.nonzero().squeeze(1).tolist():
        if space.id(place).head in (Head(0, 0), Head(1, 1)):
            continue  # two heads stand for four
        name, values = space.id(place), torch.zeros(space.size, dtype=torch.float64)
        values[place] = 1.5
        contents, context = run(space, values, batch, patterns)
        if name.is_score:
            found = score_terms(contents, context, values, name.head)
            expected = score_term(relations(), str(name), by_pair, batch.tokens)
        else:
            found = readout_terms(contents, context, values, batch.queries)
            expected = rows(readout_term(relations(), str(name), by_pair, batch.tokens), batch.queries)
        assert torch.allclose(found, 1.5 * expected.expand_as(found), atol=1e-12), name


def test_terms_add_up(space):
    batch, patterns = toy_batch(4, length=P), random_patterns(4)
    coordinates = Coordinates(space, torch.randn(space.size, dtype=torch.float64))
    contents, context = run(space, coordinates.values, batch, patterns)
    by_pair = {(head.layer, head.index): pattern for head, pattern in patterns.items()}
    score, logits = torch.zeros(4, P, P, dtype=torch.float64), torch.zeros(4, P, 11, dtype=torch.float64)
    for name, value in named(coordinates).items():
        if name.startswith("L1H1/"):
            score += value * score_term(relations(), name, by_pair, batch.tokens)
        elif name.startswith("readout"):
            logits += value * readout_term(relations(), name, by_pair, batch.tokens)
    torch.testing.assert_close(score_terms(contents, context, coordinates.values, Head(1, 1)), score)
    found = readout_terms(contents, context, coordinates.values, batch.queries)
    torch.testing.assert_close(found, rows(logits, batch.queries))
    assert float(score.std()) > 1 < float(logits.std())


def test_chosen_rows_are_those_of_the_whole(space):
    batch, patterns = toy_batch(4, length=P), random_patterns(4)
    values = torch.randn(space.size, dtype=torch.float64)
    contents, context = run(space, values, batch, patterns)
    whole = score_terms(contents, context, values, Head(1, 0))
    some = score_terms(contents, context, values, Head(1, 0), batch.queries)
    torch.testing.assert_close(some, rows(whole, batch.queries))
    assert not torch.equal(batch.queries[0], batch.queries[1])


def test_a_head_without_coordinates_adds_no_score(space):
    values = torch.zeros(space.size)
    values[space.place("L1H0/score/q:res/k:res/same")] = 1
    batch = toy_batch(2, length=P)
    contents = Contents(space, Reads.of(space, values != 0), 2, values)
    context = ContextRelations.evaluate(space, batch.tokens, dtype=values.dtype)
    assert score_terms(contents, context, values, Head(1, 1)) is None
    assert score_terms(contents, context, values, Head(1, 0)) is not None


def test_contexts_of_another_length_are_refused(space):
    with pytest.raises(CoordinateError, match="contexts of 7 positions, but these coordinates are for 5"):
        ContextRelations.evaluate(space, toy_batch(2).tokens, dtype=torch.float32)


def test_reads_are_the_paths_of_nonzero_coordinates_with_their_prefixes():
    space = CoordinateSpace(PathTable.full(3, 1), relations(), P)
    chosen = torch.zeros(space.size, dtype=torch.bool)
    chosen[space.place("L2H0/score/q:L1H0/k:L0H0.L1H0/same")] = True
    chosen[space.place("L1H0/score/q:const/k:L0H0/verb")] = True
    chosen[space.place("readout/via:L2H0/same")] = True
    reads = Reads.of(space, chosen)
    called = lambda places: [str(space.paths.paths[place]) for place in sorted(places)]  # noqa: E731
    assert called(reads.queries[Head(2, 0)]) == ["L1H0"] and called(reads.keys[Head(2, 0)]) == ["L0H0.L1H0"]
    assert reads.queries[Head(1, 0)] == [] and called(reads.keys[Head(1, 0)]) == ["L0H0"]
    assert called(reads.readout) == ["L2H0"]
    assert called(reads.needed) == ["res", "L0H0", "L1H0", "L0H0.L1H0", "L2H0"]


def test_only_needed_paths_are_followed(space):
    values = torch.zeros(space.size)
    values[space.place("readout/via:L0H1.L1H0/same")] = 1
    contents = Contents(space, Reads.of(space, values != 0), 2, values)
    assert [contents.needs(head) for head in HEADS] == [False, True, True, False]
    for head, pattern in random_patterns(2).items():
        contents.extend(head, pattern)
    assert len(contents.by_place) == 3  # the direct path, L0H1 and L0H1.L1H0
