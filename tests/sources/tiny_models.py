"""Tiny random Hugging Face models of every shape that is read, with all weights away from their initial ones."""

from pathlib import Path
from typing import Any

import pytest
import torch

transformers = pytest.importorskip("transformers")

_LLAMA = {
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "hidden_size": 24,
    "head_dim": 8,  # not hidden_size / heads
    "intermediate_size": 20,
    "vocab_size": 40,
    "max_position_embeddings": 32,
    "rms_norm_eps": 0.01,
    "rope_parameters": {"rope_type": "default", "rope_theta": 50.0},
}
_NEOX = {
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "hidden_size": 24,
    "intermediate_size": 20,
    "vocab_size": 40,
    "max_position_embeddings": 32,
    "layer_norm_eps": 0.01,
    "rope_parameters": {"rope_type": "default", "rope_theta": 50.0, "partial_rotary_factor": 0.5},
}
_GPT2 = {"n_layer": 2, "n_head": 3, "n_embd": 24, "n_inner": 20, "n_positions": 32, "vocab_size": 40}
_IDS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("GPT2", _GPT2),
    "gpt2 untied, other activation": ("GPT2", {**_GPT2, "tie_word_embeddings": False, "activation_function": "relu"}),
    "gpt2 unscaled": ("GPT2", {**_GPT2, "scale_attn_weights": False}),
    "llama": ("Llama", _LLAMA),
    "llama tied": ("Llama", {**_LLAMA, "tie_word_embeddings": True}),
    "llama ungrouped": ("Llama", {**_LLAMA, "num_key_value_heads": 4}),
    "llama with biases": ("Llama", {**_LLAMA, "attention_bias": True}),
    "mistral": ("Mistral", {**_LLAMA, "sliding_window": None}),
    "gpt_neox": ("GPTNeoX", _NEOX),
    "gpt_neox in sequence": ("GPTNeoX", {**_NEOX, "use_parallel_residual": False}),
    "gpt_neox without biases": ("GPTNeoX", {**_NEOX, "attention_bias": False}),
}


def tiny_model(kind: str) -> Any:
    """A random model in eval mode; norms' weights, biases and tied embeddings included."""
    family, settings = MODELS[kind]
    config = getattr(transformers, f"{family}Config")(**settings, **_IDS)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            spread = 0.1 if parameter.ndim == 1 else 0.3
            centre = 1.0 if "norm" in name.lower() or "ln_" in name else 0.0
            centre = 0.0 if name.endswith("bias") else centre
            parameter.copy_(centre + spread * torch.randn(parameter.shape, generator=generator))
    return model


def tokens(vocab: int = 40, length: int = 24) -> torch.Tensor:
    """Three contexts of random tokens."""
    return torch.randint(vocab, (3, length), generator=torch.Generator().manual_seed(2))


def logits_of(model: Any) -> torch.Tensor:
    """What transformers computes."""
    with torch.no_grad():
        return model(tokens()).logits


def saved(model: Any, folder: Path, **options: Any) -> Path:
    """Save as `save_pretrained` does."""
    model.save_pretrained(folder, **options)
    return folder
