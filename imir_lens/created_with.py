"""The versions that made a result, for every file that keeps one."""

import torch

import imir_lens
from imir_lens.compat import tl_version


def created_with() -> dict[str, str]:
    """Return the versions of this package, TransformerLens and torch."""
    return {"imir_lens": imir_lens.__version__, "transformer_lens": tl_version(), "torch": torch.__version__}
