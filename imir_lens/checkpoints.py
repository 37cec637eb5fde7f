"""Loading checkpoints of any format as HookedTransformer-format weights, and saving them, safely.

A checkpoint is a `.pt`/`.pth` file, a `.safetensors` with its `config.json`, a `.gguf` file, a run directory (its last
step), or a directory with `config.json` and weights, HookedTransformer's or Hugging Face's. Nothing in a file is ever
executed; see `imir_lens.safe_torch`. No network is used.
"""

import glob
import io
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from imir_lens import checkpoint_files
from imir_lens.errors import CheckpointError, ImirError, OptionError
from imir_lens.models.config import TransformerConfig
from imir_lens.models.disentangled import DisentangledTransformer
from imir_lens.models.disentangled_config import DisentangledConfig, is_disentangled
from imir_lens.models.state import check_shapes, split_buffers
from imir_lens.models.transformer import ImirTransformer
from imir_lens.safe_torch import read_torch
from imir_lens.sources.gguf_file import read_gguf
from imir_lens.sources.hugging_face import convert
from imir_lens.sources.name_maps import Names
from imir_lens.sources.translation import hooked_transformer_format
from imir_lens.sources.weight_files import read_weights, sha256_of
from imir_lens.state_dicts import CONFIG_KEYS, STATE_KEYS, check_state, plain_config, split_payload


@dataclass(frozen=True)
class Checkpoint:
    """Weights with their config.

    Attributes:
        state_dict: the weights on the CPU, with HookedTransformer's names and shapes.
        config: HookedTransformer's config fields, as JSON values.
        source: the path as it was given.
        sha256: of the file that holds the tensors.
        step: the training step, when the file or its name tells it.
        extra: whatever else was saved (optimizer state and the like).
    """

    state_dict: dict[str, Tensor]
    config: dict[str, Any]
    source: str
    sha256: str
    step: int | None = None
    extra: dict[str, Any] = field(default_factory=dict)


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Put a file's name in front of an error raised inside that does not have it."""
    try:
        yield
    except ImirError as error:
        if name in str(error):
            raise
        raise type(error)(f"{name}: {error}") from error


def load_checkpoint(
    path: str | Path,
    *,
    config: str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    names: Names | None = None,
) -> Checkpoint:
    """Load a checkpoint without executing anything in it.

    The config is, in this order: `config`; what the file holds under `cfg` or `config`; `config.json` beside the file;
    what a bare state dict's shapes tell. `overrides` replaces single fields of it. Weights of a Hugging Face model
    (GPT-2, GPT-NeoX, Llama, Mistral), of a GGUF file, of nanoGPT or minGPT, or of a model for which there is a name map
    are translated; rotary positions then get tables for 2,048 tokens at most, unless `overrides` gives another `n_ctx`.

    Args:
        path: a `.pt`, `.pth`, `.bin`, `.safetensors` or `.gguf` file, a run directory, or a directory with
            `config.json`.
        config: a JSON file with HookedTransformer's config fields, or a Hugging Face model's `config.json`.
        overrides: config fields by name; text such as "2", "True" or "None" is read as its value.
        names: a name map (`imir_lens.sources.name_maps`) for a plain PyTorch model: a JSON file, a dict of what would
            be in it, or `nanogpt`, `mingpt` or `mingpt_2020`, which are also recognised by their names.

    Returns:
        The checkpoint.

    Raises:
        CheckpointError: when the file is missing, damaged, unsafe, not a checkpoint, or its config is unknown; one
            line with the file's name.
        UnsupportedModelError: for a model of a kind or with a feature that is not covered, or a bridge whose flags
            contradict what it computes.
    """
    if not str(path):
        raise CheckpointError("the checkpoint's path is empty: expected a file or a directory")
    file = checkpoint_files.resolve(Path(path))
    known = {key: _typed(value) for key, value in (overrides or {}).items()}
    if file.suffix == ".gguf":
        return _load_gguf(file, source=str(path), config=config, known=known)
    name = str(file)
    payload, digest = read_weights(file)
    state, saved, extra = split_payload(payload, name=name)
    weights = check_state(state, name=name)
    beside = file.parent / "config.json"
    if config is not None:
        saved = checkpoint_files.read_config(Path(config))
    elif saved is None and beside.exists():
        saved = checkpoint_files.read_config(beside)
    with naming(name):
        weights, settings = hooked_transformer_format(
            weights, saved, known=known, more=extra, names=names, trusted=config is not None, name=name
        )
    step = extra.pop("step", extra.get("iter_num", checkpoint_files.step_of(file)))
    return Checkpoint(weights, settings, str(path), digest, step if isinstance(step, int) else None, extra)


def _load_gguf(file: Path, *, source: str, config: str | Path | None, known: Mapping[str, Any]) -> Checkpoint:
    if config is not None:
        raise CheckpointError(f"{file}: a GGUF file has its config inside: leave out {config}")
    state, inside = read_gguf(file)
    with naming(str(file)):
        weights, settings = convert(check_state(state, name=str(file)), inside, overrides=known)
    return Checkpoint(weights, settings, source, sha256_of(file), checkpoint_files.step_of(file))


def load_transformer(
    path: str | Path,
    *,
    config: str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    names: Names | None = None,
) -> ImirTransformer | DisentangledTransformer:
    """Load a checkpoint as a model, in eval mode on the CPU.

    Args:
        path: as in `load_checkpoint`.
        config: as in `load_checkpoint`.
        overrides: as in `load_checkpoint`.
        names: as in `load_checkpoint`.

    Returns:
        The model: a DisentangledTransformer when the config says so, else an ImirTransformer.

    Raises:
        CheckpointError: as `load_checkpoint`; also when shapes contradict the config.
        UnsupportedModelError: when the config asks for something that is not implemented.
    """
    return transformer_from(load_checkpoint(path, config=config, overrides=overrides, names=names))


def transformer_from(checkpoint: Checkpoint) -> ImirTransformer | DisentangledTransformer:
    """Build the model of a loaded checkpoint; errors as in `load_transformer`.

    A config may lie about sizes: shapes are compared with a model on the device "meta" before memory is taken.
    """
    state = checkpoint.state_dict
    with naming(checkpoint.source):
        if is_disentangled(checkpoint.config):
            shape = DisentangledConfig.from_dict(checkpoint.config)
            with torch.device("meta"):
                check_shapes(state, DisentangledTransformer(shape).state_dict())
            disentangled = DisentangledTransformer(shape)
            disentangled.load_checked_state(state)
            return disentangled.eval()
        config = TransformerConfig.from_dict(checkpoint.config)
        with torch.device("meta"):
            check_shapes(split_buffers(state)[0], dict(ImirTransformer(config).named_parameters()))
        model = ImirTransformer(config)
        model.load_transformer_lens_state(state)
    return model.eval()


def checkpoint_series(path: str | Path) -> list[tuple[int, Path]]:
    """Return the numbered checkpoints of a training run, sorted by step.

    Args:
        path: a run directory, or a pattern such as `runs/*/step_*.pt` or `run/checkpoint-*`; a checkpoint is a file, or
            a directory with `config.json` and weights.

    Raises:
        CheckpointError: when there is no such directory, or no checkpoint with a step in its name.
    """
    folder = Path(path)
    if not folder.is_dir() and glob.has_magic(str(path)):
        if found := checkpoint_files.numbered(map(Path, glob.glob(str(path), recursive=True))):
            return found
        raise CheckpointError(f"{path}: no numbered checkpoint matches: expected names such as step_00001000.pt")
    if not folder.is_dir():
        raise CheckpointError(f"{path}: expected a run directory, found {'a file' if folder.exists() else 'nothing'}")
    if found := checkpoint_files.series(folder):
        return found
    raise CheckpointError(f"{path}: no numbered checkpoints: expected files such as checkpoints/step_00001000.pt")


def save_checkpoint(
    path: str | Path,
    state_dict: Mapping[str, Tensor],
    config: Mapping[str, Any] | TransformerConfig | DisentangledConfig,
    *,
    extra: Mapping[str, Any] | None = None,
) -> None:
    """Write a checkpoint atomically, in a form that `load_checkpoint` and plain `torch.load` read back.

    Args:
        path: ends in `.pt` or `.pth` (one file), or `.safetensors` (`config.json` is written beside it).
        state_dict: the weights.
        config: the model's config.
        extra: more to keep, e.g. `{"step": 1000, "optimizer": …}`; tensors and plain values only, `.pt` only.

    Raises:
        OptionError: when the path cannot be written, or `extra` cannot be kept.
    """
    file, more = Path(path), dict(extra or {})
    settings = plain_config(config if isinstance(config, Mapping) else config.to_dict())
    # Clones: views of one storage (tied or transposed weights) would be saved whole, or refused by safetensors.
    state = {key: value.detach().cpu().clone().contiguous() for key, value in state_dict.items()}
    if file.suffix == ".safetensors":
        if more:
            raise OptionError(f"{path}: a .safetensors file keeps weights only, not {', '.join(more)}: use .pt")
        encoded = json.dumps(settings, indent=1, sort_keys=True).encode()
        checkpoint_files.write_atomically(file.parent / "config.json", encoded)
        checkpoint_files.write_atomically(file, safetensors.torch.save(state))
        return
    if file.suffix not in checkpoint_files.SUFFIXES:
        raise OptionError(f"{path}: expected a name ending in .pt, .pth or .safetensors, found {file.suffix!r}")
    if taken := sorted(set(more) & {*STATE_KEYS, *CONFIG_KEYS}):
        raise OptionError(f"{path}: extra may not use the names {', '.join(taken)}")
    buffer = io.BytesIO()
    torch.save({"state_dict": state, "cfg": settings, **more}, buffer)
    try:
        read_torch(buffer.getvalue(), name=str(path))
    except CheckpointError as error:
        raise OptionError(f"{path}: not written, it could not be loaded again: {error}") from error
    checkpoint_files.write_atomically(file, buffer.getvalue())


def _typed(value: Any) -> Any:
    """Read an override given as text: "2" is 2, "true" is True, "None" is None, anything else stays text."""
    if not isinstance(value, str):
        return value
    text = {"True": "true", "False": "false", "None": "null"}.get(value, value)
    try:
        return json.loads(text)
    except ValueError:
        return value
