"""Circuits inside models with norms, MLPs and rotary positions: found, with their values, and needed by the model."""

from pathlib import Path

import pytest
import torch
from dressed import behind_norm, kernel, with_rotary
from hand_built import induction

from imir_lens.analysis import Analysis, run_analysis
from imir_lens.detection import detect
from imir_lens.evaluation import at_queries, score_logits
from imir_lens.lens_model import LensModel, open_model
from imir_lens.linear_stream import measure_stream
from imir_lens.models.transformer import ImirTransformer
from imir_lens.projector import ImirProjector
from imir_lens.tasks import make_task

DATA = Path(__file__).parents[1] / "data"


def _inverse_scales(model: ImirTransformer, tokens: torch.Tensor) -> dict[str, torch.Tensor]:
    """1/σ of every norm, computed from the stream."""
    _, cache = model.run_with_cache(tokens, return_cache_object=False)
    streams = {"ln_final": cache["blocks.1.hook_resid_post"], "0": cache["hook_embed"] + cache["hook_pos_embed"]}
    streams["1"] = cache["blocks.0.hook_resid_post"]
    return {name: 1 / (x - x.mean(-1, keepdim=True)).square().mean(-1).sqrt() for name, x in streams.items()}


@torch.no_grad()
@pytest.mark.parametrize("kind", ["LN", "LNPre", "RMS", "RMSPre"])
def test_a_circuit_behind_norms_is_found_with_its_values_times_the_scales(kind: str) -> None:
    built = induction()
    plain, model = built.model(), behind_norm(built.model(), kind)
    search, test = built.batch(256, seed=0), built.batch(256, seed=1)
    lens = open_model(model)
    projector = ImirProjector.for_task(built.task).fit(lens.weights, measure_stream(lens, search))
    found = detect(projector.coordinates_, search)
    assert {str(unit.id) for unit in found.units} == set(built.circuit)

    inverse, base = _inverse_scales(model, search.tokens), _inverse_scales(model, search.tokens)["0"].mean()
    assert inverse["0"].std() < 1e-5 * base  # the first layer's scale is a constant, which its weights make up for
    assert inverse["1"].std() > 1e-3 * base  # above it the scale depends on the context
    rows = search.queries
    query_scale, key_scale = inverse["1"].gather(1, rows).mean() / base, inverse["1"].mean() / base
    readout_scale = inverse["ln_final"].gather(1, rows).mean() / base
    for unit in found.units:
        name = str(unit.id)
        scale = 1.0 if name.startswith("L0") else readout_scale * key_scale
        if name.startswith("L1"):
            scale = query_scale * key_scale
        assert unit.value == pytest.approx(built.circuit[name] * float(scale), rel=1e-3), name
        assert unit.value != pytest.approx(0, abs=1)
    # It computes nearly what the model without norms did, and the surrogate nearly what it computes.
    scores = [score_logits(at_queries(m(test.tokens), test), test) for m in (plain, model)]
    assert min(score.accuracy for score in scores) > 0.99


@torch.no_grad()
def test_a_circuit_with_rotary_positions_is_found_with_its_values() -> None:
    built = induction()
    model, search = with_rotary(built.model()), built.batch(256, seed=0)
    lens = open_model(model)
    projector = ImirProjector.for_task(built.task).fit(lens.weights, measure_stream(lens, search))
    coordinates, expected = projector.coordinates_, kernel(built.task.n_positions)
    assert int(expected.argmax()) == 1
    # A kernel is known up to a constant: here its median.
    for offset, value in enumerate((expected - expected.quantile(0.5)).tolist()):
        assert coordinates[f"L0H0/score/q:res/k:res/offset+{offset}"] == pytest.approx(value, abs=1e-3)
    found = detect(coordinates, search)
    values = {str(unit.id): unit.value for unit in found.units}
    tokens = {name: value for name, value in built.circuit.items() if "offset" not in name}
    assert tokens
    assert {name: values[name] for name in tokens} == pytest.approx(tokens, abs=1e-3)
    assert {role: len(units) for role, units in found.by_role().items() if role != "auxiliary"}.keys() == {
        "alpha",
        "beta",
        "gamma",
    }
    assert "L0H0/score/q:res/k:res/offset+1" in values
    score = score_logits(at_queries(model(search.tokens), search), search)
    assert score.accuracy > 0.99


def test_random_weights_in_the_same_shapes_have_no_circuit(generator: torch.Generator) -> None:
    built = induction()
    for model in (behind_norm(built.model(), "LN"), with_rotary(built.model())):
        for parameter in model.parameters():
            parameter.data.copy_(torch.randn(parameter.shape, generator=generator) / 8)
        lens, batch = open_model(model), built.batch(256)
        projector = ImirProjector.for_task(built.task).fit(lens.weights, measure_stream(lens, batch))
        assert projector.coordinates_.values.abs().max() > 0.01
        assert not detect(projector.coordinates_, batch).units


@pytest.fixture(scope="module")
def trained() -> dict[str, Analysis]:
    names = ("recall_rotary_ln.pt", "recall_ln_mlp")
    return {name: run_analysis(open_model(DATA / name), make_task("recall"), bootstraps=0) for name in names}


@pytest.mark.parametrize(
    ("name", "alpha", "beta", "gamma"),
    [
        ("recall_rotary_ln.pt", {"L0H0"}, {"L1H0", "L1H1"}, {"L1H0", "L1H1"}),
        ("recall_ln_mlp", {"L0H0", "L0H1"}, {"L1H0", "L1H1"}, {"L1H0", "L1H1"}),
    ],
)
def test_trained_models_with_norms_rotary_positions_and_mlps_are_explained(
    trained: dict[str, Analysis], name: str, alpha: set[str], beta: set[str], gamma: set[str]
) -> None:
    found = trained[name]
    roles = found.circuit.by_role()
    assert {str(unit.id.head) for unit in roles["alpha"]} == alpha
    assert {str(unit.id.head) for unit in roles["beta"]} == beta
    assert {str(unit.id.key.heads[-1]) for unit in roles["gamma"]} == gamma
    assert found.verdict.mechanism == "in_context"
    # Each role is necessary in the real model.
    model = found.evidence.model
    assert model.accuracy > 0.97
    for role in ("alpha", "beta", "gamma"):
        removal = found.evidence.roles[role].model
        assert removal.loss > model.loss + 1.5
        assert removal.accuracy < 0.7
    assert found.evidence.without_circuit.accuracy < 0.05
    assert found.evidence.surrogate.accuracy >= 0.95 * model.accuracy


def test_the_rotary_model_has_the_kernel_and_the_flat_match_that_were_measured_before(
    trained: dict[str, Analysis],
) -> None:
    found = trained["recall_rotary_ln.pt"]
    coordinates, paths = found.circuit.coordinates, found.projector.space_.paths.paths
    kernels = [coordinates[f"L0H0/score/q:res/k:res/offset+{k}"] for k in range(24)]
    assert max(range(24), key=kernels.__getitem__) == 1
    assert kernels[1] - max(kernels[0], kernels[2]) > 2
    by_name = {str(path): path for path in paths}
    for index in (0, 1):
        head = next(h for h in found.projector.space_.paths.heads if (h.layer, h.index) == (1, index))
        match = found.projector.match_by_offset(head, by_name["L0H1"], by_name["L0H0"])
        assert match.min() > 0.8 * match.max() > 5  # flat in the offset
        mean = coordinates[f"L1H{index}/score/q:L0H1/k:L0H0/same"]
        assert float(match.mean()) == pytest.approx(mean, rel=1e-4)
        other = found.projector.match_by_offset(head, by_name["L0H1"], by_name["L0H1"])
        assert other.abs().max() < 0.25 * match.max()


def test_a_model_and_its_lens_share_the_scores(trained: dict[str, Analysis]) -> None:
    """The two norms' scales are not constants in a trained model: the exact ones matter in ablations."""
    lens: LensModel = trained["recall_ln_mlp"].model
    _, cache = lens.run_with_cache(trained["recall_ln_mlp"].test_batch.tokens[:64], ["blocks.1.ln1.hook_scale"])
    inverse = 1 / cache["blocks.1.ln1.hook_scale"]
    assert float(inverse.std()) > 0.1 * float(inverse.mean())
