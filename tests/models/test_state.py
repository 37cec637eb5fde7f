"""Loading HookedTransformer state dicts, and refusing those that do not fit."""

from dataclasses import replace

import golden
import pytest
import torch
from small_models import GROUPED, PLAIN, build, load, tokens

from imir_lens.errors import CheckpointError
from imir_lens.models.config import TransformerConfig
from imir_lens.models.transformer import ImirTransformer


def test_a_state_dict_reads_back_without_tables_of_its_own():
    model = build(GROUPED)
    state = model.state_dict()
    assert set(state) == {name for name, _ in model.named_parameters()}
    copy = load(GROUPED, state)
    assert torch.equal(copy(tokens()), model(tokens()))


def damaged(name, change):
    state = dict(build(PLAIN).state_dict())
    state[name] = change(state[name].clone())
    return state


def with_nan(count):
    def change(weight):
        weight.view(-1)[:count] = torch.nan
        return weight

    return change


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (
            lambda: damaged("blocks.0.attn.W_Q", lambda w: w[:, :-1]),
            "blocks.0.attn.W_Q has shape [2, 15, 8], but its cfg asks for [2, 16, 8]: weights and cfg do not belong",
        ),
        (lambda: damaged("blocks.0.attn.W_Q", with_nan(3)), "blocks.0.attn.W_Q holds 3 NaN values: expected finite"),
        (lambda: damaged("unembed.b_U", with_nan(1)), "unembed.b_U holds 1 NaN value: expected finite"),
        (lambda: damaged("embed.W_E", lambda w: w / 0), "embed.W_E holds 160 infinite values: expected finite"),
        (lambda: damaged("embed.W_E", lambda w: w.int()), "embed.W_E holds torch.int32: expected a tensor of floating"),
        (lambda: damaged("embed.W_E", lambda w: w.tolist()), "embed.W_E holds list: expected a tensor of floating"),
        (
            lambda: {**build(PLAIN).state_dict(), "blocks.2.attn.W_Q": torch.zeros(1)},
            "the state dict does not fit its cfg: unexpected blocks.2.attn.W_Q",
        ),
        (
            lambda: build(replace(PLAIN, n_layers=1)).state_dict(),
            "the state dict does not fit its cfg: missing blocks.1.attn.W_Q, blocks.1.attn.W_O, blocks.1.attn.b_Q",
        ),
        (
            lambda: build(replace(PLAIN, n_key_value_heads=1)).state_dict(),
            "the state dict does not fit its cfg: missing blocks.0.attn.W_K, ",
        ),
    ],
    ids=["shape", "nan", "one nan", "infinite", "integers", "list", "unexpected", "missing", "grouped"],
)
def test_a_state_dict_that_does_not_fit_is_refused_in_one_line(state, message):
    model = ImirTransformer(PLAIN)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(CheckpointError) as error:
        model.load_transformer_lens_state(state())
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_window_in_the_mask_that_the_cfg_hides_is_refused():
    saved = golden.load("v218", "local")
    config = TransformerConfig.from_dict({**saved["cfg"], "use_local_attn": False})
    with pytest.raises(CheckpointError, match=r"^blocks.0.attn.mask is not the mask of its cfg: check use_local_attn"):
        load(config, saved["state_dict"])
    wider = TransformerConfig.from_dict({**saved["cfg"], "window_size": 5})
    with pytest.raises(CheckpointError, match=r"^blocks.0.attn.mask is not the mask of its cfg"):
        load(wider, saved["state_dict"])
    one_layer = TransformerConfig.from_dict({**saved["cfg"], "attn_types": ["local", "global"]})
    with pytest.raises(CheckpointError, match=r"^blocks.1.attn.mask is not the mask of its cfg"):
        load(one_layer, saved["state_dict"])


@pytest.mark.parametrize("version", golden.VERSIONS)
@pytest.mark.parametrize("change", [{"rotary_adjacent_pairs": True}, {"rotary_base": 500.0}, {"rotary_dim": 8}])
def test_rotary_tables_that_contradict_the_cfg_are_refused(version, change):
    saved = golden.load(version, "rotary")
    config = TransformerConfig.from_dict(saved["cfg"])
    assert load(config, saved["state_dict"]) is not None
    with pytest.raises(CheckpointError, match=r"^blocks.0.attn.rotary_sin contradicts its cfg: check n_ctx"):
        load(replace(config, **change), saved["state_dict"])
