"""A compiler from coordinates to weights: models whose every coordinate is known, because it was put there.

Token and position embeddings are orthonormal, and each path that the circuit reads has a space of its own in the
stream: with Q_u [index, d_model] the orthonormal rows of the space of path u, whose content is written g_u strong,

    W_V W_O = Σ (g_uh / g_u) Q_uᵀ Q_uh                      for each path u·h that is read
    W_Q W_Kᵀ = sqrt(d_head) · Σ c / (g_u g_v) Q_uᵀ R Q_v      over the head's score coordinates c of relation R
    W_U = Σ c / g_p Q_pᵀ R                                 over the readout coordinates

Constants go to `b_Q` and `b_U`. All coordinates that were not given are zero. What is read out with the coordinate c is
written sqrt|c| strong and read sqrt|c| strong, as training shares a gain between the matrices of a product; all else
has strength 1.
"""

import math
from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from imir_lens.errors import OptionError, did_you_mean
from imir_lens.ids import Head
from imir_lens.models.blueprint import Blueprint, Content, draw_blueprint
from imir_lens.models.config import TransformerConfig
from imir_lens.models.disentangled import DisentangledConfig, DisentangledTransformer
from imir_lens.models.transformer import ImirTransformer
from imir_lens.tasks.base import Task

_OTHERS = ("random", "zero")


def plant(
    task: Task,
    circuit: Mapping[str, float],
    *,
    n_layers: int,
    n_heads: int,
    other_heads: str = "zero",
    other_scale: float = 0.8,
    noise: float = 0.0,
    rotate: bool = True,
    generator: torch.Generator | None = None,
) -> ImirTransformer:
    """Build an attention-only transformer that has exactly the given coordinates.

    Widths are the least possible: d_model is the sum of the contents' sizes, d_head the largest rank among the heads.

    Args:
        task: gives relations, vocabulary and context length.
        circuit: coordinate id → value, see `imir_lens.ids`.
        n_layers: L.
        n_heads: heads per layer.
        other_heads: what the heads without a part in the circuit are: "zero", or "random" as a fresh model's.
        other_scale: size of random heads: entries are Gaussian with standard deviation `other_scale / sqrt(d_model)`;
            0.8 is TransformerLens' initialisation.
        noise: Gaussian noise added to every weight matrix, as a fraction of its Frobenius norm.
        rotate: turn the stream by a random orthogonal matrix, so that nothing is aligned with its axes.
        generator: source of randomness; None for one with seed 0.

    Returns:
        The model, in float32, with no biases but those that constants need.

    Raises:
        CoordinateError: when an id does not fit the task or the shape.
        OptionError: for an unknown `other_heads`, or a negative scale or noise.
    """
    if other_heads not in _OTHERS:
        raise OptionError(f"unknown other_heads {other_heads!r}; {did_you_mean(other_heads, _OTHERS)}")
    for name, size in (("other_scale", other_scale), ("noise", noise)):
        if size < 0:
            raise OptionError(f"{name} must not be negative: {name}={size}")
    generator = generator or torch.Generator().manual_seed(0)
    plan = draw_blueprint(task, circuit, n_layers=n_layers, n_heads=n_heads)
    heads = {Head(layer, index) for layer in range(n_layers) for index in range(n_heads)}
    spaces = _spaces(plan, generator if rotate else None)
    gains = _gains(plan)
    d_model = spaces[plan.contents[0]].shape[1]
    factors = {head: _Factored(plan, spaces, gains, head) for head in sorted(plan.heads)}
    d_head = max([1, *(rank for factored in factors.values() for rank in factored.ranks)])
    config = TransformerConfig(
        d_model=d_model,
        d_head=d_head,
        n_layers=n_layers,
        n_heads=n_heads,
        n_ctx=task.n_positions,
        d_vocab=task.d_vocab,
        attn_only=True,
        normalization_type=None,
    )
    model = ImirTransformer(config, generator=generator)
    weights = {name: torch.zeros(value.shape, dtype=torch.float64) for name, value in model.named_parameters()}
    weights["embed.W_E"] = spaces[plan.contents[0]]
    weights["pos_embed.W_pos"] = spaces[plan.contents[1]]
    weights["unembed.W_U"], weights["unembed.b_U"] = _readout(plan, spaces, gains)
    for head in sorted(heads):
        if head in factors:
            values = factors[head].padded(d_head)
        elif other_heads == "random":
            values = _random_head(d_model, d_head, other_scale / math.sqrt(d_model), generator)
        else:
            continue
        for name, value in values.items():
            weights[f"blocks.{head.layer}.attn.{name}"][head.index] = value
    for name, value in weights.items():
        if ".W_" in name:
            _add_noise(value, noise, heads=".attn." in name, generator=generator)
    model.load_state_dict({name: value.float() for name, value in weights.items()})
    return model


def plant_disentangled(
    task: Task,
    circuit: Mapping[str, float],
    *,
    n_layers: int,
    n_heads: int,
    stream: str = "concat",
) -> DisentangledTransformer:
    """Build a disentangled transformer with exactly the given coordinates, in one-hot contents that never overlap.

    There is no bias in it: a constant query reads the token embedding, whose entries sum to 1 at every position, and so
    does a constant readout. `q:const/k:v/b` becomes `a>b` for all query classes a at once.

    Raises:
        CoordinateError: when an id does not fit the task or the shape.
        OptionError: for an unknown stream.
    """
    plan = draw_blueprint(task, circuit, n_layers=n_layers, n_heads=n_heads)
    config = DisentangledConfig(
        d_vocab=task.d_vocab, n_ctx=task.n_positions, n_layers=n_layers, n_heads=n_heads, stream=stream, init_std=0.0
    )
    model = DisentangledTransformer(config)

    def place(content: Content) -> slice:
        start = config.start(content.path) + (0 if content.source == "tok" else task.d_vocab)
        return slice(start, start + plan.size(content))

    with torch.no_grad():
        for head, terms in plan.scores.items():
            for term in terms:
                rows, columns = place(term.query or plan.contents[0]), place(term.key)
                model.attention(head.layer).W_KQ[head.index, rows, columns] += term.matrix.float()
        for readout in plan.readouts:
            model.unembed.W_U[place(readout.content or plan.contents[0])] += readout.matrix.float()
    return model


class _Factored:
    """A head's merged matrices, cut into factors of the least width."""

    def __init__(
        self, plan: Blueprint, spaces: Mapping[Content, Tensor], gains: Mapping[Content, float], head: Head
    ) -> None:
        d_model = spaces[plan.contents[0]].shape[1]
        # One more row than d_model: what the constant query asks, which becomes b_Q.
        score = torch.zeros(d_model + 1, d_model, dtype=torch.float64)
        for term in plan.scores.get(head, []):
            asked = term.matrix @ spaces[term.key] / gains[term.key]
            if term.query is None:
                score[-1:] += asked
            else:
                score[:-1] += spaces[term.query].T @ asked / gains[term.query]
        moved = torch.zeros(d_model, d_model, dtype=torch.float64)
        for read, written in plan.copies(head):
            moved += gains[written] / gains[read] * spaces[read].T @ spaces[written]
        self.query, self.key = _halves(score)
        self.value, self.output = _halves(moved)
        self.ranks = (self.query.shape[1], self.value.shape[1])

    def padded(self, d_head: int) -> dict[str, Tensor]:
        """The head's weights; scores are divided by sqrt(d_head), which half of them makes up for."""
        wide = [
            torch.nn.functional.pad(half, (0, d_head - half.shape[1]))
            for half in (self.query, self.key, self.value, self.output)
        ]
        query, key = wide[0] * d_head**0.25, wide[1] * d_head**0.25
        return {"W_Q": query[:-1], "b_Q": query[-1], "W_K": key, "W_V": wide[2], "W_O": wide[3].T}


def _halves(matrix: Float[Tensor, "left right"]) -> tuple[Float[Tensor, "left rank"], Float[Tensor, "right rank"]]:
    """Factors A, B of the least width with `A Bᵀ = matrix`, and the same singular values."""
    left, size, right = torch.linalg.svd(matrix, full_matrices=False)
    rank = int((size > 1e-9 * size[0].clamp(min=1e-9)).sum())
    root = size[:rank].sqrt()
    return left[:, :rank] * root, right[:rank].T * root


def _spaces(plan: Blueprint, generator: torch.Generator | None) -> dict[Content, Tensor]:
    """Orthonormal rows for every content, [index, d_model]; turned together when there is a generator."""
    sizes = [plan.size(content) for content in plan.contents]
    basis = torch.eye(sum(sizes), dtype=torch.float64)
    if generator is not None:
        basis = torch.linalg.qr(torch.randn(basis.shape, generator=generator, dtype=torch.float64)).Q
    return dict(zip(plan.contents, basis.split(sizes), strict=True))


def _gains(plan: Blueprint) -> dict[Content, float]:
    """How strong each content is written; embeddings have strength 1."""
    gains = dict.fromkeys(plan.contents, 1.0)
    for readout in plan.readouts:
        if readout.content is not None and readout.content.path.heads:
            gains[readout.content] = max(gains[readout.content], math.sqrt(readout.matrix.abs().max().item()))
    return gains


def _readout(
    plan: Blueprint, spaces: Mapping[Content, Tensor], gains: Mapping[Content, float]
) -> tuple[Tensor, Tensor]:
    d_model = spaces[plan.contents[0]].shape[1]
    matrix = torch.zeros(d_model, plan.d_vocab, dtype=torch.float64)
    bias = torch.zeros(plan.d_vocab, dtype=torch.float64)
    for readout in plan.readouts:
        if readout.content is None:
            bias += readout.matrix[0]
        else:
            matrix += spaces[readout.content].T @ readout.matrix / gains[readout.content]
    return matrix, bias


def _random_head(d_model: int, d_head: int, std: float, generator: torch.Generator) -> dict[str, Tensor]:
    shapes = {"W_Q": (d_model, d_head), "W_K": (d_model, d_head), "W_V": (d_model, d_head), "W_O": (d_head, d_model)}
    return {name: std * torch.randn(shape, generator=generator, dtype=torch.float64) for name, shape in shapes.items()}


def _add_noise(weight: Tensor, fraction: float, *, heads: bool, generator: torch.Generator) -> None:
    """Add noise to each matrix in place: one matrix, or one a head."""
    if fraction == 0:
        return
    for matrix in weight if heads else [weight]:
        noise = torch.randn(matrix.shape, generator=generator, dtype=torch.float64)
        matrix += fraction * matrix.norm() / math.sqrt(matrix.numel()) * noise
