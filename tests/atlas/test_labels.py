"""Which heads get which label: models whose answer is known, and models that must get none."""

from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from calling import DATA
from hand_built import HandBuilt, hop, induction, memory, shared

from imir_lens.atlas.pipeline import heads_atlas
from imir_lens.errors import OptionError
from imir_lens.models.config import TransformerConfig
from imir_lens.models.transformer import ImirTransformer
from imir_lens.report.atlas_document import Atlas


def labels(atlas: Atlas, source: str = "weights") -> dict[str, set[str]]:
    found = {head["head"]: {x["name"] for x in head["labels"] if x["source"] == source} for head in atlas.heads}
    return {head: names for head, names in found.items() if names}


@pytest.mark.parametrize("others", ["zero", "random"])
def test_a_planted_induction_circuit_is_found_exactly(others):
    built = induction(heads={"alpha": "L0H1", "beta": "L2H0"})
    built = HandBuilt(built.task, built.circuit, n_layers=3, n_heads=2)
    found = labels(heads_atlas(built.model(other_heads=others)))
    assert found == {"L0H1": {"previous_token"}, "L2H0": {"induction", "copying"}}


def test_both_copies_of_a_shared_role_are_found():
    found = labels(heads_atlas(shared("beta").model()))
    assert {head for head, names in found.items() if "induction" in names} == {"L1H0", "L1H1"}
    found = labels(heads_atlas(shared("alpha").model()))
    assert {head for head, names in found.items() if "previous_token" in names} == {"L0H0", "L0H1"}


def test_an_induction_head_is_looked_through_the_head_that_feeds_it():
    atlas = heads_atlas(shared("alpha").model())
    matching = next(head for head in atlas.heads if "induction" in {x["name"] for x in head["labels"]})
    assert {through["head"] for through in matching["same_through"] if through["z"] > 2} == {"L0H0", "L0H1"}


def test_without_its_previous_token_head_a_matching_head_is_no_induction_head():
    built = induction()
    broken = built.without("L0H0/score/q:res/k:res/offset+1")
    assert heads_atlas(built.model()).labelled("induction") == ["L1H0"]
    assert heads_atlas(broken.model()).labelled("induction") == []


def test_a_memory_has_no_heads_to_label():
    assert labels(heads_atlas(memory().model())) == {}


def test_each_hop_is_an_induction_head_only_where_it_asks_for_its_own_token():
    """The second hop asks for the token that the first one found, not for its own."""
    assert heads_atlas(hop(2).model()).labelled("induction") == ["L1H0"]


def test_the_trained_rotary_model_has_one_copyer_and_two_induction_heads():
    atlas = heads_atlas(DATA / "recall_rotary_ln.pt", data=True)
    for source in ("weights", "patterns"):
        assert atlas.labelled("previous_token", source=source) == ["L0H0"]
        assert atlas.labelled("induction", source=source) == ["L1H0", "L1H1"]
    copyer = atlas.heads[0]["previous_token"]
    assert copyer["peak"] == 1
    assert copyer["mass"] == pytest.approx(atlas.heads[0]["patterns"]["previous_token"], abs=0.05)


def test_the_trained_plain_model_has_one_copyer_and_one_induction_head():
    found = labels(heads_atlas(DATA / "recall_2l.pt"))
    assert "previous_token" in found["L0H0"] and "induction" not in found["L0H0"]
    assert "induction" in found["L1H0"] and "previous_token" not in found["L1H0"]


SHAPES = {
    "attention only": {"attn_only": True, "normalization_type": None},
    "layer norm, learned": {"normalization_type": "LN", "act_fn": "gelu"},
    "rotary, grouped, gated": {
        "normalization_type": "RMS",
        "positional_embedding_type": "rotary",
        "n_key_value_heads": 2,
        "gated_mlp": True,
        "act_fn": "silu",
    },
    "alibi": {"normalization_type": "LN", "positional_embedding_type": "alibi", "act_fn": "gelu"},
    "shortformer": {"normalization_type": "LN", "positional_embedding_type": "shortformer", "act_fn": "gelu"},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_random_weights_have_no_label_at_all(shape):
    config = TransformerConfig(d_model=64, d_head=16, n_heads=4, n_layers=6, n_ctx=64, d_vocab=300, **SHAPES[shape])
    for seed in range(3):
        model = ImirTransformer(config, generator=torch.Generator().manual_seed(seed)).eval()
        atlas = heads_atlas(model, data=True)
        assert labels(atlas) == labels(atlas, "patterns") == {}


def test_a_trained_model_whose_embeddings_are_shuffled_has_no_match_left():
    """The same weights over tokens that they were not made for."""
    model = heads_model()
    assert heads_atlas(model).labelled("induction") == ["L1H0", "L1H1"]
    with torch.no_grad():
        scrambled = torch.randn(model.embed.W_E.shape, generator=torch.Generator().manual_seed(0))
        model.embed.W_E.copy_(scrambled * model.embed.W_E.std())
        for block in model.blocks:
            block.attn.W_K.copy_(
                block.attn.W_K @ torch.linalg.qr(torch.randn(block.attn.W_K.shape[-1], block.attn.W_K.shape[-1]))[0]
            )
    assert heads_atlas(model).labelled("induction") == []


def heads_model() -> ImirTransformer:
    from imir_lens.checkpoints import load_transformer

    return load_transformer(DATA / "recall_rotary_ln.pt")


def mathformers() -> list[Path]:
    spec = find_spec("mathformer")
    return [] if spec is None or spec.origin is None else sorted(Path(spec.origin).parent.glob("*former"))


@pytest.mark.skipif(not mathformers(), reason="the package mathformer is not installed")
@pytest.mark.parametrize("place", mathformers(), ids=lambda place: place.name)
def test_models_of_one_layer_have_no_induction_heads(place):
    atlas = heads_atlas(place)
    assert atlas.labelled("induction") == []
    assert all(head["induction"] == 0 for head in atlas.heads)
    assert atlas.data["paths"]["chosen"] == atlas.data["paths"]["skipped"] == 0


def test_a_relation_gives_assoc_scores():
    built = memory()
    atlas = heads_atlas(built.model(), relation=[(1, 2), (2, 1)])
    assert all(head["assoc_readout"] is not None and head["assoc_score"] is not None for head in atlas.heads)
    assert heads_atlas(built.model()).heads[0]["assoc_readout"] is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"relation": []},
        {"relation": [(0, 10**6)]},
        {"relation": [(-1, 0)]},
        {"bound": 2.0},
        {"effect": 0.0},
        {"share": 0.0},
        {"check": -1},
        {"check": 99},
        {"check_every": True},
        {"data": True, "contexts": 0},
        {"data": True, "length": 1},
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused_in_one_line(wrong):
    with pytest.raises(OptionError) as caught:
        heads_atlas(DATA / "recall_2l.pt", **wrong)
    assert "\n" not in str(caught.value)
    assert "expected" in str(caught.value) or "need" in str(caught.value)


def test_a_trained_memory_shows_its_association_and_no_other():
    """memory_2l learned 1 ↔ 2, 3 ↔ 4, … and reads it out through both heads."""
    words = range(1, 65, 2)
    learned = [pair for word in words for pair in ((word, word + 1), (word + 1, word))]
    others = [(word, (word + 20) % 64 + 1) for word in range(1, 65)]
    found = heads_atlas(DATA / "memory_2l.pt", relation=learned).heads
    control = heads_atlas(DATA / "memory_2l.pt", relation=others).heads
    for head, other in zip(found, control, strict=True):
        assert head["assoc_readout"]["z"] > 2
        assert head["assoc_readout"]["mean"] > 4
        assert abs(other["assoc_readout"]["z"]) < 0.5
