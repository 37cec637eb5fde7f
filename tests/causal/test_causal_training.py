"""Small trainings: the attention becomes the posterior, and runs can be stopped and resumed."""

import pytest
import torch

from imir_lens.causal.construction import construct
from imir_lens.causal.files import load_causal
from imir_lens.causal.parameters import column_error, effective_kernel, mean_block, readout_error, row_error
from imir_lens.causal.scoring import score_bma, score_model, score_uniform
from imir_lens.causal.training import train_causal
from imir_lens.causal.transformer import CausalConfig
from imir_lens.errors import CheckpointError, OptionError
from imir_lens.tasks.causal_tree import CausalTree
from imir_lens.tasks.linear_dynamics import LinearDynamics
from imir_lens.training.run_directory import read_metrics

TASK = CausalTree(d=4, positions=6, examples=4, concentration=1.0)
QUICK = {"steps": 24, "batch": 8, "evaluate_every": 8}


@pytest.fixture(scope="module")
def trained():
    return train_causal(TASK, steps=400, batch=64, evaluate_every=200)


def held_out(task=TASK, contexts=1024):
    return task.sample_episodes(contexts, torch.Generator().manual_seed(77))


def same_weights(first, second):
    pairs = zip(first.state_dict().values(), second.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def test_training_brings_the_attention_to_the_posterior(trained):
    episodes = held_out()
    best, nothing = score_bma(TASK, episodes), score_uniform(TASK, episodes)
    score = score_model(trained.model, episodes)
    assert score.parent_loss - best.parent_loss < 0.03 < 0.2 < nothing.parent_loss - best.parent_loss
    assert score.loss - best.loss < 0.03 < nothing.loss - best.loss
    pattern = trained.model.run_with_cache(episodes)[1]["bma.hook_pattern"]
    apart = (pattern - TASK.posterior(episodes)).abs().sum(2)[:, 1:].mean() / 2
    assert float(apart) < 0.06


def test_training_writes_the_kernel_into_the_columns_and_not_into_the_rows(trained):
    kernel = mean_block(effective_kernel(trained.model))
    assert float(column_error(kernel, TASK.kernel)) < 0.06
    assert float(row_error(kernel, TASK.kernel)) > 0.1
    assert readout_error(trained.model, TASK.kernel) < 0.07
    maps = trained.model.maps()
    assert bool((maps.positions.diagonal(dim1=1, dim2=2) > 0.8).all())
    assert sorted(maps.examples.argmax(1).tolist()) == [0, 1, 2, 3]


def test_cross_entropy_is_least_at_scores_flatter_than_log_pi():
    # The readout of a mixture of parents is a geometric mean, sharper than BMA's arithmetic one: hedging pays more.
    task = CausalTree(d=4, positions=6, examples=4)
    episodes, scores = held_out(task, 4096), {}
    for factor in (0.8, 1.0, 1.2):
        model = construct(task)
        with torch.no_grad():
            model.bma.W_KQ *= factor
        scores[factor] = score_model(model, episodes)
    assert scores[0.8].loss < scores[1.0].loss < scores[1.2].loss
    assert scores[1.0].parent_loss < min(scores[0.8].parent_loss, scores[1.2].parent_loss)


def test_an_untrained_model_is_far_from_both():
    start = train_causal(TASK, steps=1, batch=1, learning_rate=1e-9).model
    episodes = held_out()
    score, nothing = score_model(start, episodes), score_uniform(TASK, episodes)
    assert score.parent_loss == pytest.approx(nothing.parent_loss, abs=0.02)
    assert float(column_error(mean_block(effective_kernel(start)), TASK.kernel)) > 0.2


def test_a_task_whose_examples_tell_nothing_teaches_nothing_about_parents():
    task = CausalTree(d=4, positions=6, examples=4, concentration=1.0, shuffle=True)
    model = train_causal(task, steps=100, batch=32).model
    told = held_out()  # here the examples would tell
    assert score_model(model, told).parent_loss > score_uniform(TASK, told).parent_loss - 0.1


def test_the_curve_has_the_best_and_the_worst_beside_the_model(trained):
    assert [row["step"] for row in trained.curve] == [0, 200, 400]
    first, last = trained.curve[0], trained.curve[-1]
    assert last["bma_parent_loss"] < last["parent_loss"] < first["parent_loss"]
    assert first["parent_loss"] == pytest.approx(first["uniform_parent_loss"], abs=0.02)
    assert first["loss"] == pytest.approx(torch.tensor(4.0).log().item(), abs=0.02)
    assert first["bma_loss"] == last["bma_loss"] < last["uniform_loss"]


def test_vectors_are_learned_by_squared_error():
    task = LinearDynamics(d=3, positions=4, examples=2, rho=0.9, unit_norm=True)
    result = train_causal(task, steps=100, batch=32)
    last = result.curve[-1]
    gained = (last["uniform_loss"] - last["loss"]) / (last["uniform_loss"] - last["bma_loss"])
    assert gained > 0.7
    assert result.curve[0]["loss"] > last["uniform_loss"]


def test_the_seed_decides_everything_and_the_global_generator_nothing():
    first = train_causal(TASK, **QUICK)
    torch.manual_seed(5)
    assert same_weights(first.model, train_causal(TASK, **QUICK).model)
    assert not same_weights(first.model, train_causal(TASK, **QUICK, seed=1).model)


def test_a_run_that_was_interrupted_and_resumed_ends_in_the_same_weights(tmp_path):
    def stop_at_13(step, row):
        if step == 13:
            raise KeyboardInterrupt

    run = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        train_causal(TASK, **QUICK, run=run, progress=stop_at_13)
    resumed = train_causal(TASK, **QUICK, run=run, resume=True)
    whole = train_causal(TASK, **QUICK)
    assert same_weights(resumed.model, whole.model)
    assert resumed.curve == whole.curve == read_metrics(run)
    assert same_weights(load_causal(run, task=TASK), whole.model)


def test_a_run_is_not_overwritten_nor_resumed_as_another(tmp_path):
    train_causal(TASK, **QUICK, run=tmp_path / "run")
    with pytest.raises(OptionError, match="already exists"):
        train_causal(TASK, **QUICK, run=tmp_path / "run")
    with pytest.raises(OptionError, match="seed=0, found 1"):
        train_causal(TASK, **QUICK, run=tmp_path / "run", resume=True, seed=1)


def test_progress_is_told_before_every_step_and_at_the_end():
    seen = []
    train_causal(TASK, **QUICK, progress=lambda step, row: seen.append((step, row["step"])))
    assert [step for step, _ in seen] == list(range(25))
    assert seen[9] == (9, 8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, "steps must be at least 1"),
        ({"batch": 0}, "batch must be at least 1"),
        ({"learning_rate": 0.0}, "learning_rate must be a positive number"),
        ({"decay": 2.0}, "decay must lie between 0 and 1"),
        ({"resume": True}, "resume=True needs run=DIR"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(OptionError, match=message):
        train_causal(TASK, **{**QUICK, **options})


def test_a_model_that_does_not_fit_the_task_is_refused():
    with pytest.raises(CheckpointError, match="d_input=3, but the task has 4"):
        train_causal(TASK, CausalConfig(3, 6, 4), **QUICK)


def test_fewer_heads_than_examples_may_be_trained():
    model = train_causal(TASK, CausalConfig(4, 6, 4, n_heads=1), **QUICK).model
    assert tuple(model.bma.W_KQ.shape) == (4, 4)
