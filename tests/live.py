"""Live models of whichever kind the installed TransformerLens has: HookedTransformer (3.x) or native bridge (4.x)."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch

from imir_lens.checkpoints import load_checkpoint
from imir_lens.compat import bridge_class, hooked_transformer_class, tl_version

hooked_transformer = hooked_transformer_class()
has_native_bridge = bridge_class() is not None and int(tl_version().partition(".")[0]) >= 4
needs_hooked_transformer = pytest.mark.skipif(
    hooked_transformer is None, reason=f"TransformerLens {tl_version()} has no HookedTransformer"
)
needs_native_bridge = pytest.mark.skipif(
    not has_native_bridge, reason=f"TransformerLens {tl_version()} has no native TransformerBridge"
)


def live_hooked(config: dict[str, Any]) -> Any:
    """A HookedTransformer (TransformerLens 3.x)."""
    from transformer_lens import HookedTransformerConfig

    keys = {f.name for f in fields(HookedTransformerConfig)}
    return hooked_transformer(HookedTransformerConfig(**{k: v for k, v in config.items() if k in keys}))


def live_bridge(config: dict[str, Any]) -> Any:
    """A native TransformerBridge (TransformerLens 4.x)."""
    import transformer_lens.model_bridge.sources.native  # noqa: F401 (adds boot_native)
    from transformer_lens.config import TransformerBridgeConfig

    return bridge_class().boot_native(TransformerBridgeConfig.from_dict(config))


def live_model(config: dict[str, Any]) -> Any:
    """A fresh live model of whichever kind the installed TransformerLens has."""
    return live_bridge(config) if has_native_bridge else live_hooked(config)


def live_from_file(path: Path) -> Any:
    """A live model with a checkpoint's weights."""
    file = load_checkpoint(path)
    config = {**file.config, "dtype": torch.float32}
    if not has_native_bridge:
        model = live_hooked(config)
        loaded = model.load_state_dict(file.state_dict, strict=False)  # our own files leave its buffers out
        assert not loaded.unexpected_keys
        assert all(key.endswith((".mask", ".IGNORE")) for key in loaded.missing_keys)
        return model
    from transformer_lens.utilities.tl_checkpoint_conversion import convert_tl_checkpoint

    model = live_bridge(config)
    model.load_state_dict(convert_tl_checkpoint(file.state_dict, model.cfg), strict=True)
    return model
