"""The training loop: AdamW, cross-entropy at the queries, checkpoints, and a state to resume from.

A run is a function of its arguments: all randomness comes from generators seeded by `seed`, so an interrupted and
resumed run ends in the same weights, bit for bit, as one that was left alone on the same machine.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from imir_lens.created_with import created_with
from imir_lens.errors import OptionError
from imir_lens.evaluation import Score, at_queries, bayes_score, chance_score, cross_entropy, score_logits
from imir_lens.models.config import TransformerConfig
from imir_lens.models.transformer import ImirTransformer
from imir_lens.state_dicts import plain_config
from imir_lens.tasks.base import Batch, Task
from imir_lens.training.interrupt import deferred_interrupt
from imir_lens.training.run_directory import Metrics, RunDirectory, read_metrics
from imir_lens.training.schedule import Curriculum, checkpoint_steps, stages, task_at, warm_up

HELD_OUT = 1024  # contexts the model is scored on; they are never trained on except by coincidence
STATE_EVERY = 200  # steps that a kill can cost at most
Progress = Callable[[int, Metrics], None]


@dataclass(frozen=True)
class TrainingResult:
    """A finished run.

    Attributes:
        model: the trained model.
        run: its directory.
        checkpoint: the last checkpoint.
        metrics: rows of `metrics.jsonl`: step, loss and accuracy on held-out contexts, the same of Bayes and chance.
    """

    model: nn.Module
    run: Path
    checkpoint: Path
    metrics: list[Metrics]

    @property
    def last(self) -> Metrics:
        """The last row of the metrics."""
        return self.metrics[-1]

    @property
    def score(self) -> Score:
        """Loss and accuracy at the end."""
        return Score(self.metrics[-1]["loss"], self.metrics[-1]["accuracy"])


def train(
    task: Task,
    model: nn.Module | TransformerConfig | Mapping[str, Any],
    *,
    run: str | Path,
    steps: int,
    batch: int = 128,
    learning_rate: float = 3e-3,
    weight_decay: float = 0.1,
    warmup: int = 50,
    curriculum: Curriculum = (),
    evaluate_every: int = 100,
    checkpoint_every: int | None = None,
    seed: int = 0,
    device: torch.device | str | None = None,
    resume: bool = False,
    progress: Progress | None = None,
) -> TrainingResult:
    """Train a model on fresh contexts of a task.

    Ctrl-C saves the state and then raises KeyboardInterrupt; a kill costs the steps since the last saved state.

    Args:
        task: what to learn; also what is evaluated throughout.
        model: a model with a `cfg`, or the config of an `ImirTransformer` to start from scratch.
        run: directory for run.json, metrics.jsonl, checkpoints/ and state.pt.
        steps: optimizer steps in all. A resumed run may be given more than it had.
        batch: contexts a step.
        learning_rate: of AdamW, after the warm-up; constant from then on.
        weight_decay: of AdamW, on all parameters.
        warmup: steps over which the learning rate rises.
        curriculum: (until, knobs): before step `until`, these knobs replace the task's.
        evaluate_every: steps between rows of metrics; checkpoints are evaluated too.
        checkpoint_every: keep a checkpoint every so many steps, besides those of `checkpoint_steps`.
        seed: of the initial weights and the contexts.
        device: where to train; None leaves the model where it is.
        resume: go on with the run in `run`.
        progress: called before every step and at the end with the number of steps done and the last row of metrics.

    Returns:
        The trained model and its metrics.

    Raises:
        OptionError: when an option is out of range, the model is too small for the task, `run` is taken (or, with
            `resume`, is not this run), or the loss stops being a number.
        CheckpointError: when the state to resume from is damaged.
    """
    check_options(
        steps=steps,
        batch=batch,
        warmup=warmup,
        evaluate_every=evaluate_every,
        **({} if checkpoint_every is None else {"checkpoint_every": checkpoint_every}),
        seed=seed,
        learning_rate=learning_rate,
        weight_decay=weight_decay,
    )
    staged = stages(task, curriculum)
    for_weights, for_contexts, for_held_out = _seeds(seed)
    if not isinstance(model, nn.Module):
        config = model if isinstance(model, TransformerConfig) else TransformerConfig.from_dict(model)
        model = ImirTransformer(config, generator=torch.Generator().manual_seed(for_weights))
    model = model if device is None else model.to(device)
    place = next(model.parameters()).device
    cfg = config_of(model)
    check_fits(cfg, task)

    options = {
        "steps": steps,
        "batch": batch,
        "learning_rate": learning_rate,
        "weight_decay": weight_decay,
        "warmup": warmup,
        "curriculum": [[until, dict(knobs)] for until, knobs in curriculum],
        "evaluate_every": evaluate_every,
        **({} if checkpoint_every is None else {"checkpoint_every": checkpoint_every}),
        "seed": seed,
    }
    directory = RunDirectory(Path(run), _record(task, cfg, options))
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=weight_decay)
    contexts = torch.Generator(place).manual_seed(for_contexts)
    step = 0
    if resume:
        directory.reopen()
        step = directory.restore(model, optimizer, contexts)
        if step > steps:
            raise OptionError(f"{run} is at step {step} already: expected steps >= {step}, found {steps}")
        directory.write_record()
    else:
        directory.start()

    held_out = task.sample(HELD_OUT, torch.Generator().manual_seed(for_held_out)).to(place)
    baselines = _named(bayes=bayes_score(task, held_out), chance=chance_score(task, held_out))
    kept = set(checkpoint_steps(steps, every=checkpoint_every))
    row: Metrics = next(reversed(read_metrics(directory.path)), {})  # a resumed run starts between two rows
    with deferred_interrupt() as interrupt:
        while True:
            if step % evaluate_every == 0 or step in kept:
                row = {"step": step, **_evaluate(model, held_out).as_dict(), **baselines}
                if not math.isfinite(row["loss"]):
                    raise OptionError(f"the loss at step {step} is {row['loss']}: {_advice(model, learning_rate)}")
                directory.append_metrics(row)
            if step in kept:
                directory.save_checkpoint(step, model, cfg)
            if progress is not None:
                progress(step, row)
            stop = interrupt.requested
            if stop or step in kept or step % STATE_EVERY == 0:
                directory.save_state(step, model, cfg, optimizer, contexts)
            if stop:
                raise KeyboardInterrupt
            if step == steps:
                break
            for group in optimizer.param_groups:
                group["lr"] = learning_rate * warm_up(step, warmup)
            drawn = task_at(step, task, staged).sample(batch, contexts)
            loss = cross_entropy(at_queries(model(drawn.tokens), drawn), drawn)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
    return TrainingResult(model, directory.path, directory.checkpoint(steps), read_metrics(directory.path))


def config_of(model: nn.Module) -> dict[str, Any]:
    """Return a model's `cfg` as JSON values.

    Raises:
        OptionError: when it has none.
    """
    cfg: Any = getattr(model, "cfg", None)
    if isinstance(cfg, Mapping):
        return plain_config(cfg)
    if hasattr(cfg, "to_dict"):
        return plain_config(cfg.to_dict())
    raise OptionError(
        f"{type(model).__name__} has no cfg: expected a mapping, or an object with to_dict(), in model.cfg"
    )


def _advice(model: nn.Module, learning_rate: float) -> str:
    dtype = next(model.parameters()).dtype
    half = "train in float32, as dtype=" + str(dtype).removeprefix("torch.") + " is half precision, or "
    return ("" if dtype.itemsize > 2 else half) + f"lower learning_rate={learning_rate}"


def _evaluate(model: nn.Module, batch: Batch) -> Score:
    with torch.no_grad():
        return score_logits(at_queries(model(batch.tokens), batch), batch)


def _named(**scores: Score) -> dict[str, float]:
    return {f"{name}_{key}": value for name, score in scores.items() for key, value in score.as_dict().items()}


def _seeds(seed: int) -> list[int]:
    return torch.randint(2**62, (3,), generator=torch.Generator().manual_seed(seed)).tolist()


def _record(task: Task, cfg: Mapping[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    return {
        "task": {"name": task.name, "knobs": task.knobs},
        "model": {name: value for name, value in cfg.items() if name != "device"},
        "training": options,
        "versions": created_with(),
    }


def check_options(*, learning_rate: float, weight_decay: float, **counts: int) -> None:
    """Check options of `train`, without training.

    Args:
        learning_rate: as for `train`.
        weight_decay: likewise.
        counts: steps, batch, warmup, evaluate_every, checkpoint_every and seed.

    Raises:
        OptionError: when one is out of range.
    """
    for name, count in counts.items():
        least = 0 if name in ("warmup", "seed") else 1
        if count < least:
            raise OptionError(f"{name} must be at least {least}: found {count}")
    for name, value, zero in (("learning_rate", learning_rate, ""), ("weight_decay", weight_decay, " or 0")):
        if not (0 < value < math.inf or (value == 0 and zero)):
            raise OptionError(f"{name} must be a positive number{zero}: found {value}")


def check_fits(cfg: Mapping[str, Any], task: Task) -> None:
    """Check that a model is large enough for a task.

    Raises:
        OptionError: naming the field that is too small.
    """
    for name, needed in (("d_vocab", task.d_vocab), ("d_vocab_out", task.d_vocab), ("n_ctx", task.n_positions)):
        found = cfg.get(name, needed)
        if found not in (-1, None) and found < needed:
            raise OptionError(f"the model has {name}={found}, but task {task.name!r} needs at least {needed}")
