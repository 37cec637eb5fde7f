"""What positions outside the stream add to scores, against means over explicit pairs of rows."""

import pytest
import torch
from test_folded_weights import divided, seen_by
from test_forms import FORMS, model_of
from torch import Tensor
from toy_task import ToyTask, toy_batch

from imir_lens.ids import Head, Path
from imir_lens.linear_stream import measure_stream
from imir_lens.position_kernels import mean_rotation, position_kernel, rotations
from imir_lens.projector import ImirProjector

N = 7
QUERIES = ToyTask().query_positions


def _turned_scores(model, read_q: Tensor, read_k: Tensor, layer: int, head: int, back: int) -> Tensor:
    """Scores of queries `back` steps ahead of keys, all pairs of rows given, by rotating at actual positions."""
    w = model.weights
    cos, sin = (table.double() for table in w.form.rotation(layer, N, w.d_head))
    q = read_q @ w.W_Q[layer, head] + w.b_Q[layer, head]
    k = read_k @ w.W_K[layer, head] + w.b_K[layer, head]
    q = q * cos[back] + w.form.turned(q) * sin[back]
    return q @ k.T / w.scale


@torch.no_grad()
@pytest.mark.parametrize("name", ["rotary", "adjacent rotary", "partial rotary behind RMS"])
@pytest.mark.parametrize("layer", [0, 1])
def test_a_rotary_kernel_is_the_mean_score_over_all_pairs_of_rows(name: str, layer: int) -> None:
    model, batch = model_of(FORMS[name]), toy_batch(30)
    stream = measure_stream(model, batch)
    assert stream is not None
    _, cache = model.run_with_cache(batch.tokens, [f"blocks.{layer}.hook_resid_pre"])
    x = cache[f"blocks.{layer}.hook_resid_pre"]
    read_k = x.flatten(0, 1) * stream.scales.key[layer]
    read_q = x.flatten(0, 1)
    if layer == 1:  # in the last layer only the queries' rows are read
        read_q = x.gather(1, batch.queries.unsqueeze(2).expand(-1, -1, x.shape[2]))[batch.mask]
    read_q = read_q * stream.scales.query[layer]
    kernel = position_kernel(model.weights, stream, Head(layer, 1), N, QUERIES)
    for back in (0, 1, 3, 6):
        expected = _turned_scores(model, read_q, read_k, layer, 1, back).mean()
        assert float(kernel[N - 1 + back]) == pytest.approx(float(expected), abs=1e-9)
    assert kernel.std() > 1e-2


@torch.no_grad()
def test_turning_by_an_offset_is_rotating_both_at_their_positions() -> None:
    model, batch = model_of(FORMS["partial rotary behind RMS"]), toy_batch(3)
    w = model.weights
    x = torch.randn(3, N, w.d_model, dtype=torch.float64)
    whole = seen_by(w, x, 0, 0)
    turns = rotations(w, 0, N)
    q, k = x @ w.W_Q[0, 0] + w.b_Q[0, 0], x @ w.W_K[0, 0] + w.b_K[0, 0]
    for i in range(N):
        for j in range(i + 1):
            score = (turns[i - j](q[:, i]) * k[:, j]).sum(-1) / w.scale
            torch.testing.assert_close(score, whole[:, i, j])
    del batch


@torch.no_grad()
@pytest.mark.parametrize(("layer", "rows"), [(0, range(N)), (1, QUERIES)])
def test_the_mean_rotation_is_over_the_pairs_that_are_read(layer: int, rows: range) -> None:
    model = model_of(FORMS["rotary"])
    x = torch.randn(4, model.weights.d_head, dtype=torch.float64)
    turns = rotations(model.weights, layer, N)
    pairs = [turns[i - j](x) for i in rows for j in range(i + 1)]
    torch.testing.assert_close(mean_rotation(model.weights, layer, N, QUERIES)(x), torch.stack(pairs).mean(0))
    assert torch.stack(pairs).std(0).max() > 0.1


@torch.no_grad()
def test_alibi_falls_by_its_slope_and_shortformer_is_the_mean_over_pairs() -> None:
    alibi = position_kernel(model_of(FORMS["ALiBi"]).weights, None, Head(0, 1), N, QUERIES)
    steps = alibi[N - 1 :].diff()
    torch.testing.assert_close(steps, torch.full_like(steps, -(2.0**-8)))
    assert not alibi[: N - 1].any()

    w = model_of(FORMS["shortformer"]).weights
    assert w.pos_Q is not None
    assert w.pos_K is not None
    kernel = position_kernel(w, None, Head(1, 0), N, QUERIES)
    block = w.pos_Q[1, 0, :N] @ w.pos_K[1, 0, :N].T / w.scale
    for back in range(N):
        values = [float(block[i, i - back]) for i in QUERIES if i >= back]
        assert float(kernel[N - 1 + back]) == pytest.approx(sum(values) / len(values), abs=1e-9)


@torch.no_grad()
def test_a_match_by_offset_is_the_dense_contrast_at_that_rotation() -> None:
    model, task, batch = model_of(FORMS["partial rotary behind RMS"]), ToyTask(), toy_batch(30)
    stream = measure_stream(model, batch)
    assert stream is not None
    projector = ImirProjector.for_task(task, min_coordinate=0.0).fit(model.weights, stream)
    w, res = model.weights, Path()
    found = projector.match_by_offset(Head(0, 1), res, res)
    read = w.W_E * stream.scales.query[0]
    same, classes = [t for t in range(w.d_vocab) if t != 0], task.relations.class_of()
    partners = torch.stack(list(task.relations.matchings.values()))
    for back in (0, 2, 5):
        cos, sin = (table.double()[back] for table in w.form.rotation(0, N, w.d_head))
        q, k = read @ w.W_Q[0, 1], read @ w.W_K[0, 1]
        block = (q * cos + w.form.turned(q) * sin) @ k.T / w.scale
        values = []
        for s in same:
            inside = [
                float(block[a, b])
                for a in range(w.d_vocab)
                for b in range(w.d_vocab)
                if classes[a] == classes[s] == classes[b] and not (partners[:, a] == b).any()
            ]
            values.append(float(block[s, s]) - sum(inside) / len(inside))
        assert float(found[back]) == pytest.approx(sum(values) / len(values), abs=1e-6)
    assert found.std() > 1e-3
    coordinate = projector.coordinates_["L0H1/score/q:res/k:res/same"]
    weights = torch.tensor([float(N - back) for back in range(N)])
    assert coordinate == pytest.approx(float((found * weights).sum() / weights.sum()), abs=1e-6)


@torch.no_grad()
def test_scales_are_means_over_the_rows_that_read_them() -> None:
    model, batch = model_of(FORMS["LN"]), toy_batch(30)
    stream = measure_stream(model, batch)
    assert stream is not None
    _, cache = model.run_with_cache(batch.tokens, ["blocks.1.hook_resid_pre", "blocks.1.hook_resid_post"])
    x, final = cache["blocks.1.hook_resid_pre"], cache["blocks.1.hook_resid_post"]
    inverse, last = divided(x, model.model.cfg, centred=True)[1], divided(final, model.model.cfg, centred=True)[1]
    assert stream.scales.key[1] == pytest.approx(float(inverse.mean()))
    assert stream.scales.query[1] == pytest.approx(float(inverse.gather(1, batch.queries)[batch.mask].mean()))
    assert stream.scales.readout == pytest.approx(float(last.gather(1, batch.queries)[batch.mask].mean()))
    assert stream.scales.key[1] != pytest.approx(stream.scales.query[1], rel=1e-3)
    torch.testing.assert_close(stream.key_means[1], x.mean((0, 1)))
