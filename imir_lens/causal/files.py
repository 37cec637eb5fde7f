"""Causal transformers on disk, and whether one fits a task."""

from pathlib import Path
from typing import Any

import torch

from imir_lens.causal.config import CausalConfig, is_causal
from imir_lens.causal.transformer import CausalTransformer
from imir_lens.checkpoints import Checkpoint, load_checkpoint, naming, save_checkpoint
from imir_lens.errors import CheckpointError, OptionError
from imir_lens.models.state import check_shapes
from imir_lens.tasks.episodes import CausalTask


def save_causal(path: str | Path, model: CausalTransformer) -> None:
    """Write a model: `.safetensors` with `config.json` beside it, or a `.pt` of both.

    Raises:
        OptionError: when the place cannot be written.
    """
    save_checkpoint(path, model.state_dict(), model.cfg.to_dict())


def load_causal(path: str | Path, *, task: CausalTask | None = None) -> CausalTransformer:
    """Load a model in eval mode on the CPU, without executing anything in the file.

    Args:
        path: a `.pt` or `.safetensors` file, or the directory of a run.
        task: the task it should fit.

    Raises:
        CheckpointError: when the file is missing, damaged, unsafe, or no causal transformer, its weights contradict its
            config, or its layout is not the task's.
    """
    return causal_from(load_checkpoint(path), task=task)


def causal_from(checkpoint: Checkpoint, *, task: CausalTask | None = None) -> CausalTransformer:
    """Build the model of a loaded checkpoint; errors as in `load_causal`.

    A config may lie about sizes: shapes are compared with a model on the device "meta" before memory is taken.
    """
    state = checkpoint.state_dict
    with naming(checkpoint.source):
        if not is_causal(checkpoint.config):
            raise CheckpointError(
                "not a causal transformer: expected 'architecture': 'imir-lens/causal' in its config, found "
                f"{checkpoint.config.get('architecture')!r}"
            )
        config = CausalConfig.from_dict(checkpoint.config)
        with torch.device("meta"):
            check_shapes(state, CausalTransformer(config).state_dict())
        if task is not None:
            check_fits(config, task)
        model = CausalTransformer(config).to(next(iter(state.values())).dtype)
        model.load_state_dict(state)
    return model.eval()


def layout_of(task: CausalTask) -> dict[str, Any]:
    """Return what a task asks of a model: d_input, n_positions, n_examples, continuous; read off one episode.

    Raises:
        OptionError: when its episodes have no examples.
    """
    episodes = task.sample_episodes(1, torch.Generator().manual_seed(0))
    if episodes.n_examples < 1:
        raise OptionError("expected a task whose episodes have at least one example before the query, found none")
    return {
        "d_input": int(task.bma(episodes).shape[-1]),
        "n_positions": episodes.n_nodes,
        "n_examples": episodes.n_examples,
        "continuous": episodes.values.is_floating_point(),
    }


def config_for(task: CausalTask, *, n_heads: int = 0) -> CausalConfig:
    """Return the config with a task's sizes; `n_heads=0` for one copyer head an example."""
    return CausalConfig(**layout_of(task), n_heads=n_heads)


def check_fits(config: CausalConfig, task: CausalTask) -> None:
    """Check that a model was built for a task's inputs; it may have seen fewer or more examples.

    Raises:
        CheckpointError: naming the first size that differs.
    """
    meaning = {
        "continuous": "whether inputs are vectors",
        "d_input": "tokens (or the dimension of vectors)",
        "n_positions": "positions of an example, H",
    }
    needed = layout_of(task)
    for name, words in meaning.items():
        if getattr(config, name) != needed[name]:
            raise CheckpointError(
                f"the model was built for {name}={getattr(config, name)}, but the task has {needed[name]} ({words}): "
                "give the task the model's sizes, or train a model for this task"
            )
