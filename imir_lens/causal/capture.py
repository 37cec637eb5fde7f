"""What trained heads do on episodes: which copy, and which attend by the posterior over parents.

Copyers are looked for by position alone, BMA heads by their attention to candidates. Both hold for the two layers of a
`CausalTransformer` and for every head of an ordinary transformer on the flattened sequence.
"""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from imir_lens.causal.attention_match import AttentionMatch, match_attention
from imir_lens.causal.flat_model import query_patterns
from imir_lens.causal.parent_attention import parent_attention
from imir_lens.causal.transformer import CausalTransformer
from imir_lens.hooking import attached, inference
from imir_lens.ids import Head
from imir_lens.lens_model import LensModel
from imir_lens.tasks.episodes import CausalTask, Episodes

COPYING = 0.5  # a copyer spends at least this much of its attention on one offset in the examples


@dataclass(frozen=True, eq=False)
class CopyerHead:
    """Where one head looks from the query's positions, on average over contexts.

    In an ordinary transformer x_h is predicted at the place of x_{h−1}. There the head that fetches the examples'
    counterpart of the *predicted* position looks at the *next* position of an example, one to the right of its own: at
    offset −1. Keys need the same position, offset 0.

    Attributes:
        head: which; copyers of a CausalTransformer are `L0H0`, `L0H1`, …
        kernel: attention to position h − o of an example at `[example, o + H − 1]`, as `w_H` counts offsets; the query
            itself comes last. Mean over the positions h that are read, where there is such a position.
        entropy: of the attention in nats, mean over contexts and positions that are read.
    """

    head: Head
    kernel: Float[Tensor, "example offset"]
    entropy: float

    @property
    def copy_mass(self) -> Float[Tensor, " example"]:
        """Attention to the same position of each example: `c_kl`."""
        return self.kernel[:-1, self._same]

    @property
    def next_mass(self) -> Float[Tensor, " example"]:
        """Attention to the next position of each example."""
        return self.kernel[:-1, self._same - 1]

    @property
    def label(self) -> str | None:
        """`copyer` or `next-copyer` if the mass over all examples reaches `COPYING`, else None."""
        same, after = float(self.copy_mass.sum()), float(self.next_mass.sum())
        if max(same, after) < COPYING:
            return None
        return "copyer" if same >= after else "next-copyer"

    @property
    def example(self) -> int | None:
        """The example that gets more than half of what a copyer copies; None for mixtures, and without a label."""
        if self.label is None:
            return None
        mass = self.copy_mass if self.label == "copyer" else self.next_mass
        best = int(mass.argmax())
        return best if float(mass[best]) > float(mass.sum()) / 2 else None

    @property
    def _same(self) -> int:
        return self.kernel.shape[1] // 2


@dataclass(frozen=True, eq=False)
class BmaHeadMatch:
    """How close one head comes to the posterior over parents.

    Attributes:
        head: which; `L1H0` in a CausalTransformer.
        candidate_mass: attention to candidates, before it is scaled to sum to 1 over them; mean over contexts and asked
            positions. In a CausalTransformer it is 1.
        match: the scaled attention beside the posterior.
    """

    head: Head
    candidate_mass: float
    match: AttentionMatch

    @property
    def score(self) -> float:
        """The share of the information on the parent that its attention conveys: `match.information_share`."""
        return self.match.information_share


def capture_copyers(model: nn.Module | LensModel, task: CausalTask, episodes: Episodes) -> tuple[CopyerHead, ...]:
    """Return where each head looks: the copyers of a CausalTransformer, or all heads of an ordinary transformer.

    Args:
        model: a CausalTransformer, or an ordinary transformer (see `causal.flat_model`).
        task: whose episodes they are.
        episodes: what to run on.

    Raises:
        ImirError: when model, task and episodes do not fit.
    """
    asked, chosen = episodes.asked, episodes.candidates.any(dim=0)
    if isinstance(model, CausalTransformer):
        return _summarise(0, _copyer_patterns(model, episodes), asked | chosen)
    # Position h is read where it predicts h + 1, or is a candidate.
    predicts = torch.nn.functional.pad(asked[1:], (0, 1))
    layers = enumerate(query_patterns(model, task, episodes))
    return tuple(head for layer, patterns in layers for head in _summarise(layer, patterns, predicts | chosen))


def capture_bma(
    model: nn.Module | LensModel, task: CausalTask, episodes: Episodes, *, bins: int = 10
) -> tuple[BmaHeadMatch, ...]:
    """Return how close each head's attention to candidates comes to the posterior over parents.

    Args:
        model: a CausalTransformer, a LagTransformer, or an ordinary transformer (see `causal.parent_attention`).
        task: whose posterior it is.
        episodes: what to run on.
        bins: of the calibration.

    Raises:
        ImirError: when model, task and episodes do not fit.
    """
    posterior = task.posterior(episodes)
    return tuple(
        BmaHeadMatch(head, mass, match_attention(weights, posterior, episodes, bins=bins))
        for head, weights, mass in parent_attention(model, task, episodes)
    )


def _copyer_patterns(
    model: CausalTransformer, episodes: Episodes
) -> Float[Tensor, "context head position example key"]:
    """Return the first layer's attention, the same in all contexts, for one; the query gets none."""
    maps: dict[str, Tensor] = {}

    def keep(tensor: Tensor, hook: Any) -> None:
        maps[hook.name] = tensor.detach().to(episodes.values.device, copy=True)

    names = ("copyers.hook_examples", "copyers.hook_positions")
    with inference(model), attached(model, [(name, keep) for name in names]):
        model(episodes[:1])
    over_examples, over_positions = (maps[name] for name in names)
    product = torch.einsum("kl,khp->khlp", over_examples, over_positions)
    return torch.nn.functional.pad(product, (0, 0, 0, 1)).unsqueeze(0)


def _summarise(
    layer: int, patterns: Float[Tensor, "context head position example key"], read: Bool[Tensor, " position"]
) -> tuple[CopyerHead, ...]:
    rows = patterns[:, :, read].double()
    entropy = -torch.xlogy(rows, rows).sum(dim=(3, 4)).mean(dim=(0, 2))
    nodes = patterns.shape[4]
    place = torch.arange(nodes, device=patterns.device)
    offset = (place[read].unsqueeze(1) - place + nodes - 1).flatten()  # of every row and key
    mean = rows.mean(dim=0).transpose(1, 2).flatten(2)  # [head example (row key)]
    total = mean.new_zeros(*mean.shape[:2], 2 * nodes - 1).index_add(2, offset, mean)
    kernel = total / offset.bincount(minlength=2 * nodes - 1).clamp(min=1)
    return tuple(CopyerHead(Head(layer, index), kernel[index], float(entropy[index])) for index in range(len(kernel)))
