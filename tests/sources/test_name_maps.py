import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import torch
from plain_models import HEADS, JointGPT, SeparateGPT, attend, shaken
from tiny_models import saved, tiny_model, tokens
from torch.nn import functional

from imir_lens.checkpoints import load_checkpoint, load_transformer
from imir_lens.errors import CheckpointError
from imir_lens.sources.name_maps import SHIPPED, read_name_map

MODEL_ARGS = {"n_layer": 2, "n_head": HEADS, "n_embd": 24, "block_size": 24, "bias": True, "vocab_size": 40}
TRAINING = {"learning_rate": 6e-4, "dtype": "bfloat16", "device": "cuda", "n_head": HEADS, "dropout": 0.0}


def _agrees(path: Path, model: torch.nn.Module, **options: Any) -> bool:
    with torch.no_grad():
        theirs = model(tokens())
        ours = load_transformer(path, **options)(tokens())
    assert theirs.std() > 0.1
    return bool((ours - theirs).abs().max() < 1e-4)


@pytest.mark.parametrize("bias", [True, False])
def test_a_nanogpt_checkpoint_is_recognised_and_computes_the_same(tmp_path: Path, bias: bool) -> None:
    model = shaken(JointGPT(nano=True, bias=bias))
    file = tmp_path / "ckpt.pt"
    compiled = {f"_orig_mod.{name}": value for name, value in model.state_dict().items()}
    optimizer = {"state": {0: {"step": torch.tensor(1.0)}}, "param_groups": [{"lr": 1e-3}]}
    more = {"optimizer": optimizer, "iter_num": 500, "best_val_loss": 1.5, "config": TRAINING}
    torch.save({"model": compiled, "model_args": MODEL_ARGS, **more}, file)
    assert _agrees(file, model)
    checkpoint = load_checkpoint(file)
    assert checkpoint.step == 500
    assert "dtype" not in checkpoint.config, "training in bfloat16 says nothing about the weights"
    # What the shapes cannot tell is what the map says, unless the user knows better.
    assert not _agrees(file, model, overrides={"act_fn": "relu"})


def test_a_mingpt_file_is_recognised_by_its_own_unembedding(tmp_path: Path) -> None:
    model = shaken(JointGPT(nano=False))
    file = tmp_path / "model.pt"
    torch.save(model.state_dict(), file)
    with pytest.raises(CheckpointError, match=r"split into heads, .* pass --model n_heads=…"):
        load_checkpoint(file)
    assert _agrees(file, model, overrides={"n_heads": "3"})
    assert not _agrees(file, model, overrides={"n_heads": "6"})
    assert not _agrees(file, model, overrides={"n_heads": "3"}, names="nanogpt"), "tanh gelu is not gelu"
    (tmp_path / "config.json").write_text(json.dumps({"system": {"seed": 1}, "model": {"n_head": HEADS}}))
    assert _agrees(file, model)


def test_an_early_mingpt_file_is_recognised(tmp_path: Path) -> None:
    model = shaken(SeparateGPT())
    torch.save(model.state_dict(), tmp_path / "model.pt")
    assert _agrees(tmp_path / "model.pt", model, overrides={"n_heads": HEADS})


def _own_names(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {f"net.{name.replace('transformer.h', 'layers')}": value for name, value in model.state_dict().items()}


def _own_map() -> dict[str, Any]:
    text = (files("imir_lens.sources") / "maps" / "mingpt.json").read_text(encoding="utf-8")
    text = text.replace('"transformer.h', '"net.layers').replace('"transformer.', '"net.transformer.')
    return json.loads(text.replace('"lm_head', '"net.lm_head'))


def test_a_users_own_map_translates_names_that_nobody_knows(tmp_path: Path) -> None:
    model = shaken(JointGPT(nano=False))
    torch.save(_own_names(model), tmp_path / "model.pt")
    with pytest.raises(CheckpointError, match="not a HookedTransformer state dict"):
        load_checkpoint(tmp_path / "model.pt")
    (tmp_path / "names.json").write_text(json.dumps(_own_map()))
    options = {"names": tmp_path / "names.json"}
    assert _agrees(tmp_path / "model.pt", model, **options, overrides={"n_heads": HEADS})
    assert _agrees(tmp_path / "model.pt", model, names=_own_map(), overrides={"n_heads": HEADS})
    with pytest.raises(CheckpointError, match="the name map: 'wieghts' is no part of a name map; did you mean"):
        load_checkpoint(tmp_path / "model.pt", names={**_own_map(), "wieghts": {}})
    (tmp_path / "mine.json").write_text(json.dumps({"n_heads": HEADS}))
    assert _agrees(tmp_path / "model.pt", model, **options, config=tmp_path / "mine.json")
    swapped = _own_map()
    query, key = (swapped["weights"][f"blocks.{{layer}}.attn.W_{letter}"] for letter in "QK")
    query["pick"], key["pick"] = key["pick"], query["pick"]
    (tmp_path / "names.json").write_text(json.dumps(swapped))
    assert not _agrees(tmp_path / "model.pt", model, **options, overrides={"n_heads": HEADS})


def test_biases_that_no_line_names_are_zero(tmp_path: Path) -> None:
    model = shaken(JointGPT(nano=True, bias=False))
    own = _own_map() | {"config": {"normalization_type": "LN", "act_fn": "gelu", "use_attn_scale": True, "n_heads": 3}}
    own["weights"] = {target: source for target, source in own["weights"].items() if ".b" not in target}
    (tmp_path / "names.json").write_text(json.dumps(own))
    torch.save(_own_names(model), tmp_path / "model.pt")
    assert _agrees(tmp_path / "model.pt", model, names=tmp_path / "names.json")
    with pytest.raises(CheckpointError, match=r"names.json says nothing about 'net.layers.0.ln_1.bias'"):
        torch.save(_own_names(shaken(JointGPT(nano=False))), tmp_path / "model.pt")
        load_checkpoint(tmp_path / "model.pt", names=tmp_path / "names.json")


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"embed.W_E": "net.nowhere"}, r"no weight 'net.nowhere', which the name map asks for"),
        ({3: "net.transformer.wte.weight"}, "the name map: a key is no text"),
    ],
    ids=["source", "target"],
)
def test_a_map_that_is_a_dict_and_does_not_fit_says_where(tmp_path: Path, change: dict[Any, str], fault: str) -> None:
    torch.save(_own_names(shaken(JointGPT(nano=False))), tmp_path / "model.pt")
    own = _own_map()
    own["weights"] |= change
    with pytest.raises(CheckpointError, match=fault):
        load_transformer(tmp_path / "model.pt", names=own, overrides={"n_heads": HEADS})


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"embed.W_E": "net.nowhere"}, r"no weight 'net.nowhere', which the name map .*names.json asks for"),
        ({"embed.W_E": {"from": "net.transformer.wte.weight", "axes": "a b c -> c b a"}}, "does not turn as 'a b c"),
        ({"embed.W_E": {"from": "net.transformer.wte.weight", "axes": "nonsense"}}, "does not turn as 'nonsense'"),
        ({"embed.W_E": {"from": "net.transformer.wte.weight", "pick": 99}}, r"no slice 99: its shape is \[40, 24\]"),
        ({"embed.W_E": {"from": "net.transformer.wte.weight", "pick": 0}}, "expected 'embed.W_E' with 2 axes"),
        ({"embed.W_E": 5}, "'embed.W_E': expected the source's name"),
        ({"embed.W_E": {"from": "net.transformer.wte.weight", "turn": 1}}, "perhaps 'axes' and 'pick'"),
        ({"embed.W_E": "net.transformer.wte.weight?"}, "is no bias, so its source .* cannot be optional"),
        ({"embed.W_E": "net.{layer}.wte.weight"}, r"expected \{layer\} in both names or in none"),
        ({"embed.W_X": "net.transformer.wte.weight"}, "unexpected embed.W_X"),
    ],
)
def test_maps_that_do_not_fit_say_where(tmp_path: Path, change: dict[str, Any], fault: str) -> None:
    torch.save(_own_names(shaken(JointGPT(nano=False))), tmp_path / "model.pt")
    own = _own_map()
    own["weights"] |= change
    (tmp_path / "names.json").write_text(json.dumps(own))
    with pytest.raises(CheckpointError, match=fault) as error:
        load_transformer(tmp_path / "model.pt", names=tmp_path / "names.json", overrides={"n_heads": HEADS})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("{", "not valid JSON"),
        ("[]", "not a name map: expected an object with 'weights'"),
        ('{"weights": {}}', "not a name map"),
        ('{"weights": {"a": "b"}, "ignores": []}', "'ignores' is no part of a name map; did you mean 'ignore'"),
        ('{"weights": {"a": "b"}, "ignore": "c"}', "'ignore' is a str: expected a list"),
        ('{"weights": {"a": "b"}, "config_names": {"c": 1}}', "expected texts only"),
    ],
)
def test_files_that_are_no_maps_are_refused(tmp_path: Path, text: str, fault: str) -> None:
    (tmp_path / "names.json").write_text(text)
    with pytest.raises(CheckpointError, match=fault) as error:
        read_name_map(tmp_path / "names.json")
    assert str(error.value).startswith(str(tmp_path / "names.json"))


def test_a_misspelt_map_is_answered_with_the_shipped_ones() -> None:
    with pytest.raises(CheckpointError, match="did you mean 'nanogpt'"):
        read_name_map("nanogtp")
    assert all(read_name_map(name).weights for name in SHIPPED)


def test_hugging_faces_gpt2_is_not_taken_for_a_mingpt(tmp_path: Path) -> None:
    # The same names, with every projection the other way round.
    folder = saved(tiny_model("gpt2 untied, other activation"), tmp_path)
    (folder / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"weights of a Hugging Face model .* without its config"):
        load_checkpoint(folder / "model.safetensors", overrides={"n_heads": 3})


def test_the_example_in_the_documents_translates_such_a_model(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "models.md").read_text(encoding="utf-8")
    (tmp_path / "names.json").write_text(text.split("```json\n")[1].split("```")[0])
    torch.manual_seed(5)
    state = {"token.weight": torch.randn(40, 24), "position.weight": torch.randn(24, 24) / 4}
    for layer in range(2):
        for name in ("q", "k", "v", "out"):
            state[f"layers.{layer}.{name}.weight"] = torch.randn(24, 24) / 5
        state[f"layers.{layer}.v.bias"] = torch.randn(24)
        state[f"layers.{layer}.mask"] = torch.ones(24, 24).tril()
    state["output.weight"] = torch.randn(40, 24)
    torch.save({"model": state, "config": {"heads": HEADS}}, tmp_path / "model.pt")
    ours = load_transformer(tmp_path / "model.pt", names=tmp_path / "names.json")(tokens())

    x = state["token.weight"][tokens()] + state["position.weight"]
    for layer in range(2):
        q, k, v = (
            functional.linear(x, state[f"layers.{layer}.{name}.weight"], state.get(f"layers.{layer}.{name}.bias"))
            for name in "qkv"
        )
        x = x + functional.linear(attend(q, k, v), state[f"layers.{layer}.out.weight"])
    theirs = functional.linear(x, state["output.weight"])
    assert (ours - theirs).abs().max() < 1e-4 * theirs.abs().max()
