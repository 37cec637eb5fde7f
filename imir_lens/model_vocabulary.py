"""A model seen through a task's vocabulary: it is asked in the task's tokens, and answers in them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.func import functional_call

from imir_lens.errors import OptionError
from imir_lens.evaluation import at_queries
from imir_lens.hooking import Hook, attached, inference
from imir_lens.lens_model import LensModel
from imir_lens.tasks.base import Batch
from imir_lens.vocabulary import TaskVocabulary
from imir_lens.weights import CircuitWeights

_AT_ONCE = 16


class ModelInVocabulary(LensModel):
    """A model that speaks a task's tokens.

    Token t of the task goes in as the model's token `ids[t]`, and only the logits of these tokens come out: a softmax
    over them is the model's prediction, given that it is one of them. `mass` says how much of its probability that is.
    Hooks, activations and all that lies between are the model's own; its weights are those of the same tokens.

    Args:
        model: an opened model.
        vocabulary: the tokens.

    Raises:
        OptionError: when a token is not the model's.
    """

    def __init__(self, model: LensModel, vocabulary: TaskVocabulary) -> None:
        vocabulary.check(model.weights.d_vocab)
        self.whole = model
        self.vocabulary = vocabulary
        self.model: Any = model.model
        self.twin = model.twin
        self.weights = restricted(model.weights, vocabulary)
        self.info: dict[str, Any] = {**model.info, "vocabulary": vocabulary.summary()}

    def on_twin(self) -> LensModel:
        """Return the model's twin, see LensModel, in the same vocabulary."""
        twin = self.whole.on_twin()
        return self if twin is self.whole else ModelInVocabulary(twin, self.vocabulary)

    def run_with_hooks(
        self, tokens: Int[Tensor, "context position"], fwd_hooks: Sequence[tuple[str, Hook]]
    ) -> Float[Tensor, "context position vocab"]:
        """Run with hooks as LensModel does, from and to the task's tokens."""
        self._check(tokens)
        asked = self.vocabulary.to_model(tokens.to(self.device))
        ids = torch.tensor(self.vocabulary.ids, device=self.device)
        own = dict(self.model.named_parameters())
        if "unembed.W_U" not in own:
            return self.whole.run_with_hooks(asked, fwd_hooks)[..., ids]
        # Fewer columns of W_U give the same logits, and not a vocabulary of fifty thousand at every position.
        fewer = {"unembed.W_U": own["unembed.W_U"].detach()[:, ids]}
        if "unembed.b_U" in own:
            fewer["unembed.b_U"] = own["unembed.b_U"].detach()[ids]
        with inference(self.model), attached(self.model, fwd_hooks):
            return functional_call(self.model, fewer, (asked,))

    def mass(self, batch: Batch) -> float:
        """Return the mean share of its probability that the whole model puts on the vocabulary at the queries.

        Args:
            batch: contexts in the task's tokens.
        """
        share, counted = 0.0, 0
        for start in range(0, len(batch), _AT_ONCE):
            part = batch[start : start + _AT_ONCE].to(self.device)
            law = at_queries(self.whole.logits(self.vocabulary.to_model(part.tokens)), part)[part.mask].double()
            own = law[:, torch.tensor(self.vocabulary.ids, device=law.device)]
            share += float((own.logsumexp(-1) - law.logsumexp(-1)).exp().sum())
            counted += len(law)
        if not counted:
            raise OptionError("no query counts: expected contexts with at least one")
        return share / counted


def restricted(weights: CircuitWeights, vocabulary: TaskVocabulary) -> CircuitWeights:
    """Return the weights with the vocabulary's tokens only: those rows of W_E, columns of W_U and entries of b_U."""
    ids = torch.tensor(vocabulary.ids, device=weights.W_E.device)
    return replace(weights, W_E=weights.W_E[ids], W_U=weights.W_U[:, ids], b_U=weights.b_U[ids])
