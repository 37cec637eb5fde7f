"""Trajectories and emergence times: small versions of the benchmarks, and what the stored ones say."""

import json

import pytest

from benchmarks import emergence, trajectory
from benchmarks.dynamics_figures import IMAGES, figures
from benchmarks.measure import RESULTS


def stored(name):
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def runs():
    return stored("trajectory")["rows"]


def of(rows, model):
    return [row for row in rows if row["model"] == model]


def test_small_the_roles_emerge_about_when_the_loss_falls():
    rows = trajectory.run(small=True)
    assert [row["model"] for row in rows] == ["disentangled", trajectory.DESCENT]
    for row in rows:
        assert row["final accuracy"] > 0.98
        assert all(0 < row[role] < 400 for role in trajectory.ROLES)
        assert abs(row["lag"]) <= 50
    assert trajectory.tables(rows)["steps over seeds"][0] | {"median": 0, "least": 0, "most": 0} == {
        "model": "disentangled",
        "what": "alpha",
        "runs": 1,
        "of": 1,
        "median": 0,
        "least": 0,
        "most": 0,
    }


def test_training_that_is_cut_short_shows_no_fall(monkeypatch):
    kind = trajectory.Kind(steps=20, learning_rate=1e-2, weight_decay=0.0)
    monkeypatch.setitem(trajectory.KINDS, "disentangled", kind)
    row = trajectory.measured("disentangled", 0, every=10)
    assert row["loss fallen"] is None and row["lag"] is None
    assert row["beta"] is None  # it ends below half a nat


def test_the_stored_runs_are_ten_seeds_of_three_kinds(runs):
    assert stored("trajectory")["command"] == "OMP_NUM_THREADS=1 python -m benchmarks trajectory"
    for model in (*trajectory.KINDS, trajectory.DESCENT):
        assert [row["seed"] for row in of(runs, model)] == list(range(10))
    assert all(row["final accuracy"] > 0.99 for row in runs)
    assert all(row[role] is not None for row in runs for role in trajectory.ROLES)


def test_which_role_comes_first_depends_on_the_model_and_the_optimizer(runs):
    assert {row["order"] for row in of(runs, "ordinary")} == {"beta < gamma < alpha"}
    assert {row["order"] for row in of(runs, "disentangled")} == {"alpha < beta < gamma"}
    assert {row["order at 25 %"] for row in of(runs, trajectory.DESCENT)} == {"gamma < alpha < beta"}


def test_the_loss_falls_after_the_first_role_and_before_the_last_is_half_grown(runs):
    for row in runs:
        assert row["lag to the first"] > 0 >= row["lag"] or row["model"] == trajectory.DESCENT
        assert -0.2 * row["loss fallen"] <= row["lag"] <= 0


def test_small_longer_contexts_take_longer():
    rows = emergence.run(small=True)
    assert [(row["pairs"], row["length"]) for row in rows] == [(3, 7), (4, 9), (6, 13)]
    assert all(len(row["times"]) == 3 and None not in row["times"] for row in rows)
    (fit,) = emergence.tables(rows)["exponents"]
    assert fit["sizes"] == 3 and fit["runs"] == 9 and 0.8 < fit["low"] <= fit["exponent"] <= fit["high"] < 2


def test_at_a_rate_too_small_to_move_nothing_emerges():
    setup = emergence.Setup(only_roles=True, optimizer="sgd", learning_rate=0.01, most_steps=100, longest=33)
    assert emergence.emergence_times(setup, 3, 7, seed=0, runs=2) == [None, None]


def test_a_halving_is_found_between_two_records():
    assert emergence._half([4.0, 3.0, 1.0], [0, 10, 20]) == pytest.approx(15.0)
    assert emergence._half([4.0, 3.0, 2.5], [0, 10, 20]) is None


def test_the_stored_pictures_are_drawn_from_the_stored_results():
    for name, drawing in figures().items():
        assert (IMAGES / name).read_text(encoding="utf-8") == drawing


def test_the_stored_times_grow_with_length_less_than_quadratically_and_hardly_with_pairs():
    result = stored("emergence")
    assert result["command"] == "OMP_NUM_THREADS=1 python -m benchmarks emergence"
    assert all(len(row["times"]) == 10 and None not in row["times"] for row in result["rows"])
    fits = {(row["setup"].rpartition("; ")[2], row["varied"]): row for row in result["tables"]["exponents"]}
    for varied, exponent in (("context length, 3 pairs", 1.31), ("contexts full of pairs", 1.24)):
        fit = fits["gradient descent", varied]
        assert fit["exponent"] == pytest.approx(exponent, abs=0.005)
        assert fit["high"] < 1.5 and fit["local high"] < 1.51 and fit["local low"] < 0.93
    pairs = fits["gradient descent", "pairs, contexts of one length"]
    assert 0 < pairs["low"] < pairs["high"] < 0.03
    adam = fits["Adam", "context length, 3 pairs"]
    assert adam["low"] < 0 < adam["high"]
