"""Shares of variance against sums of squares done by hand, on models explained wholly, partly and badly."""

import pytest
import torch
from brute_force import named, readout_term, score_term
from rich_circuit import RICH
from toy_task import ToyTask, random_model, relations, toy_batch

from imir_lens.coordinates import Coordinates
from imir_lens.explained import Capture, Explained, capture, explain
from imir_lens.ids import Head
from imir_lens.lens_model import LensModel, open_model
from imir_lens.models.constructions import plant
from imir_lens.projector import ImirProjector

HEADS = (Head(0, 0), Head(0, 1), Head(1, 0), Head(1, 1))


def project(model: LensModel) -> Coordinates:
    task = ToyTask()
    projector = ImirProjector.for_task(task)
    return projector.fit(model.weights).coordinates_


def explained(model: LensModel) -> Explained:
    batch = toy_batch(16)
    return explain(capture(model, HEADS, batch), project(model), batch)


def share(pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> float:
    """`1 − Σ (residual, centred)² / Σ (actual, centred)²` over rows of what was and what was predicted."""
    centred = lambda x: x - x.mean()  # noqa: E731
    residual = sum(float(centred(actual - predicted).square().sum()) for actual, predicted in pairs)
    return 1 - residual / sum(float(centred(actual).square().sum()) for actual, _ in pairs)


def by_hand(model: LensModel) -> tuple[dict[Head, float], float, float]:
    batch, coordinates = toy_batch(16), project(model)
    names = [f"blocks.{layer}.attn.hook_{what}" for layer in range(2) for what in ("pattern", "attn_scores")]
    logits, cache = model.run_with_cache(batch.tokens, names)
    patterns = {
        (layer, head): cache[f"blocks.{layer}.attn.hook_pattern"][:, head].double()
        for layer in range(2)
        for head in range(2)
    }
    heads, every, read = {}, [], torch.zeros(16, 7, 11, dtype=torch.float64)
    for head in HEADS:
        actual = cache[f"blocks.{head.layer}.attn.hook_attn_scores"][:, head.index].double()
        predicted = torch.zeros_like(actual)
        for name, value in named(coordinates).items():
            if name.startswith(f"{head}/"):
                predicted += value * score_term(relations(), name, patterns, batch.tokens)
        pairs = []
        for context in range(16):
            for query in batch.queries[context].tolist() if head.layer == 1 else range(7):
                seen = slice(0, query + 1)
                pairs.append((actual[context, query, seen], predicted[context, query, seen]))
        heads[head], every = share(pairs), every + pairs
    for name, value in named(coordinates).items():
        if name.startswith("readout"):
            read += value * readout_term(relations(), name, patterns, batch.tokens)
    queries = [(context, query) for context in range(16) for query in batch.queries[context].tolist()]
    return heads, share(every), share([(logits[at].double(), read[at]) for at in queries])


@pytest.mark.parametrize("seed", [1, 4])
def test_shares_equal_sums_of_squares_by_hand(seed):
    model = random_model(2, 2, seed=seed)
    heads, scores, readout = by_hand(model)
    found = explained(model)
    assert found.heads == pytest.approx(heads, abs=1e-9)
    assert found.scores == pytest.approx(scores, abs=1e-9) and found.readout == pytest.approx(readout, abs=1e-9)
    assert found.scores < 0.9


def planted(**options: object) -> LensModel:
    generator = torch.Generator().manual_seed(0)
    return open_model(plant(ToyTask(), RICH, n_layers=2, n_heads=2, generator=generator, **options))


def test_a_planted_model_is_explained_wholly():
    found = explained(planted())
    assert all(value == pytest.approx(1, abs=1e-6) for value in [*found.heads.values(), found.scores, found.readout])


def test_noise_on_the_weights_is_not_explained():
    """More noise leaves more that no coordinate explains."""
    shares = [explained(planted(noise=noise)) for noise in (0.0, 0.2, 0.5)]
    for of in (lambda e: e.scores, lambda e: e.readout, lambda e: e.heads[Head(1, 0)]):
        none, some, much = map(of, shares)
        assert none > some + 0.01 and some > much + 0.01


def test_constants_over_the_keys_are_not_variance():
    model, batch = random_model(2, 2), toy_batch(16)
    coordinates, captured = project(model), capture(random_model(2, 2), HEADS, batch)
    plain = explain(captured, coordinates, batch)
    shifted = {head: scores + 5 * torch.randn(16, 7, 1) for head, scores in captured.scores.items()}
    moved = Capture(captured.patterns, shifted, captured.logits + 3 * torch.randn(16, 2, 1))
    again = explain(moved, coordinates, batch)
    assert again.heads == pytest.approx(plain.heads) and again.readout == pytest.approx(plain.readout)


def test_another_models_coordinates_explain_little():
    model, other, batch = planted(), random_model(2, 2, dtype=torch.float32), toy_batch(16)
    wrong = explain(capture(model, HEADS, batch), project(other), batch)
    assert wrong.scores < 0.3 and wrong.readout < 0.3


def test_scores_are_captured_as_the_model_computes_them():
    model, batch = random_model(2, 2), toy_batch(6)
    captured = capture(model, HEADS, batch)
    hidden = torch.ones(7, 7, dtype=torch.bool).triu(1)
    for head, scores in captured.scores.items():
        pattern = scores.masked_fill(hidden, -torch.inf).softmax(-1)
        torch.testing.assert_close(pattern, captured.patterns[head])
        assert float(pattern.std()) > 0.1


def test_a_model_that_says_nothing_is_explained():
    quiet = open_model(plant(ToyTask(), {"readout/via:const/verb": 1.0}, n_layers=2, n_heads=2))
    found = explained(quiet)
    assert all(value == 1 for value in found.heads.values()) and found.readout == pytest.approx(1)
