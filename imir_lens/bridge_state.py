"""Native TransformerBridge weights (TransformerLens 4) in HookedTransformer's names and shapes.

Its config needs no translation: from the `architecture` field, `TransformerConfig.from_dict` knows what a native model
computes, and refuses the flags that it ignores.
"""

import re
from collections.abc import Mapping
from typing import Any

from einops import rearrange
from torch import Tensor

from imir_lens.errors import CheckpointError, UnsupportedModelError
from imir_lens.models.cfg_fields import NATIVE
from imir_lens.state_dicts import plain_config

_PROJECTION = re.compile(r"(blocks\.\d+\.attn\.)([qkvo])\.(weight|bias)")
_MLP = re.compile(r"(blocks\.\d+\.mlp\.)(in|out|gate)\.(weight|bias)")
_NORM = re.compile(r"((?:blocks\.\d+\.ln[12]|ln_final|blocks\.\d+\.mlp\.ln)\.)(weight|bias)")
_OUTER = {"embed.weight": "embed.W_E", "pos_embed.weight": "pos_embed.W_pos", "unembed.bias": "unembed.b_U"}


def is_bridge_state(state: Mapping[str, Any]) -> bool:
    """Whether the names are a native bridge's."""
    return "embed.weight" in state and "blocks.0.attn.q.weight" in state


def config_from_bridge(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config of a native bridge, marked as such.

    Raises:
        UnsupportedModelError: when the bridge wraps a Hugging Face model: whether a square weight is [input, output] or
            [output, input] is known to the live bridge only (`imir_lens.sources.live_bridge`).
    """
    architecture = config.get("architecture")
    if architecture not in (None, NATIVE):
        raise UnsupportedModelError(
            f"a TransformerBridge over {architecture!r}, once saved, does not tell which way round its weights are: "
            "give the live bridge, or the directory of the Hugging Face model"
        )
    return {**plain_config(config), "architecture": NATIVE}


def state_from_bridge(state: Mapping[str, Tensor], *, n_heads: int, n_key_value_heads: int | None) -> dict[str, Tensor]:
    """Translate a native bridge's state dict.

    Linear weights `[(head d_head), d_model]` become `W_Q [head, d_model, d_head]` and so on. Keys and values whose
    groups are counted keep them, under TransformerLens' names `_W_K`, `_W_V`.

    Raises:
        CheckpointError: for a name that no native bridge has, or a weight that the heads do not divide.
    """
    return dict(_translate(key, value, n_heads, n_key_value_heads) for key, value in state.items())


def _translate(key: str, value: Tensor, heads: int, kv_heads: int | None) -> tuple[str, Tensor]:
    if key in _OUTER:
        return _OUTER[key], value
    if key == "unembed.weight":
        return "unembed.W_U", value.T
    if match := _NORM.fullmatch(key):
        return match[1] + match[2][0], value
    if match := _MLP.fullmatch(key):
        prefix, name, kind = match.groups()
        return (f"{prefix}W_{name}", value.T) if kind == "weight" else (f"{prefix}b_{name}", value)
    if match := _PROJECTION.fullmatch(key):
        return _translate_projection(match, value, heads, kv_heads)
    raise CheckpointError(
        f"{key!r} is not an entry of a native TransformerBridge: expected e.g. 'blocks.0.attn.q.weight'"
    )


def _translate_projection(match: re.Match[str], value: Tensor, heads: int, kv_heads: int | None) -> tuple[str, Tensor]:
    prefix, name, kind = match.groups()
    groups = (kv_heads or heads) if name in "kv" else heads
    if name == "o" and kind == "bias":
        return f"{prefix}b_O", value
    if value.shape[-1 if name == "o" else 0] % groups:
        raise CheckpointError(f"{match[0]!r} of shape {list(value.shape)} does not split into {groups} heads")
    stem = "_" if name in "kv" and kv_heads is not None else ""
    if kind == "bias":
        return f"{prefix}{stem}b_{name.upper()}", rearrange(value, "(h d) -> h d", h=groups)
    pattern = "m (h d) -> h d m" if name == "o" else "(h d) m -> h m d"
    return f"{prefix}{stem}W_{name.upper()}", rearrange(value, pattern, h=groups)
