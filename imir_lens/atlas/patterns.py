"""What heads attend to on repeated random tokens: `t_1 … t_T t_1 … t_T`, drawn from the whole vocabulary.

At the second showing of a token an induction head attends to what followed the first, a duplicate-token head to the
first itself, a previous-token head one back, and a sink to the first position.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from imir_lens.errors import OptionError
from imir_lens.lens_model import LensModel

CONTEXTS = 8
LENGTH = 64
_LEAST = 4


@dataclass(frozen=True, eq=False)
class PatternMasses:
    """Mean attention of every head, over contexts and queries.

    Attributes:
        induction: from the second showing of a token to what followed the first.
        previous_token: to the position before.
        duplicate_token: from the second showing to the first.
        sink: to the first position, from the fifth on.
        loss: mean loss at the tokens of the first showing and of the second, in nats.
    """

    induction: Float[Tensor, "layer head"]
    previous_token: Float[Tensor, "layer head"]
    duplicate_token: Float[Tensor, "layer head"]
    sink: Float[Tensor, "layer head"]
    loss: tuple[float, float]

    def of(self, layer: int, head: int) -> dict[str, float]:
        """Return a head's masses by name."""
        names = ("previous_token", "induction", "duplicate_token", "sink")
        return {name: float(getattr(self, name)[layer, head]) for name in names}

    @property
    def gain(self) -> float:
        """How much the second showing is easier than the first."""
        return self.loss[0] - self.loss[1]


def repeated_tokens(
    lens: LensModel, *, contexts: int = CONTEXTS, length: int = LENGTH, seed: int = 0
) -> Int[Tensor, "context position"]:
    """Draw contexts of random tokens, each shown twice in the same order.

    Args:
        lens: gives vocabulary and context length; `length` is cut to half of the latter.
        contexts: how many.
        length: tokens before the repetition.
        seed: of the draw.

    Raises:
        OptionError: when there is no room for a repetition.
    """
    length = min(length, lens.weights.n_ctx // 2)
    if length < _LEAST or contexts < 1:
        raise OptionError(
            f"repeated tokens need contexts >= 1 and a context of {2 * _LEAST} positions: found contexts={contexts}, "
            f"length={length}, n_ctx={lens.weights.n_ctx}"
        )
    generator = torch.Generator().manual_seed(seed)
    once = torch.randint(lens.weights.d_vocab, (contexts, length), generator=generator)
    return torch.cat((once, once), 1).to(lens.device)


def repetition_losses(
    logits: Float[Tensor, "context position vocab"], tokens: Int[Tensor, "context position"]
) -> tuple[float, float]:
    """Return the mean loss at tokens of the first showing (but the first) and of the second (but its first)."""
    half = tokens.shape[1] // 2
    losses = torch.nn.functional.cross_entropy(logits[:, :-1].transpose(1, 2), tokens[:, 1:], reduction="none")
    return float(losses[:, : half - 1].double().mean()), float(losses[:, half:].double().mean())


def pattern_masses(
    lens: LensModel,
    tokens: Int[Tensor, "context position"],
    *,
    progress: Callable[[str, float], None] = lambda step, done: None,
) -> PatternMasses:
    """Measure every head's attention on repeated tokens; one context at a time, no pattern is kept.

    Args:
        lens: the model.
        tokens: as `repeated_tokens` draws them.
        progress: told the step and the share of it that is done.
    """
    n_layers, n_heads = lens.weights.n_layers, lens.weights.n_heads
    names = ("induction", "previous", "duplicate", "sink")
    total = {name: torch.zeros(n_layers, n_heads, dtype=torch.float64) for name in names}
    length = tokens.shape[1]
    second = torch.arange(length // 2 + 1, length)
    anywhere, late = torch.arange(1, length), torch.arange(4, length)
    first_loss = second_loss = 0.0

    def measure(layer: int) -> Callable[..., None]:
        def hook(pattern: Tensor, hook: Any) -> None:
            at = pattern.detach().double().cpu()[0]
            total["induction"][layer] += at[:, second, second - length // 2 + 1].mean(1)
            total["previous"][layer] += at[:, anywhere, anywhere - 1].mean(1)
            total["duplicate"][layer] += at[:, second, second - length // 2].mean(1)
            total["sink"][layer] += at[:, late, 0].mean(1)

        return hook

    hooks = [(f"blocks.{layer}.attn.hook_pattern", measure(layer)) for layer in range(n_layers)]
    for k, context in enumerate(tokens):
        first, later = repetition_losses(lens.run_with_hooks(context.unsqueeze(0), hooks), context.unsqueeze(0))
        first_loss, second_loss = first_loss + first, second_loss + later
        progress("patterns", (k + 1) / len(tokens))
    count = len(tokens)
    means = [total[name].float() / count for name in names]
    return PatternMasses(means[0], means[1], means[2], means[3], (first_loss / count, second_loss / count))
