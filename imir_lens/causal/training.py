"""Training a causal transformer on fresh episodes: Adam on the query's prediction error.

The parents are never shown: the attention of the second layer becomes the posterior because that predicts best. A run
is a function of its arguments; one that was interrupted and resumed ends in the same weights, bit for bit, as one that
was left alone on the same machine.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from imir_lens.causal.config import CausalConfig
from imir_lens.causal.files import check_fits, config_for
from imir_lens.causal.scoring import CausalScore, output_loss, score_bma, score_model, score_uniform
from imir_lens.causal.transformer import CausalTransformer, initialise
from imir_lens.created_with import created_with
from imir_lens.errors import OptionError
from imir_lens.tasks.episodes import CausalTask
from imir_lens.training.interrupt import deferred_interrupt
from imir_lens.training.run_directory import Metrics, RunDirectory, read_metrics
from imir_lens.training.schedule import checkpoint_steps

HELD_OUT = 512  # episodes the model is scored on
STATE_EVERY = 512  # steps that a kill can cost at most
Progress = Callable[[int, Metrics], None]


@dataclass(frozen=True)
class CausalTraining:
    """A finished run.

    Attributes:
        model: the trained model, in eval mode.
        curve: rows of step, loss, parent_loss on held-out episodes, with `bma_…` and `uniform_…` beside them.
        run: its directory, if it has one.
        checkpoint: the last checkpoint in it.
    """

    model: CausalTransformer
    curve: list[Metrics]
    run: Path | None = None
    checkpoint: Path | None = None


def train_causal(
    task: CausalTask,
    config: CausalConfig | None = None,
    *,
    steps: int,
    batch: int = 256,
    learning_rate: float = 0.02,
    decay: float = 0.5,
    same_position: float = 3.0,
    own_example: float = 1.0,
    evaluate_every: int = 256,
    seed: int = 0,
    device: torch.device | str = "cpu",
    run: str | Path | None = None,
    resume: bool = False,
    progress: Progress | None = None,
) -> CausalTraining:
    """Train a causal transformer.

    Ctrl-C saves the state, where there is a `run`, and then raises KeyboardInterrupt; a kill costs the steps since the
    last saved state.

    Args:
        task: what to learn; fresh episodes in every step.
        config: the model's sizes; the task's by default, with one copyer head an example.
        steps: optimizer steps in all.
        batch: episodes a step.
        learning_rate: of Adam.
        decay: the share of the steps, at the end, over which the learning rate falls linearly to 0.
        same_position: what `w_H` starts from at offset 0; 0 leaves it to training to find the position.
        own_example: what `w_L` starts from at an example that each head is given at random; 0 leaves that to training.
        evaluate_every: steps between rows of the curve.
        seed: of the initial weights and the episodes.
        device: where to train.
        run: a directory for run.json, metrics.jsonl, checkpoints/ and state.pt; None keeps nothing.
        resume: go on with the run in `run`.
        progress: called before every step and at the end with the number of steps done and the last row.

    Returns:
        The trained model and its curve.

    Raises:
        OptionError: when an option is out of range, `run` is taken (or, with `resume`, is not this run), or the loss
            stops being a number.
        CheckpointError: when the config does not fit the task, or the state to resume from is damaged.
    """
    for name, value, least in (("steps", steps, 1), ("batch", batch, 1), ("evaluate_every", evaluate_every, 1)):
        if value < least:
            raise OptionError(f"{name} must be at least {least}: found {value}")
    if not 0 < learning_rate < math.inf:
        raise OptionError(f"learning_rate must be a positive number: found {learning_rate}")
    if not 0 <= decay <= 1:
        raise OptionError(f"decay must lie between 0 and 1: found {decay}")
    if resume and run is None:
        raise OptionError("resume=True needs run=DIR: the directory of the run to go on with")
    if config is None:
        config = config_for(task)
    check_fits(config, task)
    for_weights, for_episodes, for_held_out = _seeds(seed)
    model = CausalTransformer(config)
    start = torch.Generator().manual_seed(for_weights)
    initialise(model, start, same_position=same_position, own_example=own_example)
    model.to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate)
    episodes = torch.Generator().manual_seed(for_episodes)
    options = {
        "batch": batch,
        "learning_rate": learning_rate,
        "decay": decay,
        "same_position": same_position,
        "own_example": own_example,
        "evaluate_every": evaluate_every,
        "seed": seed,
    }
    # With decay, the number of steps shapes every step: a longer run is another run.
    record = _record(task, config, {**options, "decay_until": steps} if decay else options, steps)
    directory = None if run is None else RunDirectory(Path(run), record)
    step, curve = _begin(directory, model, optimizer, episodes, resume=resume)

    held_out = task.sample_episodes(HELD_OUT, torch.Generator().manual_seed(for_held_out))
    baselines = {**_named("bma", score_bma(task, held_out)), **_named("uniform", score_uniform(task, held_out))}
    held_out = held_out.to(device)
    kept = set(checkpoint_steps(steps))
    with deferred_interrupt() as interrupt:
        while True:
            if step % evaluate_every == 0 or step == steps:
                row = {"step": step, **score_model(model, held_out)._asdict(), **baselines}
                if not math.isfinite(row["loss"]):
                    raise OptionError(f"the loss at step {step} is {row['loss']}: lower learning_rate={learning_rate}")
                curve.append(row)
                if directory is not None:
                    directory.append_metrics(row)
            if directory is not None:
                if step in kept:
                    directory.save_checkpoint(step, model, config.to_dict())
                if interrupt.requested or step == steps or step % STATE_EVERY == 0:
                    directory.save_state(step, model, config.to_dict(), optimizer, episodes)
            if progress is not None:
                progress(step, curve[-1] if curve else {})
            if interrupt.requested:
                raise KeyboardInterrupt
            if step == steps:
                break
            for group in optimizer.param_groups:
                group["lr"] = learning_rate * _remaining(step, steps, decay)
            drawn = task.sample_episodes(batch, episodes).to(device)
            loss = output_loss(model(drawn), drawn)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
    if directory is None:
        return CausalTraining(model.eval(), curve)
    return CausalTraining(model.eval(), curve, directory.path, directory.checkpoint(step))


def _remaining(step: int, steps: int, decay: float) -> float:
    """The factor on the learning rate at a step."""
    return min(1.0, (steps - step) / (decay * steps)) if decay else 1.0


def _begin(
    directory: RunDirectory | None,
    model: CausalTransformer,
    optimizer: torch.optim.Optimizer,
    episodes: torch.Generator,
    *,
    resume: bool,
) -> tuple[int, list[Metrics]]:
    """Return the step to go on from, and the rows so far."""
    if directory is None:
        return 0, []
    if not resume:
        directory.start()
        return 0, []
    directory.reopen()
    step = directory.restore(model, optimizer, episodes)
    directory.write_record()
    return step, list(read_metrics(directory.path))


def _record(task: CausalTask, config: CausalConfig, options: dict[str, Any], steps: int) -> dict[str, Any]:
    return {
        "task": {"name": task.name, "knobs": task.knobs},
        "model": config.to_dict(),
        "training": {**options, "steps": steps},
        "versions": created_with(),
    }


def _named(name: str, score: CausalScore) -> dict[str, float]:
    return {f"{name}_{key}": value for key, value in score._asdict().items()}


def _seeds(seed: int) -> list[int]:
    return torch.randint(2**62, (3,), generator=torch.Generator().manual_seed(seed)).tolist()
