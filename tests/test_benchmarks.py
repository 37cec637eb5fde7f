"""The benchmarks at a small size: they run, and what they claim holds in kind."""

import pytest

from benchmarks import atlas, detection, elimination, sampling, surrogate_forward
from benchmarks.__main__ import main
from imir_lens.errors import OptionError


def test_detection_costs_a_few_evaluations_for_each_unit() -> None:
    rows = detection.run(small=True)
    assert [row["circuit"] for row in rows[2:]] == [4, 4]
    for row in rows:
        assert row["circuit"] > 0
        assert row["evaluations"] <= 2 * row["circuit"] * row["coordinates"] ** 0.5
        assert row["evaluations / (circuit · log2 coordinates)"] < 2
        assert row["gradient passes"] <= 10


def test_the_surrogate_of_a_circuit_costs_less_than_that_of_everything() -> None:
    for row in surrogate_forward.run(small=True):
        assert row["surrogate, circuit / model"] > 0
        assert row["surrogate, all / model"] > 0


def test_exhaustive_elimination_finds_the_same_circuit_at_many_times_the_cost() -> None:
    (row,) = elimination.run(small=True)
    assert row["same circuit"] == "yes"
    assert row["evaluations, exhaustive / ours"] > 20


def test_sampling_is_far_faster_than_training() -> None:
    for row in sampling.run(small=True):
        assert row["sampling / training"] > 0.5 * row["required"]  # half, on a machine that does other things


def test_the_atlas_benchmark_measures_a_trained_and_a_random_model() -> None:
    rows = atlas.run(small=True)
    tables = atlas.tables(rows)
    assert set(tables) == {
        "cost",
        "weights against patterns",
        "labels",
        "top heads",
        "removals",
        "single removals",
    }
    random, trained = tables["cost"]
    assert random["heads labelled"] == 0 < trained["heads labelled"]
    left = {row["heads removed"]: row["gain left: coordinates, sizes from weights"] for row in tables["removals"]}
    assert left["top 2"] < 0.3 < left["top 1"]


def test_without_the_language_model_its_part_of_the_atlas_is_skipped_with_a_note(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def absent() -> None:
        raise OptionError("SmolLM2 is not installed")

    monkeypatch.setattr(atlas, "smollm2_path", absent)
    monkeypatch.setattr(atlas, "GPT2", {**atlas.GPT2, "n_layers": 1, "d_vocab": 100, "d_model": 32, "n_heads": 2})
    rows = atlas.run()
    assert [row["part"] for row in rows] == ["cost"]
    assert "skipped the language model: SmolLM2 is not installed" in capsys.readouterr().err


def test_an_unknown_benchmark_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["speed"]) == 2
    assert "unknown: 'speed'" in capsys.readouterr().err
