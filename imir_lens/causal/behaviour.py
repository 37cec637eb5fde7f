"""Tier 1 of a verification: how well a model predicts, and how close one of its heads comes to the posterior."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from imir_lens.causal.attention_match import match_attention
from imir_lens.causal.capture import BmaHeadMatch
from imir_lens.causal.parent_attention import ParentAttention, parent_attention
from imir_lens.causal.scoring import output_loss
from imir_lens.causal.transformer import CausalTransformer
from imir_lens.hooking import inference
from imir_lens.ids import Head
from imir_lens.tasks.episodes import CausalTask, Episodes, parent_loss, prediction_loss, uniform_weights
from imir_lens.tasks.token_episodes import TokenEpisodes

_NUMBERS = 2**25  # of activations held at a time
_LEAST_GAIN = 1e-3  # nats: with less, examples tell nothing that could be followed


@dataclass(frozen=True)
class Losses:
    """Prediction losses on the query, in nats (vectors: mean squared errors).

    Attributes:
        model: the model's.
        bma: of Bayesian model averaging, the least that can be expected.
        known_graph: of one who knows the parents.
        uniform: of one who knows the kernel and takes all candidates alike.
    """

    model: float
    bma: float
    known_graph: float
    uniform: float

    @property
    def share(self) -> float | None:
        """`(uniform − model) / (uniform − bma)`: 1 like BMA, 0 like one who learned nothing; None where both agree."""
        gain = self.uniform - self.bma
        return (self.uniform - self.model) / gain if gain > _LEAST_GAIN else None


@dataclass(frozen=True)
class CurvePoint:
    """L_pa with one number of examples, in nats.

    Attributes:
        examples: L', the examples before the query.
        model: of the reader's attention.
        bma: of the posterior from all L'.
        bma_seen: of the posterior from the nearest L, all that a model built for L can see.
        uniform: of all candidates alike.
        kl: `KL(posterior ‖ attention)`.
    """

    examples: int
    model: float
    bma: float
    bma_seen: float
    uniform: float
    kl: float


def compare_losses(model: nn.Module, task: CausalTask, episodes: Episodes) -> Losses:
    """Return the model's prediction loss beside what can be had with more and with less knowledge."""
    laws = (task.bma(episodes), task.known_graph(episodes), task.uniform(episodes))
    return Losses(model_loss(model, task, episodes), *(float(prediction_loss(law, episodes)) for law in laws))


def model_loss(model: nn.Module, task: CausalTask, episodes: Episodes) -> float:
    """Return a model's prediction loss at the asked positions of the query."""
    total = 0.0
    device = next(model.parameters()).device
    for some in episode_chunks(model, episodes):
        with inference(model):
            if isinstance(model, CausalTransformer):
                loss = output_loss(model(some.to(device)), some.to(device))
            else:
                assert isinstance(task, TokenEpisodes)
                batch = task.flatten(some).to(device)
                rows = torch.arange(len(some), device=device).unsqueeze(1)
                logits = model(batch.tokens)[rows, batch.queries]
                loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), batch.targets.flatten())
        total += float(loss) * len(some)
    return total / len(episodes)


def episode_chunks(model: nn.Module, episodes: Episodes) -> list[Episodes]:
    """Return the episodes in parts that a model can run on without much memory."""
    nodes, values = episodes.n_nodes, episodes.values.shape[1] * episodes.n_nodes
    if isinstance(model, CausalTransformer):
        each = nodes * (3 * model.cfg.d_context + 2 * nodes) + values * model.cfg.d_input
    else:
        cfg: Any = model.cfg
        each = int(cfg.n_layers) * int(cfg.n_heads) * values * (values + nodes)
    step = max(1, _NUMBERS // each)
    return [episodes[start : start + step] for start in range(0, len(episodes), step)]


def head_attention(model: nn.Module, task: CausalTask, episodes: Episodes) -> tuple[ParentAttention, ...]:
    """Return every head's attention to candidates, as `parent_attention`, part by part."""
    parts = episode_chunks(model, episodes)
    found = [parent_attention(model, task, part) for part in parts]
    joined = []
    for pieces in zip(*found, strict=True):
        mass = sum(piece.candidate_mass * len(part) for piece, part in zip(pieces, parts, strict=True))
        weights = torch.cat([piece.weights for piece in pieces])
        joined.append(ParentAttention(pieces[0].head, weights, float(mass) / len(episodes)))
    return tuple(joined)


def match_heads(
    found: Sequence[ParentAttention], posterior: Float[Tensor, "context position candidate"], episodes: Episodes
) -> tuple[BmaHeadMatch, ...]:
    """Compare each head's attention with the posterior."""
    return tuple(
        BmaHeadMatch(head, mass, match_attention(weights, posterior, episodes)) for head, weights, mass in found
    )


def nearest_to_posterior(matches: Sequence[BmaHeadMatch]) -> Head:
    """Return the head of the least KL, among those above layer 0 where there are any: only these can read copyers."""
    above = [found for found in matches if found.head.layer > 0]
    return min(above or matches, key=lambda found: found.match.kl).head


def kl_share(kl: float, uniform_kl: float) -> float | None:
    """Return `1 − KL(posterior ‖ attention) / KL(posterior ‖ uniform)`; None where the posterior is uniform.

    The share of the information on the parent that attention conveys, in expectation over parents given the examples.
    """
    return 1 - kl / uniform_kl if uniform_kl > _LEAST_GAIN else None


def follows_swaps(model: nn.Module, task: CausalTask, episodes: Episodes, reader: Head) -> float | None:
    """Return how far attention follows the posterior when half of the examples are exchanged for another context's.

    The older half is taken from the next context, whose graph is another one; then, instead, the newer half. The
    posterior moves from q to q', and attention a' has to move along: `1 − Σ KL(q' ‖ a') / Σ KL(q' ‖ q)`. It is 1 where
    a' = q', and 0 where the attention stays at q. Attention that comes from the query or from memory cannot do it.

    Returns:
        The share, or None where the posterior does not move.
    """
    count = episodes.n_examples
    half = count // 2
    before, missed, moved = task.posterior(episodes), 0.0, 0.0
    for places in (slice(0, half), slice(half, count)):
        if places.start == places.stop:
            continue
        values = episodes.values.clone()
        values[:, places] = episodes.values[:, places].roll(1, 0)
        swapped = Episodes(values, episodes.parents, episodes.candidates)
        after = task.posterior(swapped)
        weights = next(found.weights for found in head_attention(model, task, swapped) if found.head == reader)
        missed += match_attention(weights, after, swapped).kl
        moved += match_attention(before, after, swapped).kl
    return 1 - missed / moved if moved > _LEAST_GAIN else None


def examples_curve(
    model: nn.Module, task: CausalTask, counts: Sequence[int], *, contexts: int, seed: int, reader: Head
) -> tuple[CurvePoint, ...]:
    """Return L_pa over the number of examples L', on the same graphs' law but new contexts for each."""
    points = []
    for count in counts:
        episodes = task.sample_episodes(contexts, torch.Generator().manual_seed(seed), n_examples=count)
        weights = next(found.weights for found in head_attention(model, task, episodes) if found.head == reader)
        posterior = task.posterior(episodes)
        most = model.cfg.n_examples if isinstance(model, CausalTransformer) else count
        seen = episodes.keep_examples(torch.arange(max(0, count - most), count))
        match = match_attention(weights, posterior, episodes)
        points.append(
            CurvePoint(
                examples=count,
                model=match.parent_loss,
                bma=match.bma_parent_loss,
                bma_seen=float(parent_loss(task.posterior(seen), seen)),
                uniform=match.uniform_parent_loss,
                kl=match.kl,
            )
        )
    return tuple(points)


def uniform_kl(posterior: Float[Tensor, "context position candidate"], episodes: Episodes) -> float:
    """Return `KL(posterior ‖ uniform)`: what the examples tell about the parent, in nats."""
    return match_attention(uniform_weights(episodes), posterior, episodes).kl


def spread(count: int, most: int) -> list[int]:
    """Return at most so many of 0 … count − 1, evenly spaced.

    >>> spread(3, 8), spread(10, 4)
    ([0, 1, 2], [0, 3, 6, 9])
    """
    if count <= most:
        return list(range(count))
    return sorted({round(k * (count - 1) / (most - 1)) for k in range(most)})
