"""Ablation in real models: the same as editing the weights, exact to the last nat, gone without a trace."""

from pathlib import Path

import pytest
import torch
from brute_force import named, rows, score_term
from live import live_from_file
from rich_circuit import RICH
from toy_task import ToyTask, random_model, relations, toy_batch

from imir_lens.ablation import ablate, ablate_mask
from imir_lens.checkpoints import save_checkpoint
from imir_lens.coordinates import Coordinates
from imir_lens.errors import CoordinateError
from imir_lens.evaluation import at_queries
from imir_lens.lens_model import LensModel, open_model
from imir_lens.models.constructions import induction_circuit, plant
from imir_lens.projector import ImirProjector
from imir_lens.tasks import make_task
from imir_lens.tasks.base import Batch, Task

DATA = Path(__file__).parent / "data"
pytestmark = pytest.mark.filterwarnings("ignore:HookedTransformer is deprecated")


def planted(task: Task, circuit: dict[str, float], **options: object) -> LensModel:
    return open_model(plant(task, circuit, **{"n_layers": 2, "n_heads": 2, **options}))


def project(model: LensModel, task: Task) -> Coordinates:
    projector = ImirProjector.for_task(task)
    return projector.fit(model.weights).coordinates_


def log_p(model: LensModel, batch: Batch) -> torch.Tensor:
    return at_queries(model.logits(batch.tokens), batch).log_softmax(-1)


def close(found: torch.Tensor, expected: torch.Tensor) -> bool:
    return torch.allclose(found.log_softmax(-1), expected.log_softmax(-1), atol=1e-4, rtol=0)


@pytest.fixture(scope="module")
def rich() -> tuple[LensModel, Coordinates, Batch]:
    model = planted(ToyTask(), RICH)
    return model, project(model, ToyTask()), toy_batch(6)


@pytest.mark.parametrize("name", RICH)
def test_ablating_a_coordinate_is_planting_the_model_without_it(rich, name):
    model, coordinates, batch = rich
    without = planted(ToyTask(), {other: value for other, value in RICH.items() if other != name})
    assert close(ablate(model, coordinates, [name], batch), log_p(without, batch))
    assert float((log_p(without, batch) - log_p(model, batch)).abs().max()) > 0.01


@pytest.mark.parametrize(
    "names",
    [
        # Two layers: what layer 1 reads must come from patterns that layer 0 has already changed.
        ["L0H0/score/q:res/k:res/offset+1", "L1H0/score/q:res/k:L0H0/same"],
        ["L0H1/score/q:res/k:res/noun>verb", "L1H0/score/q:L0H1/k:res/assoc", "readout/via:L0H1/verb>name"],
        ["L0H0/score/q:const/k:res/verb", "L1H1/score/q:const/k:L0H0/name", "readout/via:const/verb"],
        [name for name in RICH if "L1H" not in name.split("/")[0]],
    ],
)
def test_joint_ablation_is_planting_the_model_without_all_of_them(rich, names):
    model, coordinates, batch = rich
    without = planted(ToyTask(), {name: value for name, value in RICH.items() if name not in names})
    assert close(ablate(model, coordinates, names, batch), log_p(without, batch))
    one_by_one = [ablate(model, coordinates, [name], batch).log_softmax(-1) for name in names]
    assert all(not close(single, log_p(without, batch)) for single in one_by_one)


def test_ablating_everything_leaves_nothing(rich):
    model, coordinates, batch = rich
    left = ablate_mask(model, coordinates, coordinates.values != 0, batch).softmax(-1)
    torch.testing.assert_close(left, torch.full_like(left, 1 / 11), atol=1e-5, rtol=0)


def test_ablating_nothing_leaves_everything(rich):
    model, coordinates, batch = rich
    nothing = torch.zeros(coordinates.space.size, dtype=torch.bool)
    found = ablate_mask(model, coordinates, nothing, batch)
    assert torch.equal(found, at_queries(model.logits(batch.tokens), batch))


def test_chunks_of_contexts_add_up_to_the_batch(rich, monkeypatch):
    model, coordinates, batch = rich
    whole = ablate(model, coordinates, list(RICH)[:6], batch)
    monkeypatch.setattr("imir_lens.terms._CHUNK_NUMBERS", 4 * len(coordinates.space.paths) * 7 * 7)
    torch.testing.assert_close(ablate(model, coordinates, list(RICH)[:6], batch), whole)


def test_a_tilt_adds_no_constant_of_its_own():
    """On a random model, whose scores hold much that no coordinate explains, against a run with edited scores."""
    model = random_model(2, 2)
    task, batch = ToyTask(), toy_batch(4)
    coordinates = project(model, task)
    name = max((name for name in named(coordinates) if name.startswith("L1H1/score/q:L0")), key=named(coordinates).get)
    _, cache = model.run_with_cache(batch.tokens, [f"blocks.0.attn.hook_{what}" for what in ("pattern",)])
    patterns = {(0, head): cache["blocks.0.attn.hook_pattern"][:, head] for head in range(2)}
    delta = coordinates[name] * score_term(relations(), name, patterns, batch.tokens)

    def edit(scores, hook):
        scores = scores.clone()
        scores[:, 1] -= delta
        return scores

    edited = model.run_with_hooks(batch.tokens, [("blocks.1.attn.hook_attn_scores", edit)])
    found = ablate(model, coordinates, [name], batch)
    torch.testing.assert_close(found, at_queries(edited, batch), atol=1e-9, rtol=0)
    assert float((found - at_queries(model.logits(batch.tokens), batch)).abs().max()) > 0.01


def test_a_readout_is_subtracted_from_the_logits():
    model, batch = random_model(2, 1), toy_batch(4)
    coordinates = project(model, ToyTask())
    name = "readout/via:L0H0.L1H0/assoc"
    _, cache = model.run_with_cache(batch.tokens, [f"blocks.{layer}.attn.hook_pattern" for layer in range(2)])
    first, second = (cache[f"blocks.{layer}.attn.hook_pattern"][:, 0] for layer in range(2))
    moved = second @ first @ torch.nn.functional.one_hot(batch.tokens, 11).double()
    change = coordinates[name] * rows(moved @ relations().matrix("assoc").double(), batch.queries)
    expected = at_queries(model.logits(batch.tokens), batch) - change
    torch.testing.assert_close(ablate(model, coordinates, [name], batch), expected)
    assert float(change.abs().max()) > 0.05


@pytest.mark.parametrize("alpha", [60.0, 200.0])
def test_patterns_that_underflowed_are_recomputed(alpha):
    task = make_task("recall")
    name = "L0H0/score/q:res/k:res/offset+1"
    gentle = {"beta": 6.0, "gamma": 5.0, "not_itself": -2.0}  # does not magnify the rounding of large scores
    model = planted(task, induction_circuit(alpha=alpha, **gentle))
    batch = task.sample(8, torch.Generator().manual_seed(0))
    _, cache = model.run_with_cache(batch.tokens, ["blocks.0.attn.hook_pattern"])
    pattern = cache["blocks.0.attn.hook_pattern"][:, 0].tril(-2)
    assert float(pattern.max()) == 0 if alpha == 200 else 0 < float(pattern.max()) < 1e-20
    without = planted(task, induction_circuit(alpha=0.0, **gentle))
    assert close(ablate(model, project(model, task), [name], batch), log_p(without, batch))


def test_nothing_stays_on_the_model(rich):
    model, coordinates, batch = rich
    model.model.train()
    user = lambda pattern, hook: None  # noqa: E731
    model.model.hook_dict["blocks.0.attn.hook_pattern"].add_hook(user)
    before, state = model.logits(batch.tokens), {k: v.clone() for k, v in model.model.state_dict().items()}
    values = coordinates.values.clone()
    ablate(model, coordinates, list(RICH), batch)
    with pytest.raises(CoordinateError):
        ablate(model, coordinates, ["readout/via:res/none"], batch)
    left = {name: len(point.fwd_hooks) for name, point in model.model.hook_dict.items() if point.fwd_hooks}
    assert left == {"blocks.0.attn.hook_pattern": 1}
    model.model.hook_dict["blocks.0.attn.hook_pattern"].remove_hooks()
    assert all(module.training for module in model.model.modules())
    assert torch.equal(model.logits(batch.tokens), before) and torch.equal(coordinates.values, values)
    assert all(torch.equal(value, state[name]) for name, value in model.model.state_dict().items())
    assert torch.is_grad_enabled() and not model.logits(batch.tokens).requires_grad


def test_what_is_compared_with_an_ablation_is_the_model_as_it_is(rich):
    model, coordinates, batch = rich
    whole = model.query_logits(batch)
    assert torch.equal(whole, model.logits(batch.tokens).gather(1, batch.queries[..., None].expand_as(whole)))
    nothing = torch.zeros(coordinates.space.size, dtype=torch.bool)
    assert torch.equal(whole, ablate_mask(model, coordinates, nothing, batch))


def test_an_ablation_that_matches_nothing_is_an_error(rich):
    model, coordinates, batch = rich
    exact = coordinates.only(list(RICH))  # what was not planted is rounding, not quite zero
    with pytest.raises(CoordinateError, match=r"nothing to ablate: \['readout/via:res/same'\] are all zero"):
        ablate(model, exact, ["readout/via:res/same"], batch)
    with pytest.raises(CoordinateError, match="nothing to ablate"):
        ablate(model, coordinates, [], batch)
    with pytest.raises(CoordinateError, match="head L7H0, but the model has 2 layers of 2 heads"):
        ablate(model, coordinates, ["L7H0/score/q:res/k:res/same"], batch)


def test_a_live_model_is_ablated_as_its_file_is(tmp_path, rich):
    """The HookedTransformer of TransformerLens 3, or the native bridge of 4."""
    model, coordinates, batch = rich
    save_checkpoint(tmp_path / "planted.pt", model.model.state_dict(), model.model.cfg)
    live = open_model(live_from_file(tmp_path / "planted.pt"))
    assert live.info["family"] != model.info["family"]
    torch.testing.assert_close(project(live, ToyTask()).values, coordinates.values, atol=1e-5, rtol=0)
    for names in (list(RICH), list(RICH)[:1], list(RICH)[4:9], list(RICH)[-5:]):
        ours, theirs = (ablate(which, coordinates, names, batch) for which in (model, live))
        torch.testing.assert_close(theirs, ours, atol=1e-4, rtol=0)
        assert not close(ours, log_p(model, batch))


def test_a_live_trained_model_is_ablated_as_its_file_is():
    task = make_task("recall")
    batch = task.sample(16, torch.Generator().manual_seed(0))
    ours, theirs = open_model(DATA / "recall_2l.pt"), open_model(live_from_file(DATA / "recall_2l.pt"))
    coordinates = project(ours, task)
    for name in ("L0H0/score/q:res/k:res/offset+1", "L1H0/score/q:res/k:L0H0/same", "readout/via:L1H0/same"):
        one, other = (ablate(model, coordinates, [name], batch) for model in (ours, theirs))
        torch.testing.assert_close(one, other, atol=1e-3, rtol=0)
        assert not close(one, log_p(ours, batch))
