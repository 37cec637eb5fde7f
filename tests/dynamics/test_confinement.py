"""How much of the gradient is outside the manifold: exactly nothing where the theorem holds, and not so elsewhere."""

import pytest
import torch
from torch import Tensor

from imir_lens.dynamics.confinement import measure_confinement
from imir_lens.dynamics.exact_contexts import WeightedContexts, enumerate_contexts
from imir_lens.dynamics.merged_gradient import merged_gradient
from imir_lens.dynamics.population_gradient import in_double, population_gradient
from imir_lens.dynamics.span import READOUT, invariant_span, merged_weights, moved_onto, named_span, stream_contents
from imir_lens.errors import OptionError, UnsupportedModelError
from imir_lens.models.disentangled import DisentangledConfig, DisentangledTransformer
from imir_lens.models.transformer import ImirTransformer
from imir_lens.tasks.recall import Recall
from imir_lens.training.recipes import default_config

RARE = Recall(vocab=5, pairs=1, length=5)
COMMON = Recall(vocab=5, pairs=1, length=5, f_r=0.0)
BOTH = Recall(vocab=9, pairs=1, length=5, f_r=0.5, rare=4)
CLASSES = [f"{a}>{b}" for a in ("filler", "word") for b in ("filler", "word")]


def _model(task: Recall = RARE, *, seed: int = 0, size: float = 0.3, **options) -> DisentangledTransformer:
    options = {"embedding": "centred", "attention_dir": "bidirectional", "n_layers": 2, **options}
    config = DisentangledConfig(d_vocab=task.d_vocab, n_ctx=task.n_positions, init_std=size, **options)
    return in_double(DisentangledTransformer(config, generator=torch.Generator().manual_seed(seed)))


def _ring(task: Recall = RARE) -> WeightedContexts:
    return enumerate_contexts(task).on_a_ring()


@pytest.mark.parametrize("task", [RARE, COMMON, BOTH], ids=["rare", "common", "both"])
@pytest.mark.parametrize("options", [{}, {"stream": "add"}, {"n_heads": 2, "n_layers": 1}, {"embedding": "onehot"}])
def test_on_a_ring_the_gradient_does_not_leave_the_invariant_span(task, options):
    span = invariant_span(task, cyclic=True)
    found = measure_confinement(moved_onto(_model(task, **options), span), _ring(task), span)
    assert found.residual < 1e-12
    assert max(found.residuals.values()) < 1e-12
    assert min(part.on for part in found.energies.values()) > 1e-12
    assert found.total.dimension < 0.5 * found.total.entries


@pytest.mark.parametrize(("task", "names"), [(RARE, ["same", *CLASSES]), (COMMON, ["same", "assoc", *CLASSES])])
def test_with_centred_embeddings_token_relations_and_all_cyclic_shifts_are_enough(task, names):
    span = named_span(task, tokens=names, offsets=range(5))
    assert measure_confinement(moved_onto(_model(task), span), _ring(task), span).residual < 1e-12
    uncentred = measure_confinement(moved_onto(_model(task, embedding="onehot"), span), _ring(task), span)
    assert uncentred.residual > 0.05


def test_under_a_causal_mask_it_is_exact_with_every_pair_of_positions_and_not_with_shifts():
    straight, model = enumerate_contexts(RARE), _model(attention_dir="causal")
    pairs, shifts = invariant_span(RARE, cyclic=False), invariant_span(RARE, cyclic=True)
    assert measure_confinement(moved_onto(model, pairs), straight, pairs).residual < 1e-12
    for contexts in (straight, _ring()):
        residuals = measure_confinement(moved_onto(model, shifts), contexts, shifts).residuals
        assert min(residuals["L0H0"], residuals["L1H0"]) > 0.05


@pytest.mark.parametrize("what", ["start", "stream", "sample", "short", "basis"])
def test_whatever_breaks_the_symmetry_leaves_a_residual(what, generator):
    span = invariant_span(RARE, cyclic=True)
    model, contexts = moved_onto(_model(), span), _ring()
    if what == "start":
        model = _model()
    elif what == "stream":
        model = moved_onto(_model(stream="add", d_model=16), span)
    elif what == "sample":
        contexts = WeightedContexts.sample_of(RARE.sample(50, generator))
    elif what == "short":
        span = named_span(RARE)
    else:
        # The same number of directions of the wrong tokens: a relation that the task does not have.
        span = invariant_span(COMMON, cyclic=True)
        order = torch.randperm(len(span.relations[0]), generator=generator)
        span = type(span)(span.relations[:, order], span.d_vocab)
    assert measure_confinement(model, contexts, span).residual > 0.01


def test_training_by_the_population_gradient_stays_on_the_span():
    span, contexts = invariant_span(RARE, cyclic=True), _ring()
    model = moved_onto(_model(size=0.1), span)
    start = {name: p.detach().clone() for name, p in model.named_parameters()}
    for _ in range(60):
        gradient = population_gradient(model, contexts)
        with torch.no_grad():
            for name, p in model.named_parameters():
                p -= 1.0 * gradient[name]
    moved = {name: p.detach() - start[name] for name, p in model.named_parameters()}
    energies, _ = span.project(stream_contents(model), merged_weights(model, moved), 1)
    assert min(part.on for part in energies.values()) > 1e-6
    for part in energies.values():
        assert part.off < 1e-24 * part.on


def test_random_matrices_are_outside_but_for_their_share_of_dimensions():
    task = Recall(vocab=9, pairs=2, length=8)
    span, model = invariant_span(task, cyclic=True), _model(task)
    drawn = {name: torch.randn_like(p) for name, p in model.named_parameters()}
    energies, _ = span.project(stream_contents(model), merged_weights(model, drawn), 1)
    for part in energies.values():
        expected = part.dimension / part.entries
        assert part.fraction == pytest.approx(expected, rel=5 * (2 / part.dimension) ** 0.5)


def test_the_residual_of_a_sample_falls_as_the_root_of_its_size():
    span = invariant_span(RARE, cyclic=True)
    model = moved_onto(_model(), span)
    generator = torch.Generator().manual_seed(0)

    def residual(contexts: int, repeats: int = 8) -> float:
        drawn = (WeightedContexts.sample_of(RARE.sample(contexts, generator)) for _ in range(repeats))
        return sum(measure_confinement(model, c.turned_at_random(generator), span).residual for c in drawn) / repeats

    few, many = residual(100), residual(6400)
    assert few / many == pytest.approx(8, rel=0.3)


def test_the_short_set_of_shifts_leaves_less_in_longer_sparse_contexts():
    found = []
    for length in (6, 12):
        task = Recall(vocab=5, pairs=1, length=length)
        span = named_span(task, tokens=["same", *CLASSES])
        model = moved_onto(_model(task, size=0.05), span)
        found.append(measure_confinement(model, _ring(task), span).residuals["L0H0"])
    assert 1e-6 < found[1] < 0.7 * found[0]


def test_the_gradient_is_that_of_finite_differences():
    model, contexts = _model(), _ring()
    gradient = population_gradient(model, contexts)

    def loss() -> Tensor:
        logits = model(contexts.batch.tokens)
        rows = torch.arange(len(logits))
        log_p = logits[rows, contexts.batch.queries[:, 0]].log_softmax(-1)
        return -(contexts.weights * log_p[rows, contexts.batch.targets[:, 0]]).sum()

    with torch.no_grad():
        for name, p in model.named_parameters():
            place = int(gradient[name].abs().argmax())
            flat, before = p.view(-1), p.view(-1)[place].item()
            values = []
            for step in (1e-5, -1e-5):
                flat[place] = before + step
                values.append(loss().item())
            flat[place] = before
            assert (values[0] - values[1]) / 2e-5 == pytest.approx(gradient[name].view(-1)[place].item(), rel=1e-5)


def _ordinary(**options) -> ImirTransformer:
    config = default_config(BOTH, d_model=16, d_head=4, n_heads=2, initializer_range=0.4, **options)
    return ImirTransformer(config, generator=torch.Generator().manual_seed(0))


def test_the_free_gradient_of_an_ordinary_model_gives_that_of_both_its_factors():
    model, contexts = _ordinary(), enumerate_contexts(BOTH)
    found, double = merged_gradient(model, contexts), _ordinary().double()
    double.load_state_dict(model.state_dict())
    actual = population_gradient(double, contexts)
    for layer in range(2):
        attn = double.blocks[layer].attn
        for head in range(2):
            free = found.free[f"L{layer}H{head}"] / found.weights.scale
            torch.testing.assert_close(actual[f"blocks.{layer}.attn.W_Q"][head], free @ attn.W_K[head])
            torch.testing.assert_close(actual[f"blocks.{layer}.attn.W_K"][head], free.T @ attn.W_Q[head])
    assert 0 < found.left_out < 1


def test_the_induced_change_is_what_a_small_step_does_to_the_product():
    model, contexts, step = _ordinary(), enumerate_contexts(BOTH), 1e-5
    found, double = merged_gradient(model, contexts), _ordinary().double()
    double.load_state_dict(model.state_dict())
    actual = population_gradient(double, contexts)
    attn = double.blocks[1].attn
    before = attn.W_Q[1] @ attn.W_K[1].T
    q, k = (getattr(attn, name)[1] - step * actual[f"blocks.1.attn.{name}"][1] for name in ("W_Q", "W_K"))
    change = (q @ k.T - before) / found.weights.scale / -step
    torch.testing.assert_close(change.detach(), found.induced["L1H1"], rtol=1e-3, atol=1e-6)


def test_ordinary_models_are_measured_and_are_not_confined():
    span = named_span(BOTH, tokens=list(BOTH.relations.names), offsets=range(5), cyclic=False)
    contexts = enumerate_contexts(BOTH)
    for kind in ("free", "induced"):
        found = measure_confinement(_ordinary(), contexts, span, kind=kind)
        assert set(found.energies) == {"L0H0", "L0H1", "L1H0", "L1H1", READOUT}
        assert 0.05 < found.residual < 1
        assert found.left_out > 0.1


def test_wrong_requests_are_refused():
    span, contexts = invariant_span(RARE, cyclic=True), enumerate_contexts(RARE)
    with pytest.raises(OptionError, match="induced"):
        measure_confinement(_model(), contexts, span, kind="inducd")
    with pytest.raises(OptionError, match="kind='free'"):
        measure_confinement(_model(), contexts, span, kind="induced")
    with pytest.raises(OptionError, match="at least one relation"):
        named_span(RARE, tokens=[], offsets=[])
    with pytest.raises(UnsupportedModelError, match="without norms"):
        measure_confinement(
            _ordinary(normalization_type="LN"), enumerate_contexts(BOTH), invariant_span(BOTH, cyclic=False)
        )
