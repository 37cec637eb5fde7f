"""Planted weights have exactly the given coordinates, in both forms."""

import math

import pytest
import torch
from hand_built import HandBuilt, all_kinds, at_queries, excess, hop, induction, memory
from torch import Tensor

from imir_lens.errors import CoordinateError, OptionError
from imir_lens.ids import CoordinateId, Path
from imir_lens.models.blueprint import shift_matrix
from imir_lens.models.planting import plant, plant_disentangled
from imir_lens.paths import PathTable
from imir_lens.tasks import make_task
from imir_lens.weights import CircuitWeights

KINDS = all_kinds()


def _weights(built: HandBuilt, **options) -> CircuitWeights:
    model = built.model(**options)
    return CircuitWeights.from_state(model.state_dict(), model.cfg)


def _value_map(w: CircuitWeights, path: Path) -> Tensor:
    out = torch.eye(w.d_model, dtype=torch.float64)
    for head in path.heads:
        out = out @ w.W_OV(head.layer, head.index).double()
    return out


def _blocks(w: CircuitWeights) -> dict[tuple, Tensor]:
    """All blocks by brute force, under (head, query path, key path, sources) or (None, path, source)."""
    sources = {"tok": w.W_E.double(), "pos": w.W_pos.double()}
    table = PathTable.full(w.n_layers, w.n_heads)
    blocks = {}
    for head in table.heads:
        w_qk = w.W_QK(head.layer, head.index).double()
        entering = PathTable.full(head.layer, w.n_heads).paths
        images = {(s, p): sources[s] @ _value_map(w, p) for s in sources for p in entering}
        for (s, u), left in images.items():
            for (t, v), right in images.items():
                blocks[head, u, v, s + t] = left @ w_qk @ right.T
    for path in table.paths:
        for s, embedding in sources.items():
            blocks[None, path, s] = embedding @ _value_map(w, path) @ w.W_U.double()
    return blocks


def _expected(built: HandBuilt) -> dict[tuple, Tensor]:
    expected: dict[tuple, Tensor] = {}
    for text, value in built.circuit.items():
        name = CoordinateId.parse(text)
        if name.offset is None:
            matrix, source = built.task.relations.matrix(name.relation).double(), "tok"
        else:
            matrix, source = shift_matrix(built.task.n_positions, name.offset).double(), "pos"
        place = (name.head, name.query, name.key, source * 2) if name.is_score else (None, name.key, source)
        expected[place] = expected.get(place, 0) + value * matrix
    return expected


@pytest.mark.parametrize("name", ["induction", "memory", "mixed", "hop2"])
@pytest.mark.parametrize("rotate", [True, False])
def test_every_block_is_what_was_planted_and_nothing_else(name, rotate):
    built = KINDS[name]
    expected = _expected(built)
    assert all(matrix.abs().max() > 1 for matrix in expected.values())
    blocks = _blocks(_weights(built, rotate=rotate))
    assert set(expected) <= set(blocks)
    for place, block in blocks.items():
        size = max(1.0, max(map(abs, built.circuit.values())))
        wanted = expected.get(place, torch.zeros_like(block))
        torch.testing.assert_close(block, wanted, atol=1e-5 * size, rtol=0)


def test_rotation_hides_the_axes_and_changes_nothing_else():
    built = induction()
    turned, plain = built.model(seed=5), built.model(rotate=False)
    assert (plain.embed.W_E != 0).double().mean() < 0.02
    assert (turned.embed.W_E.abs() > 1e-4).double().mean() > 0.95
    batch = built.batch(64)
    torch.testing.assert_close(at_queries(turned, batch), at_queries(plain, batch), atol=1e-3, rtol=0)


@pytest.mark.parametrize("name", ["induction", "mixed", "hop2", "shared alpha"])
@pytest.mark.parametrize("stream", ["concat", "add"])
def test_both_forms_attend_and_answer_alike(name, stream):
    built = KINDS[name]
    batch = built.batch(16)
    logits, cache = built.model().run_with_cache(batch.tokens)
    twin_logits, twin = built.disentangled(stream=stream).run_with_cache(batch.tokens)
    for layer in range(built.n_layers):
        torch.testing.assert_close(cache["pattern", layer], twin["pattern", layer], atol=1e-4, rtol=0)
    assert cache["pattern", 0].std() > 0.1
    centred, twin_centred = (x - x.mean(-1, keepdim=True) for x in (logits, twin_logits))
    torch.testing.assert_close(centred, twin_centred, atol=2e-3, rtol=1e-4)


def test_widths_are_the_least_that_hold_the_circuit():
    built = induction()
    config = built.model().cfg
    vocab, length = built.task.d_vocab, built.task.n_positions
    assert config.d_model == 3 * vocab + length  # embeddings, and tokens through each of two heads
    assert config.d_head == vocab  # copying all tokens
    assert (config.attn_only, config.normalization_type, config.n_ctx) == (True, None, length)
    config = memory().model().cfg
    assert (config.d_model, config.d_head) == (vocab + length, 1)


def test_constants_become_biases():
    task = make_task("recall", vocab=12, pairs=2, length=7)
    circuit = {"L1H0/score/q:const/k:L0H0/word": 3.0, "readout/via:const/word": 2.0, "readout/via:L1H0/same": 1.0}
    built = HandBuilt(task, circuit, 2)
    w = _weights(built)
    words = torch.ones(12)
    words[0] = 0
    key = w.W_E @ w.W_OV(0, 0) @ w.W_K[1, 0]
    torch.testing.assert_close(key @ w.b_Q[1, 0] / w.scale, 3 * words, atol=1e-5, rtol=0)
    torch.testing.assert_close(w.b_U, 2 * words)
    assert (w.W_E @ w.W_Q[1, 0]).abs().max() < 1e-5
    batch = built.batch(16)
    logits, twin = at_queries(built.model(), batch), at_queries(built.disentangled(), batch)
    torch.testing.assert_close(logits, twin, atol=1e-5, rtol=0)
    assert logits[:, 1:].min() > 1.9
    without = at_queries(built.without("L1H0/score/q:const/k:L0H0/word").model(), batch)
    assert (without - logits).abs().max() > 0.02


def test_class_pairs_can_be_planted():
    task = make_task("recall", vocab=12, pairs=2, length=7)
    circuit = {"L0H0/score/q:res/k:res/word>filler": 5.0, "readout/via:L0H0/filler>word": -2.0}
    built = HandBuilt(task, circuit, 1)
    found = _blocks(_weights(built))
    for place, matrix in _expected(built).items():
        torch.testing.assert_close(found[place], matrix, atol=1e-5, rtol=0)


def test_noise_is_the_given_share_of_each_matrix():
    built = induction()
    clean, noisy = built.model(seed=1).state_dict(), built.model(seed=1, noise=0.1).state_dict()
    changed = 0
    for name, weight in clean.items():
        matrices = zip(weight, noisy[name], strict=True) if ".attn.W" in name else [(weight, noisy[name])]
        for before, after in matrices:
            if ".W_" not in name or before.norm() == 0:
                assert torch.equal(before, after)
                continue
            assert (after - before).norm() / before.norm() == pytest.approx(0.1, rel=0.1)
            changed += 1
    assert changed == 3 + 2 * 4  # W_E, W_pos, W_U, and four matrices of each head


def test_other_heads_are_zero_or_random_and_planted_heads_stay():
    built = induction()
    zero = built.model(n_heads=2)
    random = built.model(n_heads=2, other_heads="random", other_scale=1.5)
    for layer in range(2):
        for name in ("W_Q", "W_K", "W_V", "W_O"):
            idle, planted = (getattr(zero.blocks[layer].attn, name)[head] for head in (1, 0))
            drawn, kept = (getattr(random.blocks[layer].attn, name)[head] for head in (1, 0))
            assert idle.abs().max() == 0 < planted.abs().max()
            assert torch.equal(planted, kept)
            assert drawn.std().item() == pytest.approx(1.5 / math.sqrt(random.cfg.d_model), rel=0.05)


def test_the_generator_decides_everything():
    built = hop(2)
    options = {"other_heads": "random", "n_heads": 2, "noise": 0.05}
    first, again, other = (built.model(seed=seed, **options).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.allclose(first["embed.W_E"], other["embed.W_E"])


def test_planting_without_a_circuit_predicts_nothing():
    built = HandBuilt(induction().task, {}, 1)
    assert at_queries(built.model(), built.batch(4)).abs().max() == 0
    assert excess(built.disentangled(), built.task, built.batch(4)) == pytest.approx(math.log(24))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("L0H0/score/q:res/k:res/sam", "'sam'; did you mean 'same'"),
        ("L2H0/score/q:res/k:res/same", "uses L2H0, but there are 2 layers of 1 heads"),
        ("L1H0/score/q:res/k:L0H1/same", "uses L0H1, but"),
        ("readout/via:res/offset+1", "needs a score"),
        ("L0H0/score/q:const/k:res/offset+1", "needs a score and a query path"),
        ("L0H0/score/q:const/k:res/same", "unknown relation"),
        ("nonsense", "not a coordinate id"),
    ],
)
def test_coordinates_that_do_not_fit_are_refused(name, message):
    task = induction().task
    for build in (plant, plant_disentangled):
        with pytest.raises(CoordinateError, match=message):
            build(task, {name: 1.0}, n_layers=2, n_heads=1)


@pytest.mark.parametrize("options", [{"other_heads": "gaussian"}, {"other_scale": -1.0}, {"noise": -0.1}])
def test_options_out_of_range_are_refused(options):
    with pytest.raises(OptionError, match=str(next(iter(options.values())))):
        induction().model(**options)
