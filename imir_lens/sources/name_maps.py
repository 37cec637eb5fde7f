"""Name maps: which weight of a plain PyTorch model is which weight of a HookedTransformer, and how its axes turn.

A map is a JSON file. Its `weights` go from HookedTransformer's names to the model's; `{layer}` stands for every layer:

    {"weights": {"embed.W_E": "tok.weight",
                 "blocks.{layer}.attn.W_Q": {"from": "layers.{layer}.qkv.weight",
                                             "axes": "(three head d_head) d_model -> three head d_model d_head",
                                             "pick": 0},
                 "blocks.{layer}.attn.b_Q": "layers.{layer}.q_bias?"},
     "config": {"normalization_type": "LN", "act_fn": "gelu"},
     "config_names": {"n_heads": "n_head"},
     "ignore": ["layers.{layer}.mask"]}

`axes` is an einops pattern, where `head`, `kv_head`, `one`, `two` and `three` have known lengths; `pick` then takes one
slice of the first axis. A name with `?` may be absent. Biases that are absent or that no line names are zero. `config`
gives config fields, `config_names` those that the checkpoint saves under names of its own. `ignore` lists what is no
weight, masks for example.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from imir_lens.errors import CheckpointError, did_you_mean
from imir_lens.sources.zero_biases import is_bias

SHIPPED = ("nanogpt", "mingpt", "mingpt_2020")
_LAYER = "{layer}"
Names = str | Path | Mapping[str, Any]
"""What says which weight is which: a shipped map's name, a JSON file, or what would be in it."""
_GIVEN = "the name map"  # one that comes as a dict has no name of its own
_KEYS = {"description", "weights", "config", "config_names", "ignore"}


@dataclass(frozen=True)
class Entry:
    """Where one weight comes from.

    Attributes:
        source: the model's name of it, perhaps with `{layer}`.
        axes: an einops pattern, or None to keep the axes.
        pick: the slice of the first axis to take, after that; None to take all.
        optional: the source may be absent.
    """

    source: str
    axes: str | None = None
    pick: int | None = None
    optional: bool = False


@dataclass(frozen=True)
class NameMap:
    """A map from HookedTransformer's weights to a model's; see the module.

    Attributes:
        name: what it is called in messages.
        weights: target → source.
        config: config fields that hold for all such models.
        config_names: HookedTransformer's config field → the name under which checkpoints save it.
        ignore: names without a target, perhaps with `{layer}`.
    """

    name: str
    weights: dict[str, Entry]
    config: dict[str, Any] = field(default_factory=dict)
    config_names: dict[str, str] = field(default_factory=dict)
    ignore: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """What messages call it."""
        return self.name if self.name == _GIVEN else f"the name map {self.name}"

    def n_layers(self, names: Mapping[str, Any]) -> int:
        """Return the number of layers that a model's names count: one more than the highest."""
        patterns = [pattern_of(entry.source) for entry in self.weights.values() if _LAYER in entry.source]
        found = [int(match[1]) for pattern in patterns for match in map(pattern.fullmatch, names) if match]
        return 1 + max(found, default=-1)

    def ignores(self, name: str) -> bool:
        """Whether a name is known to be no weight."""
        return any(pattern_of(pattern).fullmatch(name) for pattern in self.ignore)


def pattern_of(name: str) -> re.Pattern[str]:
    """Return the pattern of a name in which `{layer}` stands for a number."""
    return re.compile(re.escape(name).replace(re.escape(_LAYER), r"(\d{1,9})", 1).replace(re.escape(_LAYER), r"\1"))


def read_name_map(source: Names) -> NameMap:
    """Return a map that is shipped (`nanogpt`, `mingpt`, `mingpt_2020`), that of a JSON file, or what one would hold.

    Raises:
        CheckpointError: when there is no such map, or it is not in the form that the module describes.
    """
    if isinstance(source, Mapping):
        return _parse(dict(source), _GIVEN)
    if str(source) in SHIPPED:
        text = (files("imir_lens.sources") / "maps" / f"{source}.json").read_text(encoding="utf-8")
        return _parse(json.loads(text), str(source))
    try:
        content = json.loads(Path(source).read_bytes())
    except FileNotFoundError:
        raise CheckpointError(
            f"{source}: no such name map: expected a JSON file; {did_you_mean(str(source), SHIPPED)}"
        ) from None
    except OSError as error:
        raise CheckpointError(f"{source}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{source}: not valid JSON ({error}): expected a name map") from error
    return _parse(content, str(source))


def recognise(state: Mapping[str, Any]) -> NameMap | None:
    """Return the shipped map that a model's names and shapes fit, or None.

    nanoGPT and minGPT have the same names; nanoGPT ties its unembedding to its embedding.
    """
    joint = state.get("transformer.h.0.attn.c_attn.weight")
    embedding, unembedding = state.get("transformer.wte.weight"), state.get("lm_head.weight")
    if joint is not None and embedding is not None and unembedding is not None:
        if joint.ndim != 2 or joint.shape[0] != 3 * joint.shape[1]:
            return None  # Hugging Face's GPT-2: the same names, the other way round
        tied = embedding.shape == unembedding.shape and bool((embedding == unembedding).all())
        return read_name_map("nanogpt" if tied else "mingpt")
    if {"tok_emb.weight", "pos_emb", "blocks.0.attn.key.weight", "head.weight"} <= set(state):
        return read_name_map("mingpt_2020")
    return None


def _parse(content: Any, name: str) -> NameMap:
    weights = content.get("weights") if isinstance(content, dict) else None
    if not isinstance(weights, dict) or not weights:
        raise CheckpointError(f"{name}: not a name map: expected an object with 'weights', from target to source names")
    if not all(isinstance(key, str) for key in [*content, *weights]):
        raise CheckpointError(f"{name}: a key is no text: expected names only")
    if unknown := sorted(set(content) - _KEYS):
        raise CheckpointError(f"{name}: {unknown[0]!r} is no part of a name map; {did_you_mean(unknown[0], _KEYS)}")
    config, config_names = content.get("config", {}), content.get("config_names", {})
    ignore = content.get("ignore", [])
    for key, value, expected in (
        ("config", config, dict),
        ("config_names", config_names, dict),
        ("ignore", ignore, list),
    ):
        if not isinstance(value, expected):
            raise CheckpointError(f"{name}: {key!r} is a {type(value).__name__}: expected a {expected.__name__}")
    if not all(isinstance(part, str) for part in [*ignore, *config_names.values()]):
        raise CheckpointError(f"{name}: 'ignore' and 'config_names' hold names: expected texts only")
    entries = {target: _entry(value, target, name) for target, value in weights.items()}
    return NameMap(name, entries, config, config_names, tuple(ignore))


def _entry(value: Any, target: str, name: str) -> Entry:
    given = {"from": value} if isinstance(value, str) else value
    if not isinstance(given, dict) or not isinstance(given.get("from"), str) or set(given) - {"from", "axes", "pick"}:
        raise CheckpointError(
            f"{name}: {target!r}: expected the source's name, or an object with 'from' and perhaps 'axes' and 'pick'"
        )
    source, axes, pick = given["from"], given.get("axes"), given.get("pick")
    if not (axes is None or isinstance(axes, str)) or not (pick is None or (type(pick) is int and pick >= 0)):
        raise CheckpointError(f"{name}: {target!r}: expected 'axes' to be a text and 'pick' a number from 0")
    if (_LAYER in target) != (_LAYER in source):
        raise CheckpointError(f"{name}: {target!r} and {source!r}: expected {_LAYER} in both names or in none")
    optional = source.endswith("?")
    if optional and not is_bias(target):
        raise CheckpointError(f"{name}: {target!r} is no bias, so its source {source!r} cannot be optional")
    return Entry(source.removesuffix("?"), axes, pick, optional)
