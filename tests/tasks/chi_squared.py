"""Pearson's statistic, for samplers."""

import math
from itertools import product

import torch


def excess(counts: torch.Tensor, law: torch.Tensor) -> float:
    """How many standard deviations the statistic lies above its mean; only outcomes the law allows may occur."""
    law, counts = law.flatten().double(), counts.flatten().double()
    assert abs(float(law.sum()) - 1) < 1e-5
    possible = law > 0
    assert not counts[~possible].any()
    expected = law[possible] * counts.sum()
    assert float(expected.min()) > 5, "too few draws"
    statistic = ((counts[possible] - expected) ** 2 / expected).sum()
    freedom = int(possible.sum()) - 1
    return (float(statistic) - freedom) / math.sqrt(2 * freedom)


def sequences(d: int, length: int) -> torch.Tensor:
    """All sequences of `length` tokens, in lexicographic order."""
    return torch.tensor(list(product(range(d), repeat=length)))


def numbers(tokens: torch.Tensor, d: int) -> torch.Tensor:
    """The place of each row in `sequences`."""
    return (tokens * d ** torch.arange(tokens.shape[1] - 1, -1, -1)).sum(1)
