"""Models of GPT-2's shape: layer norms, learned positions, biases everywhere, a tied embedding."""

from collections.abc import Mapping
from typing import Any

import torch
from einops import rearrange
from torch import Tensor

from imir_lens.errors import CheckpointError
from imir_lens.sources.config_fields import activation, flag, number, refuse, refuse_common, whole
from imir_lens.sources.source_weights import SourceWeights
from imir_lens.sources.unembedding import unembedding


def gpt2_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return HookedTransformer's config of a Hugging Face GPT-2.

    Args:
        config: its `config.json`.

    Raises:
        UnsupportedModelError: for score scales that differ by layer, and whatever else would not be computed.
        CheckpointError: for a size that is missing or no number.
    """
    refuse_common(config)
    refuse(config, "scale_attn_by_inverse_layer_idx", (False,), "a score scale that changes with the layer")
    d_model, heads = whole(config, "n_embd", 768), whole(config, "n_head", 12)
    if d_model % heads:
        raise CheckpointError(f"the config gives n_embd={d_model}: expected a multiple of {heads} heads")
    return {
        "d_model": d_model,
        "n_heads": heads,
        "d_head": d_model // heads,
        "n_layers": whole(config, "n_layer", 12),
        "n_ctx": whole(config, "n_positions", 1024),
        "d_vocab": whole(config, "vocab_size", 50257),
        "d_mlp": whole(config, "n_inner", 4 * d_model),
        "act_fn": activation(config, "activation_function", "gelu_new"),
        "normalization_type": "LN",
        "eps": number(config, "layer_norm_epsilon", 1e-5),
        "positional_embedding_type": "standard",
        "use_attn_scale": flag(config, "scale_attn_weights", True),
    }


def gpt2_state(weights: SourceWeights, config: Mapping[str, Any], hugging_face: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return HookedTransformer's weights of a GPT-2.

    Its projections are kept as [input, output]; `c_attn` puts queries, keys and values side by side.

    Args:
        weights: the GPT-2's, under Hugging Face's names.
        config: from `gpt2_config`.
        hugging_face: its `config.json`, which says whether embedding and unembedding are tied.

    Raises:
        CheckpointError: when a weight is missing, left over, or of a shape that contradicts the config.
    """
    d_model, d_mlp, heads = config["d_model"], config["d_mlp"], config["n_heads"]
    weights.drop(".attn.bias", ".attn.masked_bias")  # masks
    embedding = weights.take("transformer.wte.weight", config["d_vocab"], d_model)
    state = {
        "embed.W_E": embedding,
        "pos_embed.W_pos": weights.take("transformer.wpe.weight", config["n_ctx"], d_model),
    }
    for layer in range(config["n_layers"]):
        source, target = f"transformer.h.{layer}", f"blocks.{layer}"
        weight = weights.take(f"{source}.attn.c_attn.weight", d_model, 3 * d_model)
        bias = weights.take(f"{source}.attn.c_attn.bias", 3 * d_model)
        for letter, part, offset in zip("QKV", weight.chunk(3, dim=1), bias.chunk(3), strict=True):
            state[f"{target}.attn.W_{letter}"] = rearrange(part, "m (h d) -> h m d", h=heads)
            state[f"{target}.attn.b_{letter}"] = rearrange(offset, "(h d) -> h d", h=heads)
        out = weights.take(f"{source}.attn.c_proj.weight", d_model, d_model)
        state[f"{target}.attn.W_O"] = rearrange(out, "(h d) m -> h d m", h=heads)
        state[f"{target}.attn.b_O"] = weights.take(f"{source}.attn.c_proj.bias", d_model)
        for norm in (1, 2):
            state[f"{target}.ln{norm}.w"] = weights.take(f"{source}.ln_{norm}.weight", d_model)
            state[f"{target}.ln{norm}.b"] = weights.take(f"{source}.ln_{norm}.bias", d_model)
        state[f"{target}.mlp.W_in"] = weights.take(f"{source}.mlp.c_fc.weight", d_model, d_mlp)
        state[f"{target}.mlp.b_in"] = weights.take(f"{source}.mlp.c_fc.bias", d_mlp)
        state[f"{target}.mlp.W_out"] = weights.take(f"{source}.mlp.c_proj.weight", d_mlp, d_model)
        state[f"{target}.mlp.b_out"] = weights.take(f"{source}.mlp.c_proj.bias", d_model)
    state["ln_final.w"] = weights.take("transformer.ln_f.weight", d_model)
    state["ln_final.b"] = weights.take("transformer.ln_f.bias", d_model)
    tied = flag(hugging_face, "tie_word_embeddings", True)
    state["unembed.W_U"] = unembedding(weights, ("lm_head.weight",), embedding, tied=tied).T
    state["unembed.b_U"] = torch.zeros(config["d_vocab"])
    weights.finish()
    return state
