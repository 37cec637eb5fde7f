import math

import pytest
import torch
from chi_squared import excess

from imir_lens.tasks.variates import categorical, dirichlet, log_gamma_variates, seeded, von_mises_fisher


def test_categorical_draws_follow_their_laws(generator):
    laws = torch.tensor([[0.2, 0.5, 0.3, 0.0], [0.0, 0.25, 0.25, 0.5]], dtype=torch.float64)
    drawn = categorical(laws.expand(20_000, -1, -1), generator)
    counts = [drawn[:, row].bincount(minlength=4) for row in (0, 1)]
    assert all(excess(counts[row], laws[row]) < 4 for row in (0, 1))
    assert excess(counts[0], torch.tensor([0.22, 0.48, 0.3, 0.0])) > 10


@pytest.mark.parametrize("concentration", [0.05, 0.7, 1.0, 5.0, 400.0])
def test_gamma_variates_have_the_moments_of_the_gamma_law(concentration, generator):
    count = 40_000
    drawn = log_gamma_variates((count,), concentration, generator).exp()
    spread = 5 / math.sqrt(count)
    assert float(drawn.mean()) == pytest.approx(concentration, rel=spread / math.sqrt(concentration))
    # kurtosis of the law: 3 + 6/a
    variance_spread = spread * math.sqrt(2 + 6 / concentration)
    assert float(drawn.var()) == pytest.approx(concentration, rel=variance_spread)


def test_gamma_variates_of_concentration_one_are_exponential(generator):
    shares = (-log_gamma_variates((20_000,), 1.0, generator).exp()).exp()  # uniform, if so
    counts = torch.histc(shares, 20, 0, 1)
    assert excess(counts, torch.full((20,), 0.05)) < 4
    assert excess(torch.histc(shares.square(), 20, 0, 1), torch.full((20,), 0.05)) > 10


def test_dirichlet_laws_have_the_right_spread_and_none_vanish(generator):
    d, a = 4, 0.3
    drawn = dirichlet((20_000, d), a, generator)
    assert torch.allclose(drawn.sum(1), torch.ones(20_000, dtype=torch.float64))
    assert torch.allclose(drawn.mean(0), torch.full((d,), 1 / d, dtype=torch.float64), atol=0.01)
    variance = (1 / d) * (1 - 1 / d) / (d * a + 1)
    assert torch.allclose(drawn.var(0), torch.full((d,), variance, dtype=torch.float64), rtol=0.05)
    sharp = dirichlet((1000, 3), 1e-3, generator)  # in floats the gamma variates would all be zero
    assert not sharp.isnan().any()
    assert torch.allclose(sharp.sum(1), torch.ones(1000, dtype=torch.float64))


@pytest.mark.parametrize("kappa", [0.01, 2.0, 50.0, 1e6])
def test_in_three_dimensions_the_component_along_the_direction_has_its_closed_law(kappa, generator):
    """There its density is ∝ exp(kappa w): the distribution function is (e^{kappa (w−1)} − e^{−2 kappa}) / (1 − …)."""
    directions = torch.nn.functional.normalize(torch.randn(20_000, 3, generator=generator).double(), dim=1)
    drawn = von_mises_fisher(directions, kappa, generator)
    assert torch.allclose(drawn.norm(dim=1), torch.ones(20_000, dtype=torch.float64))
    below = torch.expm1(kappa * ((drawn * directions).sum(1) - 1)) / math.expm1(-2 * kappa)  # 1 − the function
    counts = torch.histc(below.clamp(0, 1), 20, 0, 1)
    assert excess(counts, torch.full((20,), 0.05)) < 4
    wrong = torch.expm1(1.2 * kappa * ((drawn * directions).sum(1) - 1)) / math.expm1(-2.4 * kappa)
    assert kappa < 1 or excess(torch.histc(wrong.clamp(0, 1), 20, 0, 1), torch.full((20,), 0.05)) > 10


def test_in_two_dimensions_angles_have_the_von_mises_law_on_both_sides(generator):
    kappa = 1.7
    drawn = von_mises_fisher(torch.tensor([0.0, 1.0]).expand(20_000, 2).double(), kappa, generator)
    angle = torch.atan2(drawn[:, 0], drawn[:, 1])
    grid = torch.linspace(-math.pi, math.pi, 20 * 500 + 1, dtype=torch.float64)
    mass = (kappa * ((grid[1:] + grid[:-1]) / 2).cos()).exp().reshape(20, 500).sum(1)
    assert excess(torch.histc(angle, 20, -math.pi, math.pi), mass / mass.sum()) < 4


def test_the_rest_is_uniform_around_the_direction(generator):
    direction = torch.nn.functional.normalize(torch.tensor([1.0, 2.0, -1.0, 0.5, 0.0]).double(), dim=0)
    drawn = von_mises_fisher(direction.expand(40_000, 5), 3.0, generator)
    rest = drawn - (drawn @ direction).unsqueeze(1) * direction
    assert float(rest.mean(0).norm()) < 0.015
    around = torch.eye(5, dtype=torch.float64) - torch.outer(direction, direction)
    assert torch.allclose(rest.T @ rest / rest.square().sum(), around / 4, atol=0.01)


def test_purposes_do_not_share_a_stream():
    draws = [torch.rand(3, generator=seeded(purpose, seed)) for purpose, seed in (("kernel", 0), ("graph", 0))]
    assert not torch.equal(*draws)
    assert torch.equal(draws[0], torch.rand(3, generator=seeded("kernel", 0)))
    assert not torch.equal(draws[0], torch.rand(3, generator=torch.Generator().manual_seed(0)))
