"""Live models of every kind give the atlas of the file that holds the same weights."""

from typing import Any

import pytest
import torch
from calling import DATA
from live import has_native_bridge, live_from_file, needs_native_bridge

from imir_lens.atlas.pipeline import heads_atlas
from imir_lens.checkpoints import load_checkpoint
from imir_lens.models.disentangled import DisentangledTransformer
from imir_lens.models.transformer import ImirTransformer
from imir_lens.report.atlas_document import Atlas

OPTIONS: dict[str, Any] = {"data": True, "check": 1, "contexts": 4, "length": 12}


def numbers(value: Any, place: str = "") -> dict[str, Any]:
    """All numbers of an atlas by their place; the evidence in words is left out."""
    if isinstance(value, dict):
        items = [(key, item) for key, item in value.items() if key != "evidence"]
    elif isinstance(value, list):
        items = list(enumerate(value))
    else:
        return {place: value}
    return {name: item for key, part in items for name, item in numbers(part, f"{place}/{key}").items()}


def assert_same(found: Atlas, expected: Atlas) -> None:
    for part in ("heads", "data", "check"):
        ours, theirs = numbers(found.data[part]), numbers(expected.data[part])
        assert ours.keys() == theirs.keys()
        for place, value in theirs.items():
            if isinstance(value, float):
                assert ours[place] == pytest.approx(value, rel=1e-3, abs=1e-3), place
            else:
                assert ours[place] == value, place


@pytest.mark.parametrize("name", ["recall_rotary_ln.pt", "recall_ln_mlp", "recall_2l.pt"])
def test_a_live_model_has_the_atlas_of_its_file(name):
    if has_native_bridge and "rotary" in name:
        pytest.skip("native bridges pair rotary entries otherwise, and the stock converter refuses the file's tables")
    assert_same(heads_atlas(live_from_file(DATA / name), **OPTIONS), heads_atlas(DATA / name, **OPTIONS))


def test_another_model_has_another_atlas():
    with pytest.raises(AssertionError):
        assert_same(
            heads_atlas(DATA / "recall_rotary_ln.pt", **OPTIONS), heads_atlas(DATA / "recall_ln_mlp", **OPTIONS)
        )


@needs_native_bridge
@pytest.mark.parametrize("kind", ["gpt2", "llama", "gpt_neox"])
def test_a_bridge_over_a_hugging_face_model_has_the_atlas_of_its_translation(kind, tmp_path):
    pytest.importorskip("transformers")
    from test_live_bridge import bridge_over

    from imir_lens.sources.live_bridge import state_and_config_of_bridge

    bridge = bridge_over(kind, tmp_path)
    state, config = state_and_config_of_bridge(bridge)
    model = ImirTransformer(config)
    model.load_transformer_lens_state(state)
    assert_same(heads_atlas(bridge, **OPTIONS), heads_atlas(model.eval(), **OPTIONS))


def test_half_precision_is_read_as_numbers_of_full_precision():
    file = load_checkpoint(DATA / "recall_ln_mlp")
    from imir_lens.models.config import TransformerConfig

    model = ImirTransformer(TransformerConfig.from_dict(file.config))
    model.load_transformer_lens_state(file.state_dict)
    half = heads_atlas(model.to(torch.bfloat16).eval())
    whole = heads_atlas(DATA / "recall_ln_mlp")
    for a, b in zip(half.heads, whole.heads, strict=True):
        assert a["same"]["z"] == pytest.approx(b["same"]["z"], rel=0.05, abs=0.05)


def test_a_disentangled_transformer_has_an_atlas_too():
    from hand_built import induction

    built = induction()
    model = built.disentangled()
    assert isinstance(model, DisentangledTransformer)
    atlas = heads_atlas(model)
    assert atlas.labelled("induction") == ["L1H0"]
    assert atlas.labelled("previous_token") == ["L0H0"]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("name", ["recall_rotary_ln.pt", "recall_ln_mlp"])
def test_on_a_gpu_the_atlas_is_the_same(name):
    options = {**OPTIONS, "relation": [(1, 2), (3, 4)]}
    assert_same(heads_atlas(DATA / name, device="cuda", **options), heads_atlas(DATA / name, **options))
