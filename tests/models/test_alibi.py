"""ALiBi biases against the published numbers, and what they make of scores."""

from dataclasses import replace

import pytest
import torch
from small_models import ALIBI, build, tokens

from imir_lens.models.alibi import alibi_bias, alibi_slopes


def test_slopes_are_those_of_the_paper():
    assert alibi_slopes(8).tolist() == [2.0**-n for n in range(1, 9)]
    assert alibi_slopes(3).tolist() == pytest.approx([2 ** (-8 / 3), 2 ** (-16 / 3), 2**-8])


def test_the_bias_is_the_slope_times_the_distance_and_nothing_ahead():
    expected = torch.tensor([[0.0, 0.0, 0.0], [-1.0, 0.0, 0.0], [-2.0, -1.0, 0.0]])
    assert torch.equal(alibi_bias(2, 3), torch.stack([expected / 16, expected / 256]))


@pytest.mark.parametrize("direction", ["causal", "bidirectional"])
def test_scores_of_equal_tokens_differ_by_the_bias_alone(direction):
    model = build(replace(ALIBI, attention_dir=direction))
    with_bias = model.run_with_cache(torch.full((1, 6), 3))[1]["attn_scores", 0][0]
    seen = torch.ones(6, 6, dtype=torch.bool) if direction == "bidirectional" else torch.ones(6, 6).tril().bool()
    found = (with_bias - with_bias[:, :1, :1])[:, seen]
    assert float(found.abs().max()) > 0.5
    torch.testing.assert_close(found, alibi_bias(3, 6)[:, seen], rtol=1e-4, atol=1e-4)


def test_a_longer_context_before_leaves_the_logits_as_they_are():
    model = build(replace(ALIBI, attention_dir="bidirectional"))
    first = model(tokens(length=5))
    model(tokens(length=12))
    assert torch.equal(model(tokens(length=5)), first)
    assert not torch.allclose(first, model(tokens(length=6))[:, :5], atol=1e-3)


def test_the_table_of_positions_is_kept_and_gets_no_gradient():
    model = build(ALIBI)
    assert "pos_embed.W_pos" in model.state_dict()
    model(tokens()).square().mean().backward()
    assert model.W_pos.grad is None
    assert all(float(p.grad.abs().max()) > 0 for name, p in model.named_parameters() if name != "pos_embed.W_pos")
