"""What a verification's figures are drawn from: a few contexts, candidates, distances, kernel blocks, copyers."""

from typing import Any, Final

import torch
from jaxtyping import Float
from torch import Tensor

from imir_lens.causal.kernel_evidence import KernelEvidence
from imir_lens.causal.parameters import mean_block
from imir_lens.causal.transformer import CausalTransformer
from imir_lens.causal.verification import Verification
from imir_lens.tasks.episodes import Episodes, uniform_weights

_CONTEXTS: Final = 3
_CELLS: Final = 500
_ROWS: Final = 100  # of a kernel; of larger ones the examples nearest to the query are drawn
_HEADS: Final = 50
_RULED_OUT: Final = 0.01  # most candidates are, by posterior and attention alike, and would hide the others
_SEED: Final = 0  # of which candidates are drawn


def example_data(found: Verification) -> list[dict[str, Any]]:
    """Return the first few contexts: parents, attention and posterior; of tokens, the query too."""
    some = found.episodes[:_CONTEXTS]
    posterior = found.task.posterior(some)
    tokens = not some.values.is_floating_point()
    return [
        {
            "query": some.query[k].tolist() if tokens else None,
            "parents": some.parents[k].tolist(),
            "attention": _rounded(found.reader.weights[k] * some.candidates, 3),
            "posterior": _rounded(posterior[k], 3),
        }
        for k in range(len(some))
    ]


def drawn_data(found: Verification) -> dict[str, Any]:
    """Return what the other figures need, rounded to what an eye can see."""
    episodes = found.episodes
    posterior, weights = found.task.posterior(episodes), found.reader.weights.double()
    return {
        "cells": _cells(weights, posterior, episodes),
        "distances": _distances(weights, posterior, episodes),
        "kernel": None if found.kernel is None else _kernel(found.kernel, found),
        "copyers": _copyers(found),
    }


def _cells(
    weights: Float[Tensor, "context position candidate"],
    posterior: Float[Tensor, "context position candidate"],
    episodes: Episodes,
) -> dict[str, Any]:
    """Return a random sample of candidates that are not ruled out, with their posterior and attention."""
    choice = episodes.candidates & (episodes.candidates.sum(dim=1, keepdim=True) > 1)
    attention, expected = weights[:, choice].flatten(), posterior[:, choice].flatten()
    open_ = (attention > _RULED_OUT) | (expected > _RULED_OUT)
    attention, expected = attention[open_], expected[open_]
    order = torch.randperm(len(attention), generator=torch.Generator().manual_seed(_SEED))[:_CELLS]
    return {"posterior": _rounded(expected[order], 4), "attention": _rounded(attention[order], 4)}


def _distances(
    weights: Float[Tensor, "context position candidate"],
    posterior: Float[Tensor, "context position candidate"],
    episodes: Episodes,
) -> list[dict[str, Any]]:
    """Return, by distance from a position to its true parent, the mean probability that parent gets."""
    parents = episodes.parents
    has = parents >= 0
    distance = (torch.arange(episodes.n_nodes) - parents)[has]
    given = {
        "attention": weights.gather(2, parents.clamp(min=0).unsqueeze(2)).squeeze(2)[has],
        "posterior": posterior.gather(2, parents.clamp(min=0).unsqueeze(2)).squeeze(2)[has],
        "uniform": uniform_weights(episodes).gather(2, parents.clamp(min=0).unsqueeze(2)).squeeze(2)[has],
    }
    rows = []
    for apart in distance.unique().tolist():
        there = distance == apart
        means = {name: round(float(values[there].double().mean()), 4) for name, values in given.items()}
        rows.append({"distance": apart, "count": int(there.sum()), **means})
    return rows


def _kernel(kernel: KernelEvidence, found: Verification) -> dict[str, Any]:
    """Return the blocks that fit, each column less its mean over the block, which changes no attention."""
    examples, d = kernel.blocks.shape[0], kernel.blocks.shape[2]
    tokens = kernel.column is not None
    count = max(1, min(examples, _ROWS // d))
    shown = kernel.blocks[examples - count :, examples - count :, :_ROWS, :_ROWS]
    names = [f"{k + 1}" for k in range(examples - count, examples)]
    kind = "W_eff" if found.opened.causal else "W_tf"
    gauge = "columns of each block less their mean" if tokens else ""
    cut = "" if count == examples else f" (last {count} of {examples} examples)"
    raw = None
    if kernel.raw is not None:
        heads = kernel.raw.shape[0] // d
        best = sorted(range(heads), key=lambda k: int(found.copyers[k].copy_mass.argmax()))[-count:]
        blocks = kernel.raw.view(heads, d, heads, d).permute(0, 2, 1, 3)[best][:, best][:, :, :_ROWS, :_ROWS]
        raw = {
            "title": "W_KQ, as it stands",
            "subtitle": f"blocks: heads{', by the example they copy' if heads == count else f' ({count} of {heads})'}",
            "blocks": [f"H{found.copyers[k].head.index}" for k in best],
            "matrix": _flat(_gauged(blocks, tokens)),
        }
    return {
        "raw": raw,
        "effective": {
            "title": f"{kind}, between examples",
            "subtitle": f"blocks: examples{cut}",
            "blocks": names,
            "matrix": _flat(_gauged(shown, tokens)),
        },
        "mean": {
            "title": f"{kind}, mean own block",
            "subtitle": gauge,
            "blocks": [],
            "matrix": _rounded(_gauged(mean_block(kernel.blocks)[:_ROWS, :_ROWS], tokens), 4),
        },
        "reference": {
            "title": "log pi" if tokens else "c1 A",
            "subtitle": gauge,
            "blocks": [],
            "matrix": _rounded(_gauged(kernel.reference[:_ROWS, :_ROWS], tokens), 4),
        },
    }


def _copyers(found: Verification) -> dict[str, Any] | None:
    """Return w_L and w_H, or for an ordinary transformer where its copyers look; None where there are none."""
    model = found.opened.model
    nodes, examples = found.episodes.n_nodes, found.episodes.n_examples
    offsets = list(range(-(nodes - 1), nodes))
    if isinstance(model, CausalTransformer):
        w_L, w_H = (w.detach().cpu().double()[:_HEADS] for w in (model.copyers.w_L, model.copyers.w_H))
        return {
            "heads": [f"H{k}" for k in range(len(w_L))],
            "examples": list(range(1, w_L.shape[1] + 1)),
            "offsets": offsets,
            "over_examples": _rounded(w_L - w_L.mean(dim=1, keepdim=True), 4),
            "over_offsets": _rounded(w_H - w_H.mean(dim=1, keepdim=True), 4),
            "examples_title": "w_L, each row less its mean",
            "offsets_title": "w_H, each head less its mean",
            "offsets_unit": "bias, in nats",
        }
    heads = [copyer for copyer in found.copyers if copyer.label][:_HEADS]
    if not heads:
        return None
    over = torch.stack([(c.copy_mass if c.label == "copyer" else c.next_mass) for c in heads]).flip(1)
    return {
        "heads": [str(copyer.head) for copyer in heads],
        "examples": list(range(1, examples + 1)),
        "offsets": offsets,
        "over_examples": _rounded(over, 4),
        "over_offsets": _rounded(torch.stack([copyer.kernel[:-1].sum(dim=0) for copyer in heads]), 4),
        "examples_title": "attention to each example's copied position",
        "offsets_title": "attention over offsets, summed over examples",
        "offsets_unit": "mean attention",
    }


def _gauged(blocks: Float[Tensor, "*batch parent child"], tokens: bool) -> Float[Tensor, "*batch parent child"]:
    return blocks - blocks.mean(dim=-2, keepdim=True) if tokens else blocks


def _flat(blocks: Float[Tensor, "row column parent child"]) -> list[list[float]]:
    rows, _, d, _ = blocks.shape
    return _rounded(blocks.permute(0, 2, 1, 3).reshape(rows * d, -1), 4)


def _rounded(values: Float[Tensor, "..."], decimals: int) -> Any:
    # In float64, so that decimals stay decimals in JSON; no −0.
    return (values.detach().cpu().double().round(decimals=decimals) + 0.0).tolist()
