"""Removing match coordinates: what is removed is exactly that, and only what does it costs anything."""

import pytest
import torch
from calling import DATA
from hand_built import induction
from torch import nn

from imir_lens.atlas.check import Removal, causal_check, ranked_heads, tilted
from imir_lens.atlas.coordinate import MatchTerms
from imir_lens.atlas.explained import fit_scores
from imir_lens.atlas.patterns import repeated_tokens, repetition_losses
from imir_lens.atlas.runs import visit_patterns
from imir_lens.atlas.scores import weight_scores
from imir_lens.errors import UnsupportedModelError
from imir_lens.lens_model import LensModel, open_model


@pytest.fixture(scope="module")
def trained():
    lens = open_model(DATA / "recall_rotary_ln.pt")
    scores = weight_scores(lens)
    return lens, scores, fit_scores(lens, scores, repeated_tokens(lens, contexts=2))


def test_a_planted_match_is_the_coordinate_that_was_planted():
    """Δ on a context is c · (same tokens) · (patterns of the copyer), with c as planted."""
    built = induction()
    lens = open_model(built.model())
    scores = weight_scores(lens)
    tokens = built.batch(2).tokens
    terms = MatchTerms(lens.weights, scores.moments, [(0, 0)], tokens, [(1, 0)])
    seen = {}

    def visit(layer, pattern, scales):
        assert scales is None
        seen[layer] = pattern
        terms.extend(layer, pattern)

    visit_patterns(lens, tokens, visit)
    planted = built.circuit["L1H0/score/q:res/k:L0H0/same"]
    same = (tokens.unsqueeze(2) == tokens.unsqueeze(1)).float()
    # All tokens but the filler match: the diagonal's mean is 23/24 of what was planted, less the mean of everything.
    expected = planted * (23 / 24) ** 2 * torch.einsum("cqt,ckt->cqk", same, seen[0][:, 0])
    torch.testing.assert_close(terms.term((1, 0), None), expected, atol=1e-3, rtol=1e-4)


def test_removing_nothing_is_the_model(trained):
    lens, scores, _ = trained
    tokens = repeated_tokens(lens, contexts=3, seed=1)
    gain = Removal(lens, scores, tokens).gain()
    assert (gain.first, gain.second) == repetition_losses(lens.logits(tokens), tokens)


def test_a_tilt_lowers_scores_and_keeps_what_underflowed():
    scores = torch.tensor([[[2.0, -1.0, -1e30]]])
    delta = torch.tensor([[[3.0, 0.0, -50.0]]])
    torch.testing.assert_close(tilted(scores.softmax(-1), delta), (scores - delta).softmax(-1))


def test_only_the_coordinates_that_do_it_cost_the_gain(trained):
    lens, scores, fit = trained
    check = causal_check(lens, scores, repeated_tokens(lens, contexts=4, seed=1), fit, count=2)
    assert set(check.top) == {(1, 0), (1, 1)}
    assert check.random == []
    whole = check.model.value
    assert whole > 5
    assert check.joint["top coordinates, sizes from weights"].value < 0.3 * whole
    assert check.joint["top coordinates, sizes measured"].value < 0.2 * whole
    assert check.joint["top heads"].value < 0.1 * whole
    # The first showing needs no induction: taking the coordinate out leaves it alone, as a head's output may not.
    assert check.joint["top coordinates, sizes from weights"].first == pytest.approx(check.model.first, abs=0.2 * whole)


def test_a_head_that_does_not_match_loses_nothing_with_its_coordinate():
    built = induction(heads={"alpha": "L0H0", "beta": "L2H0"})
    built = type(built)(built.task, built.circuit, 3, 2)
    lens = open_model(built.model(other_heads="random"))
    scores = weight_scores(lens)
    tokens = repeated_tokens(lens, contexts=8, seed=1)
    fit = fit_scores(lens, scores, tokens[:2])
    check = causal_check(lens, scores, tokens, fit, count=1, every=True)
    assert check.top == [(2, 0)]
    assert check.coordinate[2, 0] > 5
    others = [cost for place, cost in check.coordinate.items() if place != (2, 0)]
    assert max(map(abs, others)) < 0.05 * check.model.value
    assert set(check.coordinate) == {(1, 0), (1, 1), (2, 0), (2, 1)}
    assert check.auc["coordinate"] == 1.0


def test_heads_are_ranked_above_the_first_layer():
    score = torch.tensor([[9.0, 9.0], [1.0, 3.0], [2.0, 0.0]])
    assert ranked_heads(score) == [(1, 1), (2, 0), (1, 0), (2, 1)]


class Deaf(nn.Module):
    """Computes as another model does, and ignores what hooks return."""

    def __init__(self, model):
        super().__init__()
        self.inner = model
        self.hook_dict = model.hook_dict

    def forward(self, tokens):
        kept = {name: list(point._forward_hooks.items()) for name, point in self.hook_dict.items()}
        for point in self.hook_dict.values():
            for _, hook in point._forward_hooks.items():
                hook(point, (), torch.ones(1, 1, 1, 1))
            point._forward_hooks.clear()
        try:
            return self.inner(tokens)
        finally:
            for name, hooks in kept.items():
                self.hook_dict[name]._forward_hooks.update(hooks)


def test_a_model_that_ignores_edits_is_refused(trained):
    lens, scores, fit = trained
    deaf = LensModel(Deaf(lens.model), lens.weights, source="deaf", sha256="", family="Deaf")
    with pytest.raises(UnsupportedModelError, match="does not change the logits of this Deaf"):
        causal_check(deaf, scores, repeated_tokens(lens, contexts=1), fit, count=1)
