import torch

from imir_lens.tasks.symmetry import couple_exchanges, exchange, free_exchanges


def group_of(generators):
    """All permutations the generators make, by closure."""
    known = {tuple(range(len(generators[0])))}
    fresh = set(known)
    while fresh:
        fresh = {tuple(g[list(p)].tolist()) for p in fresh for g in generators} - known
        known |= fresh
    return known


def test_exchange_swaps_in_order_and_leaves_the_rest():
    assert exchange(6, [1, 2], [4, 5]).tolist() == [0, 4, 5, 3, 1, 2]


def test_free_exchanges_generate_all_permutations_of_the_words():
    group = group_of(free_exchanges(5, [1, 2, 3, 4]))
    assert len(group) == 24
    assert all(p[0] == 0 for p in group)


def test_couple_exchanges_generate_the_permutations_that_respect_the_couples():
    group = group_of(couple_exchanges(7, [(1, 4), (2, 5), (3, 6)]))
    assert len(group) == 2**3 * 6
    couples = {frozenset(c) for c in ((1, 4), (2, 5), (3, 6))}
    assert all(frozenset((p[1], p[4])) in couples for p in group)


def test_without_words_there_is_nothing_to_exchange():
    assert free_exchanges(4, [1]) == []
    assert couple_exchanges(4, []) == []
    assert torch.equal(couple_exchanges(4, [(1, 2)])[0], torch.tensor([0, 2, 1, 3]))
