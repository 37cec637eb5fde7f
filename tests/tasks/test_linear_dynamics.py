import math

import pytest
import torch
from graphs import graphs
from torch.distributions import Normal

from imir_lens.errors import TaskError
from imir_lens.tasks import LinearDynamics
from imir_lens.tasks.episodes import parent_loss
from imir_lens.tasks.linear_dynamics import bessel_ratio

GAUSSIAN = LinearDynamics(d=3, positions=4, examples=2)
SPHERE = LinearDynamics(d=3, positions=4, examples=2, unit_norm=True)


def log_density(task, child, parent):
    """log p(child | parent), by the definition."""
    centre = task.matrix.T @ parent.double()
    if not task.unit_norm:
        return float(Normal(task.rho * centre, math.sqrt(1 - task.rho**2)).log_prob(child.double()).sum())
    kappa = task.d * task.rho / (1 - task.rho**2)
    assert task.d == 3, "the normaliser below is that of three dimensions"
    return kappa * float(centre @ child.double()) + math.log(kappa / (4 * math.pi * math.sinh(kappa)))


@pytest.mark.parametrize("task", [GAUSSIAN, SPHERE], ids=str)
def test_the_posterior_is_that_of_all_graphs_given_all_vectors_before(task, generator):
    episodes = task.sample_episodes(4, generator)
    for values, found in zip(episodes.values, task.posterior(episodes), strict=True):
        for h in range(1, 4):
            known = [*values[:-1], values[-1, :h]]
            every = graphs(4)
            scores = torch.tensor(
                [sum(log_density(task, x[i], x[g[i]]) for x in known for i in range(1, len(x))) for g in every]
            )
            joint = scores.double().softmax(0)
            expected = [
                float(sum(p for g, p in zip(every, joint, strict=True) if g[h] == parent)) for parent in range(4)
            ]
            assert found[h].tolist() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("task", [GAUSSIAN, SPHERE], ids=str)
def test_the_log_likelihood_is_a_bilinear_term_and_one_of_norms_and_a_constant(task, generator):
    values = task.sample_episodes(1, generator).query[0]
    exact = torch.tensor([[log_density(task, child, parent) for parent in values] for child in values]).double()
    norms = values.double().square().sum(1)
    decomposed = task.c1 * task.bilinear(values) + task.c2 * norms
    assert torch.allclose(decomposed - decomposed[:, :1], exact - exact[:, :1], atol=1e-4)
    assert torch.allclose(task.pair_log_likelihood(values), decomposed)
    bilinear = task.c1 * task.bilinear(values)
    gap = float(((bilinear - bilinear[:, :1]) - (exact - exact[:, :1])).abs().max())
    assert gap < 1e-4 if task.unit_norm else gap > 0.05


def test_the_coefficients_are_those_of_the_formulas():
    task = LinearDynamics(rho=0.6, d=8)
    assert (task.c1, task.c2) == (pytest.approx(0.6 / 0.64), pytest.approx(-0.36 / 1.28))
    sphere = LinearDynamics(rho=0.6, d=8, unit_norm=True)
    assert (sphere.c1, sphere.c2) == (sphere.kappa, 0) == (pytest.approx(8 * 0.6 / 0.64), 0)


def test_children_are_rotated_and_noisy_copies(generator):
    task = LinearDynamics(d=3, positions=3, rho=0.8)
    episodes = task.sample_episodes(20_000, generator, n_examples=0)
    x, parents = episodes.query.double(), episodes.parents
    assert float((parents[:, 2] == 0).double().mean()) == pytest.approx(0.5, abs=0.02)
    parent = x[torch.arange(len(x)), parents[:, 2]]
    assert torch.allclose(parent.T @ x[:, 2] / len(x), 0.8 * task.matrix, atol=0.03)  # E[x_pa x_hᵀ] = rho A
    assert not torch.allclose(parent.T @ x[:, 2] / len(x), 0.8 * task.matrix.T, atol=0.3)
    for h in range(3):
        assert torch.allclose(x[:, h].T @ x[:, h] / len(x), torch.eye(3).double(), atol=0.04)
    rest = x[:, 2] - 0.8 * parent @ task.matrix
    assert torch.allclose(rest.T @ rest / len(x), 0.36 * torch.eye(3).double(), atol=0.02)
    assert float((rest.T @ parent / len(x)).abs().max()) < 0.02


def test_on_the_sphere_children_lie_about_their_rotated_parent(generator):
    task = LinearDynamics(d=6, positions=3, rho=0.4, unit_norm=True)
    episodes = task.sample_episodes(20_000, generator, n_examples=0)
    x = episodes.query.double()
    assert torch.allclose(x.norm(dim=2), torch.ones(20_000, 3).double(), atol=1e-5)
    parent = x[torch.arange(len(x)), episodes.parents[:, 2]]
    along = ((parent @ task.matrix) * x[:, 2]).sum(1)
    assert float(along.mean()) == pytest.approx(task.shrinkage, abs=0.01)  # the Bessel ratio, by Monte Carlo
    for h in range(3):
        assert torch.allclose(x[:, h].T @ x[:, h] / len(x), torch.eye(6).double() / 6, atol=0.01)
        assert float(x[:, h].mean(0).norm()) < 0.03


@pytest.mark.parametrize("task", [GAUSSIAN, SPHERE, LinearDynamics(d=5, unit_norm=True)], ids=str)
def test_the_prediction_of_one_who_knows_the_graph_is_the_mean(task, generator):
    episodes = task.sample_episodes(20_000, generator, n_examples=0)
    residue = (episodes.query - task.known_graph(episodes))[:, 1:]
    predictor = task.known_graph(episodes)[:, 1:]
    # the error is orthogonal to the prediction: neither longer nor shorter would be better
    scale = float((predictor * episodes.query[:, 1:]).sum() / predictor.square().sum())
    assert scale == pytest.approx(1, abs=0.02)
    assert float(residue.mean((0, 1)).norm()) < 0.02


def test_examples_share_the_parents_that_are_reported(generator):
    for task in (LinearDynamics(rho=0.9), LinearDynamics(rho=0.9, unit_norm=True)):
        episodes = task.sample_episodes(100, generator, n_examples=20)
        assert float(parent_loss(task.posterior(episodes), episodes)) < 1e-3
        moved = type(task)(rho=0.9, unit_norm=task.unit_norm, matrix_seed=1)
        assert float(parent_loss(moved.posterior(episodes), episodes)) > 1  # the wrong rotation


def test_the_matrix_is_orthogonal_and_its_law_uniform():
    matrices = torch.stack([LinearDynamics(d=2, matrix_seed=seed).matrix for seed in range(400)])
    assert torch.allclose(matrices @ matrices.transpose(1, 2), torch.eye(2).double().expand(400, 2, 2))
    assert abs(float(matrices[:, 0, 0].mean())) < 0.15  # QR without its signs fixed has them all of one sign
    assert 150 < int((torch.linalg.det(matrices) > 0).sum()) < 250
    assert torch.equal(LinearDynamics().matrix, LinearDynamics().matrix)


def bessel_series(order, x):
    """I_order(x) / I_{order−1}(x) from the power series."""

    def logarithm(v):
        m = torch.arange(4000, dtype=torch.float64)
        return torch.logsumexp((2 * m + v) * math.log(x / 2) - torch.lgamma(m + 1) - torch.lgamma(m + v + 1), 0)

    return float((logarithm(order) - logarithm(order - 1)).exp())


@pytest.mark.parametrize("order", [1.0, 1.5, 5.0, 25.0, 150.0])
@pytest.mark.parametrize("x", [0.01, 1.0, 30.0, 700.0])
def test_the_ratio_of_bessel_functions_is_that_of_their_series(order, x):
    assert bessel_ratio(order, x) == pytest.approx(bessel_series(order, x), rel=1e-9)


@pytest.mark.parametrize("x", [1e-3, 1.0, 1e3, 1e8])
def test_in_three_dimensions_the_ratio_is_langevins_function(x):
    closed = 1 / math.tanh(x) - 1 / x if x > 0.01 else x / 3 - x**3 / 45
    assert bessel_ratio(1.5, x) == pytest.approx(closed, rel=1e-10)


def test_large_episodes_have_exact_posteriors(generator):
    task = LinearDynamics(d=50, positions=100, examples=50, rho=0.3)
    episodes = task.sample_episodes(3, generator)
    posterior = task.posterior(episodes)
    assert torch.allclose(posterior.sum(2)[:, 1:], torch.ones(3, 99, dtype=torch.float64))
    assert float(parent_loss(posterior, episodes)) < 1e-3


@pytest.mark.parametrize(
    ("knobs", "line"),
    [
        ({"rho": 0.0}, "linear_dynamics needs 0 < rho < 1: rho=0.0"),
        ({"rho": 1.0}, "rho=1.0"),
        ({"rho": math.nan}, "rho=nan"),
        ({"d": 1}, "linear_dynamics needs 2 <= d <= 4096: d=1"),
        (
            {"positions": 2},
            "linear_dynamics needs positions >= 3 (with fewer there is no parent to infer): positions=2",
        ),
        ({"examples": -1}, "linear_dynamics needs examples >= 0: examples=-1"),
    ],
    ids=str,
)
def test_knobs_that_do_not_fit_are_refused_with_the_inequality(knobs, line):
    with pytest.raises(TaskError) as caught:
        LinearDynamics(**knobs)
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)
