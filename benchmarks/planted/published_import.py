"""Importing AutoCircuit (Miller, Chughtai, Saunders 2024), the package `auto-circuit`, beside any TransformerLens.

It imports names that TransformerLens 4 no longer has. It makes little use of them: it asks whether a model is a
HookedTransformer, and the key-value cache is there for prompts with a common start, which no planted task has. While
it is being imported, stand-ins take their places; afterwards TransformerLens is as it was.
"""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from types import ModuleType
from typing import Any

import transformer_lens

# Those of its requirements that the functions used here import; the rest (jax, tracr, word2word, …) they do without.
NEEDED = ("auto-circuit", "blobfile", "ordered-set", "plotly")
_MISSING = object()


@dataclass(frozen=True)
class AutoCircuit:
    """What is used of the package.

    Attributes:
        patchable_model: wraps a model so that its edges can be cut.
        batch: the class of a batch of prompts with their corrupted partners.
        mask_gradient: scores edges by gradients of their masks.
        acdc: scores edges by ACDC.
    """

    patchable_model: Any
    batch: Any
    mask_gradient: Any
    acdc: Any


def installed() -> bool:
    """Whether the package is here, with the few others it needs."""
    try:
        for name in NEEDED:
            distribution(name)
    except PackageNotFoundError:
        return False
    return True


def import_auto_circuit(model_class: type) -> AutoCircuit:
    """Import it.

    Args:
        model_class: the class that it is to take for HookedTransformer.
    """
    with _stand_ins(model_class):
        graph_utils = importlib.import_module("auto_circuit.utils.graph_utils")
        data = importlib.import_module("auto_circuit.data")
        mask_gradient = importlib.import_module("auto_circuit.prune_algos.mask_gradient")
        acdc = importlib.import_module("auto_circuit.prune_algos.ACDC")
        progress = importlib.import_module("auto_circuit.utils.custom_tqdm")
    progress.tqdm.keywords["disable"] = True  # it would draw a bar for every threshold and every edge
    return AutoCircuit(
        graph_utils.patchable_model,
        data.PromptPairBatch,
        mask_gradient.mask_gradient_prune_scores,
        acdc.acdc_prune_scores,
    )


@contextmanager
def _stand_ins(model_class: type) -> Iterator[None]:
    cache_class = type("HookedTransformerKeyValueCache", (), {})
    names: dict[str, Any] = {"HookedTransformer": model_class, "HookedTransformerKeyValueCache": cache_class}
    modules = {
        f"transformer_lens.{name}": ModuleType(f"transformer_lens.{name}")
        for name in ("HookedTransformer", "past_key_value_caching")
    }
    for module in modules.values():
        vars(module).update(names)
    with _replaced(vars(transformer_lens), names), _replaced(sys.modules, modules):
        yield


@contextmanager
def _replaced(place: dict[str, Any], values: dict[str, Any]) -> Iterator[None]:
    before = {name: place.get(name, _MISSING) for name in values}
    place.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is _MISSING:
                del place[name]
            else:
                place[name] = value
