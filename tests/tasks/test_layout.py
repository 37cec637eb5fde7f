import torch
from enumeration import placements

from imir_lens.tasks.layout import block_firsts, choose, place_blocks, successor, word_names, write_blocks


def test_every_placement_is_equally_likely(generator):
    n = 60_000
    for blocks, cells in ((2, 6), (3, 8), (1, 2), (4, 8)):
        starts = place_blocks(n, blocks, cells, generator)
        seen, counts = starts.unique(dim=0, return_counts=True)
        expected = placements(blocks, cells)
        assert [tuple(row) for row in seen.tolist()] == expected
        share = 1 / len(expected)
        assert ((counts / n - share).abs() < 5 * (share / n) ** 0.5).all()


def test_choose_draws_distinct_numbers_in_random_order(generator):
    drawn = choose(12_000, 2, 4, generator)
    orders, counts = drawn.unique(dim=0, return_counts=True)
    assert len(orders) == 12
    assert ((counts / 12_000 - 1 / 12).abs() < 0.015).all()


def test_blocks_are_read_by_their_place_in_a_run():
    tokens = torch.tensor([[5, 6, 7, 8, 0, 9, 1, 5], [0, 3, 4, 0, 0, 1, 2, 1]])
    assert block_firsts(tokens).tolist() == [
        [True, False, True, False, False, True, False, False],
        [False, True, False, False, False, True, False, False],
    ]


def test_successor_is_the_word_after_a_block_opening_and_not_after_a_block_end():
    tokens = torch.tensor([[5, 6, 6, 8, 0, 9, 1, 5], [5, 6, 6, 8, 0, 9, 1, 5], [5, 6, 6, 8, 0, 9, 1, 5]])
    found, word = successor(tokens, torch.tensor([6, 1, 9]))
    assert found.tolist() == [True, False, True]
    assert word[found].tolist() == [8, 1]


def test_what_is_written_is_read_back():
    starts, words = torch.tensor([[0, 3]]), torch.tensor([[[5, 6], [7, 8]]])
    tokens = write_blocks(starts, words, torch.tensor([7]), length=7)
    assert tokens.tolist() == [[5, 6, 0, 7, 8, 0, 7]]
    assert word_names(tokens[0]) == ["5", "6", "·", "7", "8", "·", "7"]
