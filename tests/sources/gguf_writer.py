"""Small GGUF files, written by the package `gguf` as llama.cpp's converter orders them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

gguf = pytest.importorskip("gguf", reason="the package gguf is not installed")


def write_llama(model: Any, path: Path, *, dtype: Any = np.float32, **changes: Any) -> Path:
    """Write a Hugging Face Llama; `changes` replace metadata, None leaves an entry out."""
    config = model.config
    heads, groups = config.num_attention_heads, config.num_key_value_heads
    metadata = {
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "block_count": config.num_hidden_layers,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": heads,
        "attention.head_count_kv": groups,
        "attention.key_length": config.head_dim,
        "attention.value_length": config.head_dim,
        "rope.dimension_count": config.head_dim,
    } | changes
    writer = gguf.GGUFWriter(path, "llama")
    for name, value in metadata.items():
        if value is not None:
            (writer.add_string if isinstance(value, str) else writer.add_uint32)(f"llama.{name}", value)
    writer.add_float32("llama.attention.layer_norm_rms_epsilon", config.rms_norm_eps)
    writer.add_float32("llama.rope.freq_base", config.rope_parameters["rope_theta"])
    writer.add_array("tokenizer.ggml.tokens", [f"word{i}" for i in range(config.vocab_size)])
    for name, weight in model.state_dict().items():
        values = weight.detach()
        if "q_proj" in name or "k_proj" in name:
            values = _adjacent_pairs(values, heads if "q_proj" in name else groups)
        kind = np.float32 if values.ndim == 1 else dtype
        writer.add_tensor(_gguf_name(name), np.ascontiguousarray(values.numpy().astype(kind)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _adjacent_pairs(rows: torch.Tensor, heads: int) -> torch.Tensor:
    """llama.cpp's `permute`: entries i and i + d_head / 2 of a head become neighbours."""
    shape = rows.shape
    return rows.reshape(heads, 2, shape[0] // heads // 2, *shape[1:]).swapaxes(1, 2).reshape(shape)


def _gguf_name(name: str) -> str:
    for theirs, ours in (
        ("model.layers.", "blk."),
        ("model.embed_tokens", "token_embd"),
        ("model.norm", "output_norm"),
        ("lm_head", "output"),
        ("self_attn.o_proj", "attn_output"),
        ("self_attn.", "attn_"),
        ("mlp.", "ffn_"),
        ("_proj", ""),
        ("input_layernorm", "attn_norm"),
        ("post_attention_layernorm", "ffn_norm"),
    ):
        name = name.replace(theirs, ours)
    return name
