"""When things happen during training: checkpoints, warm-up, curriculum."""

from collections.abc import Mapping, Sequence
from itertools import count, takewhile
from typing import Any

from imir_lens.errors import OptionError, TaskError
from imir_lens.tasks.base import Task
from imir_lens.tasks.registry import make_task

Curriculum = Sequence[tuple[int, Mapping[str, Any]]]


def checkpoint_steps(steps: int, *, every: int | None = None) -> list[int]:
    """Return the steps at which a checkpoint is kept: 0, then 1, 2, 5, 10, 20, 50, … and the last.

    Args:
        steps: of the whole training.
        every: also every so many steps, as to see when something emerges.

    >>> checkpoint_steps(120)
    [0, 1, 2, 5, 10, 20, 50, 100, 120]
    >>> checkpoint_steps(10, every=4)
    [0, 1, 2, 4, 5, 8, 10]
    """
    marks = (mantissa * 10**exponent for exponent in count() for mantissa in (1, 2, 5))
    return sorted({0, *takewhile(lambda mark: mark < steps, marks), *range(0, steps, every or steps), steps})


def warm_up(step: int, warmup: int) -> float:
    """Return the factor on the learning rate at a step: it rises over `warmup` steps to 1 and stays there."""
    return min(1.0, (step + 1) / (warmup + 1))


def stages(task: Task, curriculum: Curriculum) -> list[tuple[int, Task]]:
    """Return the easier tasks that come first, each with the step at which it ends.

    Args:
        task: the task that training ends with.
        curriculum: (until, knobs) in the order of `until`: before step `until`, these knobs replace the task's.

    Raises:
        OptionError: when the ends do not increase, or a stage does not fit into the task.
    """
    found: list[tuple[int, Task]] = []
    for until, knobs in curriculum:
        if until <= (found[-1][0] if found else 0):
            raise OptionError(
                f"curriculum stage {dict(knobs)} ends at step {until}: expected ends that increase from 1"
            )
        try:
            stage = make_task(task.name, **{**task.knobs, **knobs})
        except TaskError as error:
            raise OptionError(f"curriculum stage {dict(knobs)} until step {until}: {error}") from error
        if stage.d_vocab != task.d_vocab or stage.n_positions > task.n_positions:
            raise OptionError(
                f"curriculum stage {dict(knobs)} has {stage.d_vocab} tokens and contexts of {stage.n_positions}: "
                f"expected {task.d_vocab} tokens and at most {task.n_positions}"
            )
        found.append((until, stage))
    return found


def task_at(step: int, task: Task, staged: Sequence[tuple[int, Task]]) -> Task:
    """Return the task trained at a step."""
    return next((stage for until, stage in staged if step < until), task)
