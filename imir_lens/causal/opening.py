"""Opening a model for verification: a causal transformer, or any ordinary one, from a file or live."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from imir_lens.causal.config import is_causal
from imir_lens.causal.files import causal_from, check_fits, layout_of
from imir_lens.causal.transformer import CausalTransformer
from imir_lens.checkpoints import load_checkpoint, transformer_from
from imir_lens.errors import CheckpointError, OptionError, UnsupportedModelError
from imir_lens.lens_model import LensModel, usable_device
from imir_lens.live_models import is_hooked_transformer
from imir_lens.tasks.episodes import CausalTask
from imir_lens.tasks.token_episodes import TokenEpisodes

_SIZES = ("n_layers", "n_heads", "d_model", "d_head", "d_vocab", "n_ctx", "normalization_type", "attn_only")


@dataclass(frozen=True, eq=False)
class OpenedModel:
    """A model with what a report says about it.

    Attributes:
        model: a CausalTransformer or an ordinary transformer.
        info: source, sha256, family and sizes.
    """

    model: nn.Module
    info: dict[str, Any]

    @property
    def causal(self) -> bool:
        """Whether it reads examples in two dimensions, and so any number of them."""
        return isinstance(self.model, CausalTransformer)


def open_for(
    model: nn.Module | LensModel | str | Path,
    task: CausalTask,
    *,
    config: str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    device: str | torch.device | None = None,
) -> OpenedModel:
    """Open a model and make sure that it was built for a task's layout.

    Args:
        model: a checkpoint path as in `load_checkpoint`, a CausalTransformer, or an ordinary transformer.
        task: the task: its d, H and L.
        config: for a path without a config: a JSON file.
        overrides: for a path: single config fields.
        device: where to compute; a live model is moved there.

    Raises:
        CheckpointError: when the file is no checkpoint, or its layout is not the task's.
        UnsupportedModelError: when the model is of another kind.
        OptionError: when `config` or `overrides` come with a live model, or there is no such device.
    """
    target = None if device is None else usable_device(device)
    layout = layout_of(task)
    if isinstance(model, str | Path):
        checkpoint = load_checkpoint(model, config=config, overrides=overrides)
        source, digest = checkpoint.source, checkpoint.sha256
        opened: Any = causal_from(checkpoint) if is_causal(checkpoint.config) else transformer_from(checkpoint)
    elif config is not None or overrides:
        raise OptionError("config and overrides describe a checkpoint file; a live model has its own config")
    else:
        opened = model.model if isinstance(model, LensModel) else model
        source, digest = type(opened).__name__, _digest(opened)
    try:
        _check_layout(opened, task, layout)
    except CheckpointError as error:
        raise CheckpointError(f"{source}: {error}") from error
    if target is not None:
        quiet = {"print_details": False} if is_hooked_transformer(opened) else {}
        opened.to(target, **quiet)
    family = type(opened).__name__
    if isinstance(model, str | Path) and family == "ImirTransformer":
        family = "HookedTransformer"  # the format of the file; what hosts it is ours
    info = {"source": source, "sha256": digest, "family": family, "sizes": _sizes(opened)}
    return OpenedModel(opened, info)


def _check_layout(model: Any, task: CausalTask, layout: dict[str, Any]) -> None:
    """Refuse a model whose d, H or L is not the task's."""
    nodes, examples = layout["n_positions"], layout["n_examples"]
    if isinstance(model, CausalTransformer):
        check_fits(model.cfg, task)
        if model.cfg.n_examples != examples:
            raise CheckpointError(
                f"the model was built for n_examples={model.cfg.n_examples}, but the task has {examples} (examples "
                f"before the query, L): set the task's knob to examples={model.cfg.n_examples}; other numbers of "
                "examples are tried in any case"
            )
        return
    cfg: Any = getattr(model, "cfg", None)
    if not isinstance(model, nn.Module) or not all(hasattr(cfg, name) for name in ("n_ctx", "d_vocab", "n_layers")):
        raise UnsupportedModelError(
            f"a {type(model).__name__} cannot be verified: expected a CausalTransformer, an ImirTransformer, a "
            "HookedTransformer or a TransformerBridge"
        )
    if not isinstance(task, TokenEpisodes):
        raise CheckpointError(
            f"an ordinary transformer reads tokens, and {task.name} has vectors: expected a CausalTransformer"
        )
    if cfg.d_vocab < task.d or cfg.n_ctx < (examples + 1) * nodes:
        raise CheckpointError(
            f"the model has {cfg.d_vocab} tokens and n_ctx={cfg.n_ctx}, but the task has {task.d} tokens and "
            f"{(examples + 1) * nodes} positions ((L+1)·H with L={examples}, H={nodes}): set the task's knobs d, "
            "positions and examples to what the model was trained on"
        )


def _sizes(model: Any) -> dict[str, Any]:
    if isinstance(model, CausalTransformer):
        return {"n_layers": 2, **{name: value for name, value in model.cfg.to_dict().items() if name != "architecture"}}
    found = {name: getattr(model.cfg, name) for name in _SIZES if hasattr(model.cfg, name)}
    return {name: value for name, value in found.items() if value is None or isinstance(value, int | str)}


def _digest(model: nn.Module) -> str:
    """Return a SHA-256 of a live model's weights, by name."""
    digest = hashlib.sha256()
    for name, weight in sorted(model.state_dict().items()):
        if isinstance(weight, torch.Tensor):
            digest.update(f"{name} {tuple(weight.shape)} {weight.dtype}\n".encode())
            digest.update(weight.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
