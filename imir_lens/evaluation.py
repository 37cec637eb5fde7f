"""Loss and accuracy on a task's queries."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from imir_lens.tasks.base import Batch, Task

# Tokens this close to the most likely one (in nats) are tied with it. Taking a logit of 100 away leaves float32
# rounding behind, largest where the logit was: else an ablation that leaves nothing could still seem to know.
_TIED = 1e-3


@dataclass(frozen=True)
class Score:
    """Mean cross-entropy in nats, and the share of queries whose most likely token is the answer (ties share it)."""

    loss: float
    accuracy: float

    def as_dict(self) -> dict[str, float]:
        """Return the two numbers by name."""
        return {"loss": self.loss, "accuracy": self.accuracy}


def cross_entropy(logits: Float[Tensor, "context query vocab"], batch: Batch) -> Float[Tensor, ""]:
    """Mean of `−log softmax(logits)[target]` over the queries that count (differentiable)."""
    log_p = logits.log_softmax(-1).gather(2, batch.targets.unsqueeze(2)).squeeze(2)
    return -log_p[batch.mask].mean()


def score_logits(logits: Float[Tensor, "context query vocab"], batch: Batch) -> Score:
    """Score logits at the queries."""
    with torch.no_grad():
        best = logits >= logits.amax(-1, keepdim=True) - _TIED
        hit = best.gather(2, batch.targets.unsqueeze(2)).squeeze(2).double() / best.sum(-1)
        # `+ 0.0` turns the −0.0 of a perfect predictor into 0.0.
        return Score(float(cross_entropy(logits, batch)) + 0.0, float(hit[batch.mask].mean()))


def score_probabilities(probabilities: Float[Tensor, "context query vocab"], batch: Batch) -> Score:
    """Score a predictive distribution; impossible answers are held at the smallest positive number."""
    return score_logits(probabilities.clamp(min=torch.finfo(probabilities.dtype).tiny).log(), batch)


def bayes_score(task: Task, batch: Batch) -> Score:
    """Score the optimal predictor."""
    return score_probabilities(task.bayes(batch), batch)


def chance_score(task: Task, batch: Batch) -> Score:
    """Score the best prediction that ignores the context."""
    law = task.chance().to(batch.tokens.device)
    return score_probabilities(law.expand(*batch.targets.shape, -1), batch)


def at_queries(logits: Float[Tensor, "context position vocab"], batch: Batch) -> Float[Tensor, "context query vocab"]:
    """Pick the rows of the queries."""
    return logits.gather(1, batch.queries.unsqueeze(2).expand(-1, -1, logits.shape[2]))
