"""What has no mechanism must end in not_detected: random weights, shuffled heads, the wrong task."""

from pathlib import Path

import pytest
import torch

from imir_lens.analysis import Analysis, run_analysis
from imir_lens.checkpoints import load_checkpoint, load_transformer
from imir_lens.lens_model import open_model
from imir_lens.models.transformer import ImirTransformer
from imir_lens.tasks import make_task

DATA = Path(__file__).parent.parent / "data"


def _recall_model() -> ImirTransformer:
    return load_transformer(DATA / "recall_2l.pt")


def _random_model(seed: int, scale: float) -> ImirTransformer:
    model = ImirTransformer(_recall_model().cfg, generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(scale)
    return model


def _shuffled_model() -> ImirTransformer:
    """The trained checkpoint with the heads of its two layers exchanged."""
    state = load_checkpoint(DATA / "recall_2l.pt").state_dict
    other = {"0": "1", "1": "0"}
    swapped = {
        ".".join(["blocks", other[name.split(".")[1]], *name.split(".")[2:]])
        if name.startswith("blocks")
        else name: value
        for name, value in state.items()
    }
    model = _recall_model()
    model.load_transformer_lens_state(swapped)
    return model


def _assert_nothing(analysis: Analysis) -> None:
    assert analysis.verdict.mechanism == "not_detected"
    assert analysis.verdict.text.startswith("Not detected")
    assert analysis.evidence.model.accuracy < 0.3


@pytest.mark.parametrize(("seed", "scale"), [(0, 1.0), (1, 1.0), (2, 5.0), (3, 20.0)])
def test_random_weights(seed: int, scale: float) -> None:
    _assert_nothing(run_analysis(open_model(_random_model(seed, scale)), make_task("recall"), bootstraps=0))


def test_heads_shuffled_across_layers() -> None:
    analysis = run_analysis(open_model(_shuffled_model()), make_task("recall"), bootstraps=0)
    _assert_nothing(analysis)
    # The same weights in their places are a clear case: it is the shuffle that hides it.
    assert (
        run_analysis(open_model(_recall_model()), make_task("recall"), bootstraps=0).verdict.mechanism == "in_context"
    )


@pytest.mark.parametrize(
    ("checkpoint", "task", "knobs"),
    [
        ("recall_2l.pt", "hop", {"hops": 2}),
        ("recall_2l.pt", "recall", {"f_r": 0.0, "burstiness": 0.0}),
        ("memory_2l.pt", "recall", {"vocab": 65}),
        ("memory_2l.pt", "hop", {"vocab": 65}),
        ("memory_2l.pt", "recall", {"vocab": 65, "f_r": 0.0, "association": "seed:7"}),
    ],
)
def test_the_wrong_task(checkpoint: str, task: str, knobs: dict[str, float]) -> None:
    _assert_nothing(run_analysis(open_model(DATA / checkpoint), make_task(task, **knobs), bootstraps=0))
