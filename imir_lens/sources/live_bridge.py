"""A live TransformerBridge in HookedTransformer's format, be it native or over a Hugging Face model."""

from typing import Any

from torch import Tensor

from imir_lens.bridge_state import config_from_bridge, state_from_bridge
from imir_lens.errors import UnsupportedModelError
from imir_lens.models.cfg_fields import NATIVE
from imir_lens.models.config import TransformerConfig
from imir_lens.sources.hugging_face import SHAPES, config_of
from imir_lens.sources.zero_biases import with_zero_biases

# The other parts hold their weights as [input, output] or [output, input] whatever the model.
_PROJECTIONS = ("attn.q", "attn.k", "attn.v", "attn.o", "mlp.in", "mlp.out", "mlp.gate")


def state_and_config_of_bridge(bridge: Any) -> tuple[dict[str, Tensor], TransformerConfig]:
    """Return HookedTransformer's weights and config of a native bridge, or one over GPT-2, GPT-NeoX, Llama or Mistral.

    They are the weights that the bridge computes with: after `enable_compatibility_mode()` those that it folded and
    centred, with norms whose weights are one, so that logits are the bridge's in either mode.

    Args:
        bridge: a TransformerBridge (TransformerLens 4), made by `boot_native` or `boot_transformers`.

    Raises:
        UnsupportedModelError: when what it wraps is no Hugging Face model, or one that is not covered.
        CheckpointError: when it has weights that such a model does not have.
    """
    if getattr(bridge.cfg, "architecture", None) == NATIVE:
        native = TransformerConfig.from_dict(config_from_bridge(bridge.cfg.to_dict()))
        groups = native.n_key_value_heads
        own = state_from_bridge(bridge.state_dict(), n_heads=native.n_heads, n_key_value_heads=groups)
        # A native gated MLP has no biases.
        return with_zero_biases(own, native.to_dict()) if native.gated_mlp else own, native
    hugging_face: Any = getattr(getattr(bridge, "original_model", None), "config", None)
    if not hasattr(hugging_face, "to_dict"):
        raise UnsupportedModelError(
            f"a TransformerBridge over a {type(getattr(bridge, 'original_model', None)).__name__} is not supported: "
            f"expected a Hugging Face model ({', '.join(sorted(SHAPES))})"
        )
    config = config_of(hugging_face.to_dict())
    state = dict(bridge.state_dict())
    for layer, block in enumerate(bridge.blocks):
        for part in _PROJECTIONS:
            name = f"blocks.{layer}.{part}.weight"
            if name in state and _is_input_first(block, part):
                state[name] = state[name].T
    shape = TransformerConfig.from_dict(config)
    translated = state_from_bridge(state, n_heads=shape.n_heads, n_key_value_heads=shape.n_key_value_heads)
    return with_zero_biases(translated, config), shape


def _is_input_first(block: Any, part: str) -> bool:
    """Whether a projection keeps its weight as [input, output], as GPT-2's Conv1D does, and not as torch's Linear."""
    module = block
    for name in part.split("."):
        module = getattr(module, name)
    return type(getattr(module, "original_component", module)).__name__ == "Conv1D"
