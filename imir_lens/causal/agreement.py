"""Tier 3 of a verification: what removals do to L_pa, predicted by the posterior and measured in the model."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from imir_lens.causal.behaviour import spread
from imir_lens.causal.capture import CopyerHead
from imir_lens.causal.leave_out import LeaveOut, leave_out_example, leave_out_head, leave_out_relation
from imir_lens.causal.transformer import CausalTransformer
from imir_lens.errors import ImirError
from imir_lens.ids import Head
from imir_lens.tasks.episodes import CausalTask, Episodes
from imir_lens.tasks.fixed_kernel import FixedKernel

MOST_EACH = 10  # examples, heads and parents that are left out, each; of more, an even selection
_LEAST_CHANGE = 0.01  # nats: with less there is nothing to predict
_ROUNDING = 1e-9


KINDS = ("example", "head", "relation")


@dataclass(frozen=True)
class Agreement:
    """How well changes of L_pa were predicted.

    Attributes:
        by_kind: for examples, heads and relations, as far as there are predictions worth the name,
            `1 − Σ (measured − predicted)² / Σ predicted²`: 1 when all are right, 0 for a model in which nothing
            changes; without bound below.
        correlation: of predicted and measured over all removals; None where one of them does not vary.
        largest_error: the largest |measured − predicted|, in nats.
    """

    by_kind: dict[str, float]
    correlation: float | None
    largest_error: float

    @property
    def explained(self) -> float:
        """The least over kinds: one large change must not hide many small ones."""
        return min(self.by_kind.values())


def kind_of(found: LeaveOut) -> str:
    """Return whether an example, a head or a relation was left out."""
    word = found.what.partition(" ")[0]
    return word if word in KINDS else "relation"


def predicted_ablations(
    model: nn.Module, task: CausalTask, episodes: Episodes, copyers: Sequence[CopyerHead], reader: Head
) -> tuple[LeaveOut, ...]:
    """Leave out examples, copyer heads and relations, one at a time; of many, an even selection.

    Heads of an ordinary transformer are those below the reader that are labelled as copyers. Where its weights cannot
    be read, so that nothing can be predicted for heads, only examples are left out.
    """
    causal = isinstance(model, CausalTransformer)
    if not causal and reader.layer == 0:
        return ()  # nothing below it can be removed
    found = [
        leave_out_example(model, task, episodes, place, reader=reader)
        for place in spread(episodes.n_examples, MOST_EACH)
    ]
    heads = [copyer.head for copyer in copyers if causal or (copyer.label and copyer.head.layer < reader.layer)]
    for place in spread(len(heads), MOST_EACH):
        try:
            found.append(leave_out_head(model, task, episodes, heads[place], reader=reader))
        except ImirError:  # the weights of a model with other parts: its heads carry what nobody can say
            break
    if isinstance(model, CausalTransformer) and isinstance(task, FixedKernel):
        tokens = spread(task.d, MOST_EACH)
        relations = ["same", "cross-example blocks", *(f"parent {token}" for token in tokens)]
        found += [leave_out_relation(model, task, episodes, relation) for relation in relations]
    return tuple(found)


def agreement(found: Sequence[LeaveOut]) -> Agreement | None:
    """Return how well changes were predicted; None where no change worth the name was."""
    by_kind = {}
    for kind in KINDS:
        some = [one for one in found if kind_of(one) == kind]
        if max((abs(one.predicted) for one in some), default=0.0) >= _LEAST_CHANGE:
            total = sum(one.predicted**2 for one in some)
            by_kind[kind] = 1 - sum(one.error**2 for one in some) / total
    if not by_kind:
        return None
    both = torch.tensor([[one.predicted for one in found], [one.measured for one in found]], dtype=torch.float64)
    varied = len(found) > 1 and bool((both.std(dim=1) > _ROUNDING).all())
    correlation = float(torch.corrcoef(both)[0, 1]) if varied else None
    return Agreement(by_kind, correlation, max(abs(one.error) for one in found))
