"""The four tiny trained Llamas of the package mathformer, which is found, not imported."""

from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from tiny_models import transformers

from imir_lens.checkpoints import load_transformer

_SPEC = find_spec("mathformer")
if _SPEC is None or _SPEC.origin is None:
    pytest.skip("the package mathformer is not installed: make smollm2", allow_module_level=True)
FOLDER = Path(_SPEC.origin).parent


@torch.no_grad()
@pytest.mark.parametrize("name", ["addformer", "divformer", "mulformer", "subformer"])
def test_trained_llamas_compute_what_transformers_computes(name: str) -> None:
    ours = load_transformer(FOLDER / name)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(FOLDER / name, local_files_only=True).eval()
    assert (ours.cfg.n_layers, ours.cfg.d_vocab) == (1, 27)
    tokens = torch.randint(27, (4, 20), generator=torch.Generator().manual_seed(5))
    expected = theirs(tokens).logits
    assert (ours(tokens) - expected).abs().max() < 1e-4 * expected.abs().max()
    assert expected.std() > 1
