"""Whatever format weights come in, in HookedTransformer's: the one place that decides which format it is."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from torch import Tensor

from imir_lens.bridge_state import config_from_bridge, is_bridge_state, state_from_bridge
from imir_lens.errors import CheckpointError
from imir_lens.models.config import TransformerConfig
from imir_lens.sources.hugging_face import convert, is_hugging_face
from imir_lens.sources.name_maps import Names, read_name_map, recognise
from imir_lens.sources.named_weights import translate, without_prefixes
from imir_lens.sources.zero_biases import with_zero_biases
from imir_lens.state_dicts import infer_config

_HUGGING_FACE_NAMES = ("transformer.", "gpt_neox.", "model.")


def hooked_transformer_format(
    weights: Mapping[str, Tensor],
    saved: Mapping[str, Any] | None,
    *,
    known: Mapping[str, Any],
    more: Mapping[str, Any],
    names: Names | None,
    trusted: bool,
    name: str,
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Translate the weights of a file into HookedTransformer's names, shapes and config.

    Args:
        weights: as the file holds them.
        saved: the config that goes with them, in the source's format; None when there is none.
        known: HookedTransformer config fields given by the user.
        more: what else the file holds, where a plain PyTorch model may keep its settings.
        names: a name map, for a plain PyTorch model that is not recognised.
        trusted: the user named the config's file, so that its fields count for a plain PyTorch model too.
        name: the file's name, for messages.

    Returns:
        weights and config.

    Raises:
        CheckpointError: when they do not belong together, or a config field is known from nowhere.
        UnsupportedModelError: when it is a model of a kind, or with a feature, that is not covered.
    """
    ours = "embed.W_E" in weights or is_bridge_state(weights)
    if names is None and not ours and is_hugging_face(saved):
        return convert(weights, saved or {}, overrides=known)
    if names is not None or not ours:
        plain = without_prefixes(weights)
        name_map = recognise(plain) if names is None else read_name_map(names)
        if name_map is not None:
            if trusted and saved is not None:
                known = {**{f.name: saved[f.name] for f in fields(TransformerConfig) if f.name in saved}, **known}
            return translate(plain, name_map, saved={**(saved or {}), **more}, known=known, name=name)
    if is_bridge_state(weights):
        return _from_bridge(weights, saved, known, name=name)
    if ours and is_hugging_face(saved):
        raise CheckpointError(
            f"{name}: a HookedTransformer's weights beside the config of a Hugging Face model: expected the config of "
            "the HookedTransformer; pass --config FILE"
        )
    if saved is not None:
        return dict(weights), {**saved, **known}
    if not ours and any(key.startswith(_HUGGING_FACE_NAMES) for key in weights):
        raise CheckpointError(
            f"{name}: the weights of a Hugging Face model ({next(iter(weights))!r}, …) without its config: put its "
            "config.json beside them, or pass --config FILE"
        )
    return dict(weights), infer_config(weights, known=known, name=name)


def _from_bridge(
    state: Mapping[str, Tensor], saved: Mapping[str, Any] | None, known: Mapping[str, Any], *, name: str
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    if saved is None:
        raise CheckpointError(f"{name}: a TransformerBridge state dict without its config: pass --config FILE")
    settings = config_from_bridge({**saved, **known})
    heads = _count(settings, "n_heads", name=name)
    grouped = settings.get("n_key_value_heads") is not None
    groups = _count(settings, "n_key_value_heads", name=name) if grouped else None
    translated = state_from_bridge(state, n_heads=heads, n_key_value_heads=groups)
    # A native gated MLP has no biases.
    return with_zero_biases(translated, settings) if settings.get("gated_mlp") else translated, settings


def _count(settings: Mapping[str, Any], key: str, *, name: str) -> int:
    count = settings.get(key)
    if not isinstance(count, int) or count < 1:
        raise CheckpointError(f"{name}: expected a positive {key} in its config, found {count!r}")
    return count
