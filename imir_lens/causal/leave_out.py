"""Predicting by leaving out: what L_pa loses when a part of a model goes, said beforehand by the posterior without it.

If attention is the posterior, taking an example away from the model must do to L_pa what taking it away from the
posterior does; so for heads, which carry examples, and for entries of the kernel. The prediction comes from the task
(for heads, also from which share of an example's kernel goes with them); the measurement from the model. A model that
does not infer the graph is predicted to lose what it never had.

What is edited in the model:

- *an example*: copyers no longer see it. Their attention to it is set to 0, and nothing else gets more.
- *a copyer head*: zero ablation of what it writes. Heads write mixtures of tokens' rows, which are not centred, but a
  constant in a key changes no attention, so zero and mean differ only in how the head is compared with other heads.
  In an ordinary transformer its pattern is set to 0.
- *a relation*: entries of the effective kernel are set to the mean of their column (`causal.kernel_edits`), in a copy.
"""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from imir_lens.causal.attention_match import tempered_posterior
from imir_lens.causal.capture import capture_bma, capture_copyers
from imir_lens.causal.flat_model import pattern_name
from imir_lens.causal.kernel_edits import (
    parent_entries,
    same_entries,
    with_effective_kernel,
    without_cross_blocks,
    without_entries,
    without_in_own_blocks,
)
from imir_lens.causal.parameters import Blocks, effective_kernel, own_blocks, scale
from imir_lens.causal.parent_attention import parent_attention
from imir_lens.causal.transfer_kernel import transfer_kernel
from imir_lens.causal.transformer import CausalTransformer
from imir_lens.errors import OptionError, TaskError, UnsupportedModelError
from imir_lens.hooking import Hook
from imir_lens.ids import Head
from imir_lens.lens_model import LensModel
from imir_lens.tasks.episodes import CausalTask, Episodes, masked_softmax, parent_loss
from imir_lens.tasks.fixed_kernel import FixedKernel
from imir_lens.tasks.kernels import pair_scores

_READER = Head(1, 0)  # of a CausalTransformer


@dataclass(frozen=True)
class LeaveOut:
    """What one removal does to L_pa, in nats; positive when it hurts.

    Attributes:
        what: `example 2`, `head L0H1`, `parent 3`, `same` or `cross-example blocks`.
        predicted: from the posterior with the same thing left out.
        measured: in the model.
    """

    what: str
    predicted: float
    measured: float

    @property
    def error(self) -> float:
        """Measured less predicted."""
        return self.measured - self.predicted


def find_reader(model: nn.Module | LensModel, task: CausalTask, episodes: Episodes) -> Head:
    """Return the head above layer 0 whose attention is nearest to the posterior: that of the least KL.

    KL is what L_pa exceeds BMA's by in expectation, given the examples, so it ranks heads by L_pa with less noise.

    Raises:
        UnsupportedModelError: when the model has a single layer.
    """
    above = [found for found in capture_bma(model, task, episodes) if found.head.layer > 0]
    if not above:
        raise UnsupportedModelError("the model has one layer: expected copyers and, above them, a head that reads them")
    return min(above, key=lambda found: found.match.kl).head


def leave_out_example(
    model: nn.Module | LensModel, task: CausalTask, episodes: Episodes, example: int, *, reader: Head | None = None
) -> LeaveOut:
    """Leave one example out of what copyers see; the prediction is the posterior from the others.

    Args:
        model: a CausalTransformer or an ordinary transformer.
        task: whose posterior it is.
        episodes: what to measure on.
        example: 0 is the first in the episode.
        reader: of an ordinary transformer, whose L_pa it is; `find_reader` by default.

    Raises:
        OptionError: when there is no such example.
    """
    count = episodes.n_examples
    if not 0 <= example < count:
        raise OptionError(f"the episodes have examples 0 … {count - 1}: found {example}")
    kept = torch.tensor([place for place in range(count) if place != example], device=episodes.values.device).long()
    whole, rest = task.posterior(episodes), task.posterior(episodes.keep_examples(kept))
    predicted = _loss(rest, episodes) - _loss(whole, episodes)
    if isinstance(model, CausalTransformer):
        edits: list[tuple[str, Hook]] = [("copyers.hook_examples", _zero(1, example))]
        return LeaveOut(f"example {example}", predicted, _measured(model, task, episodes, edits, _READER))
    reader = find_reader(model, task, episodes) if reader is None else reader
    start, nodes = example * episodes.n_nodes, episodes.n_nodes

    def blind(pattern: Tensor, hook: Any) -> Tensor:
        edited = pattern.clone()
        edited[:, :, -nodes:, start : start + nodes] = 0
        return edited

    edits = [(pattern_name(layer), blind) for layer in range(reader.layer)]
    return LeaveOut(f"example {example}", predicted, _measured(model, task, episodes, edits, reader))


def leave_out_head(
    model: nn.Module | LensModel, task: CausalTask, episodes: Episodes, head: Head, *, reader: Head | None = None
) -> LeaveOut:
    """Remove a copyer head; the prediction is the posterior in which examples count less, as far as it carried them.

    Example l keeps the share `r_l` of its log-likelihood: the slope of its own block of the effective kernel without
    the head (for ordinary transformers `W_tf`) against that with it, columns centred. A head that alone copies example
    l takes it out whole, r_l = 0.

    Args:
        model: a CausalTransformer or an ordinary transformer.
        task: whose posterior it is.
        episodes: what to measure on.
        head: in a layer below the reader.
        reader: of an ordinary transformer, whose L_pa it is; `find_reader` by default.

    Raises:
        OptionError: when there is no such head.
    """
    if isinstance(model, CausalTransformer):
        if head.layer != 0 or not 0 <= head.index < model.cfg.n_heads:
            raise OptionError(f"expected a copyer L0H0 … L0H{model.cfg.n_heads - 1}, found {head}")
        full = effective_kernel(model, episodes.n_examples)
        shares = _kept(_without_head(model, head.index, episodes.n_examples), full)
        edits = [("copyers.hook_out", _zero(2, head.index))]
        reader = _READER
    else:
        reader = find_reader(model, task, episodes) if reader is None else reader
        copyers = capture_copyers(model, task, episodes)
        if head.layer >= reader.layer or head not in [copyer.head for copyer in copyers]:
            raise OptionError(f"expected a head in a layer below {reader}, found {head}")
        full = transfer_kernel(model, copyers, reader)
        shares = _kept(transfer_kernel(model, copyers, reader, without=[head]), full)
        edits = [(pattern_name(head.layer), _zero(1, head.index))]
    whole = torch.ones_like(shares)
    before, after = (_loss(tempered_posterior(task, episodes, kept), episodes) for kept in (whole, shares))
    return LeaveOut(f"head {head}", after - before, _measured(model, task, episodes, edits, reader))


def leave_out_relation(model: CausalTransformer, task: CausalTask, episodes: Episodes, relation: str) -> LeaveOut:
    """Take a relation out of the effective kernel; the prediction is the posterior of log pi without it.

    Args:
        model: a CausalTransformer.
        task: one with a known kernel.
        episodes: what to measure on.
        relation: `parent 3` for the entries of one parent token, `same` for parent and child alike, or
            `cross-example blocks` for what compares different examples, of which log pi has nothing.

    Raises:
        TaskError: when the task has no kernel.
        OptionError: for another relation.
    """
    if not isinstance(task, FixedKernel):
        raise TaskError(f"{task.name} has no kernel to take a relation out of: expected causal_tree")
    before = effective_kernel(model, episodes.n_examples)
    if relation == "cross-example blocks":
        predicted, after = 0.0, without_cross_blocks(before)
    else:
        removed = _entries(relation, task.d)
        kernels = task.log_kernel, without_entries(task.log_kernel, removed)
        whole, rest = (_loss(_posterior_of(kernel, episodes), episodes) for kernel in kernels)
        predicted = rest - whole
        after = without_in_own_blocks(before, removed)
    changed = with_effective_kernel(model, after)
    losses = [_loss(parent_attention(version, task, episodes)[0].weights, episodes) for version in (model, changed)]
    return LeaveOut(relation, predicted, losses[1] - losses[0])


def leave_out_each(
    model: nn.Module | LensModel, task: CausalTask, episodes: Episodes, *, reader: Head | None = None
) -> tuple[LeaveOut, ...]:
    """Leave out each example, each copyer head and, in a CausalTransformer, each relation, one at a time.

    In an ordinary transformer the heads are those below the reader that `capture_copyers` labels.
    """
    if isinstance(model, CausalTransformer):
        heads = [Head(0, index) for index in range(model.cfg.n_heads)]
        kernel = isinstance(task, FixedKernel)
        relations = ["same", "cross-example blocks", *(f"parent {token}" for token in range(model.cfg.d_input))]
        edited = [leave_out_relation(model, task, episodes, relation) for relation in relations] if kernel else []
    else:
        reader = find_reader(model, task, episodes) if reader is None else reader
        copyers = [copyer for copyer in capture_copyers(model, task, episodes) if copyer.label]
        heads = [copyer.head for copyer in copyers if copyer.head.layer < reader.layer]
        edited = []
    return (
        *(leave_out_example(model, task, episodes, place, reader=reader) for place in range(episodes.n_examples)),
        *(leave_out_head(model, task, episodes, head, reader=reader) for head in heads),
        *edited,
    )


def _entries(relation: str, d: int) -> Bool[Tensor, "parent child"]:
    if relation == "same":
        return same_entries(d)
    word, _, token = relation.partition(" ")
    if word == "parent" and token.isdecimal():
        return parent_entries(d, int(token))
    raise OptionError(f"{relation!r} cannot be left out: expected 'same', 'parent 3' or 'cross-example blocks'")


def _without_head(model: CausalTransformer, head: int, n_examples: int) -> Blocks:
    """Return the effective kernel without a head's part: all that its block row and column add."""
    silenced = CausalTransformer(model.cfg).to(model.bma.W_KQ)
    silenced.load_state_dict(model.state_dict())
    d = model.cfg.d_input
    with torch.no_grad():
        silenced.bma.W_KQ[head * d : (head + 1) * d] = 0
        silenced.bma.W_KQ[:, head * d : (head + 1) * d] = 0
    return effective_kernel(silenced, n_examples)


def _kept(after: Blocks, before: Blocks) -> Float[Tensor, " example"]:
    """Return how much of each example's own block is left; 1 where there was nothing."""
    pairs = zip(own_blocks(after), own_blocks(before), strict=True)
    return torch.stack([scale(left, whole) for left, whole in pairs]).nan_to_num(1.0)


def _posterior_of(
    log_kernel: Float[Tensor, "parent child"], episodes: Episodes
) -> Float[Tensor, "context position candidate"]:
    scores = [pair_scores(log_kernel.to(example.device), example) for example in episodes.examples.unbind(1)]
    return masked_softmax(torch.stack(scores).sum(0), episodes.candidates)


def _measured(
    model: nn.Module | LensModel, task: CausalTask, episodes: Episodes, edits: list[tuple[str, Hook]], reader: Head
) -> float:
    """Return what edits do to the reader's L_pa."""
    plain, edited = (
        next(found.weights for found in parent_attention(model, task, episodes, hooks) if found.head == reader)
        for hooks in ((), edits)
    )
    return _loss(edited, episodes) - _loss(plain, episodes)


def _loss(weights: Float[Tensor, "context position candidate"], episodes: Episodes) -> float:
    return float(parent_loss(weights, episodes))


def _zero(dim: int, index: int) -> Hook:
    """Return a hook that sets one slice to zero."""

    def hook(tensor: Tensor, hook: Any) -> Tensor:
        edited = tensor.clone()
        edited.select(dim, index).zero_()
        return edited

    return hook
