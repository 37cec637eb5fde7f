"""Writing a model of any format as a HookedTransformer-format file, and proving that the file is the model."""

import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from imir_lens.checkpoint_files import resolve
from imir_lens.checkpoints import load_checkpoint, load_transformer, naming, save_checkpoint, transformer_from
from imir_lens.errors import CheckpointError, OptionError, UnsupportedModelError
from imir_lens.models.config import TransformerConfig
from imir_lens.models.transformer import ImirTransformer
from imir_lens.sources.independent import independent_logits
from imir_lens.sources.name_maps import Names

DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16, "float16": torch.float16}
WRITTEN = ("model.safetensors", "config.json")
_CONTEXTS, _LENGTH = 2, 32
# Relative to the largest logit: another order of sums, and for half precision the rounding of every weight.
_EXACT, _ROUNDED = 1e-4, 0.1


@dataclass(frozen=True)
class Conversion:
    """What was written, and how it was checked.

    Attributes:
        path: the weights; `config.json` lies beside them.
        sha256: of the source.
        config: what was written.
        difference: the largest difference of a logit between the written file, loaded again, and `compared_with`.
        largest_logit: the largest logit, to compare it with.
        compared_with: `transformers` and its version where it can open the source, else this library's reading of it.
    """

    path: Path
    sha256: str
    config: TransformerConfig
    difference: float
    largest_logit: float
    compared_with: str


def convert_checkpoint(
    source: str | Path,
    out: str | Path,
    *,
    config: str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    names: Names | None = None,
    dtype: str | None = None,
    device: str | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Conversion:
    """Write a model as `model.safetensors` and `config.json`.

    The files are written aside, loaded again and compared with the source on random tokens; only then do they appear.

    Args:
        source: a checkpoint of any format that `load_checkpoint` reads.
        out: a directory, made if need be.
        config: as in `load_checkpoint`.
        overrides: as in `load_checkpoint`.
        names: as in `load_checkpoint`.
        dtype: float32, float64, bfloat16 or float16; None keeps what the config says, float32 for translated models.
        device: where to compute the logits that are compared.
        progress: is told what is being done.

    Raises:
        CheckpointError: as `load_checkpoint`; also when the written file does not compute what the source does.
        UnsupportedModelError: as `load_checkpoint`; also for a disentangled transformer.
        OptionError: when the directory cannot be written, or the dtype is unknown.
    """
    if dtype is not None and dtype not in DTYPES:
        raise OptionError(f"dtype {dtype!r}: expected one of {', '.join(DTYPES)}")
    folder, file = Path(out), resolve(Path(source))
    if file.parent.resolve() == folder.resolve():
        raise OptionError(f"{out}: the source lies there, and its config.json would be replaced: give another --out")
    progress("read the source")
    checkpoint = load_checkpoint(source, config=config, overrides=overrides, names=names)
    model = transformer_from(checkpoint)
    if not isinstance(model, ImirTransformer):
        raise UnsupportedModelError(f"{source}: a {type(model).__name__} has no HookedTransformer format")
    settings = model.cfg.to_dict() | ({} if dtype is None else {"dtype": DTYPES[dtype]})
    shape = TransformerConfig.from_dict(settings)
    tokens = torch.randint(
        shape.d_vocab, (_CONTEXTS, min(shape.n_ctx, _LENGTH)), generator=torch.Generator().manual_seed(0)
    )
    as_read = _logits(model, tokens, device)
    del model
    try:
        folder.mkdir(parents=True, exist_ok=True)
        aside = tempfile.TemporaryDirectory(dir=folder, prefix=".convert-")
    except OSError as error:
        raise OptionError(f"{out}: cannot be written: {error.strerror}") from error
    with aside:
        progress("write")
        written = Path(aside.name) / WRITTEN[0]
        state = {name: weight.to(shape.dtype) for name, weight in checkpoint.state_dict.items()}
        save_checkpoint(written, state, settings)
        sha256 = checkpoint.sha256
        del checkpoint, state
        progress("load it again and compare logits")
        ours = _logits(load_transformer(written, overrides={"dtype": _precise(shape.dtype)}), tokens, device)
        # Options say that the source is not what its own config says, so that only our reading can be compared.
        told = config is not None or names is not None or set(overrides or {}) - {"n_ctx"}
        expected, witness = (None if told else independent_logits(file, tokens)) or (as_read, "the source as read here")
        with naming(str(source)):
            difference, largest = _compared(
                ours, expected, witness, exact=shape.dtype in (torch.float32, torch.float64)
            )
        for name in WRITTEN:
            os.replace(written.parent / name, folder / name)
    return Conversion(folder / WRITTEN[0], sha256, shape, difference, largest, witness)


def _precise(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


@torch.no_grad()
def _logits(
    model: Any, tokens: Int[Tensor, "context position"], device: str | None
) -> Float[Tensor, "context position vocab"]:
    if device is not None:
        model = model.to(device)
    return model(tokens.to(model.embed.W_E.device)).cpu()


def _compared(
    ours: Float[Tensor, "context position vocab"],
    expected: Float[Tensor, "context position vocab"],
    witness: str,
    *,
    exact: bool,
) -> tuple[float, float]:
    if ours.shape != expected.shape:
        raise CheckpointError(f"not converted: {expected.shape[-1]} logits by {witness}, {ours.shape[-1]} converted")
    difference, largest = float((ours - expected).abs().max()), float(expected.abs().max())
    if not difference <= (_EXACT if exact else _ROUNDED) * largest:
        raise CheckpointError(
            f"not converted: logits differ by {difference:.3g} from those by {witness} (largest {largest:.3g}): its "
            "config does not say what it computes, or this is a fault to report"
        )
    return difference, largest
