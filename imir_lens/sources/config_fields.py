"""Reading the fields of a Hugging Face config, one at a time, with what is allowed."""

from collections.abc import Iterable, Mapping
from reprlib import repr as short
from typing import Any

from imir_lens.errors import CheckpointError, UnsupportedModelError
from imir_lens.models.config import typed_field

# Rotary positions need no weights, so n_ctx only sets the size of tables: HookedTransformer's usual bound.
ROTARY_CONTEXT = 2048
# Hugging Face's name of an activation → TransformerLens' name of the same function.
_ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_new",
    "gelu_fast": "gelu_fast",
    "gelu_pytorch_tanh": "gelu_pytorch_tanh",
    "silu": "silu",
    "swish": "silu",
}


def whole(config: Mapping[str, Any], name: str, default: int | None = None) -> int:
    """Return a size; raises CheckpointError when it is missing or no positive whole number."""
    value = config.get(name)
    value = default if value is None else typed_field(name, value, int)
    if value is None or value < 1:
        raise CheckpointError(f"the config gives {name}={short(config.get(name))}: expected a positive whole number")
    return value


def number(config: Mapping[str, Any], name: str, default: float | None = None) -> float:
    """Return a number; raises CheckpointError when it is missing or no positive finite number."""
    value = config.get(name)
    value = default if value is None else typed_field(name, value, float)
    if value is None or value <= 0:
        raise CheckpointError(f"the config gives {name}={short(config.get(name))}: expected a positive number")
    return float(value)


def flag(config: Mapping[str, Any], name: str, default: bool) -> bool:
    """Return a switch; raises CheckpointError when it is anything but true, false or null."""
    value = config.get(name)
    return default if value is None else bool(typed_field(name, value, bool))


def activation(config: Mapping[str, Any], name: str, default: str) -> str:
    """Return TransformerLens' name of the activation; raises UnsupportedModelError for one it does not have."""
    value = config.get(name) or default
    if not isinstance(value, str) or value not in _ACTIVATIONS:
        raise UnsupportedModelError(
            f"the config sets {name}={short(value)}, which is not supported yet (supported: {', '.join(_ACTIVATIONS)})"
        )
    return _ACTIVATIONS[value]


def refuse(config: Mapping[str, Any], name: str, neutral: Iterable[Any], meaning: str) -> None:
    """Refuse a field whose value is not neutral; a field that is absent or null is.

    Raises:
        UnsupportedModelError: with the value and what it asks for.
    """
    value = config.get(name)
    if value is not None and not any(value == allowed and type(value) is type(allowed) for allowed in neutral):
        raise UnsupportedModelError(f"the config sets {name}={short(value)}, which is not supported yet: {meaning}")


def refuse_common(config: Mapping[str, Any]) -> None:
    """Refuse what no converter here handles: quantised weights, attention by layer kind, cross-attention, adapters."""
    quantised = config.get("quantization_config")
    # transformers leaves this record when it has dequantised a GGUF file: the weights are ordinary numbers.
    if not (isinstance(quantised, Mapping) and quantised.get("quant_method") == "gguf"):
        refuse(config, "quantization_config", (), "quantised weights; dequantise the model and save it again")
    refuse(config, "add_cross_attention", (False,), "cross-attention")
    refuse(config, "is_encoder_decoder", (False,), "an encoder beside the decoder")
    kinds = config.get("layer_types") or []
    if not isinstance(kinds, list):
        raise CheckpointError(f"the config gives layer_types={short(kinds)}: expected a list")
    if any(kind != "full_attention" for kind in kinds):
        raise UnsupportedModelError(
            f"the config sets layer_types={short(kinds)}, which is not supported yet: attention that differs by layer"
        )


def rotary(config: Mapping[str, Any], *, base: float | None, share: float) -> tuple[float, float]:
    """Return the base of the rotation and the share of each head that is rotated.

    Hugging Face's 5.x writes both under `rope_parameters`; earlier versions at the top, under names that differ by
    architecture, with `rope_scaling` beside them.

    Args:
        config: the model's config.
        base: what the older field says, or the architecture's default.
        share: the same for the share of the head.

    Raises:
        UnsupportedModelError: when frequencies are rescaled.
        CheckpointError: for values that are no numbers.
    """
    refuse_rescaled(config.get("rope_scaling"), "rope_scaling")
    parameters = config.get("rope_parameters") or {}
    refuse_rescaled(parameters, "rope_parameters")
    return number(parameters, "rope_theta", base), number(parameters, "partial_rotary_factor", share)


def refuse_rescaled(parameters: Any, name: str) -> None:
    """Refuse rotary parameters of any kind but the default; raises UnsupportedModelError."""
    if parameters is None:
        return
    if not isinstance(parameters, Mapping):
        raise CheckpointError(f"the config gives {name}={short(parameters)}: expected an object")
    kind = parameters.get("rope_type", parameters.get("type", "default"))
    if kind != "default":
        raise UnsupportedModelError(
            f"the config sets {name} of type {short(kind)}, which is not supported yet: rescaled rotary positions"
        )
    if unknown := set(parameters) - {"rope_type", "type", "rope_theta", "partial_rotary_factor"}:
        raise UnsupportedModelError(
            f"the config sets {', '.join(sorted(map(str, unknown)))} in {name}, which is not supported yet: rescaled "
            "rotary positions"
        )
