"""Training inside the manifold: gradient descent on the surrogate's coordinates themselves, many runs at once.

Every run has its own coordinates, contexts and optimiser state; all runs are one tensor program, so 64 seeds or
initialisations cost little more than one. Which parametrisation follows the training of weights is the matter of
`coordinate_metric`: gradient descent on weights moves coordinates by `−lr · M ∂L/∂c` with M the inverse Gram matrix of
the basis, not by `−lr · ∂L/∂c`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from imir_lens.coordinates import Coordinates, CoordinateSpace
from imir_lens.dynamics.batched_surrogate import BatchedSurrogate
from imir_lens.dynamics.run_batch import RunBatch, drawn_batches
from imir_lens.errors import CoordinateError, OptionError, did_you_mean
from imir_lens.tasks.base import Batch, Task

OPTIMIZERS = ("sgd", "adam")
HELD_OUT = 512  # contexts that curves and final losses are measured on
_BETAS = (0.9, 0.999)
_TINY = 1e-8
Progress = Callable[[int, Float[Tensor, " run"]], None]


@dataclass(frozen=True)
class Curves:
    """What was recorded along training; the last record is the end.

    Attributes:
        steps: optimizer steps done at each record, from 0.
        losses: on held-out contexts.
        accuracies: on held-out contexts.
        values: of the trained coordinates, in the order of `places`.
        places: of the trained coordinates in the flat vector.
    """

    steps: list[int]
    losses: Float[Tensor, "record run"]
    accuracies: Float[Tensor, "record run"]
    values: Float[Tensor, "record run chosen"]
    places: Int[Tensor, " chosen"]

    def of(self, space: CoordinateSpace, identifier: str) -> Float[Tensor, "record run"]:
        """Return the curve of one trained coordinate.

        Raises:
            CoordinateError: when it was not trained.
        """
        found = (self.places == space.place(identifier)).nonzero().flatten()
        if not len(found):
            raise CoordinateError(f"{identifier} was not trained here: choose it to have its curve")
        return self.values[:, :, int(found[0])]


@dataclass(frozen=True)
class ManyTrained:
    """Finished runs.

    Attributes:
        space: of the coordinates.
        values: all coordinates of every run at the end.
        losses: of every run at the end, on held-out contexts; not a number for a run that diverged.
        accuracies: the same.
        curves: recorded along the way.
    """

    space: CoordinateSpace
    values: Float[Tensor, "run coordinate"]
    losses: Float[Tensor, " run"]
    accuracies: Float[Tensor, " run"]
    curves: Curves

    def coordinates(self, run: int = 0) -> Coordinates:
        """Return the coordinates of one run."""
        return Coordinates(self.space, self.values[run])


def train_many(
    task: Task | Batch,
    space: CoordinateSpace,
    initial: Float[Tensor, "run coordinate"],
    *,
    chosen: Bool[Tensor, " coordinate"] | None = None,
    steps: int,
    learning_rate: float,
    optimizer: str = "sgd",
    metric: Float[Tensor, "chosen chosen"] | Float[Tensor, " chosen"] | None = None,
    batch: int = 128,
    seeds: int | Sequence[int] = 0,
    pool: Batch | None = None,
    held_out: Batch | None = None,
    record_every: int = 50,
    progress: Progress | None = None,
) -> ManyTrained:
    """Train the coordinates of many runs at once.

    A run is a function of its row of `initial` and its seed: what runs beside it changes nothing but rounding.

    Args:
        task: fresh contexts are drawn from it at every step; a batch instead is used at every step as it is.
        space: which coordinates there are.
        initial: where every run starts. Coordinates that are not trained stay what they are here.
        chosen: which coordinates are trained; default: all that can act.
        steps: optimizer steps.
        learning_rate: constant.
        optimizer: "sgd", or "adam" (betas 0.9 and 0.999).
        metric: what the gradient is multiplied by (SGD only), see `coordinate_metric`; a vector is its diagonal.
        batch: contexts a step.
        seeds: of the contexts: one seed for all runs, which then see the same contexts, or one for each.
        pool: contexts that every run draws its own from, in place of fresh ones; see `drawn_batches`.
        held_out: contexts to measure losses on; default, `HELD_OUT` more of the task, the same for all runs.
        record_every: steps between two records.
        progress: called at every record with the steps done and the losses.

    Raises:
        OptionError: when an option is out of range, or there are not as many seeds as runs.
        CoordinateError: when the initial values or the mask do not fit the space, or an initial value cannot act.
    """
    mask = space.active if chosen is None else chosen.cpu()
    _check(space, initial, steps=steps, batch=batch, record_every=record_every, optimizer=optimizer)
    streams = [seeds] if isinstance(seeds, int) else list(seeds)
    if len(streams) != len(initial) and not isinstance(seeds, int):
        raise OptionError(f"expected one seed, or one for each of {len(initial)} runs: found {len(streams)} seeds")
    if metric is not None and optimizer != "sgd":
        raise OptionError("a metric goes with optimizer='sgd': Adam's steps do not scale with the gradient")
    surrogate = BatchedSurrogate(space, mask | (initial != 0).any(0).cpu())
    places = surrogate.places
    trained = mask[places]
    values = initial[:, places].clone()
    if isinstance(task, Task):
        batches = drawn_batches(task, streams, batch=batch, steps=steps, pool=pool)
        if held_out is None:
            held_out = task.sample(HELD_OUT, torch.Generator().manual_seed(_held_out_seed(streams[0])))
    else:
        fixed = RunBatch.of(task)
        batches = (fixed for _ in range(steps))
        held_out = task if held_out is None else held_out
    scored = RunBatch.of(held_out)
    update = _Optimizer(optimizer, learning_rate, metric, trained)
    recorder = _Recorder(surrogate, scored, trained, progress)
    for step in range(steps):
        if step % record_every == 0:
            recorder.record(step, values)
        drawn = next(batches)
        values.requires_grad_(True)
        loss = drawn.losses(surrogate.logits_of_chosen(values, drawn)).sum()
        (gradient,) = torch.autograd.grad(loss, values)
        values = update.step(values.detach(), gradient)
    recorder.record(steps, values)
    final = initial.clone()
    final[:, places] = values
    curves = recorder.curves(places[trained])
    return ManyTrained(space, final, curves.losses[-1], curves.accuracies[-1], curves)


class _Optimizer:
    """SGD or Adam on the trained columns; every operation is on one run's numbers alone."""

    def __init__(self, kind: str, learning_rate: float, metric: Tensor | None, trained: Tensor) -> None:
        self.kind, self.learning_rate, self.metric = kind, learning_rate, metric
        self.columns = None if bool(trained.all()) else trained.nonzero().flatten()
        self.moments: tuple[Tensor, Tensor] | None = None
        self.count = 0
        n = int(trained.sum())
        if metric is not None and metric.shape not in ((n,), (n, n)):
            raise OptionError(f"expected a metric for {n} trained coordinates, found shape {tuple(metric.shape)}")

    def step(self, values: Tensor, gradient: Tensor) -> Tensor:
        if self.columns is not None:
            gradient = gradient[:, self.columns]
        move = self.learning_rate * (self._adam(gradient) if self.kind == "adam" else self._descent(gradient))
        return values - move if self.columns is None else values.index_add(1, self.columns, -move)

    def _descent(self, gradient: Tensor) -> Tensor:
        if self.metric is None:
            return gradient
        if self.metric.dtype != gradient.dtype or self.metric.device != gradient.device:
            self.metric = self.metric.to(gradient)
        return gradient * self.metric if self.metric.ndim == 1 else gradient @ self.metric

    def _adam(self, gradient: Tensor) -> Tensor:
        self.count += 1
        first, second = self.moments or (torch.zeros_like(gradient), torch.zeros_like(gradient))
        first = _BETAS[0] * first + (1 - _BETAS[0]) * gradient
        second = _BETAS[1] * second + (1 - _BETAS[1]) * gradient.square()
        self.moments = first, second
        size = (second / (1 - _BETAS[1] ** self.count)).sqrt() + _TINY
        return first / (1 - _BETAS[0] ** self.count) / size


class _Recorder:
    def __init__(
        self, surrogate: BatchedSurrogate, batch: RunBatch, trained: Tensor, progress: Progress | None
    ) -> None:
        self.surrogate, self.batch, self.trained, self.progress = surrogate, batch, trained, progress
        self.steps: list[int] = []
        self.rows: list[tuple[Tensor, Tensor, Tensor]] = []

    def record(self, step: int, values: Tensor) -> None:
        with torch.no_grad():
            logits = self.surrogate.logits_of_chosen(values.detach(), self.batch)
            losses, accuracies = self.batch.losses(logits), self.batch.accuracies(logits)
        self.steps.append(step)
        self.rows.append((losses, accuracies, values.detach()[:, self.trained].clone()))
        if self.progress is not None:
            self.progress(step, losses)

    def curves(self, places: Tensor) -> Curves:
        losses, accuracies, values = (torch.stack(column) for column in zip(*self.rows, strict=True))
        return Curves(self.steps, losses, accuracies, values, places)


def _held_out_seed(seed: int) -> int:
    """A seed for contexts that training with `seed` does not draw."""
    return int(torch.randint(2**62, (1,), generator=torch.Generator().manual_seed(seed)))


def _check(space: CoordinateSpace, initial: Tensor, *, optimizer: str, **counts: int) -> None:
    if initial.ndim != 2 or initial.shape[1] != space.size:
        raise CoordinateError(f"expected initial values [run, {space.size}], found shape {tuple(initial.shape)}")
    if optimizer not in OPTIMIZERS:
        raise OptionError(f"unknown optimizer {optimizer!r}; {did_you_mean(optimizer, OPTIMIZERS)}")
    for name, value in counts.items():
        if value < (0 if name == "steps" else 1):
            raise OptionError(f"{name} must be at least {0 if name == 'steps' else 1}: found {value}")
