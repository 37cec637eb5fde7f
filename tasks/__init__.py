"""Tasks with a known optimal answer: samplers, their symmetry, and the circuit that solves them.

Importing this package and listing the names does not import torch.
"""

from typing import TYPE_CHECKING

from imir_lens.lazy_names import lazy_names
from imir_lens.tasks.registry import causal_task, make_task, parse_knobs, register, task_class, task_names

if TYPE_CHECKING:
    from imir_lens.tasks.base import Batch, Task
    from imir_lens.tasks.block_form import BlockForm, Link
    from imir_lens.tasks.block_list import BlockListTask
    from imir_lens.tasks.causal_tree import CausalTree
    from imir_lens.tasks.copy import Copy
    from imir_lens.tasks.episodes import CausalTask, Episodes
    from imir_lens.tasks.fixed_graph import FixedGraph
    from imir_lens.tasks.hop import Hop
    from imir_lens.tasks.inversion import Inversion
    from imir_lens.tasks.ioi import Ioi
    from imir_lens.tasks.lag_chain import LagChain
    from imir_lens.tasks.linear_dynamics import LinearDynamics
    from imir_lens.tasks.ngram import Ngram
    from imir_lens.tasks.recall import Recall
    from imir_lens.tasks.repeated import Repeated
    from imir_lens.tasks.retrieval import Retrieval

__all__ = [
    "Batch",
    "BlockForm",
    "BlockListTask",
    "CausalTask",
    "CausalTree",
    "Copy",
    "Episodes",
    "FixedGraph",
    "Hop",
    "Inversion",
    "Ioi",
    "LagChain",
    "LinearDynamics",
    "Link",
    "Ngram",
    "Recall",
    "Repeated",
    "Retrieval",
    "Task",
    "causal_task",
    "make_task",
    "parse_knobs",
    "register",
    "task_class",
    "task_names",
]

_HOMES = {
    "Batch": "base",
    "BlockForm": "block_form",
    "BlockListTask": "block_list",
    "CausalTask": "episodes",
    "CausalTree": "causal_tree",
    "Copy": "copy",
    "Episodes": "episodes",
    "FixedGraph": "fixed_graph",
    "Hop": "hop",
    "Inversion": "inversion",
    "Ioi": "ioi",
    "LagChain": "lag_chain",
    "LinearDynamics": "linear_dynamics",
    "Link": "block_form",
    "Ngram": "ngram",
    "Recall": "recall",
    "Repeated": "repeated",
    "Retrieval": "retrieval",
    "Task": "base",
}

__getattr__ = lazy_names(__name__, _HOMES)
