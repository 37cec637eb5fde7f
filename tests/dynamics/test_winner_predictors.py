"""Predictors on outcomes whose rule is known."""

import pytest
import torch

from imir_lens.dynamics.winner_predictors import agreement, cross_validated, products, wilson_interval
from imir_lens.errors import OptionError


def starts(count: int = 600) -> torch.Tensor:
    return torch.rand(count, 3, generator=torch.Generator().manual_seed(0)) * 4 - 2


def test_a_rule_of_products_is_learned_from_all_inputs_and_not_from_sizes() -> None:
    x = starts()
    classes = (x[:, 0] * x[:, 1] > 0).long()
    assert cross_validated(x, classes, degree=2).interval[0] > 0.93
    assert abs(cross_validated(x.abs(), classes, degree=2).value - 0.5) < 0.06
    assert abs(cross_validated(x, classes, degree=1).value - 0.5) < 0.08


def test_a_rule_of_size_is_learned_from_size() -> None:
    x = starts()
    size = x.norm(dim=1, keepdim=True)
    classes = (size.squeeze(1) > size.median()).long()
    assert cross_validated(size, classes).interval[0] > 0.93


def test_outcomes_by_chance_are_predicted_no_better_than_the_commonest() -> None:
    classes = (torch.rand(600, generator=torch.Generator().manual_seed(1)) < 0.3).long()
    found = cross_validated(starts(), classes)
    assert found.commonest == pytest.approx(0.7, abs=0.05)
    assert found.interval[0] < found.commonest


def test_products_are_all_of_them() -> None:
    assert products(torch.tensor([[2.0, 3.0]]), 2).tolist() == [[2.0, 3.0, 4.0, 6.0, 9.0]]
    assert products(torch.zeros(1, 7), 3).shape[1] == 119  # C(10, 3) less the constant


def test_wilson_interval_is_the_textbook_one() -> None:
    low, high = wilson_interval(8, 10)
    assert (low, high) == pytest.approx((0.4902, 0.9433), abs=1e-4)
    assert wilson_interval(0, 10)[0] == 0.0


def test_agreement_counts() -> None:
    found = agreement(torch.tensor([0, 1, 2, 2]), torch.tensor([0, 1, 1, 2]))
    assert (found.right, found.count, found.commonest) == (3, 4, 0.5)


def test_too_few_starts_are_refused() -> None:
    with pytest.raises(OptionError, match="found 3 starts"):
        cross_validated(torch.zeros(3, 2), torch.zeros(3, dtype=torch.long))
    with pytest.raises(OptionError):
        wilson_interval(0, 0)
