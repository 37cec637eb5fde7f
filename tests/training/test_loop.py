import json
import os
import signal
import threading

import pytest
import torch
from small_runs import CONFIG, OPTIONS, TASK, same_weights, small_run, weights

from imir_lens.checkpoints import checkpoint_series, load_checkpoint, load_transformer
from imir_lens.errors import OptionError
from imir_lens.models.disentangled import DisentangledConfig, DisentangledTransformer
from imir_lens.models.transformer import ImirTransformer
from imir_lens.tasks import Hop, Ngram, Recall
from imir_lens.training import DEMO, default_config, default_recipe
from imir_lens.training.loop import config_of


def test_training_lowers_the_loss_towards_bayes(tmp_path):
    task = Recall(vocab=9, pairs=2, length=6)
    config = default_config(task, d_model=32, d_head=16)
    result = small_run(tmp_path / "run", task=task, model=config, steps=150, batch=64, learning_rate=2e-2)
    first, last = result.metrics[0], result.last
    assert last is result.metrics[-1]
    assert (last["bayes_loss"], last["bayes_accuracy"]) == (0, 1)
    assert last["chance_loss"] == pytest.approx(torch.tensor(8.0).log().item(), abs=1e-4)
    assert first["loss"] == pytest.approx(last["chance_loss"], abs=0.2)
    assert result.score.loss < 0.5
    assert result.score.accuracy > 0.85


def test_a_run_leaves_its_record_metrics_and_checkpoints(tmp_path):
    run = tmp_path / "run"
    result = small_run(run)
    steps = [0, 1, 2, 5, 10, 20, 30]
    assert [step for step, _ in checkpoint_series(run)] == steps
    assert result.checkpoint == run / "checkpoints" / "step_00000030.pt"
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == sorted({*steps, 12, 24})
    assert rows == result.metrics
    record = json.loads((run / "run.json").read_text())
    assert record["task"] == {"name": "recall", "knobs": TASK.knobs}
    assert record["training"]["seed"] == 3
    assert record["model"]["d_model"] == 8
    assert record["versions"]["torch"] == torch.__version__


def test_checkpoints_hold_the_model_and_are_read_by_plain_torch_and_by_our_loader(tmp_path):
    result = small_run(tmp_path / "run")
    saved = torch.load(result.checkpoint, weights_only=True)
    assert same_weights(saved["state_dict"], result.model.state_dict())
    assert saved["cfg"]["n_layers"] == 2
    loaded = load_transformer(tmp_path / "run")
    tokens = TASK.sample(5, torch.Generator().manual_seed(0)).tokens
    assert torch.equal(loaded(tokens), result.model(tokens))
    assert load_checkpoint(tmp_path / "run").step == 30


def test_the_seed_decides_everything_and_the_global_generator_nothing(tmp_path):
    first = small_run(tmp_path / "a")
    torch.manual_seed(123)
    before = torch.get_rng_state()
    again = small_run(tmp_path / "b")
    assert torch.equal(torch.get_rng_state(), before)
    other = small_run(tmp_path / "c", seed=4)
    assert same_weights(first.model.state_dict(), again.model.state_dict())
    assert first.metrics == again.metrics
    assert not same_weights(first.model.state_dict(), other.model.state_dict())
    assert not same_weights(weights(tmp_path / "a", 0), weights(tmp_path / "c", 0))


def test_a_model_of_ones_own_is_trained_from_its_weights(tmp_path):
    model = ImirTransformer(CONFIG, generator=torch.Generator().manual_seed(11))
    start = {name: value.clone() for name, value in model.state_dict().items()}
    result = small_run(tmp_path / "run", model=model)
    assert result.model is model
    assert same_weights(weights(tmp_path / "run", 0), start)
    assert not same_weights(weights(tmp_path / "run"), start)


def test_a_disentangled_transformer_trains_too(tmp_path):
    model = DisentangledTransformer(DisentangledConfig(d_vocab=9, n_ctx=7, n_layers=2))
    result = small_run(tmp_path / "run", model=model, learning_rate=1e-2)
    assert result.metrics[-1]["loss"] < result.metrics[0]["loss"]
    assert torch.load(result.checkpoint, weights_only=True)["cfg"]["stream"] == "concat"


def test_a_curriculum_trains_on_easier_tasks_first(tmp_path):
    plain = small_run(tmp_path / "plain")
    staged = small_run(tmp_path / "staged", curriculum=[(10, {"pairs": 1})])
    assert same_weights(weights(tmp_path / "plain", 0), weights(tmp_path / "staged", 0))
    assert not same_weights(weights(tmp_path / "plain", 1), weights(tmp_path / "staged", 1))
    assert plain.metrics[0] == staged.metrics[0]  # both are scored on the whole task


def test_progress_is_told_every_step_and_the_last_score(tmp_path):
    seen = []
    result = small_run(tmp_path / "run", progress=lambda step, row: seen.append((step, row["step"])))
    assert [step for step, _ in seen] == list(range(31))
    assert seen[13] == (13, 12)
    assert seen[-1] == (30, 30)
    assert result.metrics[-1]["step"] == 30


def test_resuming_an_interrupted_run_gives_the_weights_and_metrics_of_one_left_alone(tmp_path):
    whole = small_run(tmp_path / "whole")

    def press_ctrl_c(step, row):
        if step == 17:
            os.kill(os.getpid(), signal.SIGINT)

    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        small_run(tmp_path / "run", progress=press_ctrl_c)
    assert signal.getsignal(signal.SIGINT) is handler
    assert load_checkpoint(tmp_path / "run" / "state.pt").step == 17
    assert not (tmp_path / "run" / "checkpoints" / "step_00000020.pt").exists()
    seen = []
    resumed = small_run(tmp_path / "run", resume=True, progress=lambda step, row: seen.append(step))
    assert seen[0] == 17
    assert same_weights(resumed.model.state_dict(), whole.model.state_dict())
    assert resumed.metrics == whole.metrics


def test_resuming_from_a_model_object_restores_its_weights(tmp_path):
    whole = small_run(tmp_path / "whole", model=ImirTransformer(CONFIG))

    def stop(step, row):
        if step == 14:
            raise RuntimeError("power cut")

    with pytest.raises(RuntimeError):
        small_run(tmp_path / "run", model=ImirTransformer(CONFIG), progress=stop)
    fresh = ImirTransformer(CONFIG, generator=torch.Generator().manual_seed(99))
    resumed = small_run(tmp_path / "run", model=fresh, resume=True)
    assert same_weights(resumed.model.state_dict(), whole.model.state_dict())


def test_a_finished_run_can_be_resumed_for_more_steps(tmp_path):
    whole = small_run(tmp_path / "whole", steps=40)
    small_run(tmp_path / "run")
    assert small_run(tmp_path / "run", resume=True).metrics[-1]["step"] == 30
    longer = small_run(tmp_path / "run", steps=40, resume=True)
    assert same_weights(longer.model.state_dict(), whole.model.state_dict())
    assert json.loads((tmp_path / "run" / "run.json").read_text())["training"]["steps"] == 40
    with pytest.raises(OptionError, match="is at step 40 already"):
        small_run(tmp_path / "run", steps=35, resume=True)


def test_training_works_outside_the_main_thread(tmp_path):
    done = []
    thread = threading.Thread(target=lambda: done.append(small_run(tmp_path / "run", steps=5)))
    thread.start()
    thread.join()
    assert done[0].metrics[-1]["step"] == 5


def test_an_existing_run_is_not_overwritten(tmp_path):
    small_run(tmp_path / "run", steps=5)
    before = (tmp_path / "run" / "metrics.jsonl").read_text()
    with pytest.raises(OptionError, match=r"run already exists: .* resume"):
        small_run(tmp_path / "run", steps=5)
    assert (tmp_path / "run" / "metrics.jsonl").read_text() == before
    (tmp_path / "file").write_text("mine")
    with pytest.raises(OptionError, match="file already exists"):
        small_run(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        ({"task": Recall(vocab=9, pairs=3, length=7)}, "task.knobs.pairs=2, found 3"),
        ({"task": Hop(vocab=9, hops=1, chains=2, distractors=0, length=7)}, "task.name='recall', found 'hop'"),
        ({"model": default_config(TASK, d_model=16, d_head=4)}, "model.d_model=8, found 16"),
        ({"seed": 4}, "training.seed=3, found 4"),
        ({"batch": 17}, "training.batch=16, found 17"),
        ({"learning_rate": 0.5}, "training.learning_rate=0.003, found 0.5"),
        ({"curriculum": [(3, {"pairs": 1})]}, "training.curriculum=[], found [[3, {'pairs': 1}]]"),
    ],
    ids=str,
)
def test_another_run_is_not_resumed_and_the_difference_is_named(tmp_path, changes, difference):
    small_run(tmp_path / "run", steps=5)
    before = (tmp_path / "run" / "run.json").read_bytes()
    with pytest.raises(OptionError) as caught:
        small_run(tmp_path / "run", resume=True, **changes)
    assert difference in str(caught.value)
    assert "\n" not in str(caught.value)
    assert (tmp_path / "run" / "run.json").read_bytes() == before


def test_there_must_be_something_to_resume(tmp_path):
    with pytest.raises(OptionError, match="is not a run"):
        small_run(tmp_path / "nothing", resume=True)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text("{")
    with pytest.raises(OptionError, match="not valid JSON"):
        small_run(tmp_path / "run", resume=True)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"steps": 0}, "steps must be at least 1: found 0"),
        ({"batch": -2}, "batch must be at least 1: found -2"),
        ({"warmup": -1}, "warmup must be at least 0: found -1"),
        ({"seed": -1}, "seed must be at least 0: found -1"),
        ({"learning_rate": 0.0}, "learning_rate must be a positive number: found 0.0"),
        ({"learning_rate": float("nan")}, "learning_rate must be a positive number: found nan"),
        ({"weight_decay": -0.5}, "weight_decay must be a positive number or 0: found -0.5"),
        ({"model": default_config(TASK, d_vocab=8)}, "the model has d_vocab=8, but task 'recall' needs at least 9"),
        ({"model": default_config(TASK, n_ctx=6)}, "the model has n_ctx=6, but task 'recall' needs at least 7"),
        ({"model": torch.nn.Linear(2, 2)}, "Linear has no cfg"),
    ],
    ids=str,
)
def test_options_out_of_range_are_refused_before_anything_is_written(tmp_path, changes, line):
    with pytest.raises(OptionError) as caught:
        small_run(tmp_path / "run", **changes)
    assert line in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_a_loss_that_explodes_stops_the_run_and_keeps_what_was_saved(tmp_path):
    with pytest.raises(OptionError, match=r"the loss at step \d+ is nan: lower learning_rate"):
        small_run(tmp_path / "run", learning_rate=1e30)
    assert all(torch.isfinite(value).all() for value in load_checkpoint(tmp_path / "run").state_dict.values())


def test_half_precision_is_named_where_the_loss_is_lost_to_it(tmp_path):
    with pytest.raises(
        OptionError, match=r"is nan: train in float32, as dtype=float16 is half precision, or lower lea"
    ):
        small_run(tmp_path / "run", model=default_config(TASK, d_model=8, d_head=4, dtype="float16"))


def test_an_unwritable_place_is_refused_in_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OptionError) as caught:
        small_run(tmp_path / "file" / "run")
    assert "cannot be written" in str(caught.value)


def test_config_may_be_a_mapping(tmp_path):
    result = small_run(tmp_path / "run", model=CONFIG.to_dict(), steps=2)
    assert isinstance(result.model, ImirTransformer)
    module = torch.nn.Linear(1, 1)
    module.cfg = {"d_vocab": 3, "dtype": torch.float32}
    assert config_of(module) == {"d_vocab": 3, "dtype": "torch.float32"}


def test_default_models_have_the_layers_and_heads_of_the_reference_circuit():
    assert default_recipe(Recall()).config.n_layers == 2
    assert default_recipe(Hop(hops=3, chains=1)).config.n_layers == 4
    assert default_config(Recall(f_r=0.0, vocab=65)).n_layers == 2
    assert default_config(Recall()).n_heads == 1
    assert default_config(Recall(), n_heads=3).n_heads == 3
    assert default_config(Ngram(n=4)).n_heads == 3
    with pytest.raises(OptionError, match="'d_mode'; did you mean 'd_model'"):
        default_config(Recall(), d_mode=3)
    assert DEMO.config.d_vocab == DEMO.task.d_vocab
    assert OPTIONS.keys() - {"steps", "batch", "evaluate_every", "warmup", "seed"} == set()
