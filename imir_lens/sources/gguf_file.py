"""`.gguf` files of Llama's shape as a Hugging Face Llama: its weights, its config, its vocabulary."""

from pathlib import Path
from typing import Any

import numpy as np
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from imir_lens.errors import CheckpointError, ImirError, UnsupportedModelError
from imir_lens.sources.gguf_header import read_header
from imir_lens.sources.gguf_numbers import dequantised

_OUTER = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_BLOCK = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_TOKENS = "tokenizer.ggml.tokens"


def read_gguf(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read a GGUF file as a Hugging Face Llama, its weights dequantised to float32.

    Such files hold the rows of W_Q and W_K so that rotated pairs are adjacent; the result has them in Hugging Face's
    order, where pairs are (i, i + d_head / 2).

    Args:
        path: the file.

    Returns:
        the state dict and the config.

    Raises:
        OptionError: when it is quantised and the package `gguf` is not installed.
        CheckpointError: when the file is missing, damaged, or lacks something.
        UnsupportedModelError: when it is no Llama, or a quantisation is unknown.
    """
    try:
        return _convert(path)
    except ImirError as error:
        if str(path) in str(error):
            raise
        raise type(error)(f"{path}: {error}") from error


def gguf_tokens(path: str | Path) -> list[str]:
    """Return the vocabulary of a GGUF file, as its tokenizer writes tokens: a token's id is its place in the list.

    Args:
        path: the file; the package `gguf` is not needed.

    Raises:
        CheckpointError: when the file is missing or damaged, or has no vocabulary.
    """
    tokens = read_header(Path(path)).metadata.get(_TOKENS)
    if not isinstance(tokens, list):
        raise CheckpointError(f"{path}: no vocabulary: expected a list of texts under {_TOKENS}")
    return tokens


def half_split(rows: Float[Tensor, "head_d_head *rest"], heads: int) -> Float[Tensor, "head_d_head *rest"]:
    """Reorder the rows of W_Q or W_K, head by head, from adjacent pairs to halves.

    Raises:
        CheckpointError: when there is no even number of rows a head.
    """
    if rows.shape[0] % (2 * heads):
        raise CheckpointError(f"a weight of {rows.shape[0]} rows does not split into pairs of {heads} heads")
    return rearrange(rows, "(head pair two) ... -> (head two pair) ...", head=heads, two=2)


def _convert(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    file = read_header(path)
    config = _config(file.metadata)
    heads = {".q_proj.": config["num_attention_heads"], ".k_proj.": config["num_key_value_heads"]}
    state: dict[str, Tensor] = {}
    for name in file.tensors:
        target = _target(name)
        weight = dequantised(file, name)
        turned = next((count for part, count in heads.items() if part in target), None)
        state[target] = weight if turned is None else half_split(weight, turned)
    config["tie_word_embeddings"] = "lm_head.weight" not in state
    if "vocab_size" not in config and "model.embed_tokens.weight" in state:
        config["vocab_size"] = len(state["model.embed_tokens.weight"])
    return state, config


def _config(metadata: dict[str, Any]) -> dict[str, Any]:
    architecture = metadata.get("general.architecture")
    if architecture != "llama":
        raise UnsupportedModelError(f"a GGUF file of architecture {architecture!r}: expected 'llama'")
    found = {key.removeprefix("llama."): value for key, value in metadata.items() if key.startswith("llama.")}
    if kept := [key for key, value in found.items() if isinstance(value, list | np.ndarray)]:
        raise UnsupportedModelError(f"llama.{kept[0]} is a list: expected one value for all layers")
    heads, width = (_count(found, key) for key in ("attention.head_count", "embedding_length"))
    groups = _count({"attention.head_count_kv": heads, **found}, "attention.head_count_kv")
    d_head = found.get("attention.key_length", width // heads)
    for key in ("attention.value_length", "rope.dimension_count"):
        if found.get(key, d_head) != d_head:
            raise UnsupportedModelError(f"llama.{key} is {found[key]}: expected {d_head}, the width of a head")
    if found.get("expert_count"):
        raise UnsupportedModelError(f"llama.expert_count is {found['expert_count']}: expected a model without experts")
    config = {
        "model_type": "llama",
        "hidden_size": width,
        "num_attention_heads": heads,
        "num_key_value_heads": groups,
        "head_dim": d_head,
        "num_hidden_layers": found.get("block_count"),
        "intermediate_size": found.get("feed_forward_length"),
        "max_position_embeddings": found.get("context_length"),
        "rms_norm_eps": found.get("attention.layer_norm_rms_epsilon"),
        "rope_theta": found.get("rope.freq_base"),
        "sliding_window": found.get("attention.sliding_window"),
        "vocab_size": found.get("vocab_size"),
    }
    if found.get("rope.scaling.type", "none") != "none" or found.get("rope.scaling.factor", 1.0) != 1.0:
        config["rope_scaling"] = {"rope_type": found.get("rope.scaling.type", "linear")}
    return {key: value for key, value in config.items() if value is not None}


def _count(found: dict[str, Any], key: str) -> int:
    value = found.get(key)
    if not isinstance(value, int) or value < 1:
        raise CheckpointError(f"llama.{key} is {value!r}: expected a positive whole number")
    return value


def _target(name: str) -> str:
    if name in _OUTER:
        return _OUTER[name]
    if name == "rope_freqs.weight":
        raise UnsupportedModelError(f"holds {name!r}, rescaled rotary positions, which are not supported yet")
    block, layer, part, kind, *more = [*name.split("."), "", "", ""]
    if block == "blk" and layer.isdigit() and part in _BLOCK and kind in ("weight", "bias") and not any(more):
        return f"model.layers.{layer}.{_BLOCK[part]}.{kind}"
    raise UnsupportedModelError(f"holds {name!r}, which no Llama has: expected e.g. 'blk.0.attn_q.weight'")
