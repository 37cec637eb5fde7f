"""Where heads look for a parent: their attention from each asked position of the query to its candidates.

A `CausalTransformer` or `LagTransformer` attends from position h itself. An ordinary transformer predicts x_h at the
place before it, so there the row of h is that of position h−1 of the query, and the keys are the candidates h' in the
query, which stand at or before h−1.

A key that stands one place later than its candidate, as in an induction head whose keys hold their predecessor, is not
looked for: candidate h−1 would have its key at h, which the row cannot see, so no such head can be the posterior.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from imir_lens.causal.flat_model import query_patterns
from imir_lens.causal.lag_transformer import LagTransformer
from imir_lens.causal.transformer import CausalTransformer
from imir_lens.hooking import Hook, attached, inference
from imir_lens.ids import Head
from imir_lens.lens_model import LensModel
from imir_lens.tasks.episodes import CausalTask, Episodes

_BMA_HEAD = Head(1, 0)  # the second layer's only head


class ParentAttention(NamedTuple):
    """One head's attention to candidates.

    Attributes:
        head: which; `L1H0` in a CausalTransformer or LagTransformer.
        weights: restricted to candidates and scaled to sum to 1 over them. A row without any mass there is uniform.
        candidate_mass: the mass on candidates before that, mean over contexts and asked positions.
    """

    head: Head
    weights: Float[Tensor, "context position candidate"]
    candidate_mass: float


def parent_attention(
    model: nn.Module | LensModel,
    task: CausalTask,
    episodes: Episodes,
    edits: Sequence[tuple[str, Hook]] = (),
) -> tuple[ParentAttention, ...]:
    """Return the attention to candidates of every head that could be looking for parents.

    Args:
        model: a CausalTransformer, a LagTransformer or an ordinary transformer.
        task: whose episodes they are.
        episodes: what to run on.
        edits: hooks that act in these runs.

    Raises:
        ImirError: when model, task and episodes do not fit; see `query_patterns` and `CausalTransformer.forward`.
    """
    if isinstance(model, CausalTransformer | LagTransformer):
        return (_restrict(_BMA_HEAD, _bma_pattern(model, episodes, edits), episodes),)
    found = []
    for layer, patterns in enumerate(query_patterns(model, task, episodes, edits)):
        within_query = patterns[:, :, :-1, -1]  # rows h−1, for h ≥ 1
        rows = torch.nn.functional.pad(within_query, (0, 0, 1, 0))
        found += [_restrict(Head(layer, index), row, episodes) for index, row in enumerate(rows.unbind(1))]
    return tuple(found)


def _bma_pattern(
    model: nn.Module, episodes: Episodes, edits: Sequence[tuple[str, Hook]]
) -> Float[Tensor, "context position candidate"]:
    kept: list[Tensor] = []

    def keep(pattern: Tensor, hook: Any) -> None:
        kept.append(pattern.detach().to(episodes.values.device, copy=True))

    with inference(model), attached(model, [*edits, ("bma.hook_pattern", keep)]):
        model(episodes)
    return kept[0]


def _restrict(head: Head, pattern: Float[Tensor, "context position candidate"], episodes: Episodes) -> ParentAttention:
    candidates: Bool[Tensor, "position candidate"] = episodes.candidates
    on_candidates = pattern * candidates
    mass = on_candidates.sum(dim=2, keepdim=True)
    even = candidates / candidates.sum(dim=1, keepdim=True).clamp(min=1)
    tiny = torch.finfo(pattern.dtype).tiny
    weights = torch.where(mass > tiny, on_candidates / mass.clamp(min=tiny), even.to(pattern))
    return ParentAttention(head, weights, float(mass[:, episodes.asked].mean()))
