"""Verification: models that average over graphs, exactly or by training, and models that do not."""

from dataclasses import replace

import pytest
import torch
from causal.flat_models import untrained, with_idle_mlp
from live import live_model

import imir_lens
from imir_lens.causal.agreement import agreement
from imir_lens.causal.attention_match import maximum_likelihood
from imir_lens.causal.behaviour import follows_swaps, kl_share, model_loss, spread, uniform_kl
from imir_lens.causal.construction import construct
from imir_lens.causal.files import config_for, save_causal
from imir_lens.causal.flat_construction import construct_flat
from imir_lens.causal.kernel_evidence import kernel_evidence
from imir_lens.causal.leave_out import LeaveOut
from imir_lens.causal.training import train_causal
from imir_lens.causal.transformer import CausalTransformer, initialise
from imir_lens.causal.verification import run_verification
from imir_lens.causal.verification_verdict import LEVELS, Check, level_reached
from imir_lens.checkpoints import save_checkpoint
from imir_lens.errors import CheckpointError, OptionError, UnsupportedModelError
from imir_lens.ids import Head
from imir_lens.tasks.causal_tree import CausalTree
from imir_lens.tasks.episodes import prediction_loss
from imir_lens.tasks.fixed_graph import FixedGraph
from imir_lens.tasks.lag_chain import LagChain
from imir_lens.tasks.linear_dynamics import LinearDynamics

SIZES = {"d": 4, "positions": 6, "examples": 2}
TASK = CausalTree(**SIZES)
VECTORS = LinearDynamics(**SIZES, unit_norm=True)
READER = Head(1, 0)


def verified(model, task=TASK, **options):
    return run_verification(model, task, **{"contexts": 192, **options})


def drawn(task=TASK, contexts=200):
    return task.sample_episodes(contexts, torch.Generator().manual_seed(5))


def trained(task, steps):
    return train_causal(task, steps=steps, batch=64, evaluate_every=steps).model


@pytest.fixture(scope="module")
def learner():
    return trained(TASK, 600)


def edited(model, change):
    """A copy of a model with changed weights."""
    copy = CausalTransformer(model.cfg).to(model.bma.W_KQ.dtype)
    copy.load_state_dict(model.state_dict())
    with torch.no_grad():
        change(copy)
    return copy.eval()


@pytest.mark.parametrize("task", [TASK, VECTORS], ids=["tokens", "vectors"])
def test_the_exact_construction_reaches_the_highest_level(task):
    found = verified(construct(task), task)
    assert (found.verdict.mechanism, found.verdict.evidence_level) == ("causal_bma", LEVELS[-1])
    assert found.match.match.total_variation < 1e-6
    assert all(check.holds for check in found.verdict.checks)
    assert found.agreement.largest_error < 1e-6
    assert found.kernel.alignment == pytest.approx(1) and found.kernel.scale == pytest.approx(1)
    assert not found.verdict.caveats


def test_a_trained_model_is_called_bma(learner):
    found = verified(learner)
    assert found.verdict.mechanism == "causal_bma", found.verdict
    assert found.verdict.evidence_level == LEVELS[-1], found.verdict
    assert found.losses.bma < found.losses.model < found.losses.uniform
    assert 3 * found.kernel.column.mean < found.kernel.column.uniform
    assert found.kernel.column.mean < found.kernel.row.mean
    assert found.kernel.column.shuffled > 3 * found.kernel.column.mean


@pytest.mark.parametrize("wrap", [lambda model: model, with_idle_mlp], ids=["attention only", "with an MLP"])
def test_an_ordinary_transformer_with_exact_attention_is_called_bma(wrap):
    found = verified(wrap(construct_flat(TASK)), contexts=64)
    assert (found.verdict.mechanism, found.verdict.evidence_level) == ("causal_bma", LEVELS[-1])
    assert found.reader.head == READER
    assert [point.examples for point in found.curve] == [TASK.examples]
    assert any("hint" in caveat for caveat in found.verdict.caveats) == (wrap is with_idle_mlp)


def test_a_live_model_is_verified_like_any_other():
    ours = untrained(TASK)
    live = live_model({**ours.cfg.to_dict(), "dtype": torch.float32, "seed": 0})
    found = verified(live, contexts=48)
    assert found.verdict.mechanism == "not_detected"
    assert found.kernel is not None and len(found.matches) == ours.cfg.n_layers * ours.cfg.n_heads


def fresh():
    model = CausalTransformer(config_for(TASK))
    initialise(model, torch.Generator().manual_seed(0))
    return model


NEGATIVE = {
    "untrained": fresh,
    "untrained ordinary transformer": lambda: untrained(TASK),
    "trained on one fixed graph": lambda: trained(FixedGraph(**SIZES), 200),
    "trained on shuffled examples": lambda: trained(CausalTree(**SIZES, shuffle=True), 200),
    "of another kernel": lambda: construct(CausalTree(**SIZES, kernel_seed=7)),
}


@pytest.mark.parametrize("make", NEGATIVE.values(), ids=NEGATIVE)
def test_a_model_that_infers_nothing_is_not_called_bma(make):
    verdict = verified(make()).verdict
    assert verdict.mechanism == "not_detected"
    assert verdict.evidence_level in ("none", "behaviour")
    assert verdict.text.startswith("Not detected: ")
    assert not next(check for check in verdict.checks if check.level == "predicted ablations").holds


@pytest.mark.parametrize("task", [CausalTree(**SIZES, shuffle=True), FixedGraph(**SIZES)], ids=lambda task: str(task))
def test_nothing_is_called_bma_where_examples_tell_nothing_of_the_graph(task, learner):
    verdict = verified(learner, task).verdict
    assert verdict.mechanism == "not_detected"
    follows = next(check for check in verdict.checks if "movement" in check.asked)
    assert follows.found is None and not follows.holds


def test_following_the_likeliest_parent_is_not_averaging():
    """A much sharper kernel picks the likeliest parent: it predicts well, but its attention is not the posterior."""

    def sharpen(model):
        model.bma.W_KQ.mul_(20)

    found = verified(edited(construct(TASK), sharpen))
    best = maximum_likelihood(TASK.posterior(found.episodes), found.episodes)
    assert float((found.reader.weights - best).abs().mean()) < 0.01
    assert found.posterior_share < 0 and found.verdict.mechanism == "not_detected"


def test_the_gauge_of_the_kernel_changes_no_verdict():
    def shift(model):
        d = TASK.d
        for block in range(2):
            model.bma.W_KQ[block * d : (block + 1) * d, block * d : (block + 1) * d] += torch.arange(d) * 1.0

    plain, shifted = verified(construct(TASK)), verified(edited(construct(TASK), shift))
    assert shifted.verdict.evidence_level == plain.verdict.evidence_level
    assert shifted.kernel.column.mean == pytest.approx(plain.kernel.column.mean, abs=1e-6)
    assert shifted.kernel.row.mean > plain.kernel.row.mean + 0.1


def test_levels_build_on_one_another():
    """Exact attention with a readout that says nothing: no prediction, so nothing above it counts."""

    def silence(model):
        model.bma.W_OV.zero_()

    found = verified(edited(construct(TASK), silence))
    assert found.match.match.total_variation < 1e-6
    assert (found.verdict.mechanism, found.verdict.evidence_level) == ("not_detected", "none")
    checks = [Check("behaviour", "", 1.0, 0.5), Check("attention", "", 0.1, 0.5), Check("parameters", "", 1.0, 0.5)]
    assert level_reached(checks) == "behaviour"
    assert level_reached([Check("behaviour", "", None, 0.5)]) == "none"
    assert (
        Check("parameters", "", 0.1, 0.5, at_least=False).holds and not Check("x", "", 0.6, 0.5, at_least=False).holds
    )


def test_too_few_contexts_conclude_nothing():
    found = verified(construct(TASK), contexts=8)
    assert found.verdict.mechanism == "not_detected" and "too few" in found.verdict.text


def test_the_curve_ends_where_the_model_sees_no_further():
    found = verified(construct(TASK), test_examples=[1, 4])
    one, own, four = found.curve
    assert [one.examples, own.examples, four.examples] == [1, 2, 4]
    assert own.model == pytest.approx(own.bma, abs=1e-6) and own.bma_seen == own.bma
    assert four.model == pytest.approx(four.bma_seen, abs=1e-6) and four.bma < four.bma_seen - 0.05
    assert four.uniform == pytest.approx(own.uniform)


def test_losses_are_those_of_the_predictions(learner):
    some = drawn()
    with torch.no_grad():
        laws = learner(some).softmax(2)
    assert model_loss(learner, TASK, some) == pytest.approx(float(prediction_loss(laws, some)), abs=1e-5)
    flat = construct_flat(TASK)
    batch = TASK.flatten(some)
    with torch.no_grad():
        logits = flat(batch.tokens).gather(1, batch.queries.unsqueeze(2).expand(-1, -1, TASK.d))
    expected = -logits.log_softmax(2).gather(2, batch.targets.unsqueeze(2)).mean()
    assert model_loss(flat, TASK, some) == pytest.approx(float(expected), abs=1e-5)


def test_following_exchanged_examples_tells_inference_from_memory():
    some = drawn()
    assert follows_swaps(construct(TASK), TASK, some, READER) == pytest.approx(1, abs=1e-6)
    assert follows_swaps(CausalTransformer(config_for(TASK)), TASK, some, READER) < 0.5


def test_the_share_of_information_is_one_for_the_posterior_and_none_without_any():
    some = drawn()
    even = uniform_kl(TASK.posterior(some), some)
    assert even > 0.1
    assert kl_share(0.0, even) == 1 and kl_share(even, even) == 0
    shuffled = CausalTree(**SIZES, shuffle=True)
    assert kl_share(0.0, uniform_kl(shuffled.posterior(some), some)) is None


def test_one_large_change_does_not_hide_small_ones():
    examples = [LeaveOut("example 0", 0.02, 0.0), LeaveOut("example 1", 0.02, 0.0)]
    found = agreement([*examples, LeaveOut("parent 1", 1.0, 1.0)])
    assert found.by_kind == {"example": 0.0, "relation": 1.0} and found.explained == 0
    assert found.largest_error == pytest.approx(0.02)
    assert agreement([LeaveOut("same", 0.001, 0.001)]) is None and agreement([]) is None
    assert spread(3, 5) == [0, 1, 2] and len(spread(100, 7)) == 7


def test_a_task_without_a_kernel_has_none_to_read(learner):
    assert kernel_evidence(learner, FixedGraph(**SIZES), (), READER) is None


@pytest.mark.parametrize(
    ("knobs", "named"), [({"d": 5}, "d_input"), ({"positions": 7}, "n_positions"), ({"examples": 3}, "n_examples")]
)
def test_a_causal_transformer_of_another_layout_is_refused(knobs, named, tmp_path):
    save_causal(tmp_path / "model.pt", construct(TASK))
    other = CausalTree(**{**SIZES, **knobs})
    for model in (construct(TASK), tmp_path / "model.pt"):
        with pytest.raises(CheckpointError, match=named):
            imir_lens.verify(model, other)


def test_what_cannot_be_verified_is_refused(tmp_path):
    flat = construct_flat(TASK)
    with pytest.raises(CheckpointError, match="21 positions"):
        verified(flat, CausalTree(**{**SIZES, "positions": 7}))
    with pytest.raises(CheckpointError, match="5 tokens"):
        verified(flat, CausalTree(**{**SIZES, "d": 5}))
    with pytest.raises(UnsupportedModelError, match="only with the 2"):
        verified(flat, test_examples=[3])
    with pytest.raises(CheckpointError, match="vectors"):
        verified(flat, VECTORS)
    with pytest.raises(UnsupportedModelError, match="Linear cannot be verified"):
        verified(torch.nn.Linear(2, 2))
    with pytest.raises(OptionError, match="at least one example"):
        verified(construct(TASK), LagChain())
    for options in ({"contexts": 0}, {"test_examples": [0]}):
        with pytest.raises(OptionError):
            verified(construct(TASK), **options)


def test_an_ordinary_checkpoint_gives_what_the_live_model_gives(tmp_path):
    model = replace_dtype(construct_flat(TASK))
    save_checkpoint(tmp_path / "flat.pt", model.state_dict(), model.cfg)
    live, file = (imir_lens.verify(one, TASK, contexts=48).data for one in (model, tmp_path / "flat.pt"))
    assert live["behaviour"] == file["behaviour"] and live["verdict"] == file["verdict"]
    assert file["model"]["family"] == "HookedTransformer"


def replace_dtype(model):
    """The same model in float32, as checkpoints are."""
    small = type(model)(replace(model.cfg, dtype=torch.float32))
    small.load_state_dict({name: value.float() for name, value in model.state_dict().items()})
    return small.eval()
