"""Small sweeps and what the tests ask of them."""

from pathlib import Path

from sweep_cells import calls

from imir_lens.sweep import make_cells, results, run_sweep

HERE = str(Path(__file__).parent)
SPEC = """
[task]
name = "recall"
vocab = 9
pairs = 2
length = 7

[model]
d_model = 8
d_head = 4

[train]
steps = 20
batch = 16
warmup = 5
evaluate_every = 12

[analysis]
contexts = 48
bootstraps = 0

[sweep]
kind = "grid"

[sweep.axes]
"train.seed" = [0, 1]
"train.learning_rate" = [0.01, 0.003]
"""


def cells_of(name, settings):
    return make_cells(settings, f"sweep_cells:{name}")


def squares(*numbers, **more):
    return cells_of("square", [{"x": x, **more} for x in numbers])


def run(cells, directory, **options):
    return run_sweep(cells, directory, **{"workers": 2, "beside": HERE, **options})


def calls_by_cell(cells, directory):
    return [calls(directory / "cells" / cell.hash) for cell in cells]


def found(directory):
    """The results without what differs from run to run."""
    varying = ("seconds", "started", "worker", "result.seconds", "result.process", "error_traceback")
    return [{k: v for k, v in row.items() if not k.startswith(varying)} for row in results(directory)]


def write_spec(folder, text=SPEC):
    file = folder / "spec.toml"
    file.write_text(text)
    return file
