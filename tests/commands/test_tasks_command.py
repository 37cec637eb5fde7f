"""`imir-lens tasks`."""

import json
import re

import pytest
from calling import call, refused

import imir_lens
from imir_lens.commands.tasks import knob_meanings
from imir_lens.tasks import BlockListTask, LinearDynamics, make_task


def test_tasks_lists_all():
    rows = json.loads(call("tasks", "--json").stdout)
    assert [row["name"] for row in rows] == [*imir_lens.task_names(), "linear_dynamics"]
    assert re.search("recall +in-context associative recall", call("tasks", "--quiet").stdout)


@pytest.mark.parametrize("name", imir_lens.task_names())
def test_tasks_shows_one(name):
    card = json.loads(call("tasks", name, "--json").stdout)
    task = make_task(name)
    assert {knob["name"]: knob["value"] for knob in card["knobs"]} == task.knobs
    assert all(knob["meaning"] for knob in card["knobs"])
    assert card["reference_circuit"] == list(task.reference_circuit)
    assert card["bayes"]["loss"] < card["chance"]["loss"]
    assert (card["bayes"]["loss"] < 1e-6) == isinstance(task, BlockListTask)  # elsewhere chance remains
    shown = call("tasks", name).stdout
    assert card["example"] in shown
    assert all(f"  {knob} " in shown for knob in task.knobs)


def test_tasks_shows_one_of_vectors():
    card = json.loads(call("tasks", "linear_dynamics", "--set", "unit_norm=true", "--json").stdout)
    assert {knob["name"]: knob["value"] for knob in card["knobs"]} == LinearDynamics(unit_norm=True).knobs
    assert all(knob["meaning"] for knob in card["knobs"])
    assert card["bma"]["parent_loss"] < 0.5 < card["uniform"]["parent_loss"]
    assert card["bma"]["squared_error"] < card["uniform"]["squared_error"]
    shown = call("tasks", "linear_dynamics").stdout
    assert "3 examples and a query of 15 vectors of dimension 10" in shown
    assert "rho=2.0" in refused(call("tasks", "linear_dynamics", "--set", "rho=2"))


def test_train_and_analyze_refuse_vectors(tmp_path):
    line = "task 'linear_dynamics' has vectors, not tokens"
    assert line in refused(call("train", "linear_dynamics", "--out", tmp_path / "run"))
    assert line in refused(call("analyze", "tests/data/recall_2l.pt", "--task", "linear_dynamics", "--out", tmp_path))
    assert not (tmp_path / "run").exists()


def test_tasks_takes_knobs():
    card = json.loads(call("tasks", "recall", "--set", "f_r=0", "--set", "burstiness=0", "--json").stdout)
    assert card["reference_circuit"] == ["readout/via:res/assoc"]
    assert {knob["name"]: knob["value"] for knob in card["knobs"]}["f_r"] == 0
    assert "needs the NAME" in refused(call("tasks", "--set", "f_r=0"))
    assert "did you mean 'hop'" in refused(call("tasks", "hopp"))


def test_a_large_vocabulary_is_shown_on_fewer_contexts():
    cards = [json.loads(call("tasks", "hop", "--set", f"vocab={n}", "--json").stdout) for n in (64, 200_000)]
    assert [card["contexts"] for card in cards] == [1024, 167]
    assert cards[1]["chance"]["loss"] == pytest.approx(12.2, abs=0.1)  # log 200,000


def test_what_a_docstring_says_about_a_knob_is_found_over_several_lines():
    knobs = "Attributes:\n    vocab: number of\n        tokens.\n    pairs: blocks.\n"
    text = f"A task.\n\n{knobs}\nRaises:\n    TaskError: never.\n"
    assert knob_meanings(text) == {"vocab": "number of tokens.", "pairs": "blocks."}
    assert knob_meanings("A task.") == {}
