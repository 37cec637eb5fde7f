"""The atlas of a real language model, SmolLM2-135M-Instruct: the weights name the heads, and removals agree."""

from pathlib import Path
from typing import Any

import pytest
import torch
from live import has_native_bridge, live_hooked
from test_live_bridge import local_tokenizer

from imir_lens.atlas.agreement import agreement
from imir_lens.atlas.check import Removal, ranked_heads
from imir_lens.atlas.labels import labels_of, thresholds
from imir_lens.atlas.patterns import pattern_masses, repeated_tokens
from imir_lens.atlas.pipeline import heads_atlas
from imir_lens.atlas.scores import WeightScores, weight_scores
from imir_lens.checkpoints import load_checkpoint
from imir_lens.compat import bridge_class
from imir_lens.errors import OptionError
from imir_lens.lens_model import LensModel, open_model
from imir_lens.models.config import TransformerConfig
from imir_lens.sources import smollm2_path

pytest.importorskip("gguf", reason="the package gguf is not installed")
try:
    SMOLLM2 = smollm2_path()
except OptionError as error:
    pytest.skip(str(error), allow_module_level=True)


@pytest.fixture(scope="module")
def lens() -> LensModel:
    return open_model(SMOLLM2, overrides={"n_ctx": 256})


@pytest.fixture(scope="module")
def scores(lens) -> WeightScores:
    return weight_scores(lens)


def test_the_weights_name_the_heads_that_patterns_show(lens, scores):
    masses = pattern_masses(lens, repeated_tokens(lens, contexts=4))
    assert masses.gain > 8
    rows = {(row["kind"], row["score"], row["share"]): row for row in agreement(scores, masses)}
    for share in (0.1, 0.3):
        row = rows["induction", "match with copied tokens", share]
        assert row["auc"] >= 0.9
        assert row["precision_at_5"] >= 0.8
        assert row["overlap_at_5"] >= 0.8
        assert rows["previous_token", "offset kernel", share]["auc"] >= 0.88
        assert rows["duplicate_token", "match with own tokens", share]["auc"] >= 0.95
    # Another score does not: the ranking is no property of the layers that heads are in.
    other = scores.kernels.z.flatten()
    best = other.argsort(descending=True)[:5]
    assert float((masses.induction.flatten()[best] >= 0.1).double().mean()) < 0.5


def test_taking_the_named_coordinates_out_takes_the_gain_and_random_ones_do_not(lens, scores):
    tokens = repeated_tokens(lens, contexts=2, seed=1)
    remove = Removal(lens, scores, tokens)
    ranked = ranked_heads(scores.induction)
    drawn = torch.randperm(len(ranked) - 10, generator=torch.Generator().manual_seed(0))[:10].tolist()
    whole = remove.gain()
    named = remove.gain(coordinates=ranked[:10])
    random = remove.gain(coordinates=[ranked[10 + k] for k in drawn])
    assert named.value < 0.3 * whole.value
    assert random.value > 0.95 * whole.value
    # Nothing else is damaged: the first showing stays as it was.
    assert named.first == pytest.approx(whole.first, abs=0.05)


def test_labels_name_the_five_strongest_and_few_others(lens, scores):
    n_layers, n_heads = lens.weights.n_layers, lens.weights.n_heads
    needed = thresholds(n_layers * n_heads)
    named = [
        place
        for place in ranked_heads(scores.induction)
        if "induction" in {label.name for label in labels_of(scores, None, needed, *place)}
    ]
    assert set(named[:5]) == {(17, 3), (17, 4), (17, 5), (18, 6), (18, 7)}
    assert len(named) < 0.1 * n_layers * n_heads


@torch.no_grad()
def live_smollm2(folder: Path) -> Any:
    """The same weights as a bridge over Hugging Face's model, or as a HookedTransformer, as TransformerLens has it."""
    if not has_native_bridge:
        checkpoint = load_checkpoint(SMOLLM2, overrides={"n_ctx": 256})
        live = live_hooked({**TransformerConfig.from_dict(checkpoint.config).to_dict(), "init_weights": False}).eval()
        live.load_state_dict(checkpoint.state_dict, strict=False)
        return live
    transformers = pytest.importorskip("transformers")
    model = transformers.AutoModelForCausalLM.from_pretrained(
        SMOLLM2.parent, gguf_file=SMOLLM2.name, local_files_only=True, dtype=torch.float32
    ).eval()
    model.config.save_pretrained(folder)
    tokenizer = local_tokenizer(folder / "tokenizer")
    return bridge_class().boot_transformers(str(folder), hf_model=model, tokenizer=tokenizer, device="cpu")


@pytest.mark.filterwarnings("ignore:HookedTransformer is deprecated")
def test_a_live_model_has_the_atlas_of_the_file(lens, tmp_path):
    expected, found = heads_atlas(lens), heads_atlas(live_smollm2(tmp_path))
    for ours, theirs in zip(found.heads, expected.heads, strict=True):
        for score in ("induction", "induction_copying"):
            assert ours[score] == pytest.approx(theirs[score], rel=1e-3, abs=1e-3)
        for score in ("same", "same_copied", "copying", "previous_token"):
            for part in ("z", "chance"):
                assert ours[score][part] == pytest.approx(theirs[score][part], rel=1e-3, abs=1e-3)
        assert [label["name"] for label in ours["labels"]] == [label["name"] for label in theirs["labels"]]
