import subprocess
import sys

import pytest

from imir_lens import tasks
from imir_lens.errors import TaskError
from imir_lens.tasks import (
    CausalTree,
    Hop,
    LinearDynamics,
    Recall,
    causal_task,
    make_task,
    parse_knobs,
    register,
    registry,
    task_class,
    task_names,
)


def test_names_are_listed_without_importing_torch():
    code = (
        "import sys, imir_lens.tasks as t; print(t.task_names()); "
        "assert 'torch' not in sys.modules; t.make_task('hop'); assert 'torch' in sys.modules"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    block_lists = ["recall", "hop", "inversion", "retrieval", "ngram", "ioi", "copy", "repeated"]
    assert out.stdout.strip() == str([*block_lists, "causal_tree", "lag_chain", "fixed_graph"])


def test_tasks_are_made_by_name_with_knobs_of_their_types():
    task = make_task("recall", vocab="65", f_r=0, rare="none")
    assert task == Recall(vocab=65, f_r=0.0)
    assert isinstance(task.knobs["f_r"], float)
    assert make_task("hop", hops=1) == Hop(hops=1)
    assert task_class("hop") is Hop
    assert [task_class(name).name for name in task_names()] == task_names()
    assert all(task_class(name).summary for name in task_names())


def test_knobs_are_parsed_by_field_type():
    knobs = parse_knobs("recall", ["vocab=65", "f_r=0", "association=seed:3", "rare=10", "pairs = 4"])
    assert knobs == {"vocab": 65, "f_r": 0.0, "association": "seed:3", "rare": 10, "pairs": 4}
    assert [type(value) for value in knobs.values()] == [int, float, str, int, int]
    assert parse_knobs("recall", ["rare=none"]) == {"rare": None}
    assert parse_knobs("recall", []) == {}


@pytest.mark.parametrize(
    ("name", "assignments", "line"),
    [
        ("recal", [], "unknown task 'recal'; did you mean 'recall'?"),
        ("recall", ["vocabs=3"], "task 'recall' has no knob 'vocabs'; did you mean 'vocab'?"),
        ("recall", ["vocab"], "'vocab' is not a knob setting"),
        ("recall", ["vocab="], "'vocab=' is not a knob setting"),
        ("recall", ["=3"], "'=3' is not a knob setting"),
        ("recall", ["vocab=6.5"], "knob 'vocab' of task 'recall' takes int; found '6.5'"),
        ("recall", ["f_r=half"], "takes float; found 'half'"),
        ("recall", ["vocab=none"], "takes int; found 'none'"),
    ],
)
def test_bad_settings_are_refused_in_one_line(name, assignments, line):
    with pytest.raises(TaskError) as caught:
        parse_knobs(name, assignments)
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("knobs", [{"vocab": 64.5}, {"vocab": [1]}, {"association": 3}, {"f_r": None}], ids=str)
def test_values_of_another_type_are_refused(knobs):
    with pytest.raises(TaskError, match="takes"):
        make_task("recall", **knobs)


@pytest.mark.parametrize(
    ("name", "knobs", "line"),
    [
        (
            "recall",
            {"vocab": 100_000_000_000},
            "task 'recall' with these knobs has 100000000000 tokens: expected at most 1",
        ),
        ("recall", {"vocab": 10**400}, "tokens: expected at most 1,000,000"),
        ("hop", {"vocab": 1_000_001}, "task 'hop' with these knobs has 1000001 tokens: expected at most 1,000,000"),
        (
            "recall",
            {"vocab": 400_000, "pairs": 100_000, "length": 300_000},
            "has 300000 positions: expected at most 8,192",
        ),
        ("hop", {"length": 8193}, "has 8193 positions"),
    ],
    ids=["vocab", "huge vocab", "hop", "length", "hop length"],
)
def test_tasks_too_large_to_be_sampled_are_refused(name, knobs, line):
    with pytest.raises(TaskError) as caught:
        make_task(name, **knobs)
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)
    assert make_task(name, vocab=1_000_000, length=8192).n_positions == 8192


def test_a_task_of_vectors_is_made_as_a_causal_task_only():
    assert parse_knobs("linear_dynamics", ["rho=0.25", "unit_norm=true"]) == {"rho": 0.25, "unit_norm": True}
    assert causal_task("linear_dynamics", rho="0.25") == LinearDynamics(rho=0.25)
    assert causal_task("causal_tree", d=4) == CausalTree(d=4)
    assert "linear_dynamics" not in task_names()
    for make in (make_task, task_class):
        with pytest.raises(TaskError, match=r"^task 'linear_dynamics' has vectors, not tokens: expected one of recall"):
            make("linear_dynamics")


@pytest.mark.parametrize(
    ("name", "knobs", "line"),
    [
        ("recall", {}, "task 'recall' has no hidden causal graph"),
        ("causal_trees", {}, "unknown task 'causal_trees'; did you mean 'causal_tree'?"),
        ("linear_dynamic", {}, "did you mean 'linear_dynamics'?"),
        ("causal_tree", {"positions": 3000}, "has 12000 positions: expected at most 8,192"),
        ("causal_tree", {"d": 4097}, "causal_tree needs 2 <= d <= 4096: d=4097"),
        ("causal_tree", {"given_kernel": 3}, "has no knob 'given_kernel'"),
    ],
    ids=str,
)
def test_what_is_no_causal_task_is_refused_in_one_line(name, knobs, line):
    with pytest.raises(TaskError) as caught:
        causal_task(name, **knobs)
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_task_can_be_registered_once(monkeypatch):
    monkeypatch.setattr(registry, "_classes", dict(registry._classes))
    mine = type("Mine", (Recall,), {"name": "mine"})
    assert register(mine) is mine
    assert make_task("mine", vocab=40) == mine(vocab=40)
    assert task_names() == [*registry.BUILT_IN, "mine"]
    with pytest.raises(TaskError, match="'mine' is already registered"):
        register(mine)
    with pytest.raises(TaskError, match="'hop' is already registered"):
        register(type("Other", (Recall,), {"name": "hop"}))


def test_names_can_be_imported_from_the_package():
    for name in tasks.__all__:
        assert getattr(tasks, name) is not None
    with pytest.raises(AttributeError, match="nothing"):
        tasks.nothing  # noqa: B018
