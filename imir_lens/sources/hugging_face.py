"""Hugging Face models, from their weights and their `config.json`, as HookedTransformer-format weights and config."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from imir_lens.errors import UnsupportedModelError
from imir_lens.models.config import TransformerConfig
from imir_lens.sources.gpt2_shape import gpt2_config, gpt2_state
from imir_lens.sources.gpt_neox_shape import gpt_neox_config, gpt_neox_state
from imir_lens.sources.llama_shape import llama_config, llama_state
from imir_lens.sources.source_weights import SourceWeights
from imir_lens.state_dicts import plain_config


@dataclass(frozen=True)
class Shape:
    """How models of one kind are read.

    Attributes:
        body: the name that goes before every weight but the unembedding; a model saved without its head lacks it.
        config: from Hugging Face's config to HookedTransformer's.
        state: from the weights, HookedTransformer's config and Hugging Face's, to HookedTransformer's weights.
    """

    body: str
    config: Callable[[Mapping[str, Any]], dict[str, Any]]
    state: Callable[[SourceWeights, Mapping[str, Any], Mapping[str, Any]], dict[str, Tensor]]


SHAPES = {
    "gpt2": Shape("transformer.", gpt2_config, gpt2_state),
    "gpt_neox": Shape("gpt_neox.", gpt_neox_config, gpt_neox_state),
    "llama": Shape("model.", llama_config, llama_state),
    "mistral": Shape("model.", llama_config, llama_state),
}
_HEADS = ("lm_head.", "embed_out.", "score.")


def is_hugging_face(config: Mapping[str, Any] | None) -> bool:
    """Whether a config is a Hugging Face model's."""
    return config is not None and ("architectures" in config or "model_type" in config)


def config_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return HookedTransformer's config of a Hugging Face model.

    Raises:
        UnsupportedModelError: for a `model_type` or a feature that is not covered.
        CheckpointError: for sizes that are missing or no numbers.
    """
    return _shape_of(config).config(config)


def convert(
    state: Mapping[str, Any], config: Mapping[str, Any], *, overrides: Mapping[str, Any] | None = None
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Translate a Hugging Face model.

    Args:
        state: its weights, by name.
        config: its `config.json`.
        overrides: fields of HookedTransformer's config to replace.

    Returns:
        HookedTransformer's weights, in float32 or better, and its config.

    Raises:
        UnsupportedModelError: as `config_of`.
        CheckpointError: when weights are missing, left over, or contradict the config.
    """
    shape = _shape_of(config)
    settings = {**shape.config(config), **(overrides or {})}
    checked = TransformerConfig.from_dict(settings)
    settings = plain_config({name: getattr(checked, name, value) for name, value in settings.items()})
    if not any(name.startswith(shape.body) for name in state):
        state = {name if name.startswith(_HEADS) else shape.body + name: value for name, value in state.items()}
    return shape.state(SourceWeights(state), settings, config), settings


def _shape_of(config: Mapping[str, Any]) -> Shape:
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in SHAPES:
        what = f"{kind!r} (architectures {config.get('architectures')})"
        raise UnsupportedModelError(
            f"a Hugging Face model of type {what} is not supported yet: expected one of {', '.join(sorted(SHAPES))}, "
            "or a HookedTransformer's config (n_layers, n_heads, d_model, …)"
        )
    return SHAPES[kind]
