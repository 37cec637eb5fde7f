"""How well initial coordinates tell the outcome: polynomial logistic regression, cross-validated.

What is compared are the inputs: the size of a circuit alone, its own coordinates with their signs, or all coordinates.
The model is the same for all: inputs are standardised, all products of up to `degree` of them are the features, and

    p(class | x) = softmax(W φ(x) + b)      minimising mean cross-entropy + ridge · |W|²

Accuracy is of held-out folds, with Wilson's interval; the share of the commonest class stands beside it.
"""

import math
from dataclasses import dataclass
from itertools import combinations_with_replacement

import torch
from jaxtyping import Float, Int
from torch import Tensor

from imir_lens.errors import OptionError

_RIDGE = 1e-3
_ITERATIONS = 200
_NORMAL_95 = 1.959964


@dataclass(frozen=True)
class Accuracy:
    """Of predictions on held-out starts.

    Attributes:
        right: number of right ones.
        count: number of predictions.
        commonest: share of the commonest class: what a guess that looks at nothing has.
    """

    right: int
    count: int
    commonest: float

    @property
    def value(self) -> float:
        """Share of right predictions."""
        return self.right / self.count

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval."""
        return wilson_interval(self.right, self.count)


def wilson_interval(right: int, count: int) -> tuple[float, float]:
    """Return the 95 % interval of a share.

    Raises:
        OptionError: when nothing was counted.
    """
    if not 0 <= right <= count or count == 0:
        raise OptionError(f"expected a count of at least 1 with {right} of them right, found {count}")
    share, z2 = right / count, _NORMAL_95**2
    centre = (share + z2 / (2 * count)) / (1 + z2 / count)
    half = _NORMAL_95 * math.sqrt(share * (1 - share) / count + z2 / (4 * count**2)) / (1 + z2 / count)
    return max(0.0, centre - half), min(1.0, centre + half)


def cross_validated(
    inputs: Float[Tensor, "start input"],
    classes: Int[Tensor, " start"],
    *,
    degree: int = 3,
    folds: int = 5,
    seed: int = 0,
) -> Accuracy:
    """Fit on all folds but one, predict that one, and count.

    Args:
        inputs: what is known of every start.
        classes: what became of it.
        degree: of the polynomial.
        folds: number of parts.
        seed: of the shuffling.

    Raises:
        OptionError: when there are fewer starts than folds, lengths differ, or an option is below 1 (folds: 2).
    """
    if len(inputs) != len(classes) or len(inputs) < folds or folds < 2 or degree < 1:
        raise OptionError(
            f"expected as many classes as starts, {folds} or more, folds >= 2 and degree >= 1: found {len(inputs)} "
            f"starts, {len(classes)} classes, degree={degree}"
        )
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(seed))
    right = 0
    for fold in range(folds):
        test = order[fold::folds]
        held = torch.zeros(len(inputs), dtype=torch.bool)
        held[test] = True
        right += int((_predicted(inputs[~held], classes[~held], inputs[held], degree) == classes[held]).sum())
    return Accuracy(right, len(inputs), float(torch.bincount(classes).max() / len(classes)))


def agreement(predicted: Int[Tensor, " start"], classes: Int[Tensor, " start"]) -> Accuracy:
    """Count how often a rule that needs no fitting is right."""
    return Accuracy(
        int((predicted == classes).sum()), len(classes), float(torch.bincount(classes).max() / len(classes))
    )


def products(inputs: Float[Tensor, "start input"], degree: int) -> Float[Tensor, "start feature"]:
    """Return all products of 1 to `degree` inputs, repetitions included."""
    n_inputs = inputs.shape[1]
    features = [
        inputs[:, list(which)].prod(1)
        for order in range(1, degree + 1)
        for which in combinations_with_replacement(range(n_inputs), order)
    ]
    return torch.stack(features, dim=1)


def _predicted(inputs: Tensor, classes: Tensor, asked: Tensor, degree: int) -> Int[Tensor, " asked"]:
    fitted, question = (_standard(part, inputs) for part in (inputs, asked))
    known, wanted = products(fitted, degree), products(question, degree)
    known, wanted = _standard(known, known), _standard(wanted, known)
    n_classes = int(classes.max()) + 1
    weights = torch.zeros(known.shape[1], n_classes, dtype=torch.float64, requires_grad=True)
    bias = torch.zeros(n_classes, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([weights, bias], max_iter=_ITERATIONS, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = torch.nn.functional.cross_entropy(known @ weights + bias, classes) + _RIDGE * weights.square().sum()
        value.backward()
        return value

    optimizer.step(loss)
    return (wanted @ weights + bias).detach().argmax(1)


def _standard(values: Tensor, like: Tensor) -> Float[Tensor, "start input"]:
    like = like.double()
    return (values.double() - like.mean(0)) / like.std(0).clamp(min=1e-12)
