"""The fields of a TransformerLens `cfg`, sorted by what they mean for a loaded model.

A field of 2.18, 3.9 or 4.x is either read by `TransformerConfig`, or here: without influence on the computation, or
allowed at its neutral value only. Anything else is refused, so that no flag is ever ignored in silence.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from reprlib import repr as short
from typing import Any

from imir_lens.errors import UnsupportedModelError

# Bookkeeping: where the model runs, how it was made, how text becomes tokens, which extra hooks it offers.
_BOOKKEEPING = """
    device n_devices seed init_mode init_weights n_params model_name trust_remote_code split_attention_weights
    tokenizer_name tokenizer_prepends_bos tokenizer_appends_eos default_prepend_bos default_padding_side
    from_checkpoint checkpoint_index checkpoint_label_type checkpoint_value use_hook_tokens attn_implementation
    tie_word_embeddings layer_norm_folding uses_rms_norm
    eval metrics training notes description
"""
# Read only where a flag of NEUTRAL is on.
_DETAILS = """
    experts_per_token norm_topk_prob train_seq_length decoder_start_token_id
    relative_attention_max_distance relative_attention_num_buckets
    NTK_by_parts_low_freq_factor NTK_by_parts_high_freq_factor NTK_by_parts_factor NTK_original_ctx_len
    yarn_factor yarn_attention_factor yarn_beta_fast yarn_beta_slow yarn_original_max_position_embeddings
    yarn_truncate yarn_global_attn_only
    vision_hidden_size vision_num_layers vision_num_heads mm_tokens_per_image
"""
WITHOUT_INFLUENCE = frozenset((_BOOKKEEPING + _DETAILS).split())

_OFF = (None, False)
# name → (values that leave the computation as it is, what any other value asks for)
NEUTRAL: dict[str, tuple[tuple[Any, ...], str]] = {
    "num_experts": (_OFF, "mixtures of experts"),
    "scale_attn_by_inverse_layer_idx": (_OFF, "a score scale that changes with the layer"),
    "use_qk_norm": (_OFF, "normalised queries and keys"),
    "qk_norm_after_rope": (_OFF, "normalised queries and keys"),
    "clip_qkv": (_OFF, "clipped queries, keys and values"),
    "use_logn_attn": (_OFF, "log-n query scaling"),
    "use_attention_sinks": (_OFF, "attention sinks"),
    "use_dynamic_ntk_rope": (_OFF, "rescaled rotary positions"),
    "use_NTK_by_parts_rope": (_OFF, "rescaled rotary positions"),
    "use_yarn_rope": (_OFF, "rescaled rotary positions"),
    "rotary_scaling_factor": ((*_OFF, 1), "rescaled rotary positions"),
    "rope_scaling": (_OFF, "rescaled rotary positions"),
    "rotary_interleaved_cos_sin": (_OFF, "another rotary layout"),
    "post_embedding_ln": (_OFF, "a norm after the embedding"),
    "use_normalization_before_and_after": (_OFF, "a second norm after each sublayer"),
    "rmsnorm_uses_offset": (_OFF, "RMS norms with an offset"),
    "scale_embedding": (_OFF, "scaled embeddings"),
    "load_in_4bit": (_OFF, "quantised weights"),
    "quantization_method": (_OFF, "quantised weights"),
    "per_layer_head_dim": (_OFF, "head sizes that differ by layer"),
    "per_layer_num_key_value_heads": (_OFF, "head counts that differ by layer"),
    "is_audio_model": (_OFF, "audio models"),
    "is_visual_model": (_OFF, "vision models"),
    "is_stateful": (_OFF, "recurrent models"),
    "is_multimodal": (_OFF, "multimodal models"),
}
# HookedTransformer keys its computation on these names; every other architecture is described by the flags alone.
_SPECIAL_ARCHITECTURES = ("OlmoeForCausalLM", "Olmo2ForCausalLM", "Olmo3ForCausalLM", "GptOssForCausalLM")
NATIVE = "TransformerLensNative"


def refuse_unsupported(cfg: Mapping[str, Any], *, known: frozenset[str]) -> None:
    """Refuse a cfg that asks for something that would not be computed.

    Args:
        cfg: the cfg dict.
        known: the fields that the reader itself understands.

    Raises:
        UnsupportedModelError: for the first such field, with its value and what it asks for.
    """
    for name, value in cfg.items():
        if name in known or name in WITHOUT_INFLUENCE:
            continue
        if name in NEUTRAL:
            neutral, meaning = NEUTRAL[name]
            if value not in neutral:
                raise UnsupportedModelError(f"cfg sets {name}={short(value)}, which is not supported yet: {meaning}")
        elif name == "original_architecture":
            if value in _SPECIAL_ARCHITECTURES:
                raise UnsupportedModelError(
                    f"cfg sets {name}={value!r}, which is not supported yet: that family places its norms differently"
                )
        elif name == "architecture":
            if value not in (None, NATIVE):
                raise UnsupportedModelError(
                    f"cfg sets {name}={short(value)}, which is not supported yet: expected a model in "
                    "HookedTransformer's format, not one of the bridge's Hugging Face families"
                )
        elif value is not None and value is not False:
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}? Otherwise " if near else ""
            raise UnsupportedModelError(
                f"cfg sets {name}={short(value)}, a field that is not known here and may change the computation; "
                f"{hint}remove it from the cfg if it does not"
            )


def as_hooked_transformer(cfg: Mapping[str, Any]) -> dict[str, Any]:
    """Return the cfg of a TransformerLens 4 native model as the cfg of the HookedTransformer that computes the same.

    A native model rotates adjacent pairs whatever `rotary_adjacent_pairs` says, and scales its scores whatever
    `use_attn_scale` says. Any other cfg comes back unchanged.

    Raises:
        UnsupportedModelError: for a native cfg with `use_attn_scale=False`, `use_local_attn=True` or
            `parallel_attn_mlp=True`, as what it asks for is not what it computes.
    """
    if cfg.get("architecture") != NATIVE:
        return dict(cfg)
    if cfg.get("use_attn_scale") is False:
        raise UnsupportedModelError(
            "cfg sets use_attn_scale=False for a TransformerLens native model, which ignores it: "
            "its scores are scaled; set use_attn_scale=True to analyse what it computes"
        )
    if cfg.get("use_local_attn"):
        raise UnsupportedModelError(
            "cfg sets use_local_attn=True for a TransformerLens native model, which ignores it: its queries see all "
            "earlier keys; set use_local_attn=False to load what it computes"
        )
    if cfg.get("parallel_attn_mlp"):
        raise UnsupportedModelError(
            "cfg sets parallel_attn_mlp=True for a TransformerLens native model, which ignores it: its MLPs come after "
            "attention; set parallel_attn_mlp=False to load what it computes"
        )
    return {**cfg, "rotary_adjacent_pairs": True}
