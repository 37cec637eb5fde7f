"""From what a spec says of a cell to all that the cell depends on, checked."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields
from reprlib import repr as short
from typing import Any

from imir_lens.analysis import check_options as check_analysis
from imir_lens.analysis import run_analysis
from imir_lens.errors import OptionError, TaskError, did_you_mean
from imir_lens.models.config import TransformerConfig
from imir_lens.models.limits import check_layers, check_numbers
from imir_lens.state_dicts import plain_config
from imir_lens.tasks.base import Task
from imir_lens.tasks.registry import make_task, task_class
from imir_lens.training.loop import check_fits, train
from imir_lens.training.loop import check_options as check_training
from imir_lens.training.recipes import default_recipe
from imir_lens.training.schedule import stages
from imir_lens.weights import require_supported

SECTIONS = ("task", "model", "train", "analysis")
_TRAINING = ("steps", "batch", "learning_rate", "weight_decay", "warmup", "curriculum", "evaluate_every", "seed")
_ANALYSIS = ("contexts", "budget", "seed", "bootstraps")
_REAL = ("learning_rate", "weight_decay", "budget")
Sections = Mapping[str, Mapping[str, Any]]


def known_keys(section: str, tasks: list[str]) -> list[str]:
    """Return the keys of a section of the spec.

    Args:
        section: one of SECTIONS.
        tasks: names of the tasks it may be about.

    Raises:
        TaskError: for an unknown task.
    """
    if section == "task":
        knobs = [f.name for name in tasks for f in fields(task_class(name))]
        return ["name", *dict.fromkeys(knobs)]
    if section == "model":
        return [f.name for f in fields(TransformerConfig) if f.name != "device"]
    return list(_TRAINING) if section == "train" else ["enabled", *_ANALYSIS]


def resolve(sections: Sections, *, device: str | None = None) -> dict[str, Any]:
    """Return all settings of a cell, defaults included, after checking that they can be run.

    Args:
        sections: `task` (its name and knobs), `model`, `train`, `analysis`.
        device: where to run; part of the settings, as results depend on it in their last digits.

    Returns:
        `task` (name, knobs), `model` (a config), `train` (options of `train`), `analysis` (options of `analyze`, or
        None), and `device` where one is given.

    Raises:
        ImirError: when anything does not fit; the message names the key.
    """
    for section, keys in sections.items():
        for key in keys:
            known = known_keys(section, [task_name(sections)])
            if key not in known:
                raise OptionError(unknown_key(f"{section}.{key}", [f"{section}.{one}" for one in known]))
    knobs = {key: value for key, value in sections["task"].items() if key != "name"}
    task = make_task(task_name(sections), **knobs)
    changes = {key: None if value == "none" else value for key, value in sections.get("model", {}).items()}
    recipe = default_recipe(task, **changes)
    config = plain_config(recipe.config.to_dict())
    check_layers(recipe.config.n_layers)
    check_numbers(recipe.config.n_numbers)
    check_fits(config, task)

    training = _options(train, _TRAINING, {**recipe.options, **sections.get("train", {})}, "train")
    training["curriculum"] = _curriculum(training["curriculum"], task)
    check_training(**{key: value for key, value in training.items() if key != "curriculum"})
    wanted = dict(sections.get("analysis", {}))
    analysis = None
    if _enabled(wanted.pop("enabled", True)):
        analysis = _options(run_analysis, _ANALYSIS, wanted, "analysis")
        check_analysis(**{key: value for key, value in analysis.items() if key != "seed"})
        check_training(steps=1, seed=analysis["seed"], learning_rate=1.0, weight_decay=0.0)
        require_supported(recipe.config)
    settings = {
        "task": {"name": task.name, "knobs": task.knobs},
        "model": {key: value for key, value in config.items() if key != "device"},
        "train": training,
        "analysis": analysis,
    }
    return settings if device is None else {**settings, "device": device}


def unknown_key(key: str, known: list[str]) -> str:
    """Return the error line for a key that does not exist."""
    return f"unknown key {key!r}; {did_you_mean(key, known)}"


def task_name(sections: Sections) -> str:
    """Return the name of the task; raises TaskError without one."""
    name = sections.get("task", {}).get("name")
    if not isinstance(name, str):
        raise TaskError(f"'task.name' is {short(name)}: expected the name of a task, as 'recall'")
    return name


def _options(function: Callable[..., Any], names: tuple[str, ...], given: Mapping[str, Any], section: str) -> Any:
    """Return the named options as given, or by default, of the right type."""
    defaults = inspect.signature(function).parameters
    values = {name: given.get(name, defaults[name].default) for name in names}
    return {name: _typed(value, f"{section}.{name}", real=name in _REAL) for name, value in values.items()}


def _typed(value: Any, key: str, *, real: bool) -> Any:
    if key == "train.curriculum":
        return value
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if real and number:
        return float(value)
    if not real and number and abs(value) < 2**62 and value == int(value):
        return int(value)
    raise OptionError(f"{key!r} is {short(value)}: expected a {'' if real else 'whole '}number")


def _enabled(value: Any) -> bool:
    if not isinstance(value, bool):
        raise OptionError(f"'analysis.enabled' is {short(value)}: expected true or false")
    return value


def _curriculum(given: Any, task: Task) -> list[list[Any]]:
    expected = "expected a list of [until, {knob = value}]"
    if not isinstance(given, list | tuple):
        raise OptionError(f"'train.curriculum' is {short(given)}: {expected}")
    for stage in given:
        pair = stage if isinstance(stage, list | tuple) and len(stage) == 2 else (None, None)
        if not isinstance(pair[0], int) or not isinstance(pair[1], Mapping):
            raise OptionError(f"'train.curriculum' has {short(stage)}: {expected}")
    stages(task, [(until, knobs) for until, knobs in given])
    return [[until, dict(knobs)] for until, knobs in given]
