"""One checkpoint, one report: from its file, as our own model, and live under either TransformerLens."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from live import live_from_file

from imir_lens.checkpoints import load_transformer
from imir_lens.pipeline import analyze

DATA = Path(__file__).parent.parent / "data"
STORED = DATA / "recall_2l_report.json"
OPTIONS: dict[str, Any] = {"contexts": 128, "seed": 5, "bootstraps": 2, "command": "test"}
# What names the source, the versions and the clock.
APART = {"created_with", "seconds", "source", "sha256", "family"}

pytestmark = pytest.mark.filterwarnings("ignore:HookedTransformer is deprecated")


def _assert_close(found: Any, expected: Any, where: str = "report") -> int:
    """Compare two reports to 1e-4, relative to numbers above 1; return how many numbers were compared."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), where
        return sum(_assert_close(found[k], v, f"{where}.{k}") for k, v in expected.items() if k not in APART)
    if isinstance(expected, list):
        assert len(found) == len(expected), where
        return sum(_assert_close(a, b, f"{where}[{i}]") for i, (a, b) in enumerate(zip(found, expected, strict=True)))
    if isinstance(expected, float) and isinstance(found, int | float):
        assert math.isclose(found, expected, rel_tol=1e-4, abs_tol=1e-4), f"{where}: {found} against {expected}"
        return 1
    assert found == expected, where
    return 0


@pytest.fixture(scope="module")
def from_file() -> dict[str, Any]:
    return analyze(DATA / "recall_2l.pt", "recall", **OPTIONS).data


def test_from_our_own_model(from_file: dict[str, Any]) -> None:
    assert _assert_close(analyze(load_transformer(DATA / "recall_2l.pt"), "recall", **OPTIONS).data, from_file) > 500


def test_from_a_live_model_of_the_installed_transformer_lens(from_file: dict[str, Any]) -> None:
    live = analyze(live_from_file(DATA / "recall_2l.pt"), "recall", **OPTIONS).data
    assert live["model"]["family"] in ("HookedTransformer", "TransformerBridge")
    assert _assert_close(live, from_file) > 500


def test_the_same_under_every_transformer_lens(from_file: dict[str, Any]) -> None:
    """The stored report was made once; every CI leg must find it again."""
    assert _assert_close(from_file, json.loads(STORED.read_text())) > 500


def test_the_same_inputs_and_seed_give_the_same_bytes(from_file: dict[str, Any]) -> None:
    again = analyze(DATA / "recall_2l.pt", "recall", **OPTIONS).data
    for report in (again, from_file):
        report["circuit"]["seconds"] = 0.0
    assert json.dumps(again) == json.dumps(from_file)


def test_another_seed_gives_another_report(from_file: dict[str, Any]) -> None:
    other = analyze(DATA / "recall_2l.pt", "recall", **{**OPTIONS, "seed": 6}).data
    assert other["evaluation"]["model"]["loss"] != from_file["evaluation"]["model"]["loss"]
    roles = [{u["role"]: u["id"] for u in report["circuit"]["units"]} for report in (other, from_file)]
    assert all(roles[0][role] == roles[1][role] for role in ("alpha", "beta", "gamma"))
