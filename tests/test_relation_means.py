"""Orbit means from factors, against explicit loops over the pairs of dense blocks."""

import math
from statistics import fmean, median

import pytest
import torch
from brute_force import contrasts_by_loops
from toy_task import relations

from imir_lens.relation_means import fix_offset_gauge, offset_means, offset_means_of_rows, token_contrasts
from imir_lens.relations import TokenRelations

P = 6


def factors(n_paths: int, size: int, *, seed: int) -> torch.Tensor:
    return torch.randn(n_paths, size, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def couples() -> TokenRelations:
    """One class of words and a filler; the association goes both ways, as in recall."""
    return TokenRelations(
        {"filler": torch.tensor([0]), "word": torch.arange(1, 5)},
        {"same": torch.tensor([-1, 1, 2, 3, 4]), "assoc": torch.tensor([-1, 2, 1, 4, 3])},
        reference="filler",
    )


def lonely() -> TokenRelations:
    """A class of one token whose only pair is matched: nothing is left to compare it with."""
    return TokenRelations(
        {"a": torch.tensor([2]), "b": torch.tensor([0, 1, 3])}, {"same": torch.arange(4)}, reference="b"
    )


def uneven() -> TokenRelations:
    """An association that only some tokens of a class have."""
    return TokenRelations(
        {"a": torch.tensor([0, 2, 3]), "b": torch.tensor([1, 4])},
        {"same": torch.arange(5), "assoc": torch.tensor([1, -1, 3, -1, -1])},
        reference="b",
    )


@pytest.mark.parametrize("rel", [relations(), relations("noun"), couples(), lonely(), uneven()])
def test_token_contrasts_are_means_over_pairs(rel):
    query, key = factors(2, rel.d_vocab, seed=1), factors(3, rel.d_vocab, seed=2)
    found = token_contrasts(rel, query, key)
    assert found.shape == (2, 3, len(rel.names))
    for u in range(2):
        for v in range(3):
            expected = contrasts_by_loops(rel, query[u] @ key[v].T)
            assert list(expected) == list(rel.names)
            torch.testing.assert_close(found[u, v], torch.tensor(list(expected.values()), dtype=torch.float64))
    assert float(found.abs().max()) > 0.3


def test_the_direction_of_an_association_shows():
    rel = relations()
    partner = rel.matchings["assoc"]
    asks = (partner >= 0).nonzero().squeeze(1)
    query, key = torch.zeros(2, 1, 11, 11, dtype=torch.float64)
    query[0, asks, asks] = 1  # each token asks for its own associate …
    key[0, partner[asks], asks] = 1  # … which answers
    assert token_contrasts(rel, query, key)[0, 0].tolist() == [float(name == "assoc") for name in rel.names]
    assert token_contrasts(rel, key, query)[0, 0].tolist() == [float(name == "assoc-reverse") for name in rel.names]


def test_a_constant_over_the_keys_of_each_query_changes_nothing():
    rel, query, key = relations(), factors(2, 11, seed=1), factors(3, 11, seed=2)
    one = torch.ones(3, 11, 1, dtype=torch.float64)
    shift = 3 * torch.randn(2, 11, 1, dtype=torch.float64)
    shifted = token_contrasts(rel, torch.cat([query, shift], dim=2), torch.cat([key, one], dim=2))
    torch.testing.assert_close(shifted, token_contrasts(rel, query, key))
    # What varies over the keys is seen, so the check above is not idle.
    moved = token_contrasts(rel, torch.cat([query, one[:2]], dim=2), torch.cat([key, one * torch.randn(11, 1)], dim=2))
    assert float((moved - shifted).abs().max()) > 0.1


def test_offset_means_are_means_over_diagonals():
    query, key = factors(2, P, seed=3), factors(3, P, seed=4)
    found = offset_means(query, key)
    assert found.shape == (2, 3, 2 * P - 1)
    for u in range(2):
        for v in range(3):
            block = query[u] @ key[v].T
            for at, k in enumerate(range(-(P - 1), P)):
                pairs = [float(block[i, j]) for i in range(P) for j in range(P) if i - j == k]
                assert float(found[u, v, at]) == pytest.approx(fmean(pairs))


def test_offset_means_of_some_rows_see_only_those_rows():
    query, key = factors(1, P, seed=3)[0], factors(2, P, seed=4)
    found = offset_means_of_rows(query, key, torch.tensor([2, 4]))
    for v in range(2):
        block = query @ key[v].T
        for at, k in enumerate(range(-(P - 1), P)):
            pairs = [float(block[i, j]) for i in (2, 4) for j in range(P) if i - j == k]
            value = float(found[v, at])
            assert value == pytest.approx(fmean(pairs)) if pairs else math.isnan(value)
    assert math.isnan(float(found[0, P - 1 + 5]))  # no chosen row has a key five before it


def test_all_rows_give_the_plain_means():
    query, key = factors(1, P, seed=3), factors(2, P, seed=4)
    torch.testing.assert_close(offset_means_of_rows(query[0], key, torch.arange(P)), offset_means(query, key)[0])


def test_the_gauge_is_the_median_over_offsets_that_occur():
    means = torch.randn(2, 3, 2 * P - 1, dtype=torch.float64)
    means[0, 1, -1] = torch.nan
    fixed = fix_offset_gauge(means)
    for v in range(3):
        behind = [x for x in means[0, v, P - 1 :].tolist() if not math.isnan(x)]
        expected = [0.0] * (P - 1) + [0 if math.isnan(x) else x - median(behind) for x in means[0, v, P - 1 :].tolist()]
        assert fixed[0, v].tolist() == pytest.approx(expected)
        everywhere = means[1, v].tolist()
        assert fixed[1, v].tolist() == pytest.approx([x - median(everywhere) for x in everywhere])
    torch.testing.assert_close(fix_offset_gauge(means + 5), fixed)


def test_a_head_that_looks_at_one_offset_has_one_coordinate():
    means = torch.full((1, 1, 2 * P - 1), 0.7)
    means[0, 0, P - 1 + 1] += 4
    fixed = fix_offset_gauge(means)[0, 0]
    assert fixed[P - 1 + 1] == pytest.approx(4) and int((fixed.abs() > 1e-6).sum()) == 1
