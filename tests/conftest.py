"""Suite-wide settings: one torch thread, fixed seeds, no network, shapes checked at run time."""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("WANDB_MODE", "disabled")

from jaxtyping import install_import_hook

# Only our own package, and only here: the checker makes calls many times slower.
install_import_hook("imir_lens", "beartype.beartype")

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture
def generator() -> torch.Generator:
    """A fresh generator with a fixed seed."""
    return torch.Generator().manual_seed(0)
