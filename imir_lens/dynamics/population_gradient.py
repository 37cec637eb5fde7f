"""The gradient of the mean loss over weighted contexts: over all of them, the population's.

The loss is the cross-entropy at the queries. A disentangled transformer's parameters are its merged matrices `W_KQ` and
`W_U`; for an ordinary model see `merged_gradient`.
"""

from copy import deepcopy
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from imir_lens.dynamics.exact_contexts import WeightedContexts
from imir_lens.errors import OptionError
from imir_lens.evaluation import at_queries
from imir_lens.models.disentangled import DisentangledTransformer

_CHUNK_NUMBERS = 20_000_000  # numbers in the scores and the stream of the contexts that are run at once


def in_double(model: DisentangledTransformer) -> DisentangledTransformer:
    """Return a copy in float64 whose centred tables are centred to float64's precision too."""
    copy = deepcopy(model).double()
    if copy.cfg.embedding == "centred":
        for table, start in ((copy.embed.W_E, 0), (copy.pos_embed.W_pos, copy.cfg.d_vocab)):
            n = len(table)
            table[:, start : start + n] = torch.eye(n, dtype=table.dtype) - 1 / n
    return copy


def weighted_loss(logits: Float[Tensor, "context query vocab"], contexts: WeightedContexts) -> Float[Tensor, ""]:
    """Return `Σ_context w · mean over its queries of −log p(target)`."""
    batch = contexts.batch
    log_p = logits.log_softmax(-1).gather(2, batch.targets.unsqueeze(2)).squeeze(2)
    per_context = -(log_p * batch.mask).sum(1) / batch.mask.sum(1)
    return (contexts.weights.to(per_context) * per_context).sum()


def population_gradient(model: nn.Module, contexts: WeightedContexts) -> dict[str, Tensor]:
    """Return the gradient of the weighted loss in the model's parameters; `zero_grad` is left as it was found.

    Args:
        model: gives logits at all positions.
        contexts: taken in chunks that fit in memory.

    Raises:
        OptionError: without contexts.
    """
    if not len(contexts):
        raise OptionError("expected at least one context to take the gradient on, found none")
    parameters = dict(model.named_parameters())
    total = {name: torch.zeros_like(p) for name, p in parameters.items()}
    for part in in_chunks(contexts, numbers_a_context(model, contexts.batch.tokens.shape[1])):
        loss = weighted_loss(at_queries(model(part.batch.tokens), part.batch), part)
        for name, gradient in zip(total, torch.autograd.grad(loss, list(parameters.values())), strict=True):
            total[name] += gradient
    return total


def in_chunks(contexts: WeightedContexts, numbers: int) -> list[WeightedContexts]:
    """Split contexts so that those run at once take a bounded memory."""
    size = max(1, _CHUNK_NUMBERS // numbers)
    return [
        WeightedContexts(contexts.batch[start : start + size], contexts.weights[start : start + size])
        for start in range(0, len(contexts), size)
    ]


def numbers_a_context(model: nn.Module, length: int) -> int:
    """Return about how many numbers one context takes in a forward and backward pass."""
    cfg: Any = model.cfg
    return 4 * length * (int(cfg.d_model) + cfg.n_layers * cfg.n_heads * length) + length * int(cfg.d_vocab)
