import pytest
import torch

from imir_lens.atlas.statistics import auc, contrast, corrected_threshold, precision_at


def random_rotation(width: int, generator: torch.Generator) -> torch.Tensor:
    q, r = torch.linalg.qr(torch.randn(width, width, generator=generator, dtype=torch.float64))
    return q * r.diagonal().sign()


def moments(q: torch.Tensor, k: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return tuple(x.T @ y / len(q) for x, y in ((q, k), (q, q), (k, k)))


def test_keys_in_an_unrelated_basis_are_within_what_chance_gives(generator):
    """Turned keys give z-scores of mean 0 and deviation 1: the null that `chance` counts in."""
    q = torch.randn(200, 16, generator=generator, dtype=torch.float64)
    k = q @ torch.randn(16, 16, generator=generator, dtype=torch.float64)
    found = torch.tensor([float(contrast(*moments(q, k @ random_rotation(16, generator))).chance) for _ in range(2000)])
    assert abs(float(found.mean())) < 0.1
    assert float(found.std()) == pytest.approx(1.0, abs=0.06)
    assert float((found > corrected_threshold(1, error=0.01)).double().mean()) < 0.02


def test_a_head_that_matches_is_far_beyond_chance(generator):
    q = torch.randn(500, 16, generator=generator, dtype=torch.float64)
    found = contrast(*moments(q, q))
    assert float(found.chance) == pytest.approx(16, rel=0.05)  # the most there is: d_head
    assert float(found.z) > 3


def test_a_head_without_weights_has_no_contrast():
    nothing = torch.zeros(3, 4, 4)
    assert contrast(nothing, nothing, nothing).z.tolist() == [0, 0, 0]
    assert contrast(nothing, nothing, nothing).chance.tolist() == [0, 0, 0]


def test_auc_counts_pairs_in_the_right_order():
    scores = torch.tensor([0.9, 0.1, 0.5, 0.5])
    positive = torch.tensor([True, False, True, False])
    pairs = [(0.9, 0.1), (0.9, 0.5), (0.5, 0.1), (0.5, 0.5)]
    assert auc(scores, positive) == pytest.approx(sum(1.0 if a > b else 0.5 if a == b else 0.0 for a, b in pairs) / 4)
    assert auc(scores, ~positive) == pytest.approx(1 - 3.5 / 4)
    assert auc(scores, torch.ones(4, dtype=torch.bool)) is None


def test_precision_is_that_of_the_highest():
    scores = torch.tensor([3.0, 1.0, 2.0])
    assert precision_at(scores, torch.tensor([True, True, False]), 2) == 0.5
