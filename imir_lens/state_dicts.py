"""What is inside a checkpoint: finding the weights and the config, checking them, and reading sizes from shapes."""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from imir_lens.errors import CheckpointError

STATE_KEYS = ("state_dict", "model", "model_state_dict")
CONFIG_KEYS = ("cfg", "config")
_BUFFERS = ("attn.mask", "attn.IGNORE", "attn.rotary_sin", "attn.rotary_cos")
# The same in models of other libraries, whose converters drop them.
_OTHER_BUFFERS = (".attn.bias", ".attn.masked_bias", ".attention.bias", ".attention.masked_bias", ".inv_freq")
_BLOCK = re.compile(r"blocks\.(\d+)\.")
# What shapes do not tell; the value is the usual one, shown in the error as a line to copy.
_USUAL = {
    "normalization_type": "None",
    "positional_embedding_type": "standard",
    "n_ctx": "24",
    "n_heads": "4",
    "rotary_adjacent_pairs": "False",
    "use_attn_scale": "True",
    "act_fn": "gelu",
}


def split_payload(payload: object, *, name: str) -> tuple[dict[Any, Any], dict[str, Any] | None, dict[str, Any]]:
    """Find the state dict and the config in what `torch.save` was given.

    Args:
        payload: a state dict, or a dict holding one under `state_dict` or `model` and its config under `cfg` or
            `config`.
        name: the file's name, for messages.

    Returns:
        The state dict, the config (None for a bare state dict) and everything else that was saved.

    Raises:
        CheckpointError: when there is no state dict.
    """
    expected = "expected a state dict or {'state_dict': …, 'cfg': …}"
    if not isinstance(payload, Mapping):
        what = f"a list of {len(payload)} items" if isinstance(payload, list) else f"a {type(payload).__name__}"
        raise CheckpointError(f"{name}: not a checkpoint: {expected}, found {what}; save one model's state dict")
    for key in STATE_KEYS:
        if isinstance(payload.get(key), Mapping):
            break
    else:
        if payload and all(isinstance(value, Tensor) for value in payload.values()):
            return dict(payload), None, {}
        raise CheckpointError(f"{name}: not a checkpoint: {expected}, found {_listing(payload)}")
    config_key = next((k for k in CONFIG_KEYS if payload.get(k) is not None), None)
    config = None if config_key is None else payload[config_key]
    if config is not None and not isinstance(config, Mapping):
        raise CheckpointError(
            f"{name}: {config_key!r} holds a {type(config).__name__}: expected a dict, e.g. model.cfg.to_dict()"
        )
    extra = {str(k): v for k, v in payload.items() if k not in (key, config_key)}
    return dict(payload[key]), None if config is None else plain_config(config), extra


def plain_config(config: Mapping[Any, Any]) -> dict[str, Any]:
    """Return a config as JSON values: numpy scalars become numbers, dtypes and devices their names."""
    return {str(key): _plain(value) for key, value in config.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, torch.dtype | torch.device | np.dtype):
        return str(value)
    if isinstance(value, Mapping):
        return plain_config(value)
    if isinstance(value, list | tuple | set):
        return [_plain(item) for item in value]
    return value


def check_state(state: Mapping[Any, Any], *, name: str) -> dict[str, Tensor]:
    """Return a state dict of which every weight is a dense, floating-point, finite tensor that the file holds in full.

    The masks and rotary tables that TransformerLens saves beside the weights may be of any numbers; the model compares
    them with its config.

    Raises:
        CheckpointError: when a weight is anything else; the message names it.
    """
    weights: dict[str, Tensor] = {}
    for key, value in state.items():
        if not isinstance(key, str) or not isinstance(value, Tensor):
            raise CheckpointError(f"{name}: {key!r} holds a {type(value).__name__}: expected named tensors only")
        weights[key] = value.detach()
        table = key.endswith((*_BUFFERS, *_OTHER_BUFFERS))
        if value.layout is not torch.strided or value.is_meta or not (table or value.is_floating_point()):
            kind = str(value.dtype).removeprefix("torch.")
            raise CheckpointError(f"{name}: {key!r} is a tensor of {kind}: expected dense floating-point weights")
        held = value.untyped_storage().nbytes() // value.element_size()
        if held < value.numel():
            # An expanded tensor: a few bytes that would fill the memory once anything is computed from them.
            raise CheckpointError(
                f"{name}: {key!r} has shape {list(value.shape)}, but the file holds only {held} numbers for it: "
                "save a contiguous tensor"
            )
        if table:
            continue
        if bad := int((~torch.isfinite(value)).sum()):
            raise CheckpointError(
                f"{name}: {key!r} has {bad} values that are NaN or infinite, of {value.numel()}: "
                "the run diverged or the file is damaged; use an earlier checkpoint"
            )
    return weights


def infer_config(state: Mapping[str, Any], *, known: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Read a config from a bare state dict's shapes.

    The number of layers, heads and key-value heads, d_model, d_head, d_mlp, both vocabularies, the context length,
    whether there are MLPs, and LN against RMS are all visible. What is not (LNPre against no norm, the positions of a
    model without W_pos, the rotary order, the attention scale, the activation) must be in `known`. The rest takes
    TransformerLens' defaults (W_pos is added to the embedding, MLPs come after attention, causal, no window, eps 1e-5,
    no soft caps) unless `known` says otherwise.

    Args:
        state: the state dict, with TransformerLens' names and its buffers.
        known: fields given by the user.
        name: the file's name, for messages.

    Returns:
        The config, `known` included.

    Raises:
        CheckpointError: when names or shapes are not a HookedTransformer's, or a field that shapes do not tell is
            missing; the message has the option line to copy.
    """
    required = {"embed.W_E": 2, "unembed.W_U": 2, "blocks.0.attn.W_Q": 3}
    for key, ndim in required.items():
        if key not in state or state[key].ndim != ndim:
            found = _listing(state)
            raise CheckpointError(
                f"{name}: not a HookedTransformer state dict: expected {key!r} with {ndim} axes, found {found}"
            )
    heads, d_model, d_head = state["blocks.0.attn.W_Q"].shape
    config: dict[str, Any] = {
        "n_layers": 1 + max(int(match[1]) for match in map(_BLOCK.match, state) if match),
        "n_heads": heads,
        "d_model": d_model,
        "d_head": d_head,
        "d_vocab": len(state["embed.W_E"]),
        "d_vocab_out": state["unembed.W_U"].shape[1],
        "attn_only": "blocks.0.mlp.W_in" not in state,
    }
    unknown = [] if "attn_scale" in known else ["use_attn_scale"]
    if "blocks.0.attn._W_K" in state:
        config["n_key_value_heads"] = len(state["blocks.0.attn._W_K"])
    if not config["attn_only"]:
        config["d_mlp"] = state["blocks.0.mlp.W_in"].shape[-1]
        config["gated_mlp"] = "blocks.0.mlp.W_gate" in state
        unknown.append("act_fn")
    if "blocks.0.ln1.w" in state:
        config["normalization_type"] = "LN" if "blocks.0.ln1.b" in state else "RMS"
    else:
        unknown.append("normalization_type")
    if "pos_embed.W_pos" in state:
        config["n_ctx"] = len(state["pos_embed.W_pos"])
        config["positional_embedding_type"] = "standard"
    elif "blocks.0.attn.rotary_sin" in state:
        config["n_ctx"], config["rotary_dim"] = state["blocks.0.attn.rotary_sin"].shape
        config["positional_embedding_type"] = "rotary"
        unknown.append("rotary_adjacent_pairs")
    else:
        unknown += ["positional_embedding_type", "n_ctx"]
    return require_known(config, known, unknown, name=name)


def require_known(
    config: Mapping[str, Any], known: Mapping[str, Any], unknown: list[str], *, name: str
) -> dict[str, Any]:
    """Merge what shapes and the user say; raise when a field of `unknown` is in neither.

    Raises:
        CheckpointError: naming the missing fields and the option to give them with.
    """
    missing = [field for field in unknown if field not in known]
    if missing:
        found = " ".join(f"{key}={value}" for key, value in config.items())
        line = " ".join(f"--model {field}={_USUAL[field]}" for field in missing)
        raise CheckpointError(
            f"{name}: a state dict without cfg: its shapes give {found}, but not {', '.join(missing)}: "
            f"pass --config FILE, or the values it was trained with, e.g. {line} (in Python: overrides)"
        )
    return {**config, **known}


def _listing(mapping: Mapping[Any, Any]) -> str:
    keys = [repr(key) for key in list(mapping)[:4]]
    return f"{len(mapping)} entries ({', '.join(keys)}{', …' if len(mapping) > 4 else ''})" if keys else "an empty dict"
