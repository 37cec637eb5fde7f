"""What another library makes of the same file: the check that a translation cannot give itself."""

import io
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from imir_lens.checkpoint_files import read_config
from imir_lens.sources.hugging_face import is_hugging_face


def independent_logits(
    file: Path, tokens: Int[Tensor, "context position"]
) -> tuple[Float[Tensor, "context position vocab"], str] | None:
    """Return the logits that the package `transformers` computes from a Hugging Face model or a GGUF file.

    Nothing is fetched, and no code that lies beside the weights is run.

    Args:
        file: the file with the weights, from `checkpoint_files.resolve`.
        tokens: the contexts.

    Returns:
        the logits and what computed them, or None when the model is of another format or transformers cannot open it.
    """
    gguf = file.suffix == ".gguf"
    config = file.parent / "config.json"
    if not gguf and not (config.is_file() and is_hugging_face(read_config(config))):
        return None
    try:
        import transformers

        options = {"gguf_file": file.name} if gguf else {}
        with _silent(transformers.logging):
            model = transformers.AutoModelForCausalLM.from_pretrained(
                file.parent, local_files_only=True, trust_remote_code=False, dtype=torch.float32, **options
            )
        with torch.no_grad():
            return model.eval()(tokens).logits, f"transformers {transformers.__version__}"
    except (ImportError, OSError, ValueError, RuntimeError, LookupError, TypeError, AttributeError):
        return None  # another version, or a file that it does not read: no verdict


@contextmanager
def _silent(logging: Any) -> Iterator[None]:
    """Keep the progress bars and the advice of transformers off stderr, which is ours."""
    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        with redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.set_verbosity(before)
