"""Reading the shape of a model from the cfg dicts that TransformerLens writes."""

import importlib
import json
import math
from dataclasses import fields, replace

import golden
import numpy as np
import pytest
import torch
from small_models import PLAIN, build, tokens

from imir_lens.compat import hooked_transformer_class
from imir_lens.errors import CheckpointError, UnsupportedModelError
from imir_lens.models.cfg_fields import NEUTRAL, WITHOUT_INFLUENCE
from imir_lens.models.config import TransformerConfig

MINIMAL = {"d_model": 64, "d_head": 16, "n_layers": 2, "n_ctx": 32, "d_vocab": 20}
WINDOW = {"use_local_attn": True, "attn_types": ["local", "global"], "window_size": 4}


@pytest.mark.parametrize("version", golden.VERSIONS)
@pytest.mark.parametrize("variant", golden.SUPPORTED)
def test_the_cfg_of_a_supported_file_is_read(version, variant):
    cfg = golden.load(version, variant)["cfg"]
    config = TransformerConfig.from_dict(cfg)
    for name in ("d_model", "d_head", "n_heads", "d_vocab_out", "normalization_type", "n_key_value_heads", "dtype"):
        assert getattr(config, name) == cfg[name]
    assert type(config.attn_scale) is float
    assert config.score_scale == pytest.approx(1.0 if variant == "noscale" else math.sqrt(cfg["d_head"]))


@pytest.mark.parametrize("name", NEUTRAL)
def test_a_field_that_changes_the_computation_is_accepted_at_its_neutral_value_only(name):
    neutral, meaning = NEUTRAL[name]
    for value in neutral:
        TransformerConfig.from_dict({**MINIMAL, name: value})
    with pytest.raises(UnsupportedModelError, match=rf"^cfg sets {name}=30, which is not supported yet: {meaning}$"):
        TransformerConfig.from_dict({**MINIMAL, name: 30})


@pytest.mark.parametrize("name", sorted(WITHOUT_INFLUENCE))
def test_a_field_without_influence_is_accepted_whatever_it_holds(name):
    assert TransformerConfig.from_dict({**MINIMAL, name: "anything"}) == TransformerConfig(**MINIMAL)


def test_an_unknown_field_is_refused_unless_it_is_off():
    for off in (None, False):
        assert TransformerConfig.from_dict({**MINIMAL, "mystery": off}) == TransformerConfig(**MINIMAL)
    for on in (True, 0, 1.5, "x", {"a": 1}):
        with pytest.raises(UnsupportedModelError, match=r"^cfg sets mystery=.* a field that is not known here"):
            TransformerConfig.from_dict({**MINIMAL, "mystery": on})


@pytest.mark.parametrize("name", ["HookedTransformerConfig", "TransformerBridgeConfig"])
def test_every_field_of_the_installed_transformer_lens_is_decided_on(name):
    module = importlib.import_module("transformer_lens.config")
    try:
        cls = getattr(module, name)
    except (AttributeError, ImportError):
        pytest.skip(f"this TransformerLens has no {name}")
    cfg = cls(**MINIMAL).to_dict()
    decided = {f.name for f in fields(TransformerConfig)} | set(NEUTRAL) | WITHOUT_INFLUENCE
    assert set(cfg) - decided == {"original_architecture", "architecture"} & set(cfg)
    assert TransformerConfig.from_dict(cfg) == TransformerConfig(**MINIMAL)


def test_defaults_are_those_of_transformer_lens():
    config = TransformerConfig.from_dict({**MINIMAL, "n_heads": -1, "attn_scale": None, "d_mlp": None})
    assert (config.n_heads, config.d_vocab_out, config.d_mlp) == (4, 20, 256)
    assert (config.attn_scale, config.initializer_range) == (4.0, 0.1)
    assert (config.normalization_type, config.act_fn, config.attn_only) == ("LN", "relu", False)
    rotary = TransformerConfig.from_dict({**MINIMAL, "positional_embedding_type": "rotary"})
    assert (rotary.rotary_dim, rotary.rotary_base, rotary.rotary_adjacent_pairs) == (16, 10000, False)


def test_numbers_become_plain_python_numbers():
    cfg = {**MINIMAL, "d_model": np.int64(64), "n_ctx": 32.0, "attn_only": np.bool_(True), "eps": np.float32(0.5)}
    config = TransformerConfig.from_dict(cfg)
    found = [type(value) for value in (config.d_model, config.n_ctx, config.attn_only, config.eps)]
    assert found == [int, int, bool, float]
    assert config.eps == 0.5


@pytest.mark.parametrize("dtype", ["torch.float64", "float64", torch.float64])
def test_dtypes_are_read_by_name(dtype):
    assert TransformerConfig.from_dict({**MINIMAL, "dtype": dtype}).dtype is torch.float64


@pytest.mark.parametrize("dtype", ["int8", "float8", 64])
def test_another_dtype_is_refused(dtype):
    with pytest.raises(UnsupportedModelError, match=r"^cfg sets dtype=.*, expected one of torch.float32"):
        TransformerConfig.from_dict({**MINIMAL, "dtype": dtype})


@pytest.mark.parametrize("version", golden.VERSIONS)
def test_a_cfg_survives_json(version):
    cfg = golden.load(version, "rotary_adj")["cfg"]
    config = TransformerConfig.from_dict(json.loads(json.dumps(cfg, default=str)))
    assert config == TransformerConfig.from_dict(cfg)
    assert config.rotary_adjacent_pairs is True


def test_to_dict_reads_back():
    config = TransformerConfig(**MINIMAL, act_fn="gelu", n_key_value_heads=2, use_attn_scale=False, dtype=torch.float64)
    assert TransformerConfig.from_dict(config.to_dict()) == config
    assert TransformerConfig.from_dict({**config.to_dict(), "act_fn": "silu"}) != config


@pytest.mark.skipif(hooked_transformer_class() is None, reason="this TransformerLens has no HookedTransformer")
@pytest.mark.filterwarnings("ignore:HookedTransformer is deprecated")
def test_hooked_transformer_accepts_our_cfg():
    model = hooked_transformer_class()(TransformerConfig(**MINIMAL, n_heads=2, act_fn="gelu").to_dict())
    assert (model.cfg.n_heads, model.cfg.act_fn, model.W_Q.shape) == (2, "gelu", (2, 2, 64, 16))


@pytest.mark.parametrize("name", MINIMAL)
def test_a_missing_field_is_named(name):
    cfg = {key: value for key, value in MINIMAL.items() if key != name}
    with pytest.raises(CheckpointError, match=rf"^cfg has no {name}: expected"):
        TransformerConfig.from_dict(cfg)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"d_model": "64"}, "cfg gives d_model='64': expected a whole number"),
        ({"d_model": 64.5}, "cfg gives d_model=64.5: expected a whole number"),
        ({"d_model": 10**400}, "cfg gives d_model=1000"),
        ({"eps": -(10**400)}, "cfg gives eps=-1000"),
        ({"d_head": 10**16}, "cfg gives d_head=10000000000000000: expected a whole number of at most 1,000,000,000,0"),
        ({"n_layers": True}, "cfg gives n_layers=True: expected a whole number"),
        ({"n_layers": 0}, "cfg gives n_layers=0: expected a whole number of at least 1"),
        ({"attn_only": "yes"}, "cfg gives attn_only='yes': expected True or False"),
        ({"eps": float("nan")}, "cfg gives eps=nan: expected a finite number"),
        ({"act_fn": 3}, "cfg gives act_fn=3: expected a name"),
        ({"d_head": 12}, "cfg gives no n_heads, and d_model=64 is not a multiple of d_head=12"),
        ({"n_key_value_heads": 3}, "cfg gives n_key_value_heads=3: expected a divisor of n_heads, which is 4"),
        ({"n_key_value_heads": 2, "use_attn_in": True}, "cfg gives use_attn_in=True with grouped keys"),
        ({"positional_embedding_type": "rotary", "rotary_dim": 5}, "cfg gives rotary_dim=5: expected an even number"),
        ({"positional_embedding_type": "rotary", "rotary_dim": 18}, "cfg gives rotary_dim=18: expected an even number"),
        ({"rotary_base": 0}, "cfg gives rotary_base=0.0: expected a positive number"),
        ({"attn_scale": -2.0}, "cfg gives attn_scale=-2.0: expected a positive number"),
        ({"use_local_attn": True}, "cfg gives use_local_attn=True: expected attn_types and window_size with it"),
        ({**WINDOW, "window_size": 0}, "cfg gives window_size=0: expected a whole number of at least 1"),
        (
            {**WINDOW, "attn_types": ["local"]},
            "cfg gives attn_types=('local',): expected 'global' or 'local' for each of",
        ),
        ({**WINDOW, "attn_types": ["local", "x"]}, "cfg gives attn_types=('local', 'x'): expected 'global' or 'local'"),
        ({**WINDOW, "attn_types": "local"}, "cfg gives attn_types='local': expected a list of names"),
        ({"rotary_base_local": -1}, "cfg gives rotary_base_local=-1.0: expected a positive number"),
        ({"parallel_attn_mlp": True, "attn_only": True}, "cfg gives parallel_attn_mlp=True with attn_only=True"),
        ({"d_vocab_out": 0}, "cfg gives d_vocab_out=0: expected a whole number of at least 1"),
    ],
)
def test_a_contradiction_is_named(change, message):
    with pytest.raises(CheckpointError) as error:
        TransformerConfig.from_dict({**MINIMAL, **change})
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"act_fn": "xielu"}, "act_fn='xielu'"),
        ({"act_fn": None}, "act_fn=None"),
        ({"normalization_type": "BatchNorm"}, "normalization_type='BatchNorm'"),
        ({"positional_embedding_type": "sinusoidal"}, "positional_embedding_type='sinusoidal'"),
        ({"attention_dir": "sideways"}, "attention_dir='sideways'"),
        ({"original_architecture": "Olmo2ForCausalLM"}, "original_architecture='Olmo2ForCausalLM'"),
        ({"architecture": "GPT2LMHeadModel"}, "architecture='GPT2LMHeadModel'"),
    ],
)
def test_an_architecture_that_is_not_implemented_is_named(change, named):
    with pytest.raises(UnsupportedModelError, match=rf"^cfg sets {named}, which is not supported yet"):
        TransformerConfig.from_dict({**MINIMAL, **change})


def test_the_activation_of_an_attention_only_model_does_not_matter():
    assert TransformerConfig.from_dict({**MINIMAL, "attn_only": True, "act_fn": None}).act_fn is None


def test_the_gain_of_another_initialisation_is_not_taken_for_a_deviation():
    cfg = {**MINIMAL, "initializer_range": 1.0}
    assert TransformerConfig.from_dict(cfg).initializer_range == 1.0
    assert TransformerConfig.from_dict({**cfg, "init_mode": "xavier_uniform"}).initializer_range == 0.1


def test_a_native_cfg_is_read_as_what_a_native_model_computes():
    native = {**MINIMAL, "architecture": "TransformerLensNative", "positional_embedding_type": "rotary"}
    assert TransformerConfig.from_dict(native).rotary_adjacent_pairs is True
    assert TransformerConfig.from_dict({**native, "architecture": None}).rotary_adjacent_pairs is False
    for name, value in {"use_attn_scale": False, "parallel_attn_mlp": True, "use_local_attn": True}.items():
        with pytest.raises(UnsupportedModelError, match=rf"^cfg sets {name}={value} .* native model, which ignores it"):
            TransformerConfig.from_dict({**native, name: value})
    assert TransformerConfig.from_dict({**native, "gated_mlp": True}).gated_mlp


@pytest.mark.parametrize("name", ["attn_scores_soft_cap", "output_logits_soft_cap"])
def test_a_soft_cap_of_none_minus_one_or_zero_is_no_cap(name):
    plain = build(PLAIN)(tokens()).detach()
    for off in (None, -1, 0, 0.0, np.float64(-1)):
        config = TransformerConfig.from_dict({**PLAIN.to_dict(), name: off})
        assert torch.equal(build(config)(tokens()), plain)
    assert not torch.allclose(build(replace(PLAIN, **{name: 0.5}))(tokens()), plain, atol=1e-3)
