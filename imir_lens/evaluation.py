"""Loss and accuracy on a task's queries."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from imir_lens.tasks.base import Batch, Task


@dataclass(frozen=True)
class Score:
    """Mean cross-entropy in nats, and the share of queries whose most likely token is the answer."""

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
        right = (logits.argmax(-1) == batch.targets)[batch.mask]
        # `+ 0.0` turns the −0.0 of a perfect predictor into 0.0.
        return Score(float(cross_entropy(logits, batch)) + 0.0, float(right.double().mean()))


def score_probabilities(probabilities: Float[Tensor, "context query vocab"], batch: Batch) -> Score:
    """Score a predictive distribution; impossible answers are held at the smallest positive number."""
    return score_logits(probabilities.clamp(min=torch.finfo(probabilities.dtype).tiny).log(), batch)


def bayes_score(task: Task, batch: Batch) -> Score:
    """Score the optimal predictor."""
    return score_probabilities(task.bayes(batch), batch)


def chance_score(task: Task, batch: Batch) -> Score:
    """Score the best prediction that ignores the context; ties in its argmax count as their share."""
    law = task.chance().to(batch.tokens.device)
    score = score_probabilities(law.expand(*batch.targets.shape, -1), batch)
    best = (law == law.max()).nonzero().squeeze(1)
    hits = torch.isin(batch.targets, best)[batch.mask].double().mean() / len(best)
    return Score(score.loss, float(hits))


def at_queries(logits: Float[Tensor, "context position vocab"], batch: Batch) -> Float[Tensor, "context query vocab"]:
    """Pick the rows of the queries."""
    return logits.gather(1, batch.queries.unsqueeze(2).expand(-1, -1, logits.shape[2]))
