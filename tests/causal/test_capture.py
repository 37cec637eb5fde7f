"""Captured heads against models whose heads are known, and against models that do nothing of the kind."""

import math
from itertools import pairwise

import pytest
import torch
from causal.flat_models import TASK, episodes, untrained, with_idle_mlp
from live import live_model

from imir_lens.causal.attention_match import calibrate, match_attention, match_baselines, maximum_likelihood
from imir_lens.causal.capture import capture_bma, capture_copyers
from imir_lens.causal.construction import construct
from imir_lens.causal.flat_construction import FLAT_READER, construct_flat
from imir_lens.causal.transformer import CausalConfig, CausalTransformer, initialise
from imir_lens.errors import OptionError, TaskError, UnsupportedModelError
from imir_lens.ids import Head
from imir_lens.tasks.causal_tree import CausalTree
from imir_lens.tasks.episodes import Episodes, uniform_weights
from imir_lens.tasks.linear_dynamics import LinearDynamics


def fresh(task=TASK, seed=0):
    model = CausalTransformer(CausalConfig(task.d, task.positions, task.examples))
    initialise(model, torch.Generator().manual_seed(seed), same_position=0.0, own_example=0.0)
    return model


def reader_of(model, task=TASK, drawn=None):
    return next(m for m in capture_bma(model, task, episodes() if drawn is None else drawn) if m.head == FLAT_READER)


# Copyers.


def test_copyers_of_the_construction_copy_the_same_position_of_one_example_each():
    heads = capture_copyers(construct(TASK), TASK, episodes(4))
    assert [(str(head.head), head.label, head.example) for head in heads] == [
        ("L0H0", "copyer", 1),  # w_L counts back from the query
        ("L0H1", "copyer", 0),
    ]
    for head in heads:
        assert float(head.copy_mass[head.example]) > 1 - 1e-6
        assert head.entropy < 1e-6


def test_copyers_of_the_flat_construction_are_half_ahead():
    heads = capture_copyers(construct_flat(TASK), TASK, episodes(4))
    below = [(head.label, head.example) for head in heads if head.head.layer == 0]
    assert below == [("copyer", 0), ("copyer", 1), ("next-copyer", 0), ("next-copyer", 1)]
    ahead = heads[2]
    assert float(ahead.next_mass[0]) > 1 - 1e-6 and float(ahead.copy_mass.abs().max()) < 1e-6
    assert [head.label for head in heads if head.head.layer == 1] == [None] * 4


def test_an_offset_kernel_is_a_softmax_of_the_biases_where_examples_have_no_edges():
    model, drawn = construct(TASK, beta_rpe=0.0), episodes(2)
    with torch.no_grad():
        model.copyers.w_L[0] = torch.tensor([1.0, 0.0])
        model.copyers.w_H[0, TASK.positions - 1] = 2.0
    head = capture_copyers(model, TASK, drawn)[0]
    expected = math.exp(2) / (math.exp(2) + TASK.positions - 1) * torch.tensor([1.0, math.e]) / (1 + math.e)
    assert torch.allclose(head.copy_mass, expected.double(), atol=1e-6)
    assert torch.allclose(head.kernel[-1], torch.zeros(2 * TASK.positions - 1).double())  # the query is not copied
    assert float(head.kernel[1, 0]) == pytest.approx(float(head.kernel[1, -1]))


def test_a_head_that_mixes_examples_is_a_copyer_of_none():
    model = construct(TASK)
    with torch.no_grad():
        model.copyers.w_L[0] = 0
    mixing = capture_copyers(model, TASK, episodes(2))[0]
    assert mixing.label == "copyer" and mixing.example is None
    assert mixing.entropy == pytest.approx(math.log(2), abs=1e-6)


def test_untrained_heads_are_no_copyers():
    drawn = episodes(8)
    for model in (fresh(), untrained(), untrained(attn_only=False)):
        assert {head.label for head in capture_copyers(model, TASK, drawn)} == {None}
    spread = capture_copyers(fresh(), TASK, drawn)[0]
    assert spread.entropy == pytest.approx(math.log(TASK.examples * TASK.positions), abs=0.01)


# The BMA head.


def test_the_flat_construction_attends_by_the_posterior():
    found = reader_of(construct_flat(TASK))
    assert found.score > 1 - 1e-9
    assert found.match.total_variation < 1e-9 and abs(found.match.kl) < 1e-9
    assert found.candidate_mass > 1 - 1e-6
    assert found.match.parent_loss == pytest.approx(found.match.bma_parent_loss, abs=1e-9)
    assert found.match.uniform_parent_loss > found.match.bma_parent_loss + 0.2  # there was something to infer
    others = [m for m in capture_bma(construct_flat(TASK), TASK, episodes()) if m.head != FLAT_READER]
    assert max(m.score for m in others) < 0.05 and min(m.match.total_variation for m in others) > 0.1


def test_the_flat_construction_nears_the_posterior_with_beta_within_its_bound():
    spread = float(TASK.log_kernel.max() - TASK.log_kernel.min())
    errors = []
    for beta in (8.0, 10.0, 12.0):
        errors.append(reader_of(construct_flat(TASK, beta=beta)).match.total_variation)
        leak = TASK.n_positions * math.exp(-beta)
        assert errors[-1] < math.tanh(TASK.examples * spread * leak)
    slopes = [math.log(after / before) / 2 for before, after in pairwise(errors)]
    assert slopes == pytest.approx([-1, -1], abs=0.05)


def test_logits_of_the_flat_construction_predict_with_what_it_attends_to():
    drawn = episodes(16)
    batch = TASK.flatten(drawn)
    with torch.no_grad():
        logits = construct_flat(TASK)(batch.tokens)
    found = logits.gather(1, batch.queries.unsqueeze(2).expand(-1, -1, TASK.d))
    expected = TASK.posterior(drawn) @ TASK.log_kernel[drawn.query]
    assert torch.allclose(found, expected[:, drawn.asked], atol=1e-6)


def test_an_mlp_changes_nothing_about_capturing():
    plain, wider = construct_flat(TASK), with_idle_mlp(construct_flat(TASK))
    drawn = episodes(32)
    first, second = reader_of(plain, drawn=drawn), reader_of(wider, drawn=drawn)
    assert second.match.parent_loss == pytest.approx(first.match.parent_loss, abs=1e-12)
    labels = [head.label for head in capture_copyers(wider, TASK, drawn)]
    assert labels[:4] == ["copyer", "copyer", "next-copyer", "next-copyer"]


def test_a_live_model_with_an_mlp_gives_what_our_own_gives():
    from imir_lens.causal.flat_model import as_imir_transformer

    config = {
        "n_layers": 2, "n_heads": 2, "d_model": 8, "d_head": 4, "d_mlp": 8, "n_ctx": TASK.n_positions,
        "d_vocab": TASK.d, "act_fn": "relu", "normalization_type": "LN", "attn_only": False, "seed": 0,
    }  # fmt: skip
    live = live_model(config)
    drawn = episodes(16)
    ours = as_imir_transformer(live)
    assert ours is not live
    pairs = list(zip(capture_bma(live, TASK, drawn), capture_bma(ours, TASK, drawn), strict=True))
    for first, second in pairs:
        assert first.head == second.head
        assert first.match.parent_loss == pytest.approx(second.match.parent_loss, abs=1e-5)
        assert first.candidate_mass == pytest.approx(second.candidate_mass, abs=1e-5)
    for first, second in zip(capture_copyers(live, TASK, drawn), capture_copyers(ours, TASK, drawn), strict=True):
        assert torch.allclose(first.kernel, second.kernel, atol=1e-5)
    assert len({round(first.match.parent_loss, 4) for first, _ in pairs}) > 1  # not four times the same


def test_the_construction_is_the_posterior_and_keeps_being_it_with_more_examples():
    for n_examples in (1, 2, 4):
        model = construct(TASK, n_examples=n_examples)
        (found,) = capture_bma(model, TASK, episodes(64, n_examples=n_examples))
        assert found.head == Head(1, 0) and found.candidate_mass == pytest.approx(1)
        assert found.match.total_variation < 1e-6 and found.score > 1 - 1e-6


def test_untrained_models_convey_nothing():
    drawn = episodes()
    for model in (fresh(), untrained(), untrained(attn_only=False)):
        found = capture_bma(model, TASK, drawn)
        assert max(match.score for match in found) < 0.1
        assert min(match.match.total_variation for match in found) > 0.1


def test_a_wrong_kernel_is_not_the_posterior():
    other = CausalTree.with_kernel(TASK.kernel.roll(1, dims=1), positions=5, examples=2)
    for model in (construct_flat(other), construct(other)):
        found = next(m for m in capture_bma(model, TASK, episodes()) if m.head == FLAT_READER)
        assert found.match.total_variation > 0.2 and found.score < 0.2


def test_shuffled_examples_leave_nothing_of_the_score():
    drawn = episodes()
    others = torch.arange(len(drawn)).roll(1)
    values = torch.cat([drawn.examples[others], drawn.values[:, -1:]], dim=1)
    shuffled = Episodes(values, drawn.parents, drawn.candidates)
    model = construct_flat(TASK)
    own = next(m for m in capture_bma(model, TASK, drawn) if m.head == FLAT_READER)
    weights = next(a.weights for a in _attention(model, shuffled) if a.head == FLAT_READER)
    against_unshuffled = match_attention(weights, TASK.posterior(drawn), drawn)
    assert own.score > 0.99 and against_unshuffled.information_share == 0
    assert against_unshuffled.total_variation > 0.3


def _attention(model, drawn):
    from imir_lens.causal.parent_attention import parent_attention

    return parent_attention(model, TASK, drawn)


# Figures of a match.


def test_the_most_likely_candidate_is_told_from_the_posterior():
    drawn = episodes(400)
    base = match_baselines(TASK, drawn)
    assert base.bma.total_variation == 0 and base.bma.information_share == 1
    assert base.uniform.information_share == 0 and base.uniform.parent_loss == pytest.approx(math.log(24) / 4)
    assert base.maximum_likelihood.total_variation > 0.1
    assert base.maximum_likelihood.parent_loss > base.bma.parent_loss
    assert base.maximum_likelihood.calibration.error > 3 * base.bma.calibration.error
    assert base.bma.known_graph_parent_loss == 0


def test_kl_and_total_variation_are_those_of_their_formulas():
    drawn = episodes(1)
    posterior = uniform_weights(drawn)
    weights = posterior.clone()
    weights[:, 2, :2] = torch.tensor([0.9, 0.1]).double()
    match = match_attention(weights, posterior, drawn)
    assert match.total_variation == pytest.approx(0.4 / 4)
    assert match.kl == pytest.approx((0.5 * math.log(0.5 / 0.9) + 0.5 * math.log(0.5 / 0.1)) / 4)


def test_equally_likely_candidates_share():
    drawn = episodes(1, n_examples=0)
    likeliest = maximum_likelihood(TASK.posterior(drawn), drawn)
    assert torch.allclose(likeliest, uniform_weights(drawn))
    assert match_attention(likeliest, likeliest, drawn).information_share == 0  # no examples, nothing to convey


def test_calibration_finds_overconfidence():
    drawn = episodes(2000)
    fair, posterior = calibrate(uniform_weights(drawn), drawn), TASK.posterior(drawn)
    assert fair.error < 0.02
    squared = posterior.square() / posterior.square().sum(2, keepdim=True).clamp(min=1e-300)
    sure = calibrate(squared, drawn)
    assert sure.error > 2 * calibrate(posterior, drawn).error
    assert float(sure.frequency[-1]) < float(sure.attention[-1]) - 0.01
    assert int(sure.count.sum()) == 2000 * 10
    with pytest.raises(OptionError, match="at least one bin"):
        calibrate(posterior, drawn, bins=0)


# Bad input.


def test_what_cannot_be_captured_is_refused():
    vectors = LinearDynamics(d=4, positions=5, examples=2)
    drawn = vectors.sample_episodes(2, torch.Generator().manual_seed(0))
    with pytest.raises(TaskError, match="reads tokens, and linear_dynamics has none"):
        capture_bma(untrained(), vectors, drawn)
    with pytest.raises(UnsupportedModelError, match=r"Linear has no hook 'blocks\.0\.attn\.hook_pattern'"):
        capture_copyers(torch.nn.Linear(2, 2), TASK, episodes(2))
    with pytest.raises(OptionError, match="20 tokens do not fit the model's n_ctx=15"):
        capture_copyers(untrained(), TASK, episodes(2, n_examples=3))
    wide = CausalTree(d=5, positions=5, examples=2)
    with pytest.raises(OptionError, match="the task has 5 tokens, and the model 4"):
        capture_bma(untrained(), wide, episodes(2, task=wide))
    with pytest.raises(OptionError, match="tokens"):
        capture_bma(construct(TASK), wide, episodes(8, task=wide))


def test_capturing_leaves_no_hooks_behind():
    model = construct_flat(TASK)
    model.train()
    capture_bma(model, TASK, episodes(2))
    capture_copyers(model, TASK, episodes(2))
    assert model.training
    assert not any(point.fwd_hooks for point in model.hook_dict.values())
