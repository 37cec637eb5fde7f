"""Which mechanism wins: many tasks trained side by side on the four competing coordinates, and how each cell ends.

Every cell has its own task (f_r, f_v, b) and its own contexts. A step is gradient descent on the weights of a
disentangled transformer, restricted to the four coordinates: `Δc = −lr · M ∂L/∂c` with the metric of
`coordinate_metric`. Whether a mechanism is there is seen on contexts that only it can answer:

- in context: pairs of rare words, the queried one in the context once; memory knows nothing of them;
- in weights: common words whose pair is not in the context, with the associate as answer; nothing is there to copy.

A mechanism is there when the answer's mean probability on its contexts is at least `PRESENT`; it has emerged at the
first recorded step from which that stays so.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from imir_lens.dynamics.competition import ROLES, CompetingCoordinates
from imir_lens.dynamics.coordinate_metric import coordinate_metric
from imir_lens.dynamics.run_batch import RunBatch
from imir_lens.errors import OptionError
from imir_lens.tasks.recall import Recall

PRESENT = 0.5
OUTCOMES = ("in context", "weights", "both", "neither")
_DRAWN_AT_ONCE = 4096
_PROBED = 128
_PROBE_SEED = 2**40


@dataclass(frozen=True)
class CompetitionRuns:
    """Cells trained side by side.

    Attributes:
        steps: of the records, from 0.
        values: the four coordinates, in the order of `ROLES`.
        in_context: the answer's mean probability on the contexts that only the induction head can answer.
        in_weights: the same on the contexts that only memory can answer.
    """

    steps: list[int]
    values: Float[Tensor, "record cell role"]
    in_context: Float[Tensor, "record cell"]
    in_weights: Float[Tensor, "record cell"]

    def outcomes(self, *, record: int = -1) -> list[int]:
        """Return the place of every cell's outcome in `OUTCOMES` at one record."""
        context, memory = self.in_context[record] >= PRESENT, self.in_weights[record] >= PRESENT
        both, neither = context & memory, ~context & ~memory
        return torch.where(both, 2, torch.where(neither, 3, torch.where(context, 0, 1))).tolist()

    def emerged(self, mechanism: str) -> list[int | None]:
        """Return the step from which a mechanism is there to the end, or None.

        Raises:
            OptionError: for another mechanism than `in_context` and `in_weights`.
        """
        if mechanism not in ("in_context", "in_weights"):
            raise OptionError(f"unknown mechanism {mechanism!r}: expected 'in_context' or 'in_weights'")
        there = getattr(self, mechanism) >= PRESENT
        stays = there.flip(0).cummin(0).values.flip(0)
        first = stays.int().argmax(0)
        return [self.steps[k] if bool(stays[-1, cell]) else None for cell, k in enumerate(first.tolist())]


def train_competition(
    tasks: Sequence[Recall],
    *,
    steps: int,
    learning_rate: float = 20.0,
    initial: Sequence[float] = (0.3, 0.3, 0.3, 0.0),
    batch: int = 32,
    seed: int = 0,
    record_every: int = 25,
) -> CompetitionRuns:
    """Train the competing coordinates on many tasks at once.

    Args:
        tasks: one a cell; they share vocabulary, rare words and length.
        steps: of gradient descent.
        learning_rate: constant.
        initial: the four coordinates at the start, in the order of `ROLES`.
        batch: contexts a step and cell.
        seed: of the contexts; every cell has a stream of its own.
        record_every: steps between two records.

    Raises:
        OptionError: without tasks, for tasks of several shapes, or when an option is out of range.
        TaskError: when there is nothing to memorise.
    """
    shapes = sorted({(task.vocab, task.length, task.n_rare, task.association) for task in tasks})
    if len(shapes) != 1:
        raise OptionError(f"competing tasks must share vocab, length, rare and association: found {shapes or 'none'}")
    if steps < 1 or record_every < 1 or not 1 <= batch <= _DRAWN_AT_ONCE or len(initial) != len(ROLES):
        raise OptionError(
            f"expected steps, record_every and batch of 1 or more and {len(ROLES)} initial values: "
            f"steps={steps}, record_every={record_every}, batch={batch}, {len(initial)} initial values"
        )
    competing = CompetingCoordinates(tasks[0])
    metric = competing.by_role(coordinate_metric(competing.space, competing.chosen).diagonal()).float()
    seeds = torch.randint(2**62, (len(tasks),), generator=torch.Generator().manual_seed(seed)).tolist()
    generators = [torch.Generator().manual_seed(cell) for cell in seeds]
    values = torch.tensor([list(initial)]).repeat(len(tasks), 1)
    records, at, block = [values], [0], _DRAWN_AT_ONCE // batch
    for step in range(steps):
        if step % block == 0:
            many = batch * min(block, steps - step)
            drawn = RunBatch.of([task.sample(many, g) for task, g in zip(tasks, generators, strict=True)])
        start = step % block * batch
        part = drawn.slice(start, start + batch)
        values = values.requires_grad_(True)
        loss = part.losses(competing.logits(values, part)).sum()
        values = values.detach() - learning_rate * metric * torch.autograd.grad(loss, values)[0]
        if (step + 1) % record_every == 0 or step + 1 == steps:
            records.append(values)
            at.append(step + 1)
    found = torch.stack(records)
    probes = _probes(tasks[0])
    in_context, in_weights = ([_certainty(competing, row, probe) for row in records] for probe in probes)
    return CompetitionRuns(at, found, torch.stack(in_context), torch.stack(in_weights))


def _probes(task: Recall) -> tuple[RunBatch, RunBatch]:
    """Contexts that only the induction head can answer, and those that only memory can."""
    only_context = replace(task, f_r=1.0, f_v=0.0, burstiness=1.0, rare=task.n_rare)
    only_weights = replace(task, f_r=0.0, f_v=0.0, burstiness=0.0, rare=task.n_rare)
    generator = torch.Generator().manual_seed(_PROBE_SEED)
    return RunBatch.of(only_context.sample(_PROBED, generator)), RunBatch.of(only_weights.sample(_PROBED, generator))


def _certainty(competing: CompetingCoordinates, values: Tensor, probe: RunBatch) -> Float[Tensor, " cell"]:
    with torch.no_grad():
        law = competing.logits(values, probe).softmax(-1)
    targets = probe.targets.expand(law.shape[:-1]).unsqueeze(-1)
    return law.gather(-1, targets).squeeze(-1).mean((1, 2))
