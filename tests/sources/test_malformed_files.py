"""Five hundred files that are broken, contradictory or hostile: each is refused in one line, or loads and computes.

They are read in a process of their own with a limit on its memory, so that a file that asks for more shows.
"""

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf_writer import write_llama
from plain_models import JointGPT, shaken
from tiny_models import saved, tiny_model

from imir_lens.checkpoints import save_checkpoint
from imir_lens.safe_torch import read_torch

EACH = 60
VARIANTS = Path(__file__).parents[1] / "data" / "variants"
ROOM = 1 << 28  # bytes beyond what the libraries take
HOSTILE: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 3, 2**31, 2**63, 10**30, 0.5, -0.0, 1e308, float("nan"), float("inf")),
    *("", "2", "silu", "../../etc/passwd", "\n", [], [1, 2], {}, {"rope_type": "default"}, [[]], {"a": {"b": []}}),
)


def _damaged(data: bytes, dice: np.random.Generator) -> bytes:
    kind = dice.integers(5)
    if kind == 0:
        return data[: dice.integers(len(data))]
    if kind == 1:
        return data + dice.bytes(100)
    flipped = bytearray(data)
    # Half of the time in the first bytes, where lengths, names and offsets are.
    reach = len(data) if kind == 2 else min(len(data), 2000)
    for place in dice.integers(reach, size=1 + dice.integers(8)):
        flipped[place] = dice.integers(256)
    return bytes(flipped)


def _hostile(content: dict[str, Any], dice: np.random.Generator) -> dict[str, Any]:
    changed = json.loads(json.dumps(content))
    for _ in range(1 + dice.integers(2)):
        key = list(changed)[dice.integers(len(changed))]
        changed[key] = HOSTILE[dice.integers(len(HOSTILE))]
    return changed


def _files(folder: Path) -> Iterator[tuple[str, str | None]]:
    """Write the files; yields a path, and a name map to read it with."""
    dice = np.random.default_rng(0)
    llama = saved(tiny_model("llama"), folder / "llama")
    gpt2 = saved(tiny_model("gpt2"), folder / "gpt2")
    hooked = folder / "hooked"
    hooked.mkdir()
    variant = read_torch((VARIANTS / "v39_gqa.pt").read_bytes(), name="v39_gqa.pt")
    save_checkpoint(hooked / "model.safetensors", variant["state_dict"], variant["cfg"])
    for kind, source in (("llama", llama), ("gpt2", gpt2), ("hooked", hooked)):
        weights, config = (source / "model.safetensors").read_bytes(), json.loads((source / "config.json").read_text())
        for number in range(EACH):
            for what in ("weights", "config"):
                place = folder / f"{kind}-{what}-{number}"
                place.mkdir()
                broken = what == "weights"
                (place / "model.safetensors").write_bytes(_damaged(weights, dice) if broken else weights)
                (place / "config.json").write_text(json.dumps(config if broken else _hostile(config, dice)))
                yield str(place), None
    saved_by_torch = (VARIANTS / "v39_rotary.pt").read_bytes()
    gguf = write_llama(tiny_model("llama"), folder / "good.gguf").read_bytes()
    nano = shaken(JointGPT(nano=True)).state_dict()
    torch.save({"model": nano, "model_args": {"n_head": 3}}, folder / "good.pt")
    plain = (folder / "good.pt").read_bytes()
    names = json.loads((Path(__file__).parents[2] / "imir_lens/sources/maps/nanogpt.json").read_text())
    for number in range(EACH):
        (folder / f"{number}.gguf").write_bytes(_damaged(gguf, dice))
        yield str(folder / f"{number}.gguf"), None
        (folder / f"hooked-{number}.pt").write_bytes(_damaged(saved_by_torch, dice))
        yield str(folder / f"hooked-{number}.pt"), None
        (folder / f"{number}.pt").write_bytes(_damaged(plain, dice))
        yield str(folder / f"{number}.pt"), None
        (folder / f"args-{number}.pt").parent.mkdir(exist_ok=True)
        torch.save(
            {"model": nano, "model_args": _hostile({"n_head": 3, "config": 1}, dice)}, folder / f"args-{number}.pt"
        )
        yield str(folder / f"args-{number}.pt"), None
        hostile = names | {"weights": _hostile(names["weights"], dice)} if number % 2 else _hostile(names, dice)
        (folder / f"names-{number}.json").write_text(json.dumps(hostile))
        yield str(folder / "good.pt"), str(folder / f"names-{number}.json")
        index = {"weight_map": _hostile({"a": "a.safetensors", "b": "b.safetensors"}, dice)}
        place = folder / f"index-{number}"
        place.mkdir()
        (place / "config.json").write_text((llama / "config.json").read_text())
        (place / "model.safetensors.index.json").write_text(json.dumps(_hostile(index, dice) if number % 3 else index))
        yield str(place), None


class _Touch:
    """Pickled, it would run a command when loaded."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.place}",)


_READER = """
import json, resource, sys, traceback
from imir_lens.checkpoints import load_transformer
from imir_lens.errors import ImirError
import torch
jobs, room = json.load(open(sys.argv[1])), int(sys.argv[2])
taken = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (taken + room, taken + room))
tokens = torch.arange(16)[None]
for path, names in jobs:
    try:
        model = load_transformer(path, names=names, overrides={} if names is None else {"n_heads": 3})
        said, fine = "loaded", True
        if model.cfg.n_ctx >= 16:
            model(tokens % model.cfg.d_vocab)
    except ImirError as error:
        said = str(error)
        fine = said.isprintable() and (path in said or (names or path) in said)
    except BaseException:
        said, fine = traceback.format_exc(), False
    print(json.dumps([path, names, fine, said]), flush=True)
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the memory of a process is read from /proc")
def test_five_hundred_broken_files_are_refused_in_one_line_within_bounded_memory(tmp_path: Path) -> None:
    jobs = list(_files(tmp_path))
    marker = tmp_path / "executed"
    for name in ("hostile.pt", "pytorch_model.bin"):
        (tmp_path / name).write_bytes(pickle.dumps({"model": _Touch(marker)}))
        jobs.append((str(tmp_path / name), None))
    assert len(jobs) >= 500
    (tmp_path / "jobs.json").write_text(json.dumps(jobs))
    done = subprocess.run(
        [sys.executable, "-c", _READER, tmp_path / "jobs.json", str(ROOM)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(jobs), done.stderr[-2000:]
    assert [answer for answer in answers if not answer[2]] == []
    assert not marker.exists()
    loaded = sum(answer[3] == "loaded" for answer in answers)
    # Some changes are harmless (an unused field, a flipped digit of a weight); most must have been noticed.
    assert 0 < loaded < len(jobs) / 2
