"""Suite-wide settings: one torch thread, fixed seeds, no network, shapes checked at run time."""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("WANDB_MODE", "disabled")

from jaxtyping import install_import_hook

# Only our own package, and only here: the checker makes calls many times slower.
install_import_hook("imir_lens", "beartype.beartype")

from collections.abc import Iterator

import chromium
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


@pytest.fixture(scope="session")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Browser]:
    """A browser without a network, which all tests share; they are skipped where there is none."""
    if chromium.BROWSER is None:
        pytest.skip("needs a chromium executable on PATH")
    with chromium.browser(tmp_path_factory.mktemp("chromium")) as started:
        yield started
