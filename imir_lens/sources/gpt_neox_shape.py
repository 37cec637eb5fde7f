"""Models of GPT-NeoX's shape (Pythia): layer norms, heads rotated in part, attention and MLP side by side."""

from collections.abc import Mapping
from typing import Any

import torch
from einops import rearrange
from torch import Tensor

from imir_lens.errors import CheckpointError
from imir_lens.sources.config_fields import ROTARY_CONTEXT, activation, flag, number, refuse_common, rotary, whole
from imir_lens.sources.source_weights import SourceWeights
from imir_lens.sources.unembedding import unembedding


def gpt_neox_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return HookedTransformer's config of a Hugging Face GPT-NeoX.

    Args:
        config: its `config.json`.

    Raises:
        UnsupportedModelError: for rescaled rotary positions, and whatever else would not be computed.
        CheckpointError: for a size that is missing or no number.
    """
    refuse_common(config)
    d_model, heads = whole(config, "hidden_size"), whole(config, "num_attention_heads")
    if d_model % heads:
        raise CheckpointError(f"the config gives hidden_size={d_model}: expected a multiple of {heads} heads")
    base, share = rotary(
        config, base=number(config, "rotary_emb_base", 10000.0), share=number(config, "rotary_pct", 0.25)
    )
    return {
        "d_model": d_model,
        "n_heads": heads,
        "d_head": d_model // heads,
        "n_layers": whole(config, "num_hidden_layers"),
        "n_ctx": min(whole(config, "max_position_embeddings", 2048), ROTARY_CONTEXT),
        "d_vocab": whole(config, "vocab_size"),
        "d_mlp": whole(config, "intermediate_size"),
        "act_fn": activation(config, "hidden_act", "gelu"),
        "normalization_type": "LN",
        "eps": number(config, "layer_norm_eps", 1e-5),
        "positional_embedding_type": "rotary",
        "rotary_base": base,
        "rotary_dim": int(d_model // heads * share),
        "parallel_attn_mlp": flag(config, "use_parallel_residual", True),
    }


def gpt_neox_state(
    weights: SourceWeights, config: Mapping[str, Any], hugging_face: Mapping[str, Any]
) -> dict[str, Tensor]:
    """Return HookedTransformer's weights of a GPT-NeoX.

    `query_key_value` holds the query, the key and the value of one head, then those of the next.

    Args:
        weights: the GPT-NeoX's, under Hugging Face's names.
        config: from `gpt_neox_config`.
        hugging_face: its `config.json`, which says whether embedding and unembedding are tied.

    Raises:
        CheckpointError: when a weight is missing, left over, or of a shape that contradicts the config.
    """
    d_model, d_mlp, heads = config["d_model"], config["d_mlp"], config["n_heads"]
    weights.drop(".attention.bias", ".attention.masked_bias", "rotary_emb.inv_freq")  # masks and tables
    embedding = weights.take("gpt_neox.embed_in.weight", config["d_vocab"], d_model)
    state = {"embed.W_E": embedding}
    for layer in range(config["n_layers"]):
        source, target = f"gpt_neox.layers.{layer}", f"blocks.{layer}"
        weight = weights.take(f"{source}.attention.query_key_value.weight", 3 * d_model, d_model)
        bias = weights.take_or_zeros(f"{source}.attention.query_key_value.bias", 3 * d_model)
        per_letter = rearrange(weight, "(h three d) m -> three h m d", h=heads, three=3)
        offsets = rearrange(bias, "(h three d) -> three h d", h=heads, three=3)
        for letter, part, offset in zip("QKV", per_letter, offsets, strict=True):
            state[f"{target}.attn.W_{letter}"], state[f"{target}.attn.b_{letter}"] = part, offset
        out = weights.take(f"{source}.attention.dense.weight", d_model, d_model)
        state[f"{target}.attn.W_O"] = rearrange(out, "m (h d) -> h d m", h=heads)
        state[f"{target}.attn.b_O"] = weights.take_or_zeros(f"{source}.attention.dense.bias", d_model)
        for norm, name in ((1, "input_layernorm"), (2, "post_attention_layernorm")):
            state[f"{target}.ln{norm}.w"] = weights.take(f"{source}.{name}.weight", d_model)
            state[f"{target}.ln{norm}.b"] = weights.take(f"{source}.{name}.bias", d_model)
        state[f"{target}.mlp.W_in"] = weights.take(f"{source}.mlp.dense_h_to_4h.weight", d_mlp, d_model).T
        state[f"{target}.mlp.b_in"] = weights.take(f"{source}.mlp.dense_h_to_4h.bias", d_mlp)
        state[f"{target}.mlp.W_out"] = weights.take(f"{source}.mlp.dense_4h_to_h.weight", d_model, d_mlp).T
        state[f"{target}.mlp.b_out"] = weights.take(f"{source}.mlp.dense_4h_to_h.bias", d_model)
    state["ln_final.w"] = weights.take("gpt_neox.final_layer_norm.weight", d_model)
    state["ln_final.b"] = weights.take("gpt_neox.final_layer_norm.bias", d_model)
    tied = flag(hugging_face, "tie_word_embeddings", False)
    state["unembed.W_U"] = unembedding(weights, ("embed_out.weight", "lm_head.weight"), embedding, tied=tied).T
    state["unembed.b_U"] = torch.zeros(config["d_vocab"])
    weights.finish()
    return state
