"""Which features of a model are read, run and analysed under which TransformerLens, as measured: docs/support.md.

`python tests/support/support_matrix.py` writes the columns of the installed TransformerLens and keeps the others.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "models")]

from live import has_native_bridge, hooked_transformer, live_bridge, live_hooked  # noqa: E402
from test_forms import logits_without, project, some_of_each_kind  # noqa: E402
from toy_task import VOCAB, toy_batch  # noqa: E402

from imir_lens.ablation import ablate  # noqa: E402
from imir_lens.checkpoints import load_transformer  # noqa: E402
from imir_lens.errors import ImirError  # noqa: E402
from imir_lens.lens_model import LensModel, open_model  # noqa: E402
from imir_lens.linear_stream import measure_stream  # noqa: E402
from imir_lens.models.transformer import ImirTransformer  # noqa: E402

PAGE = Path(__file__).parents[2] / "docs" / "support.md"
NO_MLP = {"attn_only": True}
FEATURES: dict[str, dict[str, Any]] = {
    "attention only, learned positions": NO_MLP,
    "LayerNorm": {**NO_MLP, "normalization_type": "LN"},
    "LayerNorm, folded": {**NO_MLP, "normalization_type": "LNPre"},
    "RMSNorm": {**NO_MLP, "normalization_type": "RMS"},
    "RMSNorm, folded": {**NO_MLP, "normalization_type": "RMSPre"},
    "MLP": {"act_fn": "gelu", "normalization_type": "LN"},
    "MLP without norms": {"act_fn": "relu"},
    "MLP with solu": {"act_fn": "solu_ln", "normalization_type": "LN"},
    "gated MLP": {"act_fn": "silu", "gated_mlp": True, "normalization_type": "RMS"},
    "MLP beside attention": {"act_fn": "gelu", "normalization_type": "LN", "parallel_attn_mlp": True},
    "rotary positions, half-split": {**NO_MLP, "positional_embedding_type": "rotary"},
    "rotary positions, adjacent pairs": {
        **NO_MLP,
        "positional_embedding_type": "rotary",
        "rotary_adjacent_pairs": True,
    },
    "rotary positions, partial": {**NO_MLP, "positional_embedding_type": "rotary", "rotary_dim": 4},
    "ALiBi": {**NO_MLP, "positional_embedding_type": "alibi"},
    "shortformer positions": {**NO_MLP, "positional_embedding_type": "shortformer"},
    "grouped keys and values": {**NO_MLP, "n_key_value_heads": 1},
    "no division by √d_head": {**NO_MLP, "use_attn_scale": False},
    "soft cap on scores": {**NO_MLP, "attn_scores_soft_cap": 2.0},
    "soft cap on logits": {**NO_MLP, "output_logits_soft_cap": 4.0},
    "local attention": {
        **NO_MLP,
        "use_local_attn": True,
        "attn_types": ["local", "global"],
        "window_size": 3,
    },
    "bidirectional attention": {**NO_MLP, "attention_dir": "bidirectional"},
    "another output vocabulary": {**NO_MLP, "d_vocab_out": 5},
    "scores divided by the layer's number": {**NO_MLP, "scale_attn_by_inverse_layer_idx": True},
}
COLUMNS = {
    "file": "file",
    "hooked": "live HookedTransformer (3.9)",
    "bridge": "live native bridge (4.x)",
    "surrogate": "coordinates",
    "ablation": "ablation",
}
SHAPE = {"n_layers": 2, "n_heads": 2, "d_model": 12, "d_head": 6, "d_vocab": VOCAB, "n_ctx": 9, "seed": 0}


def config_of(feature: str) -> dict[str, Any]:
    return {"normalization_type": None, **SHAPE, **FEATURES[feature]}


def _shaken(model: Any) -> Any:
    """Weights in which everything counts: no bias is zero, no norm the identity."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            around = 1.0 if name.endswith(".w") else 0.0
            parameter.copy_(around + 0.4 * torch.randn(parameter.shape, generator=generator))
    return model.eval()


def _status(check: Callable[[], bool]) -> str:
    """`exact` or `approximate` as the check says, `refused` when the library says no in one line."""
    try:
        return "exact" if check() else "approximate"
    except ImirError as error:
        assert "\n" not in str(error)
        return "refused"


def _same(found: torch.Tensor, expected: torch.Tensor) -> bool:
    assert expected.abs().max() > 0.1
    difference = float((found - expected).abs().max())
    assert difference < 1e-4 * max(1.0, float(expected.abs().max())), difference
    return True


@torch.no_grad()
def _file(feature: str, folder: Path) -> str:
    """A HookedTransformer's file against the logits it computes itself (TransformerLens 3.9)."""
    tokens = toy_batch(4).tokens

    def check() -> bool:
        live = _shaken(live_hooked(config_of(feature)))
        torch.save({"state_dict": live.state_dict(), "cfg": live.cfg.to_dict()}, folder / "file.pt")
        return _same(load_transformer(folder / "file.pt")(tokens), live(tokens))

    return _status(check)


@torch.no_grad()
def _live(feature: str, make: Callable[[dict[str, Any]], Any]) -> str:
    tokens = toy_batch(4).tokens
    try:
        live = _shaken(make(config_of(feature)))
    except ValueError:
        return "none"

    def check() -> bool:
        return _same(open_model(live).on_twin().logits(tokens), live(tokens))

    return _status(check)


def _opened(feature: str) -> LensModel:
    from imir_lens.models.config import TransformerConfig

    config = TransformerConfig.from_dict({**config_of(feature), "dtype": "float64"})
    return open_model(_shaken(ImirTransformer(config)))


@torch.no_grad()
def _surrogate(feature: str) -> str:
    """Exact when every factor that depends on the context is a constant, and nothing is left of the MLPs."""

    def check() -> bool:
        model, batch = _opened(feature), toy_batch(64, seed=5)
        stream, form = measure_stream(model, batch), model.weights.form
        if stream is None or not form.needs_stream:
            return True
        varies = any(parts.explained < 1 - 1e-6 for parts in (*stream.mlps, *stream.query_mlps))
        if form.norm is not None:
            _, cache = model.run_with_cache(batch.tokens, ["blocks.1.ln1.hook_scale"])
            varies |= float(cache["blocks.1.ln1.hook_scale"].std()) > 1e-6
        return not (varies or form.score_cap or form.logit_cap)

    return _status(check)


@torch.no_grad()
def _ablation(feature: str) -> str:
    """Removal of coordinates of every kind against dense formulas."""

    def check() -> bool:
        model, batch = _opened(feature), toy_batch(6)
        coordinates = project(model, toy_batch(64, seed=5))
        names = some_of_each_kind(coordinates)
        expected = logits_without(model, coordinates, names, batch).log_softmax(-1)
        return _same(ablate(model, coordinates, names, batch).log_softmax(-1), expected)

    return _status(check)


def measured(feature: str, folder: Path) -> dict[str, str]:
    """The columns that the installed TransformerLens can check."""
    found = {"surrogate": _surrogate(feature), "ablation": _ablation(feature)}
    if hooked_transformer is not None:
        found |= {"file": _file(feature, folder), "hooked": _live(feature, live_hooked)}
    if has_native_bridge:
        found["bridge"] = _live(feature, live_bridge)
    return found


def documented() -> dict[str, dict[str, str]]:
    """The table of the page, by feature and column."""
    if not PAGE.exists():
        return {}
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ") and "---" not in line]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    return {row[0]: dict(zip(COLUMNS, row[1:], strict=True)) for row in cells if row[0] in FEATURES}


TEXT = """# What is supported

Each entry is measured by `tests/support`, on a small model with random weights in which every bias, norm and position
counts; `python tests/support/support_matrix.py` writes the table.

- **file**: a HookedTransformer's checkpoint, loaded and run, against the logits that HookedTransformer computes. The
  seventeen golden variants saved by TransformerLens 2.18 and 3.9 have their own test.
- **live HookedTransformer**, **live native bridge**: the object opened, and what is read from it, against its logits.
  `none`: this TransformerLens cannot build such a model. `refused`: a flag of it would be ignored, or the analysis has
  no meaning.
- **coordinates**: whether scores and logits are sums of coordinates and unexplained blocks *exactly*, in every
  context, or *approximately*: norms at the mean of their scale, soft caps at their mean slope, MLPs as a sum of parts.
- **ablation**: removal of coordinates from the running model, against dense formulas with the scales of that run.

{table}

Bridges over Hugging Face models (GPT-2, GPT-NeoX, Llama, Mistral) and other formats of files are in
[models.md](models.md). TransformerLens 3.9 and 4.3 are what the tests run with.
"""


def write(folder: Path) -> None:
    """Measure all features, and write the page."""
    before = documented()
    lines = ["| feature | " + " | ".join(COLUMNS.values()) + " |", "| --- " * (len(COLUMNS) + 1) + "|"]
    for feature in FEATURES:
        row = {**dict.fromkeys(COLUMNS, "?"), **before.get(feature, {}), **measured(feature, folder)}
        lines.append(f"| {feature} | " + " | ".join(row[column] for column in COLUMNS) + " |")
    PAGE.write_text(TEXT.format(table="\n".join(lines)))


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as place:
        write(Path(place))
