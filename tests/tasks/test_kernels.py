import pytest
import torch
from chi_squared import excess
from graphs import power_law

from imir_lens.errors import TaskError
from imir_lens.tasks.kernels import check_kernel, dirichlet_kernel, draw_parents, grow, pair_scores, stationary


def test_kernels_are_stochastic_and_bounded_below_by_the_minorisation():
    pi = dirichlet_kernel(12, 0.05, 0.2, seed=3)
    assert pi.dtype == torch.float64
    assert torch.allclose(pi.sum(1), torch.ones(12, dtype=torch.float64))
    assert 0.2 / 12 <= float(pi.min()) < 0.21 / 12
    assert float(dirichlet_kernel(12, 0.05, 0.0, seed=3).min()) < 0.001 / 12
    assert torch.allclose(dirichlet_kernel(12, 0.05, 1.0, seed=3), torch.full((12, 12), 1 / 12, dtype=torch.float64))


def test_the_same_seed_gives_the_same_kernel():
    assert torch.equal(dirichlet_kernel(5, 1.0, 0.1, seed=1), dirichlet_kernel(5, 1.0, 0.1, seed=1))
    assert not torch.equal(dirichlet_kernel(5, 1.0, 0.1, seed=1), dirichlet_kernel(5, 1.0, 0.1, seed=2))


def test_small_concentrations_are_sharp():
    sharp, flat = (dirichlet_kernel(20, a, 0.0, seed=0).max(1).values.mean() for a in (0.05, 20.0))
    assert float(sharp) > 0.5 > 0.15 > float(flat)


def test_a_kernel_in_single_precision_is_taken_and_scaled():
    pi = check_kernel(dirichlet_kernel(30, 1.0, 0.1, seed=0).float())
    assert pi.dtype == torch.float64
    assert torch.allclose(pi.sum(1), torch.ones(30, dtype=torch.float64), atol=1e-14)


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        ([[0.5, 0.5]], "a kernel is a square matrix pi[parent, child] of size 2 or more; found shape [1, 2]"),
        ([0.5, 0.5], "found shape [2]"),
        ([[1.0]], "found shape [1, 1]"),
        ([[0.5, 0.5], [1.0, 0.0]], "a kernel has positive entries only; found pi[1, 1] = 0: mix in the uniform law"),
        ([[0.5, 0.5], [1.2, -0.2]], "found pi[1, 1] = -0.2"),
        ([[0.5, 0.5], [float("nan"), 0.5]], "found pi[1, 0] = nan"),
        ([[0.5, float("inf")], [0.5, 0.5]], "found pi[0, 1] = inf"),
        ([[0.5, 0.52], [0.3, 0.6]], "rows of a kernel sum to 1; found 0.9 in row 1: pi[parent, child]"),
        ([[0.7, 0.4], [0.3, 0.6]], "found 1.1 in row 0"),  # columns sum to 1
        ([[1, 1], [1, 1]], "found 2 in row 0"),
    ],
    ids=str,
)
def test_what_is_no_kernel_is_refused_with_its_worst_entry_or_row(rows, line):
    with pytest.raises(TaskError) as caught:
        check_kernel(torch.tensor(rows))
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_stationary_law_is_where_a_chain_ends():
    pi = dirichlet_kernel(7, 0.3, 0.1, seed=0)
    mu = stationary(pi)
    assert torch.allclose(mu, power_law(pi), atol=1e-12)
    assert not torch.allclose(mu, torch.full((7,), 1 / 7, dtype=torch.float64), atol=0.01)


def test_parents_are_uniform_over_earlier_positions(generator):
    parents = draw_parents((20_000, 6), generator)
    assert (parents[:, 0] == -1).all()
    assert (parents[:, 1] == 0).all()
    for h in range(2, 6):
        counts = parents[:, h].bincount(minlength=h)
        assert len(counts) == h
        assert excess(counts, torch.full((h,), 1 / h)) < 4
    joint = (3 * parents[:, 2] + parents[:, 3]).bincount(minlength=6)
    assert excess(joint, torch.full((6,), 1 / 6)) < 4  # independent of one another


def test_children_follow_their_parents_row(generator):
    pi = dirichlet_kernel(4, 0.5, 0.2, seed=0)
    parents = torch.tensor([-1, 0, 0, 2]).expand(8000, 2, -1)
    roots = torch.randint(4, (8000, 2, 1), generator=generator)
    values = grow(roots, parents, lambda parent: pi[parent], generator)
    assert torch.equal(values[:, :, :1], roots)
    for parent, child in ((0, 1), (0, 2), (2, 3)):
        pairs = (4 * values[:, :, parent] + values[:, :, child]).flatten().bincount(minlength=16).reshape(4, 4)
        shares = pairs.sum(1, keepdim=True) / pairs.sum()
        assert excess(pairs, shares * pi) < 4
        assert excess(pairs, shares * pi.flip(1)) > 10


def test_pair_scores_have_the_child_first():
    log_pi = torch.arange(9.0).reshape(3, 3)
    scores = pair_scores(log_pi, torch.tensor([[0, 2, 1]]))
    assert scores[0, 1, 0] == log_pi[0, 2]  # child at 1 holds 2, parent at 0 holds 0
    assert scores[0, 0, 1] == log_pi[2, 0]
