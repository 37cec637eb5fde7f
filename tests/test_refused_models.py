"""Models that are not analysed: refused by name when they are opened, with what they have that is not supported."""

from pathlib import Path
from typing import Any

import pytest
import torch
from live import live_bridge, live_from_file, live_model, needs_native_bridge
from torch import nn

from imir_lens.causal.flat_model import as_imir_transformer
from imir_lens.errors import OptionError, UnsupportedModelError
from imir_lens.lens_model import open_model
from imir_lens.models.config import TransformerConfig
from imir_lens.models.transformer import ImirTransformer

DATA = Path(__file__).parent / "data"
RECALL = DATA / "recall_2l.pt"
SMALL = {"n_layers": 2, "n_heads": 3, "d_model": 10, "d_head": 4, "n_ctx": 8, "d_vocab": 12}
SMALL_TL = {**SMALL, "attn_only": True, "normalization_type": None, "seed": 0}

pytestmark = pytest.mark.filterwarnings("ignore:HookedTransformer is deprecated")


def test_a_live_model_that_computes_something_else_is_refused() -> None:
    model = live_from_file(RECALL)
    model.add_hook("blocks.1.attn.hook_pattern", lambda pattern, hook: pattern * 0.5)
    with pytest.raises(
        UnsupportedModelError, match=r"does not compute what its weights say: logits differ by .* reset_h"
    ):
        open_model(model)
    model.reset_hooks()
    open_model(model)


@needs_native_bridge
@pytest.mark.parametrize(
    "flag",
    [
        {"use_attn_scale": False},
        {"use_local_attn": True, "window_size": 2},
        {"scale_attn_by_inverse_layer_idx": True},
        {"parallel_attn_mlp": True},
    ],
)
def test_flags_that_a_native_bridge_ignores_are_refused(flag: dict[str, Any]) -> None:
    plain, flagged = live_bridge(SMALL_TL), live_bridge({**SMALL_TL, **flag})
    tokens = torch.arange(16).view(2, 8) % 12
    assert torch.equal(plain(tokens), flagged(tokens))  # the reason for this test
    open_model(plain)
    with pytest.raises(UnsupportedModelError, match=next(iter(flag))):
        open_model(flagged)


@needs_native_bridge
@pytest.mark.parametrize("name", ["attn_scores_soft_cap", "output_logits_soft_cap"])
def test_the_soft_caps_of_a_native_bridge_are_hosted(name: str) -> None:
    capped, tokens = live_bridge({**SMALL_TL, name: 0.05}), torch.arange(16).view(2, 8) % 12
    assert not torch.allclose(capped(tokens), live_bridge(SMALL_TL)(tokens), atol=1e-4)
    torch.testing.assert_close(as_imir_transformer(capped)(tokens), capped(tokens))
    torch.testing.assert_close(open_model(capped).on_twin().logits(tokens), capped(tokens))


@needs_native_bridge
def test_bridges_over_models_of_no_known_kind_are_refused() -> None:
    model = live_bridge(SMALL_TL)
    model.cfg.architecture = "GPT2LMHeadModel"
    with pytest.raises(
        UnsupportedModelError, match="a TransformerBridge over a NativeModel is not supported: expected a Hug"
    ):
        open_model(model)


def test_live_models_with_another_output_vocabulary_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedModelError, match="does not support an output vocabulary of another size"):
        open_model(live_model({**SMALL_TL, "d_vocab_out": 5}))


def test_files_beyond_the_analysis_are_refused_with_their_name() -> None:
    path = DATA / "variants" / "v39_dvout.pt"
    with pytest.raises(UnsupportedModelError) as error:
        open_model(path)
    assert str(error.value).startswith(f"{path}: the analysis does not support an output vocabulary")


def test_other_objects_and_misplaced_options_are_refused() -> None:
    model = ImirTransformer(TransformerConfig.from_dict(SMALL_TL))
    with pytest.raises(UnsupportedModelError, match="a Linear cannot be analysed: expected a checkpoint path"):
        open_model(nn.Linear(2, 2))
    with pytest.raises(OptionError, match="a live model has its own config"):
        open_model(model, overrides={"n_layers": 2})
    for device in ("cuda:99", "gpu"):
        with pytest.raises(OptionError, match=f"device '{device}' cannot be used .*try 'cpu'"):
            open_model(model, device=device)
    assert open_model(RECALL, device="cpu").device.type == "cpu"
    assert open_model(live_model(SMALL_TL), device=torch.device("cpu")).device.type == "cpu"
