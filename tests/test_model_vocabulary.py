"""A circuit planted in a few tokens of a larger vocabulary is found there as if there were no others; only there."""

from dataclasses import replace

import pytest
import torch
from hand_built import induction, memory
from live import live_from_file

from imir_lens.analysis import Analysis, run_analysis
from imir_lens.checkpoints import save_checkpoint
from imir_lens.errors import OptionError
from imir_lens.evaluation import at_queries
from imir_lens.lens_model import open_model
from imir_lens.linear_stream import measure_stream
from imir_lens.model_vocabulary import ModelInVocabulary, restricted
from imir_lens.models.config import TransformerConfig
from imir_lens.models.transformer import ImirTransformer
from imir_lens.projector import ImirProjector
from imir_lens.vocabulary import TaskVocabulary

D_VOCAB = 150
FEW = {"contexts": 128, "bootstraps": 0}


def among_others(model: ImirTransformer, ids: list[int], *, seed: int = 5) -> ImirTransformer:
    """The same model with further tokens, whose embeddings and unembeddings are random and as long."""
    large = ImirTransformer(replace(model.cfg, d_vocab=D_VOCAB, d_vocab_out=D_VOCAB))
    state, generator = dict(model.state_dict()), torch.Generator().manual_seed(seed)
    rows = torch.randn(D_VOCAB, model.cfg.d_model, generator=generator)
    columns = torch.randn(model.cfg.d_model, D_VOCAB, generator=generator)
    rows *= state["embed.W_E"].norm(dim=1).mean() / rows.norm(dim=1, keepdim=True)
    columns *= state["unembed.W_U"].norm(dim=0).mean() / columns.norm(dim=0, keepdim=True)
    bias = torch.randn(D_VOCAB, generator=generator)
    rows[ids], columns[:, ids], bias[ids] = state["embed.W_E"], state["unembed.W_U"], state["unembed.b_U"]
    large.load_transformer_lens_state(
        state | {"embed.W_E": rows, "unembed.W_U": columns, "unembed.b_U": bias}  # all else as it was
    )
    return large


def some_ids(count: int, *, seed: int = 2) -> list[int]:
    return torch.randperm(D_VOCAB, generator=torch.Generator().manual_seed(seed))[:count].tolist()


def seen_in(model: ImirTransformer, ids: list[int]) -> ModelInVocabulary:
    return ModelInVocabulary(open_model(model), TaskVocabulary.of_ids(ids[1:], filler=ids[0]))


def found(analysis: Analysis) -> dict[str, float]:
    return {str(unit.id): unit.value for unit in analysis.circuit.units}


BUILT = induction()
IDS = some_ids(BUILT.task.d_vocab)


@pytest.fixture(scope="module")
def small() -> ImirTransformer:
    return BUILT.model()


@pytest.fixture(scope="module")
def large(small) -> ImirTransformer:
    return among_others(small, IDS)


def test_the_logits_are_the_whole_models_at_the_vocabularys_ids(large):
    batch = BUILT.batch(20)
    view, ids = seen_in(large, IDS), torch.tensor(IDS)
    with torch.no_grad():
        whole = large(ids[batch.tokens])
    assert whole.shape[-1] == D_VOCAB
    torch.testing.assert_close(view.logits(batch.tokens), whole[..., ids], atol=1e-4, rtol=1e-5)
    assert large.unembed.W_U.shape[1] == D_VOCAB  # as it was
    assert not torch.allclose(seen_in(large, IDS[::-1]).logits(batch.tokens), whole[..., ids], atol=1)


def test_activations_and_edits_are_the_whole_models(large):
    batch, ids = BUILT.batch(8), torch.tensor(IDS)
    view, name = seen_in(large, IDS), "blocks.1.attn.hook_pattern"
    plain, cache = view.run_with_cache(batch.tokens, [name])
    _, theirs = view.whole.run_with_cache(ids[batch.tokens], [name])
    assert torch.equal(cache[name], theirs[name])
    zero = [(name, lambda pattern, hook: torch.zeros_like(pattern))]
    edited = view.run_with_hooks(batch.tokens, zero)
    assert not torch.allclose(edited, plain, atol=0.1)
    torch.testing.assert_close(
        edited, view.whole.run_with_hooks(ids[batch.tokens], zero)[..., ids], atol=1e-4, rtol=1e-5
    )
    view.check_hook_effect(batch.tokens)


def test_a_live_model_is_seen_as_its_file_is(tmp_path, large):
    save_checkpoint(tmp_path / "large.pt", large.state_dict(), large.cfg)
    live = seen_in(live_from_file(tmp_path / "large.pt"), IDS)
    assert live.info["family"] != "ImirTransformer"
    batch = BUILT.batch(20)
    torch.testing.assert_close(
        live.logits(batch.tokens), seen_in(large, IDS).logits(batch.tokens), atol=1e-3, rtol=1e-4
    )
    live.check_hook_effect(batch.tokens)
    twin = live.on_twin()
    assert isinstance(twin, ModelInVocabulary) and isinstance(twin.model, ImirTransformer)
    torch.testing.assert_close(twin.logits(batch.tokens), live.logits(batch.tokens), atol=1e-3, rtol=1e-4)


def test_the_weights_give_the_scores_of_the_whole_model(small, large):
    weights, ids = open_model(large).weights, torch.tensor(IDS)
    view = restricted(weights, TaskVocabulary.of_ids(IDS[1:], filler=IDS[0]))
    assert (view.d_vocab, view.d_vocab_out) == (len(IDS), len(IDS))
    scores = weights.W_E @ weights.W_QK(1, 0) @ weights.W_E.T
    assert torch.allclose(view.W_E @ view.W_QK(1, 0) @ view.W_E.T, scores[ids][:, ids], atol=1e-4)
    assert torch.equal(view.b_U, weights.b_U[ids])
    assert view.sha256() == open_model(small).weights.sha256() != weights.sha256()


def test_the_circuit_is_found_with_the_numbers_of_the_small_model(small, large):
    view = seen_in(large, IDS)
    alone, among = (run_analysis(model, BUILT.task, **FEW) for model in (open_model(small), view))
    assert set(found(among)) == set(BUILT.task.reference_circuit)
    assert found(among) == pytest.approx(BUILT.circuit, abs=1e-3)
    assert found(among) == pytest.approx(found(alone), abs=1e-4)
    assert among.verdict == alone.verdict
    for one, other in ((among.evidence.model, alone.evidence.model), (among.evidence.circuit, alone.evidence.circuit)):
        assert one.as_dict() == pytest.approx(other.as_dict(), abs=1e-5)
    assert among.evidence.without_circuit.loss == pytest.approx(alone.evidence.without_circuit.loss, abs=1e-4)


@pytest.mark.parametrize("positions", ["standard", "rotary"])
def test_a_model_with_norms_and_mlps_has_the_coordinates_of_the_small_model(positions):
    config = TransformerConfig(
        d_model=12, d_head=6, n_heads=2, n_layers=2, n_ctx=16, d_vocab=len(IDS), d_mlp=24, act_fn="gelu",
        normalization_type="LN", positional_embedding_type=positions, initializer_range=0.5,
    )  # fmt: skip
    small = ImirTransformer(config)
    view, batch = seen_in(among_others(small, IDS), IDS), BUILT.batch(64)
    opened = open_model(small)
    (alone, stream), (among, seen) = ((model, measure_stream(model, batch)) for model in (opened, view))
    torch.testing.assert_close(seen.means, stream.means, atol=1e-5, rtol=1e-4)
    values = [
        ImirProjector.for_task(BUILT.task).fit(model.weights, means).coordinates_.values
        for model, means in ((alone, stream), (among, seen))
    ]
    assert float(values[0].abs().max()) > 0.1
    torch.testing.assert_close(values[1], values[0], atol=1e-4, rtol=1e-4)


def test_nothing_is_found_in_tokens_that_have_no_part_in_it(large):
    others = [token for token in range(D_VOCAB) if token not in IDS][: len(IDS)]
    analysis = run_analysis(seen_in(large, others), BUILT.task, **FEW)
    assert analysis.verdict.mechanism == "not_detected"
    assert analysis.evidence.model.accuracy < 0.2


def test_a_memory_is_found_only_where_its_words_stand_for_themselves():
    built = memory()
    ids = some_ids(built.task.d_vocab)
    large = among_others(built.model(), ids)
    assert set(found(run_analysis(seen_in(large, ids), built.task, **FEW))) == set(built.circuit)
    shifted = [ids[0], *ids[2:], ids[1]]  # every couple of words broken
    analysis = run_analysis(seen_in(large, shifted), built.task, **FEW)
    assert analysis.verdict.mechanism == "not_detected" and analysis.evidence.model.accuracy < 0.1


def test_words_that_nothing_ties_may_be_permuted(large):
    view = seen_in(large, [IDS[0], *reversed(IDS[1:])])
    assert found(run_analysis(view, BUILT.task, **FEW)) == pytest.approx(BUILT.circuit, abs=1e-3)


def test_the_mass_is_the_share_of_the_whole_models_probability(large):
    batch, ids = BUILT.batch(40), torch.tensor(IDS)
    view = seen_in(large, IDS)
    with torch.no_grad():
        law = at_queries(large(ids[batch.tokens]), batch).double().softmax(-1)
    expected = float(law[..., ids].sum(-1)[batch.mask].mean())
    assert 0 < expected < 1
    assert view.mass(batch) == pytest.approx(expected, rel=1e-5)
    every = seen_in(large, list(range(D_VOCAB)))
    assert every.mass(batch) == pytest.approx(1, abs=1e-9)


def test_the_report_says_which_tokens_they_are(large):
    said = seen_in(large, IDS).info
    assert said["d_vocab"] == D_VOCAB
    assert said["vocabulary"]["size"] == len(IDS) and said["vocabulary"]["filler"] == IDS[0]
    assert "vocabulary" not in open_model(large).info


def test_tokens_that_are_not_the_models_are_refused(large):
    with pytest.raises(OptionError, match="'#150' is token 150: the model has tokens 0 to 149"):
        seen_in(large, [0, 1, D_VOCAB])
    with pytest.raises(OptionError, match="tokens from 0 to 24: expected 0 to 23, the model's vocabulary"):
        seen_in(large, IDS).logits(torch.tensor([[0, len(IDS)]]))
