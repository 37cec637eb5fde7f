"""The tables of docs/language_models.md are those that the benchmark stored, and what the page claims is in them."""

import json

import pytest

from benchmarks.language_models import PAGE, STORED, filled

TEXT = PAGE.read_text(encoding="utf-8")
RESULT = json.loads(STORED.read_text(encoding="utf-8"))
TABLES = RESULT["tables"]


def test_the_page_shows_the_stored_tables_and_the_command() -> None:
    assert filled(TEXT, RESULT) == TEXT
    assert TEXT.count("<!-- table:") >= 5
    assert RESULT["command"] in TEXT


def test_a_changed_table_would_be_noticed() -> None:
    changed = {"tables": {**TABLES, "removals": [{**TABLES["removals"][0], "gain": -1.0}]}}
    assert filled(TEXT, changed) != TEXT


def test_the_weights_name_the_induction_heads_of_the_language_model() -> None:
    rows = [row for row in TABLES["weights against patterns"] if row["score"] == "match with copied tokens"]
    assert len(rows) == 2
    for row in rows:
        assert row["auc"] >= 0.9
        assert row["precision_at_5"] >= 0.8


def test_named_coordinates_carry_the_gain_and_random_ones_do_not() -> None:
    left = {row["heads removed"]: row for row in TABLES["removals"]}
    random = next(row for name, row in left.items() if name.startswith("random"))
    for size in ("gain left: coordinates, sizes from weights", "gain left: coordinates, sizes measured"):
        assert left["top 10"][size] < 0.25
        assert left["top 20"][size] < 0.15
        assert random[size] > 0.98


def test_the_random_model_has_no_label_and_both_stay_within_memory_and_time() -> None:
    costs = {row["model"]: row for row in TABLES["cost"]}
    assert costs["random, GPT-2's shape"]["heads labelled"] == 0
    assert costs["SmolLM2-135M-Instruct"]["heads labelled"] > 0
    for row in costs.values():
        assert row["peak memory so far, GB"] < 6
        assert row["weights only, seconds"] < 180


def test_the_single_removals_are_those_of_every_head_above_the_first_layer() -> None:
    single = [row for row in RESULT["rows"] if row["part"] == "single"]
    assert len({row["head"] for row in single}) == len(single) == 29 * 9
    for row in TABLES["single removals"]:
        assert row["heads"] == len(single)
        part = "coordinate" if row["removed"] == "coordinate" else "output"
        assert row["largest cost, nats"] == pytest.approx(max(one[part] for one in single))
    by_coordinate = next(row for row in TABLES["single removals"] if row["removed"] == "coordinate")
    assert by_coordinate["AUC of the induction score"] >= 0.9
    assert by_coordinate["cost at least 1 % of the gain"] >= 5
    assert max(single, key=lambda row: row["output"])["head"] == "L16H0"
