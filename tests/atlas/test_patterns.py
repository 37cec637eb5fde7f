import pytest
import torch
from calling import DATA

from imir_lens.atlas.explained import fit_scores
from imir_lens.atlas.patterns import pattern_masses, repeated_tokens, repetition_losses
from imir_lens.atlas.scores import weight_scores
from imir_lens.errors import OptionError
from imir_lens.lens_model import open_model


@pytest.fixture(scope="module")
def lens():
    return open_model(DATA / "recall_rotary_ln.pt")


def test_contexts_are_random_and_shown_twice(lens):
    tokens = repeated_tokens(lens, contexts=5, length=8, seed=3)
    assert tokens.shape == (5, 16)
    assert torch.equal(tokens[:, :8], tokens[:, 8:])
    assert not torch.equal(tokens[0], tokens[1])
    assert torch.equal(tokens, repeated_tokens(lens, contexts=5, length=8, seed=3))
    assert not torch.equal(tokens, repeated_tokens(lens, contexts=5, length=8, seed=4))
    assert repeated_tokens(lens, length=10**6).shape[1] == lens.weights.n_ctx // 2 * 2
    with pytest.raises(OptionError, match="length=2"):
        repeated_tokens(lens, length=2)


def test_masses_are_what_a_loop_over_the_patterns_counts(lens):
    tokens = repeated_tokens(lens, contexts=2, length=6)
    masses = pattern_masses(lens, tokens)
    _, cache = lens.run_with_cache(tokens, ["blocks.1.attn.hook_pattern"])
    pattern = cache["blocks.1.attn.hook_pattern"][:, 1]
    count = {"induction": [], "previous_token": [], "duplicate_token": [], "sink": []}
    for context in range(2):
        for query in range(12):
            if query >= 1:
                count["previous_token"].append(float(pattern[context, query, query - 1]))
            if query >= 4:
                count["sink"].append(float(pattern[context, query, 0]))
            if query >= 7:
                count["induction"].append(float(pattern[context, query, query - 6 + 1]))
                count["duplicate_token"].append(float(pattern[context, query, query - 6]))
    for name, values in count.items():
        assert masses.of(1, 1)[name] == pytest.approx(sum(values) / len(values), abs=1e-6)


def test_the_gain_is_first_minus_second_showing(lens):
    tokens = repeated_tokens(lens, contexts=2, length=6)
    logits = lens.logits(tokens)
    right = logits.log_softmax(-1)[:, :-1].gather(2, tokens[:, 1:].unsqueeze(2)).squeeze(2)
    first, second = repetition_losses(logits, tokens)
    assert first == pytest.approx(-float(right[:, :5].mean()), abs=1e-5)
    assert second == pytest.approx(-float(right[:, 6:].mean()), abs=1e-5)
    assert pattern_masses(lens, tokens).gain == pytest.approx(first - second, abs=1e-4)


def test_the_kernel_explains_the_copyer_and_the_match_has_the_size_that_the_weights_say(lens):
    scores = weight_scores(lens)
    fit = fit_scores(lens, scores, repeated_tokens(lens, contexts=2))
    assert float(fit.r2_kernel[0, 0]) > 0.8
    assert float(fit.r2_kernel[1].max()) < 0.2
    assert (fit.r2[1] > fit.r2_kernel[1] + 0.2).all()
    assert ((fit.match_size[1] - 1).abs() < 0.3).all()
    assert (fit.match_size[0] == 0).all()  # nothing is copied below the first layer
