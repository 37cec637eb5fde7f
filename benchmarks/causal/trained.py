"""Training from scratch: whether the attention becomes the posterior, and the weights log pi."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any

from benchmarks.causal.figures import behaviour_figures, parameter_figures
from benchmarks.causal.keeping import kept_row
from benchmarks.partial import PartialRows
from imir_lens.causal.training import train_causal
from imir_lens.tasks.causal_tree import CausalTree

PART = "trained"


@dataclass(frozen=True)
class Training:
    """What is trained, and for how long."""

    task: CausalTree
    steps: int
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> dict[str, Any]:
        """Its columns."""
        task = self.task
        return {"d": task.d, "H": task.positions, "L": task.examples, "steps": self.steps, **self.options}


TRAININGS = (
    Training(CausalTree(d=10, positions=15, examples=3), 4096, {"batch": 128, "decay": 0.2}),
    Training(CausalTree(d=5, positions=10, examples=10), 1024, {"batch": 256, "decay": 0.5}),
    Training(CausalTree(d=20, positions=50, examples=3), 2048, {"batch": 64, "decay": 0.5}),
)
SMALL = (Training(CausalTree(d=3, positions=4, examples=2), 100, {"batch": 64, "decay": 0.5}),)


def rows(*, small: bool, seed: int, kept: PartialRows) -> list[dict[str, Any]]:
    """Train each with two seeds."""
    return [
        kept_row(kept, PART, {**training.key, "seed": one}, partial(measure, training, one, small=small))
        for training in (SMALL if small else TRAININGS)
        for one in range(seed, seed + (1 if small else 2))
    ]


def measure(training: Training, seed: int, *, small: bool = False) -> dict[str, Any]:
    """Train one model and measure it."""
    task = training.task
    trained = train_causal(task, steps=training.steps, seed=seed, **training.options)
    return {
        **behaviour_figures(trained.model, task, 256 if small else 4096),
        **parameter_figures(trained.model, task),
        "loss": trained.curve[-1]["loss"],
        "loss, BMA": trained.curve[-1]["bma_loss"],
    }
