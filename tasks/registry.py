"""Tasks by name. Listing them imports nothing heavy: a built-in task's module is imported when it is asked for."""

from collections.abc import Iterable
from dataclasses import fields
from importlib import import_module
from reprlib import repr as short
from types import NoneType
from typing import TYPE_CHECKING, Any, get_args

from imir_lens.errors import TaskError, did_you_mean

if TYPE_CHECKING:
    import imir_lens.tasks.base
    import imir_lens.tasks.episodes

MOST_TOKENS = 1_000_000
MOST_POSITIONS = 8_192
# Each is registered by the module of its name.
BUILT_IN = (
    "recall",
    "hop",
    "inversion",
    "retrieval",
    "ngram",
    "ioi",
    "copy",
    "repeated",
    "causal_tree",
    "lag_chain",
    "fixed_graph",
)
# Episodes of vectors have no vocabulary: they are no `Task`, and only `causal_task` makes them.
OF_VECTORS = {"linear_dynamics": "LinearDynamics"}
_classes: "dict[str, type[imir_lens.tasks.base.Task]]" = {}
_BOOL = {"true": True, "false": False, True: True, False: False}


def register(cls: "type[imir_lens.tasks.base.Task]") -> "type[imir_lens.tasks.base.Task]":
    """Class decorator: make a task known by its `name`; raises TaskError when the name is taken."""
    if cls.name in _classes or (cls.name in BUILT_IN and cls.__module__ != f"imir_lens.tasks.{cls.name}"):
        raise TaskError(f"a task {cls.name!r} is already registered; give {cls.__qualname__} another name")
    _classes[cls.name] = cls
    return cls


def task_names() -> list[str]:
    """Return the names of all tasks of tokens."""
    return [*BUILT_IN, *(name for name in _classes if name not in BUILT_IN)]


def task_class(name: str) -> "type[imir_lens.tasks.base.Task]":
    """Return the class of a task of tokens; raises TaskError for an unknown name, or a task of vectors."""
    cls: Any = any_task_class(name)
    if name in OF_VECTORS:
        raise TaskError(f"task {name!r} has vectors, not tokens: expected one of {', '.join(task_names())}")
    return cls


def any_task_class(
    name: str,
) -> "type[imir_lens.tasks.base.Task] | type[imir_lens.tasks.episodes.CausalTask]":
    """Return the class of a task, of tokens or of vectors; raises TaskError for an unknown name."""
    if name in OF_VECTORS:
        return getattr(import_module(f"imir_lens.tasks.{name}"), OF_VECTORS[name])
    if name not in task_names():
        raise TaskError(f"unknown task {name!r}; {did_you_mean(name, [*task_names(), *OF_VECTORS])}")
    if name not in _classes:
        import_module(f"imir_lens.tasks.{name}")
    return _classes[name]


def make_task(name: str, **knobs: Any) -> "imir_lens.tasks.base.Task":
    """Return a task with some knobs set.

    Raises:
        TaskError: for an unknown task or knob, a value that does not fit, or a task too large to be sampled.
    """
    task = task_class(name)(**_typed(name, knobs))
    _check_size(task)
    return task


def causal_task(name: str, **knobs: Any) -> "imir_lens.tasks.episodes.CausalTask":
    """Return a task of episodes, of tokens or of vectors, with some knobs set.

    Raises:
        TaskError: as for `make_task`, and for a task without episodes.
    """
    from imir_lens.tasks.base import Task
    from imir_lens.tasks.episodes import CausalTask

    task: Any = any_task_class(name)(**_typed(name, knobs))
    if not isinstance(task, CausalTask):
        raise TaskError(f"task {name!r} has no hidden causal graph: expected one like causal_tree")
    if isinstance(task, Task):
        _check_size(task)
    return task


def _check_size(task: "imir_lens.tasks.base.Task") -> None:
    for what, size, most in (("tokens", task.d_vocab, MOST_TOKENS), ("positions", task.n_positions, MOST_POSITIONS)):
        if size > most:
            raise TaskError(f"task {task.name!r} with these knobs has {short(size)} {what}: expected at most {most:,}")


def parse_knobs(name: str, assignments: Iterable[str]) -> dict[str, Any]:
    """Read `["vocab=65", "f_r=0"]` as values of the knobs' types; raises TaskError when one does not fit."""
    pairs = [text.partition("=") for text in assignments]
    for text in ("".join(pair) for pair in pairs if not (pair[0] and pair[2])):
        raise TaskError(f"{text!r} is not a knob setting: expected KNOB=VALUE, e.g. 'vocab=65'")
    return _typed(name, {knob.strip(): value.strip() for knob, _, value in pairs})


def _typed(name: str, knobs: dict[str, Any]) -> dict[str, Any]:
    known = {f.name: get_args(f.type) or (f.type,) for f in fields(any_task_class(name))}  # type: ignore[arg-type]
    typed = dict(knobs)
    for knob, value in knobs.items():
        if knob not in known:
            raise TaskError(f"task {name!r} has no knob {knob!r}; {did_you_mean(knob, known)}")
        if NoneType in known[knob] and value in (None, "none"):
            typed[knob] = None
            continue
        kind = known[knob][0]
        try:
            typed[knob] = _BOOL[value] if kind is bool else kind(value)
        except (TypeError, ValueError, KeyError, OverflowError):
            typed[knob] = None
        if typed[knob] is None or (typed[knob] != value and not isinstance(value, str)):
            raise TaskError(f"knob {knob!r} of task {name!r} takes {kind.__name__}; found {value!r}")
    return typed
