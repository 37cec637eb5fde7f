"""The causal experiments at a small size, and what the stored run of the whole benchmark says."""

import json
import re
from pathlib import Path

import pytest
import torch

from benchmarks import causal
from benchmarks.causal import continuous, controls, figures, information, ordinary, selective
from benchmarks.causal.document import DOCUMENT, filled
from benchmarks.partial import PartialRows
from imir_lens.causal.behaviour import examples_curve
from imir_lens.causal.construction import construct
from imir_lens.causal.files import config_for
from imir_lens.causal.flat_construction import construct_flat
from imir_lens.causal.training import train_causal
from imir_lens.causal.transformer import CausalTransformer, initialise
from imir_lens.ids import Head
from imir_lens.models.config import TransformerConfig
from imir_lens.models.transformer import ImirTransformer
from imir_lens.tasks.causal_tree import CausalTree
from imir_lens.tasks.linear_dynamics import LinearDynamics

STORED = json.loads((Path(causal.__file__).parents[1] / "results" / "causal.json").read_text())
TABLES = STORED["tables"]
TASK = CausalTree(d=5, positions=10, examples=10)


@pytest.fixture(scope="module")
def trained():
    return train_causal(TASK, steps=1024, batch=128, evaluate_every=1024).model


def untrained(task=TASK):
    model = CausalTransformer(config_for(task))
    initialise(model, torch.Generator().manual_seed(0))
    return model.eval()


def test_a_model_of_ten_examples_learns_the_posterior_and_the_kernel_in_1024_steps(trained):
    behaviour = figures.behaviour_figures(trained, TASK, 1024)
    parameters = figures.parameter_figures(trained, TASK)
    assert 0 < behaviour["gap"] < 0.015 < 1 < behaviour["L_pa, uniform"] - behaviour["L_pa"]
    assert parameters["column"] < 0.06 < 3 * parameters["column"] < parameters["row"]
    assert parameters["readout"] < 0.03
    assert parameters["block-diagonality"] > 0.9
    assert parameters["heads with w_H highest at 0"] == parameters["heads"] == parameters["examples copied"] == 10


def test_an_untrained_model_has_none_of_it():
    model = untrained()
    parameters = figures.parameter_figures(model, TASK)
    assert figures.behaviour_figures(model, TASK, 256)["gap"] > 0.5
    assert parameters["column"] > 0.2
    assert parameters["readout"] > 0.2
    assert parameters["block-diagonality"] < 0.5


def test_a_trained_model_gains_from_each_example_that_it_was_trained_with(trained):
    curve = examples_curve(trained, TASK, (1, 3, 10, 20), contexts=512, seed=5, reader=Head(1, 0))
    losses = [point.model for point in curve]
    assert losses[0] > losses[1] > losses[2]
    assert curve[3].model == pytest.approx(curve[3].bma_seen, abs=0.02)  # the ten nearest are all it sees
    assert curve[3].bma < curve[3].bma_seen


def test_the_bilinear_score_costs_vectors_most_where_evidence_is_scarce():
    gaps = {}
    for unit_norm in (False, True):
        for count in (1, 20):
            task = LinearDynamics(d=5, positions=8, examples=count, unit_norm=unit_norm)
            match = figures.matched(construct(task), task, figures.held_out(task, 512))
            gaps[unit_norm, count] = match.parent_loss - match.bma_parent_loss
    assert gaps[False, 1] > 0.02 > 5 * gaps[False, 20] > 0
    assert abs(gaps[True, 1]) < 1e-6 and abs(gaps[True, 20]) < 1e-6


def test_a_trained_score_of_vectors_has_the_first_term_and_not_the_second():
    task = LinearDynamics(d=4, positions=6, examples=2)
    model = train_causal(task, steps=500, batch=128, evaluate_every=500).model
    found = continuous.regress_scores(model, task, contexts=256)
    assert found["c1, found"] == pytest.approx(found["c1, true"], rel=0.25)
    assert abs(found["c2, found"]) < 0.2 * abs(found["c2, true"])
    assert found["R²"] > 0.9


def test_the_regression_finds_both_terms_where_both_are_there():
    task = LinearDynamics(d=4, positions=6, examples=2)
    episodes = figures.held_out(task, 128)
    examples = episodes.examples.double()
    terms = [task.bilinear(examples).sum(1)]
    terms.append(examples.square().sum(-1).sum(1).unsqueeze(1).expand_as(terms[0]))
    noise = torch.randn(terms[0].shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    level = torch.randn(128, 6, 1, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * 10
    scores = task.c1 * terms[0] + task.c2 * terms[1] + level + 0.1 * noise
    coefficients, errors, explained = continuous.fit(terms, scores, episodes.candidates)
    for found, error, true in zip(coefficients.tolist(), errors.tolist(), (task.c1, task.c2), strict=True):
        assert abs(found - true) < 4 * error < 0.1 * abs(true)
    assert 0.9 < explained < 1


def test_the_flat_construction_is_found_by_the_measurement_of_ordinary_models_and_a_fresh_model_is_not():
    task = CausalTree(d=3, positions=4, examples=2, concentration=0.3)
    found = ordinary.measure(construct_flat(task), contexts=256, task=task)
    assert found["verdict"] == "causal_bma" and found["nearest head"] == "L1H0"
    assert [head["label"] for head in found["head list"][:4]] == ["copyer"] * 2 + ["next-copyer"] * 2
    sizes = {"d_model": 32, "d_head": 8, "n_heads": 4, "n_layers": 2, "n_ctx": 12, "d_vocab": 3}
    fresh = ImirTransformer(TransformerConfig(**sizes, attn_only=True, normalization_type=None))
    nothing = ordinary.measure(fresh, contexts=256, task=task)
    assert nothing["verdict"] == "not_detected" and nothing["loss share"] < 0


def test_selective_induction_averages_over_lags():
    rows = {row["model"]: row for row in selective.rows(small=True, seed=0, kept=PartialRows())}
    exact, sharp = rows["construction, scores times 1"], rows["construction, scores times 100"]
    assert exact["largest deviation from the posterior"] < 1e-5 and exact["label"] == "bma"
    assert sharp["label"] == "maximum_likelihood" and sharp["selection"] < 0.1
    assert rows["construction for another kernel"]["label"] == rows["all lags alike"]["label"] == "neither"


@pytest.mark.parametrize(
    ("name", "verdict"),
    [
        ("trained", "causal_bma"),
        ("untrained", "not_detected"),
        ("trained on fixed_graph", "not_detected"),
        ("trained on shuffled examples", "not_detected"),
    ],
)
def test_only_a_model_that_was_taught_to_infer_the_graph_is_called_bayesian(name, verdict):
    sizes = {"d": 4, "positions": 6, "examples": 4}
    row = controls.measure(name, sizes, {"steps": 400, "batch": 64}, 0, 256)
    assert row["verdict"] == verdict, row["text"]


def test_theorems_hold_on_samples():
    rows = information.rows(small=True, seed=0, kept=PartialRows())
    kinds = {row["part"]: row for row in rows}
    told = kinds["information"]
    assert told["I(child; other), largest"] < told["I(child; parent)"]
    assert told["chi² kept a step, largest"] <= told["bound sigma_2²"] + 1e-12 < 1
    assert kinds["concentration"]["error, to"] < kinds["concentration"]["bound, to"]
    gradient = kinds["gradient"]
    assert gradient["autograd less closed form, largest"] < 1e-12 < gradient["gradient, largest"]
    assert gradient["mean less expectation, in standard errors, largest"] < 4.5


def test_every_experiment_runs_at_a_small_size():
    rows = causal.run(small=True)
    found = causal.tables(rows)
    assert set(found) == set(TABLES)
    assert all(list(lines[0]) == list(line) for lines in found.values() for line in lines)


def test_the_page_has_the_stored_figures():
    text = DOCUMENT.read_text(encoding="utf-8")
    assert filled(text, TABLES) == text
    assert filled(text.replace("| 0.", "| 1."), TABLES) == text
    marks = re.findall(r"^<!-- ([^:]+): .* -->$", text, re.MULTILINE)
    assert set(marks) == set(TABLES)


def stored(name, **wanted):
    rows = [row for row in TABLES[name] if all(row[key] == value for key, value in wanted.items())]
    assert rows, (name, wanted)
    return rows


def test_the_stored_run_is_that_of_the_command():
    assert STORED["command"] == "OMP_NUM_THREADS=1 python -m benchmarks causal"
    assert STORED["threads"] == 1


def test_stored_models_of_ten_tokens_reach_bma_with_the_kernel_in_their_columns():
    for row in stored("trained", d=10, H=15, L=3, steps=4096):
        assert row["gap"] < 0.01
        assert row["column"] < 0.05 and row["row"] > 3 * row["column"]
        assert row["column, raw"] > 2 * row["column"]


def test_stored_models_of_ten_examples_are_as_the_construction():
    for row in stored("trained", d=5, H=10, L=10, steps=1024):
        assert row["heads with w_H highest at 0"] == row["heads"] == 10 and row["same-position mass"] > 0.9
        assert row["block-diagonality"] > 0.9 and row["readout"] < 0.05
        assert row["gap"] < 0.02


def test_stored_models_of_twenty_tokens_have_the_kernel_in_their_columns():
    for row in stored("trained", d=20, H=50, L=3, steps=2048):
        assert row["column"] < 0.05 and row["row"] > 3 * row["column"]


def test_stored_controls_are_not_called_bayesian():
    for row in TABLES["controls"]:
        assert row["verdict"] == ("causal_bma" if row["model"] == "trained" else "not_detected"), row
    assert len({row["model"] for row in TABLES["controls"]}) == 4


def test_stored_models_are_near_what_their_examples_allow_and_far_off_with_more():
    curves = {row["L"]: row["curve"] for row in STORED["rows"] if row["part"] == "generalisation"}
    assert list(curves) == [1, 3, 5, 10]
    for examples, curve in curves.items():
        assert [point["L'"] for point in curve] == list(range(1, 21))
        for point in curve[examples - 1 :]:
            assert point["L_pa"] == pytest.approx(point["BMA, nearest L"], abs=0.05)
        if examples < 10:
            assert curve[-1]["L_pa"] > 3 * curve[-1]["BMA"]


def test_stored_gaps_of_vectors_close_with_examples_and_are_none_with_unit_norm():
    gaps = {row["L"]: row["gap"] for row in stored("continuous, constructed", **{"unit norm": False})}
    assert gaps[1] > 0.02 and abs(gaps[80]) < 0.1 * gaps[1]
    assert all(abs(row["gap"]) < 1e-6 for row in stored("continuous, constructed", **{"unit norm": True}))
    for row in stored("continuous, regression", **{"model": "trained", "unit norm": False}):
        assert abs(row["c2, found"]) < 0.1 * abs(row["c2, true"]) and row["c1, found"] > 0.5 * row["c1, true"]


def test_stored_ordinary_transformers_predict_by_the_examples():
    for row in TABLES["ordinary"]:
        assert row["loss share"] > 0.5
        assert len(stored("ordinary, heads", model=row["model"])) == (16 if "8 heads" in row["model"] else 8)


def test_stored_models_with_fewer_heads_average_over_as_many_examples():
    for row in TABLES["fewer heads"]:
        assert 0 <= row["L_pa"] - row["L_pa, BMA of K examples"] < 0.03
        assert row["examples copied"] == min(row["heads"], 5)
        assert (row["gap"] < 0.03) == (row["heads"] >= 5)


def test_stored_exponents_are_those_derived():
    for row in TABLES["concentration"]:
        assert row["fitted, with 1/√L"] == pytest.approx(row["predicted exponent"], rel=0.15)
        assert row["error, to"] < row["bound, to"]
    assert all(row["mean less expectation, in standard errors, largest"] < 4.5 for row in TABLES["gradient"])
