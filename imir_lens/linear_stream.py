r"""What makes a model with norms and MLPs linear in its sources: means that are measured on contexts.

A norm divides the stream by its root mean square σ. For the surrogate `1/σ` is a constant, its mean over the rows that
are read; an ablation in the model puts the actual value back. An MLP after attention reads `x = E_t + P_i + z`, with z
all that heads and earlier MLPs brought. Its output is split as

    MLP(x) = T_t + Q_i + z J + rest,

with J its mean Jacobian `E[∂MLP/∂x]` over the rows, T and Q the means of `MLP(x) − z J` by token, and of what is left
by position. So tokens get an effective embedding, what heads bring passes the MLP linearly, and `rest` is unexplained.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from imir_lens.lens_model import LensModel
from imir_lens.mlp_linear import MlpParts, split_mlp
from imir_lens.score_reader import raw_scores
from imir_lens.stream_scales import StreamScales
from imir_lens.tasks.base import Batch
from imir_lens.weights import CircuitWeights


@dataclass(frozen=True, eq=False)
class LinearStream:
    """Means of a model's stream over contexts; `n_layers` entries, and one for the readout.

    Attributes:
        scales: of norms and caps.
        means: mean stream at the rows read: all, at the last layer and the readout those of the queries.
        key_means: mean stream at all rows, by layer.
        frequency: share of each token at all rows.
        query_frequency: share of each token at the queries.
        mlps: what each layer's MLP adds, split into parts at the means over all rows (empty without MLPs).
        query_mlps: the same at the means over the queries' rows.
    """

    scales: StreamScales
    means: Float[Tensor, "entry d_model"]
    key_means: Float[Tensor, "layer d_model"]
    frequency: Float[Tensor, " vocab"]
    query_frequency: Float[Tensor, " vocab"]
    mlps: tuple[MlpParts, ...]
    query_mlps: tuple[MlpParts, ...]


_MOST_NUMBERS = 200_000_000  # of the activations that are kept at once


@torch.no_grad()
def measure_stream(model: LensModel, batch: Batch) -> LinearStream | None:
    """Measure a model's stream on contexts; None for a model that is nothing but products of weights.

    Args:
        model: the model.
        batch: a few hundred contexts of the task; fewer are used where a model is large.
    """
    weights = model.weights
    if not (weights.form.needs_stream or weights.form.positions == "rotary"):
        return None
    n_layers, n_positions, form = weights.n_layers, batch.tokens.shape[1], weights.form
    batch = batch[: max(8, _MOST_NUMBERS // (4 * n_layers * n_positions * weights.d_model))]
    inside = model.on_twin()
    logits, cache = inside.run_with_cache(batch.tokens, _names(weights))
    tokens, queries = batch.tokens, batch.tokens.gather(1, batch.queries)[batch.mask]

    def everywhere(x: Shaped[Tensor, "context position width"]) -> Shaped[Tensor, "row width"]:
        return x.flatten(0, 1)

    def at_queries(x: Shaped[Tensor, "context position width"]) -> Shaped[Tensor, "row width"]:
        return x.gather(1, batch.queries.unsqueeze(2).expand(-1, -1, x.shape[2]))[batch.mask]

    # In the last layer, and after it, only the queries' rows are read.
    read = [*[everywhere] * (n_layers - 1), at_queries, at_queries]
    streams = [cache[f"blocks.{layer}.hook_resid_pre"] for layer in range(n_layers)]
    streams.append(cache[f"blocks.{n_layers - 1}.hook_resid_post"])
    scales = StreamScales.ones(n_layers, weights.n_heads)
    if form.norm is not None:
        inverse = [1 / cache[f"blocks.{layer}.ln1.hook_scale"] for layer in range(n_layers)]
        scales = replace(
            scales,
            query=tuple(float(rows(x).mean()) for rows, x in zip(read, inverse, strict=False)),
            key=tuple(float(x.mean()) for x in inverse),
            readout=float(at_queries(1 / cache["ln_final.hook_scale"]).mean()),
        )
    if form.score_cap:
        scales = replace(scales, score_slopes=_score_slopes(cache, weights))
    if form.logit_cap:
        slope = 1 - (at_queries(logits) / form.logit_cap).square()
        scales = replace(scales, logit_slope=float(slope.mean()))
    mlps: list[MlpParts] = []
    query_mlps: list[MlpParts] = []
    if form.mlp != "none":
        sources = weights.W_E[tokens]
        if form.moves_positions:
            sources = sources + weights.W_pos[:n_positions]
        steps = torch.arange(n_positions, device=tokens.device).expand(len(tokens), -1)
        token_and_place = torch.stack([tokens, steps], dim=2)
        for layer in range(n_layers):
            entering = cache[f"blocks.{layer}.hook_resid_mid"] if form.mlp == "after" else streams[layer]
            for rows, found in ((everywhere, mlps), (at_queries, query_mlps)):
                where = rows(token_and_place)
                found.append(
                    split_mlp(
                        inside.model.blocks[layer],
                        rows(entering),
                        rows(entering - sources),
                        where[:, 0],
                        where[:, 1],
                        weights.W_E,
                        n_positions=n_positions if form.moves_positions else 0,
                    )
                )
    return LinearStream(
        scales=scales,
        means=torch.stack([rows(x).mean(0) for rows, x in zip(read, streams, strict=True)]),
        key_means=torch.stack([everywhere(x).mean(0) for x in streams[:-1]]),
        frequency=_frequency(tokens.flatten(), weights),
        query_frequency=_frequency(queries, weights),
        mlps=tuple(mlps),
        query_mlps=tuple(query_mlps),
    )


def _names(weights: CircuitWeights) -> list[str]:
    n_layers, form = weights.n_layers, weights.form
    names = [f"blocks.{layer}.hook_resid_pre" for layer in range(n_layers)]
    names.append(f"blocks.{n_layers - 1}.hook_resid_post")
    if form.norm is not None:
        names += [f"blocks.{layer}.ln1.hook_scale" for layer in range(n_layers)] + ["ln_final.hook_scale"]
    if form.mlp == "after":
        names += [f"blocks.{layer}.hook_resid_mid" for layer in range(n_layers)]
    if form.score_cap:
        names += [f"blocks.{layer}.attn.hook_{x}" for layer in range(n_layers) for x in "qk"]
    return names


def _frequency(tokens: Int[Tensor, " row"], weights: CircuitWeights) -> Float[Tensor, " vocab"]:
    return torch.bincount(tokens, minlength=weights.d_vocab).to(weights.W_E) / len(tokens)


def _score_slopes(cache: dict[str, Tensor], weights: CircuitWeights) -> tuple[tuple[float, ...], ...]:
    """Mean over visible pairs of `d capped / d score = 1 − tanh²(score / cap)`, by layer and head."""
    slopes = []
    for layer in range(weights.n_layers):
        q, k = (cache[f"blocks.{layer}.attn.hook_{x}"] for x in "qk")
        seen = ~weights.form.hidden(layer, q.shape[1], device=q.device)
        scores = [raw_scores(weights, layer, head, q, k)[:, seen] for head in range(weights.n_heads)]
        slopes.append(tuple(float((1 - torch.tanh(x / weights.form.score_cap).square()).mean()) for x in scores))
    return tuple(slopes)
