"""Reading models of other formats as HookedTransformer-format weights and config."""

from imir_lens.sources.gguf_file import gguf_tokens
from imir_lens.sources.smollm2 import smollm2_path

__all__ = ["gguf_tokens", "smollm2_path"]
