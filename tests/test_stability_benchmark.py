"""Stability: bootstraps anew at a small size, and what the stored run of the whole benchmark says."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import stability
from imir_lens.training.recipes import DEMO

STORED = json.loads((Path(stability.__file__).parent / "results" / "stability.json").read_text())
PAIRS = STORED["tables"]["pairs of seeds"]


@pytest.mark.parametrize(("name", "bootstraps"), [("recall_2l.pt", 20), ("memory_2l.pt", 5)])
def test_resampled_contexts_give_the_same_circuit(name, bootstraps):
    row = stability._bootstraps(name, stability.CHECKPOINTS[name], n=bootstraps, seed=0)
    assert row["units"] == 4 and row["bootstraps"] == bootstraps
    assert row["mean Jaccard"] >= 0.9


def test_the_stored_bootstraps_are_stable():
    rows = STORED["tables"]["bootstraps"]
    assert [row["model"] for row in rows] == list(stability.CHECKPOINTS)
    assert all(row["bootstraps"] == 100 and row["mean Jaccard"] >= 0.9 for row in rows)


def test_the_stored_seeds_all_learnt_recall_and_are_those_of_the_demonstration():
    assert STORED["command"] == "OMP_NUM_THREADS=1 python -m benchmarks stability"
    seeds = STORED["tables"]["seeds"]
    assert [(row["heads a layer"], row["seed"]) for row in seeds] == [(heads, k) for heads in (1, 2) for k in range(5)]
    assert all(row["steps"] == DEMO.options["steps"] and row["accuracy"] > 0.99 for row in seeds)
    circuits = [row["circuit"] for row in seeds]
    assert len(set(circuits)) == len(circuits)  # other weights, other values


def test_training_seeds_of_the_demonstration_end_in_one_circuit():
    rows = [row for row in PAIRS if row["heads a layer"] == 1]
    assert [(row["contexts seed"], row["pairs"]) for row in rows] == [(0, 10), (1, 10), (2, 10)]
    assert all(row["named roles, least"] == 1 for row in rows)
    assert all(row["whole circuits, mean Jaccard"] >= 0.9 - 1e-9 for row in rows)


def test_with_two_heads_a_layer_training_shares_jobs_in_one_run_and_not_in_another():
    rows = [row for row in PAIRS if row["heads a layer"] == 2]
    assert len(rows) == 3 and all(row["pairs"] == 10 for row in rows)
    # A finding, not a target: the circuits differ, and more so in their backups.
    assert all(row["whole circuits, mean Jaccard"] <= row["without backups, mean Jaccard"] + 1e-9 < 0.9 for row in rows)


def test_runs_that_have_not_learnt_it_do_not_agree():
    early = replace(DEMO, options={"steps": 30, "evaluate_every": 30})
    *seeds, pairs = stability._seeds(early, seeds=(0, 1), contexts_seeds=(0,))
    assert all(row["accuracy"] < 0.5 for row in seeds)
    assert pairs["named roles, mean Jaccard"] < 0.9
