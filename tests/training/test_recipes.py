"""Recipes: what is trained by default, and that each recipe fits its task."""

import pytest
from small_runs import same_weights, weights

from imir_lens.errors import OptionError
from imir_lens.tasks import Hop, Ioi, Recall
from imir_lens.training import TRAINED, default_recipe, train
from imir_lens.training.schedule import stages


def test_chains_of_hops_are_learned_from_the_shortest_on():
    task = Hop(hops=3, chains=2)
    recipe = default_recipe(task)
    staged = stages(task, recipe.options["curriculum"])
    assert [stage.hops for _, stage in staged] == [1, 2]
    assert all(stage.n_blocks <= task.n_blocks for _, stage in staged)
    assert staged[-1][0] < recipe.options["steps"]
    assert "curriculum" not in default_recipe(Hop(hops=1)).options


@pytest.mark.parametrize("knobs", [{}, {"vocab": 7, "chains": 1}, {"hops": 4, "chains": 1, "length": 40}], ids=str)
def test_easier_chains_fit_wherever_the_whole_task_does(knobs):
    task = Hop(**{"distractors": 0, **knobs})
    assert len(stages(task, default_recipe(task).options["curriculum"])) == task.hops - 1


def test_a_chain_that_does_not_fit_is_refused():
    with pytest.raises(OptionError, match="chains"):
        stages(Hop(vocab=7, chains=1, distractors=0), [(10, {"hops": 1, "chains": 9})])


def test_what_the_caller_sets_goes_before_what_a_task_prefers():
    usual = default_recipe(Recall()).config.initializer_range
    assert default_recipe(Ioi()).config.initializer_range > usual
    assert default_recipe(Ioi(), initializer_range=0.05).config.initializer_range == 0.05
    assert default_recipe(Hop(), n_heads=3).config.n_heads == 3


@pytest.mark.parametrize("name", list(TRAINED))
def test_every_recipe_runs(tmp_path, name):
    recipe = TRAINED[name]
    train(recipe.task, recipe.config, run=tmp_path / "run", **{**recipe.options, "steps": 2, "batch": 8})
    assert recipe.task.name == name
    assert not same_weights(weights(tmp_path / "run", 0), weights(tmp_path / "run", 2))
