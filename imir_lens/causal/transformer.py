"""The causal transformer: copyer heads over the examples, and a head inside the query that picks the parent.

Two layers, as few as the task can be solved with. The first compares nothing: it brings the same position of each
example to every position of the query. The second compares what was brought to two positions, example by example, and
adds the comparisons up; its attention can be the posterior over the parent (see `imir_lens.causal.construction`).
"""

from typing import Any

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from imir_lens.causal.bma_head import BmaHead
from imir_lens.causal.config import CausalConfig
from imir_lens.causal.copyers import Copyers, CopyMaps
from imir_lens.compat import HookedRootModule, HookPoint
from imir_lens.errors import OptionError
from imir_lens.tasks.episodes import Episodes, earlier_positions

__all__ = ["CausalConfig", "CausalTransformer", "CopyMaps", "initialise"]


class CausalTransformer(HookedRootModule):
    """Predicts each position of the query from its candidates for a parent.

    Hooks, all of which act when edited: `copyers.hook_examples` [head example], `copyers.hook_positions`
    [head query key], `copyers.hook_out` [context position head d], `bma.hook_scores` and `bma.hook_pattern`
    [context query key], `hook_readout` [context position out]. Examples are in the episode's order, oldest first.

    A new model knows nothing: all weights are 0, and it predicts alike from all candidates. See `initialise`.
    """

    def __init__(self, config: CausalConfig) -> None:
        super().__init__()
        self.cfg: Any = config
        self.copyers = Copyers(config.n_heads, config.n_examples, config.n_positions)
        self.bma = BmaHead(config.d_context, config.d_input)
        self.hook_readout = HookPoint()
        self.setup()

    def forward(
        self,
        episodes: Episodes | Shaped[Tensor, "context example position *dim"],
        candidates: Bool[Tensor, "position position"] | None = None,
    ) -> Float[Tensor, "context position out"]:
        """Return logits over tokens, or predicted vectors, at every position of the query.

        Args:
            episodes: episodes, or their values: the last example is the query.
            candidates: where each position may attend. Default: the episodes' own, or all earlier positions.

        Raises:
            OptionError: when the inputs do not have the model's positions or tokens.
        """
        values = episodes.values if isinstance(episodes, Episodes) else episodes
        if candidates is None:
            candidates = episodes.candidates if isinstance(episodes, Episodes) else earlier_positions(values.shape[2])
        x = self.embed(values)
        v = self.copyers(x[:, :-1])
        return self.hook_readout(self.bma(v.flatten(2), x[:, -1], candidates.to(x.device)))

    def maps(self, n_examples: int | None = None, n_positions: int | None = None) -> CopyMaps:
        """Return where the copyers look, for the model's own numbers of examples and positions by default."""
        cfg = self.cfg
        return self.copyers.maps(
            cfg.n_examples if n_examples is None else n_examples,
            cfg.n_positions if n_positions is None else n_positions,
        )

    def embed(self, values: Shaped[Tensor, "..."]) -> Float[Tensor, "... d_input"]:
        """Return tokens as one-hot rows, and vectors as they are, in the model's type.

        Raises:
            OptionError: for tokens outside d, vectors of another dimension, or one in place of the other.
        """
        d, like = self.cfg.d_input, self.bma.W_OV
        if self.cfg.continuous:
            if not values.is_floating_point() or values.shape[-1] != d:
                raise OptionError(f"the model expects vectors of {d} numbers: found {_described(values)}")
            return values.to(like)
        if values.is_floating_point():
            raise OptionError(f"the model expects tokens 0 … {d - 1}: found {_described(values)}")
        if values.numel() and not (int(values.min()) >= 0 and int(values.max()) < d):
            raise OptionError(
                f"the model has tokens 0 … {d - 1}: found tokens from {int(values.min())} to {int(values.max())}"
            )
        table = torch.eye(d, dtype=like.dtype, device=like.device)
        return table[values.to(like.device)]


def initialise(
    model: CausalTransformer,
    generator: torch.Generator,
    *,
    same_position: float = 3.0,
    own_example: float = 1.0,
    weight_std: float = 0.02,
) -> None:
    """Set the weights that training starts from.

    Heads lean towards the same position from the start, as that is where the task's structure shows, and each towards
    an example of its own, drawn at random. Without the second, two heads often settle on one example and leave another
    without any. Either may be 0, and is then left to training.

    Args:
        model: whose weights are replaced.
        generator: of the random numbers, on the CPU.
        same_position: `w_H` at offset 0; it is 0 elsewhere.
        own_example: what is added to `w_L` at a head's own example; heads beyond L share.
        weight_std: standard deviation of the noise in `w_L`, `W_KQ` and `W_OV`.
    """
    copyers, bma = model.copyers, model.bma
    heads, examples = copyers.w_L.shape
    own = torch.randperm(examples, generator=generator).repeat(-(-heads // examples))[:heads]
    with torch.no_grad():
        for weight in (copyers.w_L, bma.W_KQ, bma.W_OV):
            weight.copy_(torch.randn(weight.shape, generator=generator, dtype=torch.float64) * weight_std)
        copyers.w_L[torch.arange(heads), own.to(copyers.w_L.device)] += own_example
        copyers.w_H.zero_()
        copyers.w_H[:, copyers.w_H.shape[1] // 2] = same_position


def _described(values: Tensor) -> str:
    if values.is_floating_point():
        return f"vectors of {values.shape[-1]} numbers"
    return f"tokens of type {str(values.dtype).removeprefix('torch.')}"
