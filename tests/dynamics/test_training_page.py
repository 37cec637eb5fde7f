"""The section "Training inside the manifold" of docs/dynamics.md says what the benchmarks stored."""

import json

import pytest

from benchmarks.dynamics_document import DOCUMENT
from benchmarks.measure import RESULTS

ROLES, BIASES, ALL = "alpha, beta, gamma, delta", "the same and the key biases", "all coordinates"
CONTROL = "control: as the second, one rate for all"


def stored(name):
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def emergence():
    rows = stored("coordinate_training")["tables"]["emergence"]
    assert {(row["seeds"], row["d_model"]) for row in rows} == {(10, 512)}
    return {(row["task"], row["start"], row["trained"]): row for row in rows}


@pytest.mark.parametrize("name", ["coordinate_training", "batched", "pruning"])
def test_the_commands_are_on_the_page(name):
    result = stored(name)
    assert result["command"] in DOCUMENT.read_text(encoding="utf-8")
    assert (result["seed"], result["threads"]) == (0, 1)


def test_the_roles_alone_follow_from_a_start_with_the_auxiliaries_and_not_from_noise(emergence):
    for (_, start, trained), row in emergence.items():
        if trained == ROLES:
            assert row["seeds within 15 %"] == (10 if start == "held" else 0)
            assert row["largest shift"] < 0.06 if start == "held" else row["mean shift"] > 0.6


def test_with_the_key_biases_all_seeds_are_within_15_percent(emergence):
    rows = [row for (_, _, trained), row in emergence.items() if trained == BIASES]
    assert len(rows) == 3
    assert all(row["seeds within 15 %"] == 10 and row["largest shift"] < 0.08 for row in rows)


def test_one_rate_for_all_fails_in_two_cases_of_three(emergence):
    rows = [row for (_, _, trained), row in emergence.items() if trained == CONTROL]
    assert sorted(row["seeds within 15 %"] for row in rows) == [0, 0, 10]
    assert sum(row["mean shift"] < -0.3 for row in rows) == 2


def test_all_coordinates_follow_on_average(emergence):
    rows = [row for (_, _, trained), row in emergence.items() if trained == ALL]
    assert all(abs(row["mean shift"]) < 0.15 for row in rows)
    assert sorted(row["seeds within 15 %"] for row in rows) == [4, 6, 10]


def test_a_step_of_the_circuit_costs_twenty_times_less_at_128_contexts():
    cost = {(row["trained"], row["contexts a step"]): row for row in stored("coordinate_training")["tables"]["cost"]}
    for trained in (ROLES, BIASES):
        assert cost[trained, 128]["full / surrogate"] >= 20
        assert 12 <= cost[trained, 64]["full / surrogate"] < 20
    assert all(1.5 < row["full / surrogate"] < 3 for (trained, _), row in cost.items() if trained == ALL)


def test_64_circuits_train_eight_times_faster_together_unless_contexts_are_drawn_afresh():
    rows = stored("batched")["tables"]
    gains = {row["contexts"]: row for row in rows["surrogates"] if row["trained"] == "surrogate of the circuit"}
    assert all(row["runs"] == 64 for row in gains.values())
    fresh = gains.pop("each its own, fresh")
    assert all(row["loop / batched"] >= 8 for row in gains.values())
    assert 3 <= fresh["loop / batched"] < 4
    assert all(row["largest difference, loop"] <= 1e-5 for table in rows.values() for row in table)
    assert all(1 < row["loop / batched"] < 2 for row in rows["full models"])


def test_pruned_models_keep_their_behaviour_and_the_page_says_what_is_left():
    planted, recall, memory = stored("pruning")["rows"]
    assert planted["got"] == pytest.approx(planted["wanted"], abs=0.01)
    assert 0.6 < recall["got"] / recall["wanted"] < 0.75  # beta loses a third
    assert recall["farthest off"] == "L1H0/score/q:res/k:L0H0/same"
    assert recall["largest of the rest"] == "readout/via:res/same"
    assert recall["accuracy, after"] > 0.95 and memory["accuracy, after"] == 1
