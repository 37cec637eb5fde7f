"""`python -m benchmarks [detection] [surrogate_forward] [elimination] [sampling] [--small] [--no-store]`."""

import sys

import torch

from benchmarks import detection, elimination, sampling, surrogate_forward
from benchmarks.measure import record

BENCHMARKS = {
    "detection": detection.run,
    "surrogate_forward": surrogate_forward.run,
    "elimination": elimination.run,
    "sampling": sampling.run,
}


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
        rows = BENCHMARKS[name](small=small, seed=0)
        record(name, rows, command=command, store=not small and "--no-store" not in options)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
