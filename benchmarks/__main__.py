"""`python -m benchmarks [NAME …] [--small] [--no-store]`; the names are those of `BENCHMARKS`."""

import sys

import torch

from benchmarks import (
    atlas,
    batched,
    causal,
    competition,
    confinement,
    coordinate_training,
    detection,
    elimination,
    emergence,
    initialisation,
    planted,
    pruning,
    sampling,
    stability,
    surrogate_forward,
    trained,
    trajectory,
)
from benchmarks.measure import record
from benchmarks.partial import PartialRows

BENCHMARKS = {
    "detection": detection.run,
    "surrogate_forward": surrogate_forward.run,
    "elimination": elimination.run,
    "sampling": sampling.run,
    "planted": planted.run,
    "stability": stability.run,
    "trained": trained.run,
    "causal": causal.run,
    "atlas": atlas.run,
    "batched": batched.run,
    "coordinate_training": coordinate_training.run,
    "pruning": pruning.run,
    "confinement": confinement.run,
    "initialisation": initialisation.run,
    "competition": competition.run,
    "trajectory": trajectory.run,
    "emergence": emergence.run,
}
# How to sum up a benchmark whose rows are too many to print.
TABLES = {
    "planted": planted.tables,
    "stability": stability.tables,
    "trained": trained.tables,
    "causal": causal.tables,
    "atlas": atlas.tables,
    "batched": batched.tables,
    "coordinate_training": coordinate_training.tables,
    "pruning": pruning.tables,
    "initialisation": initialisation.tables,
    "confinement": confinement.tables,
    "competition": competition.tables,
    "trajectory": trajectory.tables,
    "emergence": emergence.tables,
}
_SEED = 0


def main(arguments: list[str]) -> int:
    """Run the named benchmarks (default: all) and store their results."""
    options = {word for word in arguments if word.startswith("--")}
    names = [word for word in arguments if not word.startswith("--")] or list(BENCHMARKS)
    unknown = [word for word in names if word not in BENCHMARKS] + sorted(options - {"--small", "--no-store"})
    if unknown:
        sys.stderr.write(f"unknown: {unknown[0]!r}; benchmarks: {', '.join(BENCHMARKS)}; --small, --no-store\n")
        return 2
    torch.set_num_threads(1)
    small = "--small" in options
    for name in names:
        command = " ".join(["OMP_NUM_THREADS=1 python -m benchmarks", name, *sorted(options - {"--no-store"})])
        rows = BENCHMARKS[name](small=small, seed=_SEED)
        tables = TABLES[name](rows) if name in TABLES else None
        store = not small and "--no-store" not in options
        record(name, rows, command=command, seed=_SEED, tables=tables, store=store)
        if store:
            PartialRows.of(name).done()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
