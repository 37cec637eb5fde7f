"""The causal transformer against its formula written out pair by pair, and its hooks."""

import pytest
import torch

from imir_lens.causal.transformer import CausalConfig, CausalTransformer, initialise
from imir_lens.errors import CheckpointError, OptionError
from imir_lens.tasks.causal_tree import CausalTree
from imir_lens.tasks.episodes import Episodes

TASK = CausalTree(d=4, positions=5, examples=3)


def random_model(seed=0, **changes):
    config = CausalConfig(**{"d_input": 4, "n_positions": 5, "n_examples": 3, **changes})
    model = CausalTransformer(config).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator, dtype=torch.float64))
    return model


def episodes(contexts=3, *, n_examples=None):
    return TASK.sample_episodes(contexts, torch.Generator().manual_seed(1), n_examples=n_examples)


def by_hand(model, tokens):
    """Logits of one context, by loops over heads, examples and positions."""
    d, heads = model.cfg.d_input, model.cfg.n_heads
    w_l, w_h, seen = model.copyers.w_L, model.copyers.w_H, model.cfg.n_examples
    *examples, query = tokens.tolist()
    count, size = len(examples), len(query)
    v = torch.zeros(size, heads, d, dtype=torch.float64)
    for h in range(size):
        for k in range(heads):
            scores = {}
            for example in range(count):
                back = count - example
                for place in range(size):
                    if back <= seen:
                        scores[example, place] = w_l[k, back - 1] + w_h[k, h - place + model.cfg.n_positions - 1]
            total = sum(score.exp() for score in scores.values())
            for (example, place), score in scores.items():
                v[h, k, examples[example][place]] += score.exp() / total
    flat, out = v.flatten(1), torch.zeros(size, d, dtype=torch.float64)
    for h in range(1, size):
        weights = torch.stack([flat[earlier] @ model.bma.W_KQ @ flat[h] for earlier in range(h)]).softmax(0)
        attended = torch.zeros(d, dtype=torch.float64)
        for earlier in range(h):
            attended[query[earlier]] += weights[earlier]
        out[h] = attended @ model.bma.W_OV
    return out


@pytest.mark.parametrize("n_heads", [1, 3, 5])
@pytest.mark.parametrize("n_examples", [1, 3, 6])
def test_logits_are_those_of_one_softmax_over_all_positions_of_all_examples(n_heads, n_examples):
    model, drawn = random_model(n_heads=n_heads), episodes(n_examples=n_examples)
    with torch.no_grad():
        expected = torch.stack([by_hand(model, values) for values in drawn.values])
        assert torch.allclose(model(drawn), expected, atol=1e-12)
        shifted = random_model(seed=1, n_heads=n_heads)
        assert not torch.allclose(shifted(drawn), expected, atol=1e-3)


def test_fewer_positions_than_the_model_has_are_allowed():
    model, drawn = random_model(n_positions=8), episodes()
    with torch.no_grad():
        assert torch.allclose(model(drawn.values)[0], by_hand(model, drawn.values[0]), atol=1e-12)


def test_only_the_nearest_examples_are_seen():
    model, drawn = random_model(), episodes(n_examples=6)
    maps = model.maps(6)
    assert bool((maps.examples[:, :3] == 0).all())
    assert torch.allclose(maps.examples[:, 3:], model.maps().examples)
    kept = drawn.keep_examples(torch.arange(3, 6))
    changed = Episodes(drawn.values.clone(), drawn.parents, drawn.candidates)
    changed.values[:, :3] = 0
    with torch.no_grad():
        assert torch.allclose(model(drawn), model(kept))
        assert torch.equal(model(drawn), model(changed))
        changed.values[:, 4] = 0
        assert not torch.allclose(model(drawn), model(changed))


def test_without_examples_all_candidates_are_alike():
    drawn = episodes(n_examples=0)
    _, cache = random_model().run_with_cache(drawn)
    assert torch.allclose(cache["bma.hook_pattern"][:, 3, :3], torch.full((3, 3), 1 / 3).double())


def test_a_root_attends_to_nothing_and_its_readout_is_zero():
    out, cache = random_model().run_with_cache(episodes())
    pattern = cache["bma.hook_pattern"]
    assert bool((out[:, 0] == 0).all()) and bool((pattern[:, 0] == 0).all())
    assert torch.allclose(pattern[:, 1:].sum(2), torch.ones(3, 4).double())
    assert bool((pattern.triu() == 0).all())


def test_candidates_may_be_given():
    model, drawn = random_model(), episodes()
    only_before = torch.ones(5, 5, dtype=torch.bool).tril(-1) & ~torch.ones(5, 5, dtype=torch.bool).tril(-2)
    out = model(drawn, candidates=only_before)
    expected = model.embed(drawn.query)[:, :-1] @ model.bma.W_OV
    assert torch.allclose(out[:, 1:], expected)


def test_cached_hooks_have_their_shapes():
    _, cache = random_model(n_heads=2).run_with_cache(episodes())
    shapes = {name: tuple(value.shape) for name, value in cache.items()}
    assert shapes == {
        "copyers.hook_examples": (2, 3),
        "copyers.hook_positions": (2, 5, 5),
        "copyers.hook_out": (3, 5, 2, 4),
        "bma.hook_scores": (3, 5, 5),
        "bma.hook_pattern": (3, 5, 5),
        "hook_readout": (3, 5, 4),
    }


@pytest.mark.parametrize(
    "name", ["copyers.hook_examples", "copyers.hook_positions", "copyers.hook_out", "bma.hook_scores"]
)
def test_an_edit_at_a_hook_acts_and_leaves_nothing_behind(name):
    model, drawn = random_model(), episodes()
    before = model(drawn)
    edited = model.run_with_hooks(drawn, fwd_hooks=[(name, lambda value, hook: value * 0)])
    _, cache = random_model().run_with_cache(episodes(n_examples=0))  # nothing copied, so all candidates alike
    assert torch.allclose(edited, cache["bma.hook_pattern"] @ model.embed(drawn.query) @ model.bma.W_OV)
    assert not torch.allclose(edited, before)
    assert torch.equal(model(drawn), before)


@pytest.mark.parametrize("name", ["bma.hook_pattern", "hook_readout"])
def test_an_edit_behind_the_softmax_acts(name):
    model, drawn = random_model(), episodes()
    edited = model.run_with_hooks(drawn, fwd_hooks=[(name, lambda value, hook: value * 2)])
    assert torch.allclose(edited, 2 * model(drawn))


def test_vectors_enter_as_they_are():
    model = random_model(continuous=True)
    values = torch.nn.functional.one_hot(episodes().values, 4).double()
    assert torch.allclose(model(values), random_model()(episodes()))


def test_a_new_start_leans_to_the_same_position_and_to_one_example_a_head():
    model = CausalTransformer(CausalConfig(4, 5, 3))
    initialise(model, torch.Generator().manual_seed(0))
    maps = model.maps()
    assert bool((maps.positions.diagonal(dim1=1, dim2=2) > 0.8).all())
    assert sorted(maps.examples.argmax(1).tolist()) == [0, 1, 2]
    initialise(model, torch.Generator().manual_seed(0), same_position=0.0, own_example=0.0)
    assert torch.allclose(model.maps().positions, torch.full((3, 5, 5), 0.2))
    assert torch.allclose(model.maps().examples, torch.full((3, 3), 1 / 3), atol=0.05)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (torch.full((1, 2, 5), 4), "tokens 0 … 3: found tokens from 4 to 4"),
        (torch.zeros(1, 2, 5, 4), "expects tokens 0 … 3: found vectors of 4 numbers"),
        (torch.zeros(1, 2, 6, dtype=torch.long), "at most 5 positions, found 6"),
    ],
)
def test_inputs_of_another_layout_are_refused(values, message):
    with pytest.raises(OptionError, match=message):
        random_model()(values)


def test_vectors_of_another_dimension_are_refused():
    with pytest.raises(OptionError, match="vectors of 4 numbers: found vectors of 3"):
        random_model(continuous=True)(torch.zeros(1, 2, 5, 3))
    with pytest.raises(OptionError, match="vectors of 4 numbers: found tokens of type int64"):
        random_model(continuous=True)(torch.zeros(1, 2, 5, dtype=torch.long))


def test_a_config_survives_its_dict_and_refuses_others():
    config = CausalConfig(4, 5, 3, continuous=True)
    assert (config.n_heads, config.d_context) == (3, 12)
    saved = config.to_dict()
    assert CausalConfig.from_dict(saved) == config
    for change, message in (
        ({"n_head": 2}, "n_head, .* did you mean 'n_heads'"),
        ({"d_input": None}, "without d_input"),
        ({"n_positions": "five"}, "n_positions='five': expected a whole number"),
        ({"n_positions": 1}, "n_positions must be at least 2"),
        ({"n_examples": 100_000, "n_heads": 100_000}, "at most"),
    ):
        with pytest.raises(CheckpointError, match=message):
            CausalConfig.from_dict({**saved, **change})
    with pytest.raises(OptionError, match=r"d_input must be at least 2 .* found d_input=1"):
        CausalConfig(1, 5, 3)
