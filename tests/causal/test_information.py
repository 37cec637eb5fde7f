"""Information between positions against enumeration of all trees' values, samples, and inequalities that must hold."""

import itertools

import pytest
import torch

from imir_lens.causal.concentration import concentration_exponents, expected_gaps, posterior_error_bound
from imir_lens.causal.contraction import chi_squared_coefficient, dobrushin_coefficient
from imir_lens.causal.information import (
    chi_squared,
    estimate_chi_squared,
    estimate_mutual_information,
    mutual_information,
    pair_joints,
)
from imir_lens.causal.score_gradient import alignment, expected_score_gradient, score_gradient
from imir_lens.errors import OptionError
from imir_lens.tasks.kernels import dirichlet_kernel, stationary

PARENTS = torch.tensor([-1, 0, 0, 1, 1])
D = 3
PI = dirichlet_kernel(D, 0.7, 0.2, 4)


def enumerated():
    """Every value of the tree with its probability."""
    mu = stationary(PI)
    values = torch.tensor(list(itertools.product(range(D), repeat=len(PARENTS))))
    chance = mu[values[:, 0]]
    for h, parent in enumerate(PARENTS.tolist()):
        if parent >= 0:
            chance = chance * PI[values[:, parent], values[:, h]]
    return values, chance


def draw(count, seed=0):
    values, chance = enumerated()
    return values[torch.multinomial(chance, count, replacement=True, generator=torch.Generator().manual_seed(seed))]


def test_joint_laws_are_those_of_the_enumerated_tree():
    values, chance = enumerated()
    assert float(chance.sum()) == pytest.approx(1)
    one_hot = torch.nn.functional.one_hot(values, D).double()
    expected = torch.einsum("n,nhi,ngj->hgij", chance, one_hot, one_hot)
    assert torch.allclose(pair_joints(PI, PARENTS), expected, atol=1e-12)


def test_a_second_root_is_independent_of_all():
    joints = pair_joints(PI, torch.tensor([-1, 0, -1, 2]))
    assert float(mutual_information(joints[3, 0])) == pytest.approx(0, abs=1e-12)
    assert float(chi_squared(joints[2, 1])) == pytest.approx(0, abs=1e-12)
    assert float(mutual_information(joints[3, 2])) > 0.01


def test_a_parent_after_its_child_is_refused():
    with pytest.raises(OptionError, match="position 1 must be an earlier one, or -1 for none; found 2"):
        pair_joints(PI, torch.tensor([-1, 2, 0]))


def test_chi_squared_of_a_child_and_its_parent_is_that_of_the_kernel():
    mu = stationary(PI)
    expected = float((mu.unsqueeze(1) * PI.square() / mu).sum() - 1)
    assert float(chi_squared(pair_joints(PI, PARENTS)[1, 0])) == pytest.approx(expected)
    assert float(chi_squared(mu.diag())) == pytest.approx(D - 1)
    assert float(mutual_information(mu.diag())) == pytest.approx(float(-(mu * mu.log()).sum()))


def test_samples_give_the_same_information_and_none_where_there_is_none():
    exact = pair_joints(PI, PARENTS)
    values = draw(60_000)
    assert torch.allclose(estimate_mutual_information(values, D), mutual_information(exact), atol=0.01)
    off = ~torch.eye(len(PARENTS), dtype=torch.bool)
    assert torch.allclose(estimate_chi_squared(values, D)[off], chi_squared(exact)[off], atol=0.02)
    shuffled = torch.stack([column[torch.randperm(500)] for column in draw(500).T], dim=1)
    few = estimate_mutual_information(shuffled, D)[off]
    assert abs(float(few.mean())) < 0.003  # without its bias; the plug-in estimate would be 0.004 too large


def test_information_contracts_along_the_tree():
    joints = pair_joints(PI, PARENTS)
    chi, mutual = chi_squared(joints), mutual_information(joints)
    chi_factor, factor = chi_squared_coefficient(PI), dobrushin_coefficient(PI)
    assert 0 < chi_factor <= factor < 1
    checked = 0
    for h in range(1, len(PARENTS)):
        parent = int(PARENTS[h])
        for g in set(range(h)) - {parent}:
            assert float(chi[h, g]) <= chi_factor * float(chi[parent, g]) + 1e-12
            assert float(mutual[h, g]) <= factor * float(mutual[parent, g]) + 1e-12
            checked += float(mutual[h, g]) > 1e-6
    assert checked >= 5


def test_two_tokens_contract_by_the_second_eigenvalue():
    a, b = 0.3, 0.1
    pi = torch.tensor([[1 - a, a], [b, 1 - b]], dtype=torch.float64)
    assert dobrushin_coefficient(pi) == pytest.approx(1 - a - b)
    assert chi_squared_coefficient(pi) == pytest.approx((1 - a - b) ** 2)  # a chain of two states is reversible
    assert dobrushin_coefficient(torch.full((2, 2), 0.5, dtype=torch.float64)) == 0


def test_expected_gaps_are_means_of_log_likelihood_ratios():
    values, chance = enumerated()
    gaps = expected_gaps(PI, PARENTS)
    for h in range(1, len(PARENTS)):
        for g in range(h):
            ratio = (PI[values[:, PARENTS[h]], values[:, h]] / PI[values[:, g], values[:, h]]).log()
            assert float(gaps[h, g]) == pytest.approx(float((chance * ratio).sum()), abs=1e-10)
    assert float(gaps[4, 1]) == pytest.approx(0, abs=1e-12)
    assert float(gaps[4, 0]) > 0.05
    assert gaps[0].isnan().all()
    assert gaps[2, 2:].isnan().all()


def test_exponents_are_chernoff_informations():
    exponents = concentration_exponents(PI, PARENTS)
    joint = pair_joints(PI, PARENTS)[1, 0]  # (x_1, x_0): candidate 0 against the true parent 1
    grid = torch.linspace(0, 1, 2001, dtype=torch.float64)
    rho = torch.stack([(joint * (PI.unsqueeze(1) ** (1 - s) * PI.unsqueeze(0) ** s).sum(-1)).sum() for s in grid])
    assert float(exponents[4, 0]) == pytest.approx(float(-rho.min().log()), rel=1e-4)
    gaps = expected_gaps(PI, PARENTS)
    both = ~gaps.isnan()
    assert (exponents[both] <= gaps[both] + 1e-12).all()  # Chernoff information is at most the divergence
    assert float(exponents[4, 1]) == pytest.approx(0, abs=1e-12)


def test_the_posterior_concentrates_at_the_derived_rate():
    runs, most = 4000, 60
    values = draw(runs * most, seed=1).view(runs, most, -1)
    scores = PI.log()[values[..., :4], values[..., 4:]].cumsum(1)  # candidates 0 … 3 of position 4
    error = 1 - scores.softmax(-1)[..., 1]
    mean = error.mean(0)
    for count in (5, 20, 60):
        assert float(mean[count - 1]) <= float(posterior_error_bound(PI, PARENTS, count)[4])
    exponent = float(concentration_exponents(PI, PARENTS)[4, [0, 2, 3]].min())
    slope = float((mean[19] / mean[59]).log()) / 40
    assert slope == pytest.approx(exponent, rel=0.35)  # the factor before the exponential falls like 1/√L
    assert slope > exponent * 0.98


def test_gradients_of_scores_are_those_of_autograd():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(6, 4, generator=generator, dtype=torch.float64).requires_grad_()
    target = torch.randint(D, (6,), generator=generator)
    read = {"probabilities": torch.rand(6, 4, D, generator=generator, dtype=torch.float64).softmax(-1)}
    read["logits"] = torch.randn(6, 4, D, generator=generator, dtype=torch.float64)
    for readout, content in read.items():
        weights = scores.softmax(-1)
        mixed = torch.einsum("ng,ngj->nj", weights, content)
        logs = mixed.log() if readout == "probabilities" else mixed.log_softmax(-1)
        (gradient,) = torch.autograd.grad(-logs.gather(1, target.unsqueeze(1)).sum(), scores)
        closed = score_gradient(weights.detach(), content, target, readout=readout)
        assert torch.allclose(closed, gradient, atol=1e-12)
        assert float(closed.abs().max()) > 0.01
    with pytest.raises(OptionError, match="unknown readout 'odds'"):
        score_gradient(weights.detach(), content, target, readout="odds")


@pytest.mark.parametrize("readout", ["probabilities", "logits"])
def test_the_mean_gradient_at_initialisation_is_the_closed_form(readout):
    values, chance = enumerated()
    mu, epsilon = stationary(PI), 1e-4
    law = PI if readout == "probabilities" else mu.log() + epsilon * (PI / mu - 1)
    if readout == "probabilities":
        law = (1 - epsilon) * mu + epsilon * PI
    expected = expected_score_gradient(PI, PARENTS, epsilon=epsilon)
    for h in range(2, len(PARENTS)):
        uniform = torch.full((len(values), h), 1 / h, dtype=torch.float64)
        each = score_gradient(uniform, law[values[:, :h]], values[:, h], readout=readout)
        mean = (chance.unsqueeze(1) * each).sum(0)
        assert torch.allclose(mean, expected[h, :h], atol=20 * epsilon**2)
        assert float(mean.abs().max()) > 50 * epsilon**2
        assert int(mean.argmin()) == int(PARENTS[h])  # descent raises the parent's score most


def test_the_parent_aligns_most_by_the_derived_margin():
    values = alignment(PI, PARENTS)
    chi = chi_squared(pair_joints(PI, PARENTS))
    own = float(chi[1, 0])
    root = chi_squared_coefficient(PI) ** 0.5
    for h in range(1, len(PARENTS)):
        assert float(values[h, PARENTS[h]]) == pytest.approx(own)
        for g in set(range(h)) - {int(PARENTS[h])}:
            assert float(values[h, g]) <= root * own**0.5 * float(chi[PARENTS[h], g]) ** 0.5 + 1e-12
            assert float(values[h, g]) < own
