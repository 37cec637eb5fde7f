"""The planted models: what to build, and how."""

from dataclasses import asdict, dataclass
from functools import lru_cache

import torch

from benchmarks.planted.families import FAMILIES, Family
from benchmarks.planted.graph import EdgeGraph, Truth, heads_of
from benchmarks.planted.placement import Stages, place_chains
from benchmarks.planted.widen import widen
from imir_lens.errors import OptionError
from imir_lens.ids import CoordinateId, Head, Path
from imir_lens.models.constructions import plant
from imir_lens.models.transformer import ImirTransformer
from imir_lens.tasks.base import Task

LAYERS, HEADS, WIDTHS, NOISES = (2, 3, 4, 5), (1, 2, 3, 4), (64, 128, 256, 512), (0.0, 0.05, 0.1, 0.2)
# none: all other heads are zero. In all that follow they are random, as in a fresh model.
# unread: a previous-token head and a head that matches through the circuit's own (or that one), which nothing reads.
# auxiliary: embeddings have random parts in directions of their own.
# backup: a second circuit that is sufficient alone, and belongs to the truth.
DECOYS = ("none", "random", "unread", "auxiliary", "backup")


@dataclass(frozen=True)
class Spec:
    """One planted model to be: all that determines it."""

    family: str
    n_layers: int
    n_heads: int
    d_model: int
    noise: float
    decoy: str
    seed: int

    def as_dict(self) -> dict[str, object]:
        """Return the fields by name."""
        return asdict(self)


@dataclass(frozen=True)
class Planted:
    """A model whose circuit is known."""

    spec: Spec
    task: Task
    circuit: dict[str, float]
    truth: Truth
    graph: EdgeGraph
    model: ImirTransformer


@dataclass(frozen=True)
class _Plan:
    """What is planted where, at any width; `tasks` are the family's sizes, each with the least width it needs."""

    circuit: dict[str, float]
    unread: dict[str, float]
    random_heads: frozenset[Head]
    tasks: tuple[tuple[Task, int], ...]

    def task(self, d_model: int) -> Task | None:
        """Return the largest task that fits a width."""
        return next((task for task, least in self.tasks if least <= d_model), None)


def build(spec: Spec) -> Planted:
    """Build one model; the same spec gives the same model.

    Raises:
        OptionError: when the circuit, its decoys or their width do not fit the shape.
    """
    plan = _plan_of(spec)
    task = plan and plan.task(spec.d_model)
    if plan is None or task is None:
        raise OptionError(f"{spec} does not fit: too few layers or heads for its parts, or too narrow")
    generator = torch.Generator().manual_seed(spec.seed)
    shape = {"n_layers": spec.n_layers, "n_heads": spec.n_heads}
    narrow = plant(task, plan.circuit | plan.unread, **shape, rotate=False, generator=generator)
    model = widen(
        narrow,
        spec.d_model,
        random_heads=plan.random_heads,
        auxiliary=spec.decoy == "auxiliary",
        noise=spec.noise,
        generator=generator,
    ).eval()
    return Planted(spec, task, plan.circuit, Truth.of(plan.circuit), EdgeGraph(**shape), model)


def fits(spec: Spec) -> bool:
    """Whether a spec can be built."""
    plan = _plan_of(spec)
    return plan is not None and plan.task(spec.d_model) is not None


def _plan_of(spec: Spec) -> _Plan | None:
    return _plan(spec.family, spec.n_layers, spec.n_heads, spec.decoy, spec.seed)


@lru_cache(maxsize=8)  # the design asks for every width in turn
def _plan(name: str, n_layers: int, n_heads: int, decoy: str, seed: int) -> _Plan | None:
    family = FAMILIES[name]
    chains = [family.parts, _second_parts(family, decoy)]
    generator = torch.Generator().manual_seed(seed)
    placed = place_chains(chains, n_layers=n_layers, n_heads=n_heads, generator=generator)
    if placed is None:
        return None
    first, other = placed
    circuit = family.circuit({part: str(head) for part, head in first.items()})
    unread: dict[str, float] = {}
    if decoy == "backup":
        circuit |= (family.backup or family).circuit({part: str(head) for part, head in other.items()})
    elif decoy == "unread":
        unread = _unread(first.get("alpha", first.get("alpha_1")), **other)
    ids = [CoordinateId.parse(text) for text in circuit | unread]
    others = frozenset(EdgeGraph(n_layers, n_heads).heads) - {head for name in ids for head in heads_of(name)}
    tasks = tuple((task, _least_width(task, ids) + (decoy == "auxiliary")) for task in family.tasks())
    return _Plan(circuit, unread, frozenset() if decoy == "none" else others, tasks)


def _least_width(task: Task, ids: list[CoordinateId]) -> int:
    """Return the width of `plant`: every content that is read, and its prefixes, has dimensions of its own."""
    tokens, positions = {Path()}, {Path()}
    for name in ids:
        read = tokens if name.offset is None else positions
        read |= {Path(path.heads[:depth]) for path in name.paths for depth in range(len(path.heads) + 1)}
    return len(tokens) * task.d_vocab + len(positions) * task.n_positions


def _second_parts(family: Family, decoy: str) -> Stages:
    if decoy == "backup":
        return (family.backup or family).parts
    return (("previous",), ("match",)) if decoy == "unread" else ()


def _unread(alpha: Head | None, *, previous: Head, match: Head) -> dict[str, float]:
    """Coordinates of heads that look right; the zeros make them write what they attend to, where nothing reads it."""
    copied = alpha if alpha is not None and alpha.layer < match.layer else previous
    return {
        f"{previous}/score/q:res/k:res/offset+1": 4.0,
        f"{match}/score/q:res/k:{copied}/same": 60.0,
        f"{match}/score/q:res/k:res/same": -20.0,
        f"readout/via:{previous}/same": 0.0,
        f"readout/via:{match}/same": 0.0,
    }
