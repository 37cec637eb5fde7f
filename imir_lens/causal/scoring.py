"""How well predictions and attention do on episodes, beside Bayesian model averaging."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from imir_lens.causal.transformer import CausalTransformer
from imir_lens.tasks.episodes import CausalTask, Episodes, parent_loss, prediction_loss, uniform_weights


class CausalScore(NamedTuple):
    """Losses on episodes.

    Attributes:
        loss: cross-entropy at asked positions in nats, or the mean squared error for vectors.
        parent_loss: L_pa, the cross-entropy of the attention to the true parent.
    """

    loss: float
    parent_loss: float


def output_loss(outputs: Float[Tensor, "context position out"], episodes: Episodes) -> Float[Tensor, ""]:
    """Return the loss of a model's outputs: of logits over tokens the cross-entropy, of vectors the squared error.

    The mean is over contexts and asked positions, as in `tasks.episodes.prediction_loss`.
    """
    if episodes.query.is_floating_point():
        return prediction_loss(outputs, episodes)
    asked = episodes.asked
    return torch.nn.functional.cross_entropy(outputs[:, asked].flatten(0, 1), episodes.query[:, asked].flatten())


def attention_to_parents(model: CausalTransformer, episodes: Episodes) -> tuple[Tensor, Tensor]:
    """Return outputs `[context position out]` and the second layer's attention `[context query key]`."""
    with torch.no_grad():
        outputs, cache = model.run_with_cache(episodes, names_filter="bma.hook_pattern")
    return outputs, cache["bma.hook_pattern"]


def score_model(model: CausalTransformer, episodes: Episodes) -> CausalScore:
    """Return a model's losses."""
    outputs, pattern = attention_to_parents(model, episodes)
    return CausalScore(float(output_loss(outputs, episodes)), float(parent_loss(pattern, episodes)))


def score_bma(task: CausalTask, episodes: Episodes) -> CausalScore:
    """Return the losses of one who knows the kernel and infers the graph exactly."""
    return score_weights(task, task.posterior(episodes), episodes)


def score_uniform(task: CausalTask, episodes: Episodes) -> CausalScore:
    """Return the losses of one who knows the kernel and takes all candidates alike."""
    return score_weights(task, uniform_weights(episodes), episodes)


def score_weights(
    task: CausalTask, weights: Float[Tensor, "context position position"], episodes: Episodes
) -> CausalScore:
    """Return the losses of one who knows the kernel and trusts parents by these weights."""
    predicted = task.predict(weights, episodes)
    return CausalScore(float(prediction_loss(predicted, episodes)), float(parent_loss(weights, episodes)))
