"""Small random HookedTransformers as TransformerLens 2.18 and 3.9 saved them, with the logits they computed."""

from pathlib import Path
from typing import Any

from imir_lens.safe_torch import read_torch

VARIANTS = Path(__file__).parents[1] / "data" / "variants"
VERSIONS = ("v218", "v39")
SUPPORTED = (
    *("attn_none", "attn_ln", "attn_lnpre", "rms", "mlp_ln", "gqa", "dvout", "dheadodd"),
    *("noscale", "bidir", "rotary", "rotary_adj", "gated", "parallel", "alibi", "shortformer", "local"),
)


def load(version: str, variant: str) -> dict[str, Any]:
    """Return the saved dict: state_dict, cfg, x (tokens) and y (logits)."""
    path = VARIANTS / f"{version}_{variant}.pt"
    saved = read_torch(path.read_bytes(), name=path.name)
    assert isinstance(saved, dict)
    return saved
