"""Contexts to detect on, each beside a corrupted one.

The corrupted context is another context of the task with another answer ("resample ablation", Conmy et al. 2023). It
differs in every token, so that each edge that carries tokens is told apart: with one changed label, say, nothing
differs in what a previous-token head brings to that label, and no patching could find the head.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from imir_lens.tasks.base import Batch, Task


@dataclass(frozen=True)
class Contexts:
    """Clean contexts and their corrupted partners.

    Attributes:
        clean: what every detector works on.
        corrupt: tokens of the partners.
        wrong: the partners' answers, at each query.
    """

    clean: Batch
    corrupt: Int[Tensor, "context position"]
    wrong: Int[Tensor, "context query"]

    @classmethod
    def draw(cls, task: Task, count: int, generator: torch.Generator) -> "Contexts":
        """Draw contexts, and pair each with the next one in line that has another answer to its first query.

        Only contexts whose answers can be known are kept (Bayes probability above 1/2 at every query). Where they
        cannot, all that happens to hedge lowers the loss, and what was planted would not be the whole truth.
        """
        batch = task.sample(2 * count, generator)
        chances = task.bayes(batch).gather(2, batch.targets.unsqueeze(2)).squeeze(2)
        known = ((chances > 0.5) | ~batch.mask).all(dim=1)
        batch = batch[known.nonzero().squeeze(1)[:count]]
        count = len(batch)
        answer = batch.targets[:, 0]
        partner = torch.arange(count)
        for step in range(1, count):
            same = answer[partner] == answer
            partner = torch.where(same, (torch.arange(count) + step) % count, partner)
        return cls(batch, batch.tokens[partner], batch.targets[partner])

    def difference(self, logits: Float[Tensor, "context query vocab"]) -> Float[Tensor, ""]:
        """Mean logit difference between the right answer and the partner's: the metric of attribution patching."""
        right = logits.gather(2, self.clean.targets.unsqueeze(2))
        wrong = logits.gather(2, self.wrong.unsqueeze(2))
        return (right - wrong).squeeze(2)[self.clean.mask].mean()
