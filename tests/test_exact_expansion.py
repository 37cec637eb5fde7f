"""The design's algebra, before any projection: sums over paths and sources give a model's logits exactly."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from brute_force import Chain, carried, causal_softmax, chains, content, double
from torch import Tensor
from toy_task import random_model

from imir_lens.lens_model import LensModel, open_model
from imir_lens.weights import CircuitWeights

DATA = Path(__file__).parent / "data"
SOURCES = ("tok", "pos", "const", "b_Q")


def expanded_logits(weights: CircuitWeights, tokens: Tensor, *, without: str = "") -> Tensor:
    """Patterns layer by layer from dense blocks alone, then the readout; `without` leaves one source out."""
    w, n_positions = double(weights), tokens.shape[1]
    patterns: dict[tuple[int, int], Tensor] = {}
    for layer in range(w.n_layers):
        entering = [c for c in chains(w.n_layers, w.n_heads) if not c or c[-1][0] < layer]
        new = {}
        for index in range(w.n_heads):
            carriers = _carriers(w, entering, layer, patterns, tokens, without=without)
            queries = [(holds, image @ w.W_Q[layer, index]) for holds, image in carriers]
            keys = [(holds, image @ w.W_K[layer, index]) for holds, image in carriers]
            ones = torch.ones(len(tokens), n_positions, 1, dtype=torch.float64)
            if without != "b_Q":
                queries.append((ones, w.b_Q[layer, index].unsqueeze(0)))
            keys.append((ones, w.b_K[layer, index].unsqueeze(0)))
            score = torch.zeros(len(tokens), n_positions, n_positions, dtype=torch.float64)
            for holds_query, q in queries:
                for holds_key, k in keys:
                    score += holds_query @ (q @ k.T / w.scale) @ holds_key.transpose(1, 2)
            new[layer, index] = causal_softmax(score)
        patterns |= new
    logits = torch.zeros(*tokens.shape, w.d_vocab_out, dtype=torch.float64)
    for holds, image in _carriers(w, chains(w.n_layers, w.n_heads), w.n_layers, patterns, tokens, without=without):
        logits += holds @ (image @ w.W_U)
    return logits + w.b_U


def _carriers(
    w: CircuitWeights,
    entering: list[Chain],
    layer: int,
    patterns: Mapping[tuple[int, int], Tensor],
    tokens: Tensor,
    *,
    without: str,
) -> list[tuple[Tensor, Tensor]]:
    """(content [context, position, index], image [index, d_model]) of every path and source entering a layer."""
    one_hot = torch.nn.functional.one_hot(tokens, w.d_vocab).double()
    n_positions = tokens.shape[1]
    out = []
    for chain in entering:
        moved = content(patterns, chain, n_positions).expand(len(tokens), -1, -1)
        if without != "tok":
            out.append((moved @ one_hot, carried(w, chain, w.W_E)))
        if without != "pos":
            out.append((moved, carried(w, chain, w.W_pos[:n_positions])))
        if without != "const":
            # A layer's bias enters above that layer, then takes the paths that start higher up.
            for written in range(layer):
                if not chain or chain[0][0] > written:
                    bias = torch.einsum("hd,hde->e", w.b_V[written], w.W_O[written]) + w.b_O[written]
                    out.append((moved.sum(2, keepdim=True), carried(w, chain, bias.unsqueeze(0))))
    return out


@pytest.fixture(scope="module")
def recall() -> LensModel:
    return open_model(DATA / "recall_2l.pt")


def test_expansion_equals_the_logits_of_a_trained_model(recall):
    tokens = torch.from_numpy(np.load(DATA / "recall_contexts.npz")["tokens"][:12]).long()
    logits = recall.logits(tokens)
    assert float(logits.std()) > 1
    assert float((expanded_logits(recall.weights, tokens) - logits).abs().max()) < 1e-4


@pytest.mark.parametrize(("n_layers", "n_heads"), [(1, 2), (2, 2), (3, 2), (4, 1)])
def test_expansion_equals_the_logits_of_random_models(n_layers, n_heads):
    model = random_model(n_layers, n_heads)
    tokens = torch.randint(11, (3, 6))
    logits = model.logits(tokens)
    assert float(logits.std()) > 0.3
    assert float((expanded_logits(model.weights, tokens) - logits).abs().max()) < 1e-8


@pytest.mark.parametrize("source", SOURCES)
def test_every_source_matters(source):
    model = random_model(3, 2)
    tokens = torch.randint(11, (3, 6))
    assert float((expanded_logits(model.weights, tokens, without=source) - model.logits(tokens)).abs().max()) > 0.05
