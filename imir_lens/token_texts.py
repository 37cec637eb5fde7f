"""The texts of a model's tokens, read from its tokenizer's file without running a tokenizer."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from imir_lens.errors import CheckpointError

_MOST_BYTES = 2**28
_MOST_TOKENS = 2**24
_SPACE, _BYTES = "▁", "Ġ"  # how SentencePiece and byte-level tokenizers write the space before a word
# Tokens that texts begin with, or that stand between them, the most telling first.
_BEGINNINGS = ("<|begin_of_text|>", "<|startoftext|>", "<s>", "<bos>", "<|endoftext|>", "[CLS]")


@dataclass(frozen=True)
class TokenTexts:
    """The tokens of a model, as its tokenizer's file writes them.

    Attributes:
        source: the file.
        written: id → token.
        declared: ids of tokens that the file calls special.
    """

    source: str
    written: Mapping[int, str]
    declared: frozenset[int] = frozenset()

    @cached_property
    def marker(self) -> str:
        """How a token that starts a word begins: `Ġ`, `▁`, or nothing."""
        for marker in (_BYTES, _SPACE):
            if any(token.startswith(marker) for token in self.written.values()):
                return marker
        return ""

    @cached_property
    def special(self) -> frozenset[int]:
        """Tokens that are no text: those declared special, and all that are written `<…>` or `[…]`."""
        shaped = (id for id, token in self.written.items() if len(token) > 2 and token[0] + token[-1] in ("<>", "[]"))
        return self.declared | frozenset(shaped)

    @cached_property
    def beginning(self) -> int | None:
        """The token that texts begin with; None when none is known."""
        known = (self._ids[token] for token in _BEGINNINGS if token in self._ids)
        return next(known, min(self.declared, default=None))

    def text(self, token: int) -> str:
        """Return a token's text, without the space before it; special tokens as they are written."""
        written = self.written.get(token, f"#{token}")
        if token in self.special:
            return written
        if self.marker == _BYTES:
            codes = _byte_codes()
            written = bytes(b for mark in written for b in codes.get(mark, mark.encode())).decode("utf-8", "replace")
        return written.replace(_SPACE, " ").strip(" ") or written

    def find(self, word: str) -> int | None:
        """Return the token that is a space and this word; None when there is none."""
        return self._ids.get(self._as_written(word))

    def pieces(self, word: str) -> list[str]:
        """Return a cut of a space and this word into tokens, each as long as can be, as the file writes them."""
        rest, out = self._as_written(word), []
        while rest:
            length = next((n for n in range(len(rest), 1, -1) if rest[:n] in self._ids), 1)
            out.append(rest[:length])
            rest = rest[length:]
        return out

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {token: id for id, token in self.written.items()}

    def _as_written(self, word: str) -> str:
        if self.marker == _BYTES:
            marks = {byte: mark for mark, codes in _byte_codes().items() for byte in codes}
            word = "".join(marks[byte] for byte in word.encode("utf-8", "replace"))
        return self.marker + word


def tokenizer_of(checkpoint: str | Path) -> Path | None:
    """Return the file with a checkpoint's tokens: the `.gguf` itself, a `tokenizer.json` in or beside it, or None."""
    path = Path(checkpoint)
    if path.suffix == ".gguf":
        return path
    beside = (path if path.is_dir() else path.parent) / "tokenizer.json"
    return beside if beside.is_file() else None


def read_token_texts(path: str | Path) -> TokenTexts:
    """Read a tokenizer's tokens from a `tokenizer.json` (Hugging Face), or from a `.gguf` file.

    Args:
        path: the file.

    Raises:
        CheckpointError: when it is missing, damaged, or holds no tokens.
        OptionError: for a `.gguf` file when the package `gguf` is not installed.
    """
    path = Path(path)
    if path.suffix == ".gguf":
        from imir_lens.sources.gguf_file import gguf_tokens

        return TokenTexts(str(path), dict(enumerate(gguf_tokens(path))))
    try:
        size = path.stat().st_size
        if size > _MOST_BYTES:
            raise CheckpointError(f"{path}: {size:,} bytes: expected a tokenizer.json of at most {_MOST_BYTES:,}")
        data = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: not a tokenizer.json: it is no JSON ({type(error).__name__})") from error
    tokens, special = dict(_vocabulary(data)), set()
    for added in _added(data):
        tokens[added["id"]] = added["content"]
        if added.get("special") is True:
            special.add(added["id"])
    if not tokens:
        raise CheckpointError(f"{path}: no tokens: expected a tokenizer.json with them under model.vocab, or a .gguf")
    return TokenTexts(str(path), tokens, frozenset(special))


def _vocabulary(data: Any) -> Iterator[tuple[int, str]]:
    model = data.get("model") if isinstance(data, dict) else None
    vocab = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(vocab, dict):  # BPE, WordPiece, WordLevel: token → id
        yield from ((id, token) for token, id in vocab.items() if _is_id(id))
    elif isinstance(vocab, list):  # Unigram: [token, log-probability] in the order of ids
        firsts = (row[0] if isinstance(row, list) and row else None for row in vocab)
        yield from ((id, token) for id, token in enumerate(firsts) if isinstance(token, str))


def _added(data: Any) -> Iterable[dict[str, Any]]:
    rows = data.get("added_tokens") if isinstance(data, dict) else None
    for row in rows if isinstance(rows, list) else []:
        if isinstance(row, dict) and _is_id(row.get("id")) and isinstance(row.get("content"), str):
            yield row


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST_TOKENS


def _byte_codes() -> dict[str, bytes]:
    """How byte-level tokenizers write bytes: printable ones as themselves, the others as marks from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    codes = {chr(byte): bytes([byte]) for byte in printable}
    return codes | {chr(256 + place): bytes([byte]) for place, byte in enumerate(others)}
