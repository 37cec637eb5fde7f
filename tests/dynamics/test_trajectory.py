"""Trajectories: of series whose coordinates are planted, and of a small run of training."""

import json
import shutil

import pytest
from planted_series import EMERGED, STEPS, TASK, grown, write_random, write_series
from small_runs import TASK as SMALL_TASK
from small_runs import small_run

from imir_lens import Trajectory, trajectories, trajectory
from imir_lens.dynamics import trajectory_pipeline
from imir_lens.errors import CheckpointError, CoordinateError, OptionError
from imir_lens.models.config import TransformerConfig
from imir_lens.models.constructions import induction_circuit
from imir_lens.report.trajectory_document import validate_trajectory
from imir_lens.report.validation import ReportError
from imir_lens.tasks import make_task
from imir_lens.training import default_config

SMALL = {"contexts": 96}


@pytest.fixture(scope="module")
def series(tmp_path_factory):
    return write_series(tmp_path_factory.mktemp("series") / "grown", grown)


@pytest.fixture(scope="module")
def found(series):
    return trajectory(series, TASK, **SMALL)


def test_planted_roles_emerge_exactly_where_they_were_planted(found):
    assert found.steps == list(STEPS)
    assert found.emergence == EMERGED
    assert found.data["emergence"]["order"] == [["gamma"], ["alpha"], ["beta"]]
    assert found.data["roles_of"] == "circuit"


def test_values_are_those_that_were_planted(found):
    (unit,) = (unit for unit in induction_circuit() if "k:L0H0" in unit)
    assert found.values(unit) == pytest.approx([grown(step)[unit] for step in STEPS], abs=1e-3)
    assert found.values("beta") == found.values(unit)


def test_the_loss_is_compared_with_the_last_role(found):
    summary = found.data["emergence"]
    losses = found.losses
    below = [loss < (losses[0] + min(losses)) / 2 for loss in losses]
    assert found.loss_drop == STEPS[below.index(True)]
    assert summary["last"] == 60
    assert summary["lag"] == found.loss_drop - 60


def test_attention_follows_its_role(found):
    points = {point["step"]: point["heads"] for point in found.data["checkpoints"]}
    copying, matching = ({step: heads[k] for step, heads in points.items()} for k in (0, 1))
    assert copying[30]["copy_mass"] < 0.2 and copying[50]["copy_mass"] > 0.8
    assert matching[50]["match_mass"] < 0.5 and matching[70]["match_mass"] > 0.99
    assert matching[70]["answer_mass"] > 0.99
    assert copying[70]["match_mass"] is None and matching[70]["copy_mass"] is None


def test_planted_coordinates_explain_everything(found):
    last = found.data["checkpoints"][-1]["unexplained"]
    assert last["scores"] == pytest.approx(0, abs=1e-3) and last["readout"] == pytest.approx(0, abs=1e-3)


def test_a_series_that_does_not_change_emerges_at_its_first_step(tmp_path):
    found = trajectory(write_series(tmp_path, lambda step: grown(90), steps=(0, 10, 20)), TASK, **SMALL)
    assert set(found.emergence.values()) == {0}
    assert found.loss_drop is None and found.data["emergence"]["lag"] is None


def test_in_unrelated_random_weights_nothing_emerges(tmp_path):
    found = trajectory(write_random(tmp_path, steps=(0, 10, 20)), TASK, **SMALL)
    assert found.data["roles_of"] == "reference"
    assert set(found.emergence.values()) == {None}
    assert found.data["emergence"]["order"] == [] and found.swaps == []
    assert repr(found).startswith("Trajectory(3 checkpoints): No role emerged.")


def test_a_swap_of_heads_is_reported_as_one(tmp_path):
    def moved(step):
        return induction_circuit(heads={"alpha": "L0H1" if step < 40 else "L0H0", "beta": "L1H0"})

    found = trajectory(write_series(tmp_path, moved, n_heads=2), TASK, **SMALL)
    assert [(swap["step"], swap["after"], swap["role"]) for swap in found.swaps] == [
        (40, 30, "alpha"),
        (40, 30, "beta"),
    ]
    assert all(swap["heads"] == [["L0H1", "L0H0"]] for swap in found.swaps)
    # Neither a vanishing circuit nor a new one: each role is there all along.
    assert found.emergence == {"alpha": 0, "beta": 0, "gamma": 0}
    assert min(found.values("alpha")) > 3.9
    assert min(found.values("L0H0/score/q:res/k:res/offset+1")) == pytest.approx(0, abs=1e-3)


def test_heads_that_keep_their_jobs_swap_nothing(tmp_path):
    found = trajectory(write_series(tmp_path, grown, n_heads=2), TASK, **SMALL)
    assert found.swaps == [] and found.emergence == EMERGED


def test_a_circuit_can_be_looked_for_at_every_checkpoint(series):
    found = trajectory(series, TASK, detect_every=True, **SMALL)
    circuits = [point["circuit"] for point in found.data["checkpoints"]]
    assert circuits[0] == [] and len(circuits[-1]) == 4
    assert {unit["id"] for unit in circuits[-1]} == set(induction_circuit())


def test_saved_and_loaded_it_is_the_same(found, tmp_path):
    place = found.save(tmp_path / "out")
    assert Trajectory.load(place).data == found.data == json.loads((place / "trajectory.json").read_text())
    lines = (place / "trajectory.csv").read_text().splitlines()
    assert len(lines) == len(STEPS) + 1 and lines[0].startswith("step,file,loss,accuracy")
    page = (place / "trajectory.html").read_text()
    assert "http://www.w3.org/2000/svg" in page and "src=" not in page and "at step 20, then" in page
    assert (place / "figures" / "trajectory.svg").read_text().startswith("<?xml")
    with pytest.raises(OptionError, match="--force"):
        found.save(place)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda data: data["roles"][0]["values"].pop(), r"roles\[0\]\.values: expected 9, found 8"),
        (lambda data: data["checkpoints"][0].update(loss=float("nan")), "finite"),
        (lambda data: data["checkpoints"].reverse(), "increase"),
        (lambda data: data.pop("swaps"), "swaps"),
    ],
)
def test_damaged_data_is_refused(found, change, says):
    data = json.loads(json.dumps(found.data))
    change(data)
    with pytest.raises(ReportError, match=says):
        validate_trajectory(data)


def test_what_was_measured_is_not_measured_again(series, found, tmp_path, monkeypatch):
    class StopError(Exception):
        pass

    def stop(done, total, step, facts):
        if done == 4:
            raise StopError

    with pytest.raises(StopError):
        trajectory(series, TASK, cache=tmp_path, progress=stop, **SMALL)
    measured = []
    measure = trajectory_pipeline.measure
    monkeypatch.setattr(trajectory_pipeline, "measure", lambda *a, **k: measured.append(1) or measure(*a, **k))
    again = trajectory(series, TASK, cache=tmp_path, **SMALL)
    assert len(measured) == len(STEPS) - 4
    assert {k: v for k, v in again.data.items() if k != "command"} == {
        k: v for k, v in found.data.items() if k != "command"
    }
    measured.clear()
    other = trajectory(series, TASK, cache=tmp_path, contexts=97)  # other contexts are other measurements
    assert len(measured) == len(STEPS) and other.losses != again.losses


def test_a_run_of_training_knows_its_task_and_its_metrics(tmp_path):
    small_run(tmp_path / "run", checkpoint_every=7)
    found = trajectory(tmp_path / "run", **SMALL)
    assert found.steps == [0, 1, 2, 5, 7, 10, 14, 20, 21, 28, 30]
    assert found.data["task"]["name"] == "recall" and found.data["task"]["knobs"]["vocab"] == 9
    metrics = {row["step"]: row["loss"] for row in found.data["metrics"]}
    assert set(found.steps) <= set(metrics)
    for step, loss in zip(found.steps, found.losses, strict=True):
        assert loss == pytest.approx(metrics[step], abs=0.1)  # other contexts of the same task


def test_a_run_of_a_model_with_norms_mlps_and_rotary_positions_is_followed(tmp_path):
    config = default_config(SMALL_TASK, d_model=8, d_head=4, n_heads=2, attn_only=False, d_mlp=16, act_fn="gelu")
    fields = {"normalization_type": "LN", "positional_embedding_type": "rotary", "rotary_dim": 4}
    small_run(tmp_path / "run", model=TransformerConfig.from_dict({**config.to_dict(), **fields}), steps=4)
    found = trajectory(tmp_path / "run", **SMALL)
    assert found.steps == [0, 1, 2, 4]
    assert all(len(point["heads"]) == 4 for point in found.data["checkpoints"])
    assert all(point["unexplained"]["scores"] < 1 for point in found.data["checkpoints"][1:])


def test_many_runs_are_summed_up(found, series, tmp_path):
    later = {role: step + 10 for role, step in EMERGED.items()}
    other = write_series(tmp_path / "later", lambda step: grown(step, emerged=later))
    many = trajectories([found, other], task=TASK, **SMALL)
    spread = many.emergence["alpha"]
    assert (spread.runs, spread.median, spread.least, spread.most) == (2, 45.0, 40.0, 50.0)
    assert many.orders == {"gamma < alpha < beta": 2}
    assert "2 times gamma < alpha < beta" in repr(many)
    with pytest.raises(OptionError, match="at least one run"):
        trajectories([])


def test_runs_without_a_task_or_with_steps_twice_are_refused(series, tmp_path):
    with pytest.raises(OptionError, match="does not say what it was trained on"):
        trajectory(series)
    for name in ("a", "b"):
        shutil.copytree(series, tmp_path / name)
    with pytest.raises(CheckpointError, match="2 checkpoints are of step 0"):
        trajectory(f"{tmp_path}/*/step_*.pt", TASK)


def test_a_checkpoint_of_another_shape_is_named(series, tmp_path):
    place = tmp_path / "mixed"
    shutil.copytree(series, place)
    wider = write_series(tmp_path / "wide", grown, n_heads=2, steps=(0,))
    shutil.copy(wider / "step_00000.pt", place / "step_00000.pt")
    with pytest.raises(CoordinateError, match=r"step_00000\.pt: expected a model of"):
        trajectory(place, TASK, **SMALL)


def test_a_task_that_the_model_is_too_small_for_is_refused(series):
    with pytest.raises(CoordinateError, match="vocabulary has 24"):
        trajectory(series, make_task("recall"), **SMALL)
