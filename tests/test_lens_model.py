"""Opening models of every kind: the same weights, the same logits, hooks that act and leave nothing behind."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from live import (
    live_bridge,
    live_from_file,
    live_hooked,
    needs_hooked_transformer,
    needs_native_bridge,
)
from torch import Tensor, nn

from imir_lens.ablation import ablate
from imir_lens.checkpoints import load_checkpoint, load_transformer
from imir_lens.compat import HookedRootModule, HookPoint
from imir_lens.errors import OptionError, UnsupportedModelError
from imir_lens.lens_model import LensModel, open_model
from imir_lens.models.config import TransformerConfig
from imir_lens.models.disentangled import DisentangledConfig, DisentangledTransformer
from imir_lens.models.transformer import ImirTransformer
from imir_lens.projector import ImirProjector
from imir_lens.tasks import make_task
from imir_lens.weights import WEIGHT_NAMES as NAMES
from imir_lens.weights import CircuitWeights

DATA = Path(__file__).parent / "data"
RECALL = DATA / "recall_2l.pt"
SMALL = {"n_layers": 2, "n_heads": 3, "d_model": 10, "d_head": 4, "n_ctx": 8, "d_vocab": 12}
SMALL_TL = {**SMALL, "attn_only": True, "normalization_type": None, "seed": 0}

pytestmark = pytest.mark.filterwarnings("ignore:HookedTransformer is deprecated")


@pytest.fixture(scope="module")
def contexts() -> Tensor:
    return torch.from_numpy(np.load(DATA / "recall_contexts.npz")["tokens"][:64]).long()


@pytest.fixture(scope="module")
def golden() -> Tensor:
    return torch.from_numpy(np.load(DATA / "recall_2l_logits.npz")["logits"])


@pytest.fixture(params=["file", "own", "live"], scope="module")
def opened(request: pytest.FixtureRequest) -> LensModel:
    sources = {
        "file": lambda: str(RECALL),
        "own": lambda: load_transformer(RECALL),
        "live": lambda: live_from_file(RECALL),
    }
    return open_model(sources[request.param]())


@pytest.fixture(params=["own", "live"])
def model(request: pytest.FixtureRequest) -> Any:
    """A model in memory that a test may change."""
    return load_transformer(RECALL) if request.param == "own" else live_from_file(RECALL)


def _hooks_on(model: Any) -> int:
    return sum(len(point.fwd_hooks) + len(point._forward_hooks) for point in model.hook_dict.values())


# --- one view -----------------------------------------------------------------------------------------------------


def test_every_kind_gives_the_same_weights_logits_and_sizes(
    opened: LensModel, contexts: Tensor, golden: Tensor
) -> None:
    state = load_checkpoint(RECALL).state_dict
    assert torch.equal(opened.weights.W_E, state["embed.W_E"])
    for name in NAMES:
        found = getattr(opened.weights, name)
        if name in ("W_E", "W_pos", "W_U", "b_U"):
            continue
        expected = torch.stack([state[f"blocks.{layer}.attn.{name}"] for layer in range(2)])
        assert expected.abs().max() > 1e-3
        assert (found - expected).abs().max() < 1e-6, name
    assert (opened.weights.b_U - state["unembed.b_U"]).abs().max() < 1e-6
    assert opened.weights.scale == 8.0
    logits = opened.logits(contexts)[:, -1]
    assert (logits - golden).abs().max() < 1e-5 * golden.abs().max()
    assert not logits.requires_grad


def test_info_describes_the_model(opened: LensModel) -> None:
    sizes = {"n_layers": 2, "n_heads": 1, "d_model": 128, "d_head": 64, "d_vocab": 64, "n_ctx": 24}
    kind = {"positions": "standard", "normalization": None, "attn_only": True}
    assert {**sizes, **kind}.items() <= opened.info.items()
    assert set(opened.info) == {*sizes, *kind, "source", "sha256", "family"}
    own = open_model(load_transformer(RECALL))
    if opened.info["source"] == str(RECALL):
        assert opened.info["family"] == "HookedTransformer"
        assert opened.info["sha256"] == load_checkpoint(RECALL).sha256
    else:
        assert opened.info["source"] == opened.info["family"] == type(opened.model).__name__
        assert opened.info["sha256"] == own.weights.sha256()


@needs_hooked_transformer
def test_hooked_transformers_of_odd_sizes_open(generator: torch.Generator) -> None:
    model = live_hooked({**SMALL_TL, "use_attn_scale": False})
    for parameter in model.parameters():
        parameter.data.normal_(generator=generator)
    opened = open_model(model)
    assert opened.weights.scale == 1.0
    assert torch.equal(opened.weights.W_V[1, 2], model.W_V[1, 2])
    assert opened.weights.b_K.abs().min() > 0


@needs_native_bridge
def test_native_bridges_of_odd_sizes_open(generator: torch.Generator) -> None:
    model = live_bridge(SMALL_TL)
    for parameter in model.parameters():
        parameter.data.normal_(generator=generator)
    opened = open_model(model)
    assert opened.weights.scale == 2.0
    for name in ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V", "b_O"):
        assert torch.equal(getattr(opened.weights, name), getattr(model, name)), name
        assert getattr(opened.weights, name).abs().max() > 0
    assert torch.equal(opened.weights.b_U, torch.zeros(12))


@needs_native_bridge
def test_a_file_saved_from_a_native_bridge_opens(tmp_path: Path, contexts: Tensor, golden: Tensor) -> None:
    model = live_from_file(RECALL)
    torch.save({"state_dict": model.state_dict(), "cfg": model.cfg.to_dict()}, tmp_path / "bridge.pt")
    opened = open_model(tmp_path / "bridge.pt")
    assert opened.weights.sha256() == open_model(RECALL).weights.sha256()
    assert (opened.logits(contexts)[:, -1] - golden).abs().max() < 1e-5 * golden.abs().max()


@needs_native_bridge
def test_a_bridge_in_compatibility_mode_fires_each_hook_once(contexts: Tensor) -> None:
    model = live_from_file(RECALL)
    plain = open_model(live_from_file(RECALL))
    model.enable_compatibility_mode()
    opened = open_model(model)
    # Centred logits: another model by constants that a softmax forgets.
    assert torch.allclose(opened.logits(contexts).softmax(-1), plain.logits(contexts).softmax(-1), atol=1e-4)
    assert not torch.allclose(opened.weights.W_U, plain.weights.W_U)
    calls = []
    opened.run_with_hooks(contexts, [("blocks.1.attn.hook_pattern", lambda p, hook: calls.append(p.shape))])
    assert calls == [(64, 1, 24, 24)]


@pytest.mark.parametrize("stream", ["concat", "add"])
def test_disentangled_models_open_through_their_own_weights(stream: str, generator: torch.Generator) -> None:
    config = DisentangledConfig(d_vocab=6, n_ctx=5, n_layers=2, n_heads=2, stream=stream, init_std=1.0)
    model = DisentangledTransformer(config, generator=generator)
    opened = open_model(model)
    tokens = torch.arange(10).view(2, 5) % 6
    with torch.no_grad():
        assert torch.equal(opened.logits(tokens), model(tokens))
    assert opened.info["family"] == "DisentangledTransformer"
    opened.check_hook_effect(tokens)


# --- running leaves no trace ------------------------------------------------------------------------------------------


def test_edits_act_during_the_run_only(opened: LensModel, contexts: Tensor) -> None:
    before, hooks = opened.logits(contexts), _hooks_on(opened.model)
    for layer in (0, 1):
        for name in ("hook_pattern", "hook_q", "hook_k", "hook_z"):
            edit = (f"blocks.{layer}.attn.{name}", lambda t, hook: t * 0.5)
            assert (opened.run_with_hooks(contexts, [edit]) - before).abs().max() > 0.1, edit
    assert torch.equal(opened.logits(contexts), before)
    assert _hooks_on(opened.model) == hooks


def test_hooks_are_gone_after_an_error(opened: LensModel, contexts: Tensor) -> None:
    def fail(tensor: Tensor, hook: Any) -> None:
        raise RuntimeError("mine")

    hooks = _hooks_on(opened.model)
    with pytest.raises(RuntimeError, match="mine"):
        opened.run_with_hooks(contexts, [("blocks.0.attn.hook_q", lambda q, hook: None), ("hook_embed", fail)])
    assert _hooks_on(opened.model) == hooks


def test_the_cache_holds_copies_of_what_was_asked_for(opened: LensModel, contexts: Tensor) -> None:
    names = [f"blocks.{layer}.attn.{kind}" for layer in (0, 1) for kind in ("hook_pattern", "hook_q", "hook_k")]
    logits, cache = opened.run_with_cache(contexts, names)
    assert torch.equal(logits, opened.logits(contexts))
    assert list(cache) == names
    assert {cache[name].shape for name in names} == {(64, 1, 24, 24), (64, 24, 1, 64)}
    pattern, q, k = (cache[f"blocks.1.attn.{kind}"] for kind in ("hook_pattern", "hook_q", "hook_k"))
    scores = torch.einsum("cqhd,ckhd->chqk", q, k) / opened.weights.scale
    future = torch.ones(24, 24, dtype=torch.bool).triu(1)
    assert torch.allclose(scores.masked_fill(future, -torch.inf).softmax(-1), pattern, atol=1e-5)
    pattern.zero_()
    assert torch.equal(opened.logits(contexts), logits)


def test_training_flags_come_back_as_they_were(model: Any, contexts: Tensor) -> None:
    opened = open_model(model)
    model.train()
    model.embed.eval()
    before = [module.training for module in model.modules()]
    assert set(before) == {True, False}
    seen = []
    opened.run_with_hooks(contexts, [("hook_embed", lambda t, hook: seen.append(model.training))])
    assert seen == [False]
    assert [module.training for module in model.modules()] == before
    assert torch.is_grad_enabled()


def test_hooks_of_the_user_stay_and_act(model: Any, contexts: Tensor) -> None:
    opened = open_model(model)
    plain = opened.logits(contexts)
    seen: list[str] = []
    model.add_hook("blocks.0.attn.hook_pattern", lambda t, hook: seen.append("added"))
    with model.hooks(fwd_hooks=[("hook_embed", lambda t, hook: seen.append("kept"))], reset_hooks_end=False):
        pass
    hooks = _hooks_on(model)
    opened.run_with_cache(contexts, ["blocks.0.attn.hook_pattern", "hook_embed"])
    assert torch.equal(opened.logits(contexts), plain)
    assert seen == ["kept", "added"] * 2
    assert _hooks_on(model) == hooks
    model.reset_hooks()
    assert _hooks_on(model) == 0


def test_opening_and_running_changes_no_weight(contexts: Tensor) -> None:
    model = live_from_file(RECALL)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    opened = open_model(model)
    opened.check_hook_effect(contexts[:4])
    for key, value in model.state_dict().items():
        assert torch.equal(value, before[key]), key
    assert all(parameter.requires_grad for parameter in model.parameters())


# --- the hook-effect guard --------------------------------------------------------------------------------------------


def test_models_whose_hooks_act_pass_the_guard(opened: LensModel, contexts: Tensor) -> None:
    opened.check_hook_effect(contexts[:4])


class _Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.hook_pattern, self.hook_v = HookPoint(), HookPoint()


class _Disconnected(HookedRootModule):
    """Computes with an inner model; its own hooks see copies that go nowhere."""

    def __init__(self, inner: ImirTransformer) -> None:
        super().__init__()
        self.inner = [inner]
        self.blocks = nn.ModuleList(nn.Module() for _ in range(2))
        for block in self.blocks:
            block.attn = _Attention()
        self.setup()

    def circuit_weights(self) -> CircuitWeights:
        return open_model(self.inner[0]).weights

    def forward(self, tokens: Tensor) -> Tensor:
        logits, cache = self.inner[0].run_with_cache(tokens)
        for layer, block in enumerate(self.blocks):
            block.attn.hook_pattern(cache["pattern", layer])
            block.attn.hook_v(cache["v", layer])
        return logits


def test_a_model_that_ignores_edits_is_caught(contexts: Tensor) -> None:
    opened = open_model(_Disconnected(load_transformer(RECALL)))
    assert opened.logits(contexts).abs().max() > 5
    with pytest.raises(UnsupportedModelError, match=r"editing 'blocks.0.attn.hook_pattern' does not change the logits"):
        opened.check_hook_effect(contexts[:4])


def test_nothing_is_ablated_in_a_model_that_throws_edits_away(contexts: Tensor) -> None:
    task = make_task("recall")
    batch = task.sample(8, torch.Generator().manual_seed(0))
    inner = load_transformer(RECALL)
    coordinates = ImirProjector.for_task(task).fit(open_model(inner).weights).coordinates_
    works, broken = open_model(inner), open_model(_Disconnected(inner))
    ablate(works, coordinates, ["L1H0/score/q:res/k:L0H0/same"], batch)
    assert works.hooks_proved
    with pytest.raises(UnsupportedModelError, match=r"editing 'blocks.0.attn.hook_pattern' does not change the logits"):
        ablate(broken, coordinates, ["L1H0/score/q:res/k:L0H0/same"], batch)
    assert not broken.hooks_proved


def test_layers_that_write_nothing_are_not_blamed(contexts: Tensor) -> None:
    inner = load_transformer(RECALL)
    with torch.no_grad():
        for block in inner.blocks:
            block.attn.W_O.zero_()
    open_model(inner).check_hook_effect(contexts[:4])
    open_model(_Disconnected(inner)).check_hook_effect(contexts[:4])


# --- what is refused ------------------------------------------------------------------------------------------------


@needs_native_bridge
def test_edits_that_a_native_bridge_throws_away_are_errors(contexts: Tensor) -> None:
    opened = open_model(live_from_file(RECALL))
    scores = "blocks.1.attn.hook_attn_scores"
    with pytest.raises(UnsupportedModelError, match=r"throws away an edit at one of 'blocks.1.attn.hook_att"):
        opened.run_with_hooks(contexts, [(scores, lambda s, hook: s * 0)])
    opened.run_with_cache(contexts, [scores])
    assert _hooks_on(opened.model) == 0


def test_runs_that_do_not_fit_are_refused() -> None:
    opened = open_model(ImirTransformer(TransformerConfig.from_dict(SMALL_TL)))
    tokens = torch.arange(8)[None]
    with pytest.raises(
        OptionError, match=r"no hook 'blocks.2.attn.hook_q': expected e.g. 'blocks.0.attn.hook_pattern'"
    ):
        opened.run_with_cache(tokens, ["blocks.2.attn.hook_q"])
    with pytest.raises(OptionError, match=r"the hook 'blocks.0.attn.hook_result' did not fire"):
        opened.run_with_cache(tokens, ["blocks.0.attn.hook_result"])
    with pytest.raises(OptionError, match="contexts of 9 positions: expected at most n_ctx=8"):
        opened.logits(torch.zeros(1, 9, dtype=torch.long))
    for bad in (-1, 12):
        with pytest.raises(OptionError, match="expected 0 to 11, the model's vocabulary"):
            opened.logits(torch.full((1, 3), bad))
    assert _hooks_on(opened.model) == 0
