"""Reading the weights of models that are already in memory, and checking that they compute what those weights say."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from imir_lens.compat import HookedRootModule, bridge_class, hooked_transformer_class
from imir_lens.errors import UnsupportedModelError
from imir_lens.hooking import inference
from imir_lens.models.config import TransformerConfig
from imir_lens.models.transformer import ImirTransformer
from imir_lens.sources.live_bridge import state_and_config_of_bridge
from imir_lens.weights import CircuitWeights


def twin_of(model: Any) -> ImirTransformer:
    """Return an ImirTransformer that has the weights of a live model, and computes what they say.

    Args:
        model: an ImirTransformer (returned as it is), any HookedRootModule with a `circuit_weights()` method, a
            HookedTransformer (TransformerLens 3) or a TransformerBridge (4).

    Returns:
        The twin, on the model's device and in eval mode.

    Raises:
        UnsupportedModelError: when it is anything else, or has a part that is not implemented.
    """
    if isinstance(model, ImirTransformer):
        return model
    own = getattr(model, "circuit_weights", None)
    if isinstance(model, HookedRootModule) and callable(own):
        return rebuild(own())
    if is_hooked_transformer(model):
        return _hosted(model.state_dict(), TransformerConfig.from_dict(model.cfg.to_dict()))
    bridge = bridge_class()
    if bridge is not None and isinstance(model, bridge):
        return _hosted(*state_and_config_of_bridge(model))
    raise UnsupportedModelError(
        f"a {type(model).__name__} cannot be analysed: expected a checkpoint path, an ImirTransformer, a "
        "HookedTransformer, a TransformerBridge, or a HookedRootModule with circuit_weights()"
    )


def _hosted(state: dict[str, Tensor], config: TransformerConfig) -> ImirTransformer:
    twin = ImirTransformer(config)
    twin.load_transformer_lens_state(state)
    return twin.to(next(iter(state.values())).device).eval()


def is_hooked_transformer(model: object) -> bool:
    """Whether it is TransformerLens' own HookedTransformer (3.x only)."""
    cls = hooked_transformer_class()
    return cls is not None and isinstance(model, cls)


def rebuild(weights: CircuitWeights) -> ImirTransformer:
    """Return an ImirTransformer with the given weights, on their device and in eval mode."""
    config = TransformerConfig(
        n_layers=weights.n_layers,
        n_heads=weights.n_heads,
        d_model=weights.d_model,
        d_head=weights.d_head,
        d_vocab=weights.d_vocab,
        d_vocab_out=weights.d_vocab_out,
        n_ctx=weights.n_ctx,
        attn_only=True,
        normalization_type=None,
        attn_scale=weights.scale,
        dtype=weights.W_E.dtype,
    )
    state = {
        "embed.W_E": weights.W_E,
        "pos_embed.W_pos": weights.W_pos,
        "unembed.W_U": weights.W_U,
        "unembed.b_U": weights.b_U,
    }
    for layer in range(weights.n_layers):
        for name in ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V", "b_O"):
            state[f"blocks.{layer}.attn.{name}"] = getattr(weights, name)[layer]
    model = ImirTransformer(config)
    model.load_transformer_lens_state(state)
    return model.to(weights.W_E.device).eval()


def check_computes(
    twin: ImirTransformer,
    tokens: Int[Tensor, "context position"],
    logits: Float[Tensor, "context position vocab"],
    *,
    family: str,
) -> None:
    """Compare a model's logits with those of its twin, whose weights are about to be analysed.

    Args:
        twin: as `twin_of` returns it.
        tokens: a few contexts.
        logits: what the model makes of them.
        family: the model's class, for the message.

    Raises:
        UnsupportedModelError: when they differ by more than rounding.
    """
    with inference(twin):
        expected = twin(tokens)
    difference, largest = float((logits - expected).abs().max()), float(expected.abs().max())
    # Another order of sums makes float32 models differ by some 10 eps, relative to the largest logit.
    tolerance = max(1e-3, 20 * torch.finfo(logits.dtype).eps)
    if not difference <= tolerance * max(largest, 1.0):
        raise UnsupportedModelError(
            f"this {family} does not compute what its weights say: logits differ by {difference:.3g} (largest "
            f"{largest:.3g}), as a hook left on it or a changed forward pass would do: call reset_hooks(), or save its "
            "state_dict and cfg and analyse the file"
        )
