"""Models of Llama's shape: RMS norms, rotary positions, grouped keys and values, gated MLPs."""

from collections.abc import Mapping
from typing import Any

import torch
from einops import rearrange
from torch import Tensor

from imir_lens.errors import CheckpointError, UnsupportedModelError
from imir_lens.sources.config_fields import (
    ROTARY_CONTEXT,
    activation,
    flag,
    number,
    refuse,
    refuse_common,
    rotary,
    whole,
)
from imir_lens.sources.source_weights import SourceWeights
from imir_lens.sources.unembedding import unembedding


def llama_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return HookedTransformer's config of a Hugging Face Llama or Mistral.

    Args:
        config: its `config.json`.

    Raises:
        UnsupportedModelError: for rescaled rotary positions, sliding windows, MLP biases and whatever else would not
            be computed.
        CheckpointError: for a size that is missing or no number.
    """
    refuse_common(config)
    refuse(config, "mlp_bias", (False,), "biases inside a gated MLP")
    longest = whole(config, "max_position_embeddings", 2048)
    window = config.get("sliding_window")
    if window is not None and whole(config, "sliding_window") < longest:
        raise UnsupportedModelError(
            f"the config sets sliding_window={window}, which is not supported yet: attention to nearby keys only"
        )
    base, share = rotary(config, base=number(config, "rope_theta", 10000.0), share=1.0)
    if share != 1:
        raise UnsupportedModelError(
            f"the config sets partial_rotary_factor={share}, which is not supported yet in a Llama: heads rotated in "
            "part"
        )
    d_model, heads = whole(config, "hidden_size"), whole(config, "num_attention_heads")
    if config.get("head_dim") is None and d_model % heads:
        raise CheckpointError(f"the config gives hidden_size={d_model}: expected a multiple of {heads} heads")
    return {
        "d_model": d_model,
        "n_heads": heads,
        "d_head": whole(config, "head_dim", d_model // heads or 1),
        "n_layers": whole(config, "num_hidden_layers"),
        "n_ctx": min(longest, ROTARY_CONTEXT),
        "d_vocab": whole(config, "vocab_size"),
        "n_key_value_heads": whole(config, "num_key_value_heads", heads),
        "d_mlp": whole(config, "intermediate_size"),
        "gated_mlp": True,
        "act_fn": activation(config, "hidden_act", "silu"),
        "normalization_type": "RMS",
        "eps": number(config, "rms_norm_eps", 1e-6),
        "positional_embedding_type": "rotary",
        "rotary_base": base,
    }


def llama_state(
    weights: SourceWeights, config: Mapping[str, Any], hugging_face: Mapping[str, Any]
) -> dict[str, Tensor]:
    """Return HookedTransformer's weights of a Llama.

    Keys and values keep one slice per group, under `_W_K` and `_W_V`. Rotated pairs are (i, i + d_head / 2) in both
    formats.

    Args:
        weights: the Llama's, under Hugging Face's names.
        config: from `llama_config`.
        hugging_face: its `config.json`, which says whether embedding and unembedding are tied.

    Raises:
        CheckpointError: when a weight is missing, left over, or of a shape that contradicts the config.
    """
    d_model, d_mlp, d_head = config["d_model"], config["d_mlp"], config["d_head"]
    heads, groups, vocab = config["n_heads"], config["n_key_value_heads"], config["d_vocab"]
    weights.drop("rotary_emb.inv_freq")
    embedding = weights.take("model.embed_tokens.weight", vocab, d_model)
    state = {"embed.W_E": embedding}
    for layer in range(config["n_layers"]):
        source, target = f"model.layers.{layer}", f"blocks.{layer}"
        for letter, stem, count in (("q", "W_Q", heads), ("k", "_W_K", groups), ("v", "_W_V", groups)):
            name = f"{source}.self_attn.{letter}_proj"
            weight = weights.take(f"{name}.weight", count * d_head, d_model)
            bias = weights.take_or_zeros(f"{name}.bias", count * d_head)
            state[f"{target}.attn.{stem}"] = rearrange(weight, "(h d) m -> h m d", h=count)
            state[f"{target}.attn.{stem.replace('W', 'b')}"] = rearrange(bias, "(h d) -> h d", h=count)
        out = weights.take(f"{source}.self_attn.o_proj.weight", d_model, heads * d_head)
        state[f"{target}.attn.W_O"] = rearrange(out, "m (h d) -> h d m", h=heads)
        state[f"{target}.attn.b_O"] = weights.take_or_zeros(f"{source}.self_attn.o_proj.bias", d_model)
        state[f"{target}.ln1.w"] = weights.take(f"{source}.input_layernorm.weight", d_model)
        state[f"{target}.ln2.w"] = weights.take(f"{source}.post_attention_layernorm.weight", d_model)
        state[f"{target}.mlp.W_gate"] = weights.take(f"{source}.mlp.gate_proj.weight", d_mlp, d_model).T
        state[f"{target}.mlp.W_in"] = weights.take(f"{source}.mlp.up_proj.weight", d_mlp, d_model).T
        state[f"{target}.mlp.W_out"] = weights.take(f"{source}.mlp.down_proj.weight", d_model, d_mlp).T
        state[f"{target}.mlp.b_in"] = torch.zeros(d_mlp)
        state[f"{target}.mlp.b_out"] = torch.zeros(d_model)
    state["ln_final.w"] = weights.take("model.norm.weight", d_model)
    tied = flag(hugging_face, "tie_word_embeddings", False)
    state["unembed.W_U"] = unembedding(weights, ("lm_head.weight",), embedding, tied=tied).T
    state["unembed.b_U"] = torch.zeros(vocab)
    weights.finish()
    return state
