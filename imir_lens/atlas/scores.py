"""Everything the weights say about every head: one pass over the vocabulary, then one over the layers."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from imir_lens.atlas.kernels import OffsetKernels, offset_kernels
from imir_lens.atlas.matching import BOUND, CopiedContent, Matching, Paths, choose_paths, layer_matching
from imir_lens.atlas.moments import Moments, token_moments
from imir_lens.atlas.readout import layer_readout
from imir_lens.atlas.statistics import Contrast
from imir_lens.lens_model import LensModel


@dataclass(frozen=True, eq=False)
class WeightScores:
    """What the weights say about every head.

    Attributes:
        moments: of tokens and positions.
        kernels: offset kernels and copyer scores.
        paths: which upstream heads were looked through.
        matching: `same` scores, direct and through others.
        copying: `same` readout.
        assoc: readout of a relation's pairs; None without one.
    """

    moments: Moments
    kernels: OffsetKernels
    paths: Paths
    matching: Matching
    copying: Contrast
    assoc: Contrast | None

    @property
    def induction(self) -> Float[Tensor, "layer head"]:
        """The induction score: match of the query's token with the tokens that previous-token heads brought (z)."""
        return self.matching.copied.z

    @property
    def induction_copying(self) -> Float[Tensor, "layer head"]:
        """The induction score times the copying score, both at least zero: match, then copy straight to the logits."""
        return self.induction.clamp(min=0) * self.copying.z.clamp(min=0)


def weight_scores(
    lens: LensModel,
    *,
    relation: Int[Tensor, "pair 2"] | None = None,
    bound: float = BOUND,
    progress: Callable[[str, float], None] = lambda step, done: None,
) -> WeightScores:
    """Score every head of a model from its weights.

    Args:
        lens: the model.
        relation: pairs of token ids (read, predicted), for the `assoc` scores.
        bound: least mass one back of an upstream head that is looked through; see `Paths`.
        progress: told the step and the share of it that is done.
    """
    weights = lens.weights
    with torch.no_grad():
        moments = token_moments(lens, relation=relation, progress=lambda done: progress("vocabulary", done))
        kernels = offset_kernels(weights, moments)
        paths = choose_paths(kernels, bound=bound)
        copied = CopiedContent(weights, moments)
        matches, readouts = [], []
        for layer in range(weights.n_layers):
            matches.append(layer_matching(weights, moments, kernels, paths, copied, layer))
            readouts.append(layer_readout(weights, moments, layer))
            copied.add(weights, moments, kernels.preference[layer], layer)
            progress("layers", (layer + 1) / weights.n_layers)
    direct, from_copied, through, assoc = zip(*matches, strict=True)
    copying, answered = zip(*readouts, strict=True)
    matching = Matching(_stacked(direct), _stacked(from_copied), torch.stack(through), _optional(assoc))
    return WeightScores(moments, kernels, paths, matching, _stacked(copying), _optional(answered))


def _stacked(contrasts: tuple[Contrast, ...]) -> Contrast:
    return Contrast(*(torch.stack(parts) for parts in zip(*contrasts, strict=True)))


def _optional(contrasts: tuple[Contrast | None, ...]) -> Contrast | None:
    known = tuple(one for one in contrasts if one is not None)
    return _stacked(known) if known else None
