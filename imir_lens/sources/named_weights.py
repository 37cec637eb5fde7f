"""Translating a plain PyTorch model with a name map."""

from collections.abc import Mapping
from reprlib import repr as short
from typing import Any

from einops import rearrange
from torch import Tensor

from imir_lens.errors import CheckpointError
from imir_lens.models.config import typed_field
from imir_lens.sources.name_maps import Entry, NameMap
from imir_lens.sources.zero_biases import with_zero_biases
from imir_lens.state_dicts import infer_config

_PREFIXES = ("_orig_mod.", "module.")  # what torch.compile and DistributedDataParallel put before every name


def without_prefixes(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return a state dict without the prefixes that wrappers of torch put before every name."""
    found = dict(state)
    while found and (prefix := next((p for p in _PREFIXES if all(name.startswith(p) for name in found)), None)):
        found = {name.removeprefix(prefix): value for name, value in found.items()}
    return found


def translate(
    state: Mapping[str, Tensor], names: NameMap, *, saved: Mapping[str, Any], known: Mapping[str, Any], name: str
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Translate a model's weights.

    Args:
        state: the weights under the model's own names.
        names: the map.
        saved: settings that the checkpoint holds, under its own names, perhaps nested.
        known: HookedTransformer config fields given by the user.
        name: the file's name, for messages.

    Returns:
        HookedTransformer's weights and config: sizes from shapes, the rest from the map, the file and the user.

    Raises:
        CheckpointError: when a weight of the map is missing, one of the model has no place, axes do not fit, or a
            field is in none of the places.
    """
    own = {target: _find(saved, source) for target, source in names.config_names.items()}
    known = {**names.config, **{key: value for key, value in own.items() if value is not None}, **known}
    lengths = _lengths(known)
    left, found = dict(state), {}
    layers = names.n_layers(state)
    for target, entry in names.weights.items():
        for layer in range(layers) if "{layer}" in target else (0,):
            source = entry.source.replace("{layer}", str(layer))
            left.pop(source, None)
            if source in state:
                weight = _turned(state[source], entry, source, lengths, name)
                found[target.replace("{layer}", str(layer))] = weight
            elif not entry.optional:
                raise CheckpointError(f"{name}: no weight {source!r}, which {names.title} asks for")
    if extra := [source for source in left if not names.ignores(source)]:
        raise CheckpointError(
            f"{name}: {names.title} says nothing about {extra[0]!r} ({len(extra)} such): name it under "
            "'weights' or 'ignore'"
        )
    settings = infer_config(found, known=known, name=name)
    return with_zero_biases(found, settings), settings


def _lengths(known: Mapping[str, Any]) -> dict[str, int]:
    lengths = {"one": 1, "two": 2, "three": 3}
    for axis, name in (("head", "n_heads"), ("kv_head", "n_key_value_heads")):
        count = typed_field(name, known.get(name), int)
        if count is not None and count < 1:
            raise CheckpointError(f"{name}={short(count)}: expected a positive whole number")
        if count is not None:
            lengths[axis] = count
    return lengths


def _turned(weight: Tensor, entry: Entry, source: str, lengths: Mapping[str, int], name: str) -> Tensor:
    if entry.axes is not None:
        axes = set(entry.axes.replace("(", " ").replace(")", " ").split())
        for axis, needed in (("head", "n_heads"), ("kv_head", "n_key_value_heads")):
            if axis in axes and axis not in lengths:
                raise CheckpointError(
                    f"{name}: {source!r} is split into heads, but nothing says how many there are: pass --model "
                    f"{needed}=… (in Python: overrides)"
                )
        try:
            weight = rearrange(weight, entry.axes, **{axis: lengths[axis] for axis in axes & set(lengths)})
        except (RuntimeError, ValueError, LookupError, ArithmeticError) as error:
            why = " ".join(str(error).split())
            raise CheckpointError(
                f"{name}: {source!r} of shape {list(weight.shape)} does not turn as {entry.axes!r} ({why})"
            ) from error
    if entry.pick is None:
        return weight
    if not weight.ndim or entry.pick >= len(weight):
        raise CheckpointError(f"{name}: {source!r} has no slice {entry.pick}: its shape is {list(weight.shape)}")
    return weight[entry.pick]


def _find(settings: Mapping[str, Any], key: str) -> Any:
    """Return a setting by name, from the top or from a section below."""
    if key in settings:
        return settings[key]
    sections = [section for section in settings.values() if isinstance(section, Mapping)]
    return next((section[key] for section in sections if key in section), None)
