"""Which circuit wins from which initial coordinates: surrogates trained from many starts, and who carries at the end.

A run is trained until its loss has fallen below a tenth of that of a model with no coordinates, at most a given number
of steps: later steps only raise a margin that nothing asks for any more, and make circuits redundant. Then every
circuit's own edge is removed: what its matching head reads from its previous-token head, which is its beta where only
the circuits' parts are trained. With L the loss and L_0 that with no coordinates at all, the cost of a circuit is the
share of what was learned that goes with it::

    cost_k = (L(without edge k) − L) / (L_0 − L)

- **wins**: it costs `CARRIES` or more, and no other circuit does;
- **shared**: the task is learned, but either several circuits cost that much (they work together), or none does (one
  stands in for another);
- **none**: the loss is still above `LEARNED` of L_0.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from imir_lens.dynamics.batched_surrogate import BatchedSurrogate
from imir_lens.dynamics.coordinate_metric import coordinate_metric
from imir_lens.dynamics.coordinate_training import train_many
from imir_lens.dynamics.rival_circuits import RivalCircuits
from imir_lens.dynamics.run_batch import RunBatch
from imir_lens.errors import OptionError
from imir_lens.figures.figure import Figure
from imir_lens.figures.phase_map import phase_map
from imir_lens.tasks.base import Batch

CARRIES = 0.5
LEARNED = 0.5
DONE = 0.1
_JUDGED_ON = 256  # contexts
_ROUNDS = 1 << 16  # the contexts of every round have a seed of their own
_JUDGES = 1 << 48  # seed of the contexts to judge on: those of training are below


@dataclass(frozen=True)
class StartTraining:
    """How runs are trained.

    Attributes:
        learning_rate: of gradient descent with the metric of weights.
        batch: contexts a step.
        steps: at most.
        check_every: steps between two looks at the loss.
        done: share of L_0 below which a run is over; 0 trains all runs to the last step.
        everything: train all coordinates that can act, not only the circuits' parts and auxiliaries.

    Raises:
        OptionError: when a number is out of range.
    """

    learning_rate: float = 6.0
    batch: int = 32
    steps: int = 300
    check_every: int = 25
    done: float = DONE
    everything: bool = False

    def __post_init__(self) -> None:
        if not self.learning_rate > 0:
            raise OptionError(f"learning_rate must be positive: learning_rate={self.learning_rate}")
        for name in ("batch", "steps", "check_every"):
            if getattr(self, name) < 1:
                raise OptionError(f"{name} must be at least 1: {name}={getattr(self, name)}")
        if self.steps > _ROUNDS * self.check_every:
            raise OptionError(
                f"at most {_ROUNDS} looks at the loss: steps={self.steps}, check_every={self.check_every}"
            )
        if not 0 <= self.done < LEARNED:
            raise OptionError(f"done must be in [0, {LEARNED}): done={self.done}")


@dataclass(frozen=True)
class Outcomes:
    """What became of every run.

    Attributes:
        names: of the outcomes: the circuits, then "shared" and "none".
        values: coordinates when the run was over.
        losses: then.
        costs: of removing each circuit, see the module.
        steps: done.
        winner: place in `names`.
    """

    names: tuple[str, ...]
    values: Float[Tensor, "run coordinate"]
    losses: Float[Tensor, " run"]
    costs: Float[Tensor, "run circuit"]
    steps: Int[Tensor, " run"]
    winner: Int[Tensor, " run"]

    @property
    def dominant(self) -> Int[Tensor, " run"]:
        """The circuit whose removal costs most, whether or not it wins."""
        return self.costs.argmax(1)

    @property
    def exclusive(self) -> Bool[Tensor, " run"]:
        """Which runs one circuit wins."""
        return self.winner < len(self.names) - 2

    def map(
        self,
        x: Sequence[float],
        y: Sequence[float],
        *,
        x_title: str,
        y_title: str,
        names: Sequence[str] | None = None,
        caption: str = "",
    ) -> Figure:
        """Draw the winners over a plane of starts made by `slice_starts`; a stronger colour is a clearer winner.

        Args:
            x: centres of the columns, as given to `slice_starts`.
            y: centres of the rows.
            x_title: of the horizontal axis.
            y_title: of the vertical axis.
            names: of the outcomes; default, their own.
            caption: what was trained, on how many contexts, with which seed.

        Raises:
            OptionError: when there are not as many outcomes as cells.
        """
        cells = len(x) * len(y)
        if len(self.winner) != cells:
            raise OptionError(f"expected an outcome for each of {len(x)} × {len(y)} cells, found {len(self.winner)}")  # noqa: RUF001
        drawing = phase_map(
            x,
            y,
            self.winner.reshape(len(y), len(x)).tolist(),
            self.costs.amax(1).clamp(0, 1).reshape(len(y), len(x)).tolist(),
            names=self.names if names is None else names,
            x_title=x_title,
            y_title=y_title,
            title="Which circuit wins",
            intensity_title="share of what was learned that the costliest circuit carries",
        )
        return Figure(
            drawing, "Which circuit wins, by two numbers at the start", f"{cells:,} starts. {caption}".strip()
        )

    def shares(self) -> dict[str, float]:
        """Share of runs with each outcome."""
        return {name: float((self.winner == place).float().mean()) for place, name in enumerate(self.names)}


def train_starts(
    rivals: RivalCircuits,
    starts: Float[Tensor, "run part"],
    *,
    seed: int = 0,
    training: StartTraining | None = None,
) -> Outcomes:
    """Train from every start on the same contexts, and say which circuit wins.

    Args:
        rivals: the circuits.
        starts: initial values of their parts; everything else starts at zero.
        seed: of the contexts.
        training: how.

    Raises:
        CoordinateError: when there are not as many numbers as parts.
        OptionError: for a seed that is negative or too large.
    """
    training = training or StartTraining()
    values = rivals.initial(starts)
    chosen = rivals.space.active if training.everything else rivals.chosen
    metric = coordinate_metric(rivals.space, chosen).float()
    judge = _Judge(rivals)
    steps = torch.zeros(len(values), dtype=torch.long)
    running = torch.arange(len(values))
    for count, done in enumerate(range(0, training.steps, training.check_every)):
        finished = judge.losses(values[running]) < training.done * judge.nothing
        running = running[~finished]
        if not len(running):
            break
        these = min(training.check_every, training.steps - done)
        trained = train_many(
            rivals.task,
            rivals.space,
            values[running],
            chosen=chosen,
            steps=these,
            learning_rate=training.learning_rate,
            metric=metric,
            batch=training.batch,
            seeds=round_seed(seed, count),
            held_out=judge.batch,
            record_every=these,
        )
        values[running] = trained.values
        steps[running] += these
    return judge.outcomes(values, steps)


def round_seed(seed: int, count: int) -> int:
    """Return the seed of the contexts between one look at the loss and the next.

    Args:
        seed: of the run.
        count: looks so far, less one.

    Raises:
        OptionError: for a seed that is negative or too large.
    """
    if not 0 <= seed < _JUDGES // _ROUNDS:
        raise OptionError(f"expected a seed in [0, 2^32), found {seed}")
    return seed * _ROUNDS + count


def judging_contexts(rivals: RivalCircuits) -> Batch:
    """Return the contexts on which losses and costs are measured; no training sees them."""
    return rivals.task.sample(_JUDGED_ON, torch.Generator().manual_seed(_JUDGES))


def judge_values(rivals: RivalCircuits, values: Float[Tensor, "run coordinate"]) -> Outcomes:
    """Say which circuit carries finished coordinates, whatever trained them."""
    return _Judge(rivals).outcomes(values, torch.zeros(len(values), dtype=torch.long))


def winners(losses: Float[Tensor, " run"], costs: Float[Tensor, "run circuit"], nothing: float) -> Int[Tensor, " run"]:
    """Apply the rule of the module to losses and costs.

    Args:
        losses: with everything in place.
        costs: of removing each circuit.
        nothing: loss of a model with no coordinates.

    Returns:
        place of the circuit; one past the last for "shared", two for "none".
    """
    n_circuits = costs.shape[1]
    carries = costs >= CARRIES
    winner = torch.where(carries.sum(1) == 1, carries.int().argmax(1), n_circuits)
    return torch.where(losses > LEARNED * nothing, n_circuits + 1, winner)


def axis(low: float, high: float, count: int) -> list[float]:
    """Return the centres of `count` cells from low to high."""
    width = (high - low) / count
    return [low + width * (place + 0.5) for place in range(count)]


def slice_starts(
    base: Float[Tensor, " part"], columns: tuple[int, int], x: Sequence[float], y: Sequence[float]
) -> Float[Tensor, "cell part"]:
    """Return the starts of a plane, row by row: the first row has the least y.

    Args:
        base: all parts; the two that vary are overwritten.
        columns: which parts vary along x and along y.
        x: values of the first, one a column of cells.
        y: values of the second, one a row.
    """
    starts = base.repeat(len(x) * len(y), 1)
    starts[:, columns[0]] = torch.tensor(list(x)).repeat(len(y))
    starts[:, columns[1]] = torch.tensor(list(y)).repeat_interleave(len(x))
    return starts


class _Judge:
    """Losses with and without each circuit, on contexts that no training sees."""

    def __init__(self, rivals: RivalCircuits) -> None:
        self.rivals = rivals
        self.batch = judging_contexts(rivals)
        self.contexts = RunBatch.of(self.batch)
        self.nothing = float(self.losses(torch.zeros(1, rivals.space.size)))

    def losses(self, values: Float[Tensor, "run coordinate"]) -> Float[Tensor, " run"]:
        if not len(values):
            return values.new_zeros(0)
        surrogate = BatchedSurrogate(self.rivals.space, (values != 0).any(0))
        with torch.no_grad():
            parts = [self.contexts.losses(surrogate.logits(part, self.contexts)) for part in values.split(256)]
        return torch.cat(parts)

    def outcomes(self, values: Float[Tensor, "run coordinate"], steps: Int[Tensor, " run"]) -> Outcomes:
        losses = self.losses(values)
        learned = (self.nothing - losses).clamp(min=0.1 * self.nothing)  # where nothing is learned, no cost is large
        costs = []
        for edge in self.rivals.edges:
            costs.append((self.losses(values.masked_fill(edge, 0.0)) - losses) / learned)
        table = torch.stack(costs, dim=1)
        names = (*self.rivals.names, "shared", "none")
        return Outcomes(names, values, losses, table, steps, winners(losses, table, self.nothing))
