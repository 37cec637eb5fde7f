"""The two real checkpoints: the circuits they are known to have, and nothing that they have not."""

from pathlib import Path

import numpy as np
import pytest
import torch

from imir_lens.ablation import ablate
from imir_lens.analysis import Analysis, run_analysis
from imir_lens.evaluation import at_queries, score_logits
from imir_lens.lens_model import LensModel, open_model
from imir_lens.tasks import make_task
from imir_lens.tasks.base import Batch

DATA = Path(__file__).parent.parent / "data"
ALPHA = "L0H0/score/q:res/k:res/offset+1"
BETA = "L1H0/score/q:res/k:L0H0/same"
GAMMA = "readout/via:L1H0/same"


@pytest.fixture(scope="module")
def recall_model() -> LensModel:
    return open_model(DATA / "recall_2l.pt")


@pytest.fixture(scope="module")
def recall(recall_model: LensModel) -> Analysis:
    return run_analysis(recall_model, make_task("recall"), bootstraps=3)


@pytest.fixture(scope="module")
def memory() -> Analysis:
    task = make_task("recall", vocab=65, f_r=0.0, f_v=0.0)
    return run_analysis(open_model(DATA / "memory_2l.pt"), task, bootstraps=3)


@pytest.fixture(scope="module")
def stored_contexts() -> Batch:
    """The 512 contexts that came with the checkpoint, drawn by other code."""
    with np.load(DATA / "recall_contexts.npz") as stored:
        tokens, targets = torch.from_numpy(stored["tokens"]), torch.from_numpy(stored["targets"])
    queries = torch.full((len(tokens), 1), tokens.shape[1] - 1)
    return Batch(tokens.long(), queries, targets.long().unsqueeze(1), torch.ones_like(queries, dtype=torch.bool))


def test_recall_circuit_is_alpha_beta_gamma_and_little_else(recall: Analysis) -> None:
    units = {str(unit.id): unit for unit in recall.circuit.units}
    assert len(units) <= 6
    assert {ALPHA: "alpha", BETA: "beta", GAMMA: "gamma"}.items() <= {k: u.role for k, u in units.items()}.items()
    assert units["L1H0/score/q:res/k:res/same"].role == "auxiliary"
    assert units[BETA].value == pytest.approx(27.72, abs=0.01)
    assert units[GAMMA].value == pytest.approx(18.61, abs=0.01)
    assert recall.circuit.minimal


@pytest.mark.parametrize("seed", range(3))
def test_recall_search_stays_within_its_budget_of_evaluations(recall_model: LensModel, seed: int) -> None:
    circuit = run_analysis(recall_model, make_task("recall"), seed=10 * seed, bootstraps=0).circuit
    assert circuit.evaluations <= 30
    assert circuit.gradient_passes <= 10
    assert {ALPHA, BETA, GAMMA} <= {str(unit.id) for unit in circuit.units}


def test_recall_surrogate_is_no_worse_than_the_model(recall: Analysis) -> None:
    assert recall.evidence.projection.loss <= recall.evidence.model.loss
    assert recall.evidence.projection.accuracy > 0.99


@pytest.mark.parametrize("unit", [ALPHA, BETA, GAMMA])
def test_each_role_is_necessary_in_the_real_model(recall: Analysis, stored_contexts: Batch, unit: str) -> None:
    evidence = recall.evidence
    assert evidence.units[unit].model.loss >= 20 * evidence.model.loss > 0
    # And on contexts that other code drew.
    model = recall.model
    whole = score_logits(at_queries(model.logits(stored_contexts.tokens), stored_contexts), stored_contexts)
    without = ablate(model, recall.circuit.coordinates, [unit], stored_contexts)
    assert whole.loss == pytest.approx(0.0057, abs=2e-4)
    assert score_logits(without, stored_contexts).loss >= 20 * whole.loss


def test_recall_is_in_context_on_full_evidence(recall: Analysis) -> None:
    assert recall.verdict.mechanism == "in_context"
    assert recall.verdict.evidence_level == "stability"
    assert recall.evidence.circuit.accuracy > 0.9
    assert recall.evidence.without_circuit.accuracy < 0.1


def test_memory_is_delta_in_weights_and_claims_no_induction(memory: Analysis) -> None:
    roles = memory.circuit.by_role()
    assert memory.verdict.mechanism == "in_weights"
    assert set(roles) <= {"delta", "auxiliary"}
    assert all(unit.id.relation == "assoc" for unit in roles["delta"])
    assert "readout/via:res/assoc" in {str(unit.id) for unit in roles["delta"]}
    assert memory.evidence.roles["delta"].model.accuracy < 0.1 < memory.evidence.model.accuracy
