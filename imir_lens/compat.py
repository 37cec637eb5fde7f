"""The one place that imports TransformerLens, and the one that knows where its names moved between versions.

Importing this module costs the whole of TransformerLens (seconds), so nothing imports it before a model is needed.
"""

import warnings
from importlib.metadata import version
from typing import Any

with warnings.catch_warnings():
    # In a notebook without ipywidgets, the first import of tqdm complains about its progress bars: not ours to show.
    warnings.filterwarnings("ignore", message="IProgress not found")
    from transformer_lens import ActivationCache
    from transformer_lens.hook_points import HookPoint
    from transformer_lens.HookedRootModule import HookedRootModule

__all__ = ["ActivationCache", "HookPoint", "HookedRootModule", "bridge_class", "hooked_transformer_class", "tl_version"]


def tl_version() -> str:
    """Return the installed TransformerLens version, e.g. `4.3.0`."""
    return version("transformer-lens")


def hooked_transformer_class() -> type[Any] | None:
    """Return `HookedTransformer`, or None where this TransformerLens no longer has it (4.0 and later).

    `hasattr(transformer_lens, "HookedTransformer")` is no test: 4.x raises ImportError from it.
    """
    try:
        from transformer_lens import HookedTransformer
    except ImportError:
        return None
    return HookedTransformer


def bridge_class() -> type[Any] | None:
    """Return `TransformerBridge`, or None where this TransformerLens has none."""
    try:
        from transformer_lens.model_bridge import TransformerBridge
    except ImportError:
        return None
    return TransformerBridge
