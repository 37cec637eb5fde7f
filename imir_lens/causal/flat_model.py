"""Ordinary transformers on episodes: they read the flattened sequence, example after example, the query last.

Only hooks are used, so norms, MLPs and any kind of positions are welcome: an `ImirTransformer`, a live
HookedTransformer (TransformerLens 3), a TransformerBridge, or a `LensModel` around one of them.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from imir_lens.bridge_state import config_from_bridge, state_from_bridge
from imir_lens.compat import bridge_class
from imir_lens.errors import OptionError, TaskError, UnsupportedModelError
from imir_lens.hooking import Hook, attached, inference
from imir_lens.lens_model import LensModel
from imir_lens.models.config import TransformerConfig
from imir_lens.models.transformer import ImirTransformer
from imir_lens.tasks.episodes import CausalTask, Episodes
from imir_lens.tasks.token_episodes import TokenEpisodes

_NUMBERS = 2**25  # of patterns held at a time
EpisodePatterns = Float[Tensor, "context head position example key"]


def pattern_name(layer: int) -> str:
    """Return the name of the hook at a layer's attention patterns."""
    return f"blocks.{layer}.attn.hook_pattern"


def query_patterns(
    model: nn.Module | LensModel,
    task: CausalTask,
    episodes: Episodes,
    edits: Sequence[tuple[str, Hook]] = (),
) -> tuple[EpisodePatterns, ...]:
    """Return, for each layer, the attention from the query's positions to every position of every example.

    Args:
        model: an ordinary transformer.
        task: whose episodes have a flat layout.
        episodes: any number of examples that fits the model's context; the query is the last of the pattern's examples.
        edits: hooks that act in these runs. They see all contexts of a run, and a run need not hold all contexts.

    Raises:
        TaskError: when the task's episodes are not of tokens.
        UnsupportedModelError: when the model has no patterns to hook, or its queries see the future.
        OptionError: when the episodes are too long for the model, or have tokens that it has not.
    """
    module: Any = model.model if isinstance(model, LensModel) else model
    if not isinstance(task, TokenEpisodes):
        raise TaskError(f"an ordinary transformer reads tokens, and {task.name} has none: expected causal_tree, say")
    tokens = task.flatten(episodes).tokens
    layers = _check(module, int(tokens.shape[1]), task.d)
    nodes = episodes.n_nodes
    step = max(1, _NUMBERS // (layers * int(module.cfg.n_heads) * tokens.shape[1] ** 2))
    parts: list[list[Tensor]] = [[] for _ in range(layers)]

    def keep(layer: int) -> Hook:
        def hook(pattern: Tensor, hook: Any) -> None:
            parts[layer].append(pattern[:, :, -nodes:].detach().to(tokens.device, copy=True))

        return hook

    watchers = [(pattern_name(layer), keep(layer)) for layer in range(layers)]
    device = next(module.parameters()).device
    for some in tokens.split(step):
        with inference(module), attached(module, [*edits, *watchers]):
            module(some.to(device))
    return tuple(torch.cat(part).unflatten(3, (-1, nodes)) for part in parts)


def as_imir_transformer(model: nn.Module | LensModel) -> ImirTransformer:
    """Return an ImirTransformer with a live model's weights: one set of names for all kinds.

    Raises:
        UnsupportedModelError: when the model is of another kind, or computes what an ImirTransformer cannot.
    """
    module: Any = model.model if isinstance(model, LensModel) else model
    if isinstance(module, ImirTransformer):
        return module
    bridge = bridge_class()
    if not hasattr(module, "cfg") or not hasattr(module.cfg, "to_dict"):
        raise UnsupportedModelError(f"a {type(module).__name__} has no weights that can be read: {_EXPECTED}")
    if bridge is not None and isinstance(module, bridge):
        config = TransformerConfig.from_dict(config_from_bridge(module.cfg.to_dict()))
        state = state_from_bridge(
            module.state_dict(), n_heads=config.n_heads, n_key_value_heads=config.n_key_value_heads
        )
    else:
        config, state = TransformerConfig.from_dict(module.cfg.to_dict()), module.state_dict()
    copy = ImirTransformer(config)
    copy.load_transformer_lens_state(state)
    return copy.eval()


_EXPECTED = "expected an ImirTransformer, a HookedTransformer or a TransformerBridge"


def _check(model: Any, length: int, d: int) -> int:
    """Return the number of layers of a model that can read so many of these tokens."""
    if pattern_name(0) not in getattr(model, "hook_dict", {}) or not hasattr(model, "cfg"):
        raise UnsupportedModelError(f"a {type(model).__name__} has no hook {pattern_name(0)!r}: {_EXPECTED}")
    cfg = model.cfg
    if getattr(cfg, "attention_dir", "causal") != "causal":
        raise UnsupportedModelError("the model's positions see what comes after them: expected causal attention")
    if length > cfg.n_ctx:
        raise OptionError(
            f"episodes of {length} tokens do not fit the model's n_ctx={cfg.n_ctx}: ask for fewer examples"
        )
    if d > cfg.d_vocab:
        raise OptionError(f"the task has {d} tokens, and the model {cfg.d_vocab}: set the task's d to the model's")
    return int(cfg.n_layers)
