"""Power laws: planted exponents come back, with intervals that hold them."""

import pytest
import torch

from imir_lens.dynamics.power_law import fit_power_law
from imir_lens.errors import OptionError

SIZES = [4.0, 8.0, 16.0, 32.0]


def noisy(exponent, *, noise=0.1, seeds=10, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [
        [float(3 * size**exponent * (noise * torch.randn((), generator=generator)).exp()) for _ in range(seeds)]
        for size in SIZES
    ]


@pytest.mark.parametrize("exponent", [1.0, 2.0, -0.5])
def test_a_planted_exponent_lies_in_its_interval(exponent):
    law = fit_power_law(SIZES, noisy(exponent))
    assert law.low < exponent < law.high
    assert law.high - law.low < 0.15 and law.exponent == pytest.approx(exponent, abs=0.08)


def test_another_exponent_does_not():
    law = fit_power_law(SIZES, noisy(1.5))
    assert not law.low < 2.0 < law.high


def test_a_curve_that_is_no_power_law_shows_in_its_local_slopes():
    straight = fit_power_law(SIZES, [[size**2] for size in SIZES])
    bent = fit_power_law(SIZES, [[size + 0.1 * size**2] for size in SIZES])
    assert straight.local_high - straight.local_low < 1e-9 < 0.3 < bent.local_high - bent.local_low


def test_more_noise_gives_a_wider_interval():
    few, many = (fit_power_law(SIZES, noisy(2.0, noise=noise)) for noise in (0.05, 0.5))
    assert many.high - many.low > 5 * (few.high - few.low)


@pytest.mark.parametrize(
    ("sizes", "times"), [([4.0], [[1.0]]), ([4.0, 8.0], [[1.0], []]), ([8.0, 4.0], [[1.0], [1.0]])]
)
def test_what_cannot_be_fitted_is_refused(sizes, times):
    with pytest.raises(OptionError, match="sizes"):
        fit_power_law(sizes, times)
    with pytest.raises(OptionError, match="positive"):
        fit_power_law([1.0, 2.0], [[1.0], [0.0]])
