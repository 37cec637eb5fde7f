"""The disentangled transformer: its stream, its hooks, its twin in TransformerLens' matrices, its training."""

import pytest
import torch
from hand_built import RECALL
from torch import Tensor

from imir_lens.errors import CheckpointError, OptionError
from imir_lens.models.disentangled import DisentangledConfig, DisentangledTransformer
from imir_lens.tasks import make_task
from imir_lens.weights import WEIGHT_NAMES, CircuitWeights

VOCAB, CONTEXT = 7, 6
STREAMS = {
    "concat": {},
    "add, apart": {"stream": "add"},
    "add, dense": {"stream": "add", "d_model": 40},
    "centred": {"embedding": "centred"},
}


def _model(*, n_layers: int = 2, n_heads: int = 2, init_std: float = 0.3, seed: int = 0, **options):
    sizes = {"d_vocab": VOCAB, "n_ctx": CONTEXT, "n_layers": n_layers, "n_heads": n_heads}
    config = DisentangledConfig(**sizes, init_std=init_std, **options)
    return DisentangledTransformer(config, generator=torch.Generator().manual_seed(seed))


def _tokens(contexts: int = 5) -> Tensor:
    return torch.randint(VOCAB, (contexts, CONTEXT), generator=torch.Generator().manual_seed(9))


def _plain_logits(w: CircuitWeights, tokens: Tensor) -> Tensor:
    """An attention-only transformer written out from its matrices."""
    x = w.W_E[tokens] + w.W_pos[: tokens.shape[1]]
    future = torch.ones(tokens.shape[1], tokens.shape[1], dtype=torch.bool).triu(1)
    for layer in range(w.n_layers):
        q = torch.einsum("cid,hde->chie", x, w.W_Q[layer]) + w.b_Q[layer].unsqueeze(1)
        k = torch.einsum("cid,hde->chie", x, w.W_K[layer]) + w.b_K[layer].unsqueeze(1)
        v = torch.einsum("cid,hde->chie", x, w.W_V[layer]) + w.b_V[layer].unsqueeze(1)
        pattern = (q @ k.mT / w.scale).masked_fill(future, -torch.inf).softmax(-1)
        x = x + torch.einsum("chie,hed->cid", pattern @ v, w.W_O[layer]) + w.b_O[layer]
    return x @ w.W_U + w.b_U


@pytest.mark.parametrize("options", STREAMS.values(), ids=STREAMS)
def test_circuit_weights_are_the_same_model(options):
    model = _model(**options)
    logits = model(_tokens())
    assert logits.std() > 0.1
    torch.testing.assert_close(_plain_logits(model.circuit_weights(), _tokens()), logits, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("options", STREAMS.values(), ids=STREAMS)
def test_circuit_weights_are_on_the_models_device_and_in_a_full_precision(options):
    expected = {torch.float64: torch.float64, torch.float16: torch.float32, torch.float32: torch.float32}
    for dtype, found in expected.items():
        weights = _model(**options).to(dtype).circuit_weights()
        assert {getattr(weights, name).dtype for name in WEIGHT_NAMES} == {found}
        assert weights.W_Q.abs().max() > 0.1
    # The device "meta" stands for any that is not the default one.
    weights = _model(**options).to("meta").circuit_weights()
    assert {getattr(weights, name).device.type for name in WEIGHT_NAMES} == {"meta"}


def test_stream_keeps_what_every_path_wrote_apart():
    model = _model()
    _, cache = model.run_with_cache(_tokens())
    widths = [cache["resid_pre", 0].shape[-1], cache["resid_pre", 1].shape[-1], cache["resid_post", 1].shape[-1]]
    assert widths == [13, 39, 117]
    onehot = torch.eye(VOCAB)[_tokens()]
    for path in model.paths(2):
        content = onehot
        for head in path.heads:
            content = cache["pattern", head.layer][:, head.index] @ content
        start = model.cfg.start(path)
        torch.testing.assert_close(cache["resid_post", 1][..., start : start + VOCAB], content)


def test_scores_are_merged_products_of_the_stream_without_a_scale():
    model = _model()
    _, cache = model.run_with_cache(_tokens())
    x, head = cache["resid_pre", 1], 1
    scores = x @ model.attention(1).W_KQ[head] @ x.mT
    seen = torch.ones(CONTEXT, CONTEXT, dtype=torch.bool).tril()
    found = cache["attn_scores", 1][:, head]
    torch.testing.assert_close(found[:, seen], scores[:, seen], atol=1e-5, rtol=1e-5)
    assert bool(found[:, ~seen].isneginf().all())
    from_vectors = torch.einsum("cihe,cjhe->chij", cache["q", 1], cache["k", 1])[:, head]
    torch.testing.assert_close(from_vectors[:, seen], scores[:, seen], atol=1e-5, rtol=1e-5)


def test_an_additive_stream_of_full_width_is_the_concatenated_one():
    concat, add = _model(), _model(stream="add", init_std=0.0)
    with torch.no_grad():
        add.unembed.W_U.copy_(concat.unembed.W_U)
        for layer in range(2):
            width = concat.cfg.width(layer)
            add.attention(layer).W_KQ[:, :width, :width] = concat.attention(layer).W_KQ
    assert add.cfg.d_model == concat.cfg.d_model
    torch.testing.assert_close(add(_tokens()), concat(_tokens()))


@pytest.mark.parametrize("options", [STREAMS["concat"], STREAMS["add, apart"]])
def test_contents_are_orthonormal_where_there_is_room(options):
    model = _model(**options)
    contents = torch.cat([model.contents(2, "tok").flatten(0, 1), model.contents(2, "pos").flatten(0, 1)])
    assert len(contents) == 9 * (VOCAB + CONTEXT)
    torch.testing.assert_close(contents @ contents.T, torch.eye(len(contents)))
    for path, content in zip(model.paths(2), model.contents(2, "pos"), strict=True):
        assert content[0].argmax() == model.cfg.start(path) + VOCAB


def test_contents_overlap_in_a_narrow_stream():
    model = _model(**STREAMS["add, dense"])
    contents = model.contents(1, "tok")  # paths res, L0H0, L0H1
    torch.testing.assert_close(contents[2], model.embed.W_E @ model.attention(0).W_O[1])
    torch.testing.assert_close(contents[2] @ contents[2].T, torch.eye(VOCAB), atol=1e-5, rtol=0)
    assert (contents[0] @ contents[2].T).abs().max() > 0.1


def test_centred_embeddings_sum_to_nothing():
    model = _model(embedding="centred")
    for table, size in ((model.embed.W_E, VOCAB), (model.pos_embed.W_pos, CONTEXT)):
        assert table.sum(0).abs().max() < 1e-6
        assert torch.linalg.matrix_rank(table) == size - 1


@pytest.mark.parametrize("hook", ["hook_attn_scores", "hook_pattern", "hook_z", "hook_q", "hook_k", "hook_v"])
def test_edits_at_hooks_act_and_leave_no_trace(hook):
    model = _model()
    plain = model(_tokens())
    edit = [(f"blocks.0.attn.{hook}", lambda value, hook: value.flip(1))]
    assert (model.run_with_hooks(_tokens(), fwd_hooks=edit) - plain).abs().max() > 1e-3
    assert torch.equal(model(_tokens()), plain)


def test_later_tokens_do_not_change_earlier_logits():
    model, tokens = _model(), _tokens()
    changed = tokens.clone()
    changed[:, -1] = (changed[:, -1] + 1) % VOCAB
    before, after = model(tokens), model(changed)
    assert torch.equal(before[:, :-1], after[:, :-1])
    assert not torch.allclose(before[:, -1], after[:, -1])


@pytest.mark.parametrize("direction", ["causal", "bidirectional"])
def test_only_bidirectional_attention_sees_later_keys(direction):
    model = _model(attention_dir=direction)
    tokens = _tokens()
    changed = tokens.clone()
    changed[:, -1] = (changed[:, -1] + 1) % VOCAB
    moved = (model(changed) - model(tokens))[:, 0].abs().max()
    assert (moved > 1e-3) == (direction == "bidirectional")
    assert model.circuit_weights().form.bidirectional == (direction == "bidirectional")
    assert DisentangledConfig.from_dict(model.cfg.to_dict()) == model.cfg


def test_the_same_seed_gives_the_same_model():
    logits = [_model(seed=seed, **STREAMS["add, dense"])(_tokens()) for seed in (1, 1, 2)]
    assert torch.equal(logits[0], logits[1])
    assert not torch.allclose(logits[0], logits[2])


def test_config_and_weights_rebuild_the_model():
    for options in STREAMS.values():
        model = _model(**options)
        copy = DisentangledTransformer(DisentangledConfig.from_dict(model.cfg.to_dict()))
        copy.load_state_dict(model.state_dict())
        assert torch.equal(copy(_tokens()), model(_tokens()))


def test_a_model_without_layers_is_a_table_of_bigrams():
    model = _model(n_layers=0)
    W_U = model.unembed.W_U
    torch.testing.assert_close(model(_tokens()), W_U[:VOCAB][_tokens()] + W_U[VOCAB:])
    torch.testing.assert_close(_plain_logits(model.circuit_weights(), _tokens()), model(_tokens()))


def test_it_learns_a_small_recall_and_keeps_its_embeddings():
    task = make_task("recall", vocab=8, pairs=2, length=6)
    generator = torch.Generator().manual_seed(0)
    config = DisentangledConfig(d_vocab=8, n_ctx=6, n_layers=2)
    model = DisentangledTransformer(config, generator=generator)
    fixed = model.embed.W_E.clone()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05, weight_decay=1e-3)
    losses = []
    for _ in range(150):
        batch = task.sample(128, generator)
        loss = torch.nn.functional.cross_entropy(model(batch.tokens)[:, -1], batch.targets[:, 0])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(2.08, abs=0.1)  # log 8: nothing known
    assert sum(losses[-10:]) / 10 < 0.35
    assert torch.equal(model.embed.W_E, fixed)
    assert {name for name, _ in model.named_parameters()} == {
        "blocks.0.attn.W_KQ",
        "blocks.1.attn.W_KQ",
        "unembed.W_U",
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stream": "concatt"}, "'concatt'; did you mean 'concat'"),
        ({"embedding": "learned"}, "'learned'"),
        ({"d_model": 64}, "117 wide: leave out d_model=64"),
        ({"stream": "add", "d_model": 12}, "d_vocab \\+ n_ctx = 13: d_model=12"),
        ({"n_heads": 0}, "n_heads=0"),
        ({"n_layers": -1}, "n_layers=-1"),
    ],
)
def test_shapes_that_cannot_be_are_refused(options, message):
    with pytest.raises(OptionError, match=message):
        _model(**options)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"n_layers": 10**7}, "n_layers=10,000,000: expected at most 1,000"),
        ({"n_layers": 30}, "numbers (weights and masks): expected at most 2,000,000,000"),
        ({"n_layers": 2, "stream": "add", "d_model": 10**6}, "a model of 8,000,020,000,000 numbers"),
        ({"n_layers": 0, "d_vocab": 10**5}, "a model of 20,001,800,036 numbers"),
    ],
)
def test_sizes_beyond_reason_are_refused_before_anything_is_allocated(sizes, message):
    with pytest.raises(CheckpointError) as error:
        DisentangledConfig(**{"d_vocab": VOCAB, "n_ctx": CONTEXT, "n_heads": 2, **sizes})
    assert message in str(error.value)


def test_wrong_calls_are_refused():
    model = _model()
    with pytest.raises(OptionError, match="9 tokens do not fit a model with n_ctx=6"):
        model(torch.zeros(1, 9, dtype=torch.long))
    with pytest.raises(OptionError, match="'tokens'; "):
        model.contents(1, "tokens")


def test_recall_sizes_give_the_expected_stream():
    config = DisentangledConfig(d_vocab=RECALL["vocab"], n_ctx=RECALL["length"], n_layers=5)
    assert [config.width(layer) for layer in range(6)] == [38 * 2**layer for layer in range(6)]
    assert (config.d_model, config.d_head, config.d_vocab_out) == (1216, 608, 24)
