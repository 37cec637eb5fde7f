"""The search on losses made up for it: minimal, exact, and cheap."""

import math
from collections.abc import Callable, Sequence
from itertools import combinations

import pytest
import torch
from toy_task import relations, toy_batch

from imir_lens.coordinates import CoordinateSpace
from imir_lens.evaluation import Score, score_logits
from imir_lens.ids import Head
from imir_lens.paths import PathTable
from imir_lens.search import Meter, eliminate, minimal_subset
from imir_lens.surrogate import Surrogate

Loss = Callable[[frozenset[int]], float]


class MadeUp(Meter):
    """A meter whose loss is any function of the set that is kept."""

    def __init__(self, size: int, loss: Loss) -> None:
        space = CoordinateSpace(PathTable.full(1, 1), relations(), 3)
        super().__init__(Surrogate(space), torch.ones(size), toy_batch(1, length=3))
        self.loss, self.known = loss, {}
        self.heads: dict[int, set[Head]] = {}

    def heads_of(self, place: int) -> set[Head]:
        return self.heads.get(place, set())

    def answers(self, places: Sequence[int]) -> bool:
        return bool(places)

    def score(self, kept: torch.Tensor) -> Score:
        key = frozenset(kept.nonzero().squeeze(1).tolist())
        if key not in self.known:
            self.evaluations += 1
            self.known[key] = self.loss(key)
        return Score(self.known[key], 0.0)


def search(size: int, loss: Loss, *, budget: float = 0.01) -> tuple[list[int], float, MadeUp]:
    meter = MadeUp(size, loss)
    found, allowed = minimal_subset(meter, list(range(size)), torch.ones(size, dtype=torch.bool), budget)
    return found, allowed, meter


def needs(members: set[int]) -> Loss:
    """All of these or nothing."""
    return lambda kept: 0.0 if members <= kept else 4.0


@pytest.mark.parametrize("size", [1, 2, 3, 17, 64, 100])
def test_exactly_what_is_needed_is_found(size):
    generator = torch.Generator().manual_seed(size)
    for count in {1, min(2, size), min(5, size), size}:
        members = set(torch.randperm(size, generator=generator)[:count].tolist())
        found, allowed, _ = search(size, needs(members))
        assert found == sorted(members)  # best first, as ranked
        assert allowed == pytest.approx(0.04)


def test_every_choice_of_members_is_found():
    for count in range(1, 7):
        for members in combinations(range(6), count):
            assert search(6, needs(set(members)))[0] == list(members)


def test_nothing_is_needed_where_nothing_already_passes():
    assert search(8, lambda kept: 1.0)[0] == []


def test_one_of_two_alternatives_is_enough():
    loss = lambda kept: 0.0 if 3 in kept and (1 in kept or 6 in kept) else 4.0  # noqa: E731
    assert search(10, loss)[0] == [1, 3]


@pytest.mark.parametrize("seed", range(30))
def test_what_is_found_is_1_minimal_on_any_loss(seed):
    """Losses that are monotone in nothing: random interactions of pairs, some of which hurt."""
    generator = torch.Generator().manual_seed(seed)
    size = 14
    single = torch.randn(size, generator=generator).abs()
    pair = torch.randn(size, size, generator=generator) * 0.6

    def loss(kept: frozenset[int]) -> float:
        inside = torch.tensor(sorted(kept), dtype=torch.long)
        gain = single[inside].sum() + pair[inside][:, inside].triu(1).sum()
        return float(torch.nn.functional.softplus(3 - gain))

    meter = MadeUp(size, loss)
    everything = torch.ones(size, dtype=torch.bool)
    ranking = single.argsort(descending=True).tolist()
    found, allowed = minimal_subset(meter, ranking, everything, 0.05)
    assert loss(frozenset(found)) <= allowed
    assert all(loss(frozenset(found) - {member}) > allowed for member in found)
    nothing, whole = loss(frozenset()), loss(frozenset(range(size)))
    assert allowed <= max(whole + 0.05 * (nothing - whole), whole) + 1e-9
    assert found == [place for place in ranking if place in found]


def test_coordinates_that_hurt_do_not_hide_a_good_prefix():
    """The whole is worse than its first three, as on a 3-layer checkpoint; the budget counts from the better one."""
    loss = lambda kept: (0.001 if {0, 1, 2} <= kept else 4.0) + 0.01 * len([k for k in kept if k > 4])  # noqa: E731
    found, allowed, _ = search(40, loss)
    assert found == [0, 1, 2]
    assert allowed < 0.05 < loss(frozenset(range(40)))


def test_prefixes_are_doubled_as_long_as_that_gains():
    """1.0 with the first two, 0.5 with four, 0.2 with eight, and with anything behind them 2.0."""

    def loss(kept: frozenset[int]) -> float:
        harm = 1.8 if any(member >= 16 for member in kept) else 0.0
        complete = [size for size in (2, 4, 8) if set(range(size)) <= kept]
        return harm + {0: 4.0, 2: 1.0, 4: 0.5, 8: 0.2}[max(complete, default=0)]

    found, allowed, _ = search(64, loss)
    assert found == list(range(8)) and allowed == pytest.approx(0.2 + 0.01 * 3.8)


def test_the_budget_is_a_share_of_the_gap():
    found, allowed, _ = search(8, lambda kept: 1.0 if 3 in kept else 4.0, budget=0.1)
    assert found == [3] and allowed == pytest.approx(1.3)


def test_members_ranked_last_are_found():
    assert search(50, needs({0, 49}))[0] == [0, 49]


def test_elimination_is_exact_where_chunks_interact():
    # A chunk may go only while its partner is there: passing sets are not closed under anything.
    passes = lambda kept: bool(kept) and sum(kept) % 7 == 0  # noqa: E731
    kept = eliminate(list(range(15)), passes)
    assert passes(kept) and len(kept) < 15
    assert all(not passes([other for other in kept if other != member]) for member in kept)


@pytest.mark.parametrize("size", [100, 300, 1000, 2500, 5000])
@pytest.mark.parametrize("count", [2, 4, 8])
def test_evaluations_grow_as_the_circuit_times_the_logarithm(size, count):
    generator = torch.Generator().manual_seed(count)
    members = set(torch.randperm(size, generator=generator)[:count].tolist())
    found, _, meter = search(size, needs(members))
    assert found == sorted(members)
    assert meter.evaluations <= 3.5 * count * math.log2(size)


@pytest.mark.parametrize("size", [100, 5000])
@pytest.mark.parametrize("count", range(2, 10))
def test_a_good_ranking_costs_little_more_than_checking_the_circuit(size, count):
    """Nor do members that hardly matter make the search go on."""
    members = set(range(count))
    idle = lambda kept: needs(members)(kept) - 1e-6 * len(kept) + (0.5 if len(kept) == size else 0)  # noqa: E731
    for loss in (needs(members), idle):
        found, _, meter = search(size, loss)
        assert found == sorted(members)
        assert meter.evaluations <= 2 * count + math.ceil(math.log2(count)) + 3


def test_a_meter_counts_each_subset_once_and_scores_it_as_the_surrogate_does():
    space = CoordinateSpace(PathTable.full(2, 1), relations(), 4)
    values = torch.where(space.active, torch.randn(space.size), 0.0)
    meter = Meter(Surrogate(space), values, toy_batch(200, length=4))
    kept = torch.rand(space.size) < 0.5
    first = meter.score(kept)
    assert first == score_logits(Surrogate(space).logits(torch.where(kept, values, 0.0), meter.batch), meter.batch)
    assert meter.score(kept) == first and meter.evaluations == 1
    assert meter.score(kept | ~space.active) == first and meter.evaluations == 1  # the same subset
    assert meter.score(~kept) != first and meter.evaluations == 2
    attribution = meter.attribution(kept, points=3)
    assert meter.gradient_passes == 3 and float(attribution[~kept].abs().max()) == 0
    ranking = meter.ranking(attribution, kept)
    assert sorted(ranking) == kept.nonzero().squeeze(1).tolist()
    sizes = attribution[ranking].abs()
    assert torch.equal(sizes, sizes.sort(descending=True).values)
    assert torch.equal(meter.mask(ranking), kept)


def test_one_of_two_circuits_goes_as_a_whole_where_half_of_it_does_harm():
    """Places 0, 2, 4 work in one head and 1, 3, 5 in another; each three do all, and a part of them disturbs.

    Both need place 6, in a third head.
    """
    circuits = {0, 2, 4}, {1, 3, 5}

    def loss(kept: frozenset[int]) -> float:
        whole = [members <= kept for members in circuits]
        broken = [bool(members & kept) and not members <= kept for members in circuits]
        return 4.0 if 6 not in kept or not any(whole) else 1.0 * any(broken)

    meter = MadeUp(12, loss)
    everything = torch.ones(12, dtype=torch.bool)
    assert minimal_subset(meter, list(range(12)), everything, 0.01)[0] == [0, 1, 2, 3, 4, 5, 6]  # no heads are known
    meter.heads = {place: {Head(0, place % 2)} for place in range(6)} | {6: {Head(1, 0)}}
    assert minimal_subset(meter, list(range(12)), everything, 0.01)[0] == [0, 2, 4, 6]
