"""The example that puts our tasks to a language model runs, and an untrained model knows nothing."""

import json
import subprocess
import sys
from pathlib import Path

from imir_lens.checkpoints import save_checkpoint
from imir_lens.models.config import TransformerConfig
from imir_lens.models.transformer import ImirTransformer

ROOT = Path(__file__).parents[1]


def test_the_example_asks_every_task_in_the_models_own_words(tmp_path):
    words = (ROOT / "examples/words.txt").read_text().split()
    assert len(set(words)) == len(words) >= 63
    tokens = {"<s>": 0, "Ċ": 1} | {f"Ġ{word}": place for place, word in enumerate(words, start=2)}
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": {"vocab": tokens}}))
    config = TransformerConfig(
        d_model=16, d_head=8, n_heads=2, n_layers=2, n_ctx=64, d_vocab=len(tokens) + 9, d_mlp=32, act_fn="gelu",
        normalization_type="LN",
    )  # fmt: skip
    model = ImirTransformer(config)
    save_checkpoint(tmp_path / "model.pt", model.state_dict(), config)
    script = [sys.executable, ROOT / "examples/tasks_in_a_language_model.py", tmp_path / "model.pt", "24"]
    done = subprocess.run(script, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in done.stdout.splitlines()[2:]]
    assert len(rows) >= 16 and {row[0].split()[0] for row in rows} >= {"repeated", "recall", "hop", "ioi", "copy"}
    assert {(row[1], row[2]) for row in rows} == {
        ("common words", "beginning of text"),
        ("common words", "line break"),
        ("random tokens", "beginning of text"),
    }
    assert all(float(row[4]) < 0.25 and 0 < float(row[7]) < 0.6 for row in rows)
