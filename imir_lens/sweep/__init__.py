"""Many experiments: a grid or random settings, over processes, Dask or SLURM, with all results in one file.

Importing this package does not import torch: the names below are loaded on first use.
"""

from typing import TYPE_CHECKING

from imir_lens.lazy_names import lazy_names

if TYPE_CHECKING:
    from imir_lens.sweep.cells import Cell, make_cells
    from imir_lens.sweep.run import Summary, run_sweep
    from imir_lens.sweep.runner import Finished
    from imir_lens.sweep.spec import Spec, read_spec
    from imir_lens.sweep.tables import frame, results, write_table

_HOMES = {
    "Cell": "cells",
    "Finished": "runner",
    "Spec": "spec",
    "Summary": "run",
    "frame": "tables",
    "make_cells": "cells",
    "read_spec": "spec",
    "results": "tables",
    "run_sweep": "run",
    "write_table": "tables",
}
__all__ = [
    "Cell",
    "Finished",
    "Spec",
    "Summary",
    "frame",
    "make_cells",
    "read_spec",
    "results",
    "run_sweep",
    "write_table",
]

__getattr__ = lazy_names(__name__, _HOMES)
