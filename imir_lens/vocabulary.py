"""Which of a model's tokens stand for a task's: how a task is put to a model with a larger vocabulary."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from imir_lens.errors import OptionError
from imir_lens.tasks.base import Task
from imir_lens.token_texts import TokenTexts, read_token_texts

FILLER = "filler"
_SHOWN = 10
_MOST_BYTES = 2**24


@dataclass(frozen=True)
class TaskVocabulary:
    """The model's token for each of a task's.

    Attributes:
        ids: `ids[t]` is the model's token that stands for token t of the task.
        texts: what to write for each; the filler is `·`, a token whose text is not known `#` and its id.
        filler: whether token 0 is filler, a text's beginning or a gap, and no word.

    Raises:
        OptionError: when a token stands for two, or is negative.
    """

    ids: tuple[int, ...]
    texts: tuple[str, ...]
    filler: bool = True

    def __post_init__(self) -> None:
        if len(self.ids) != len(self.texts):
            raise OptionError(f"a vocabulary of {len(self.ids)} tokens with {len(self.texts)} texts: expected as many")
        first: dict[int, int] = {}
        for place, token in enumerate(self.ids):
            if token < 0:
                raise OptionError(f"token {token} in the vocabulary: expected ids from 0")
            if token in first:
                texts = f"{self._name(first[token])} and {self._name(place)}"
                raise OptionError(f"the model's token {token} stands for both {texts}: expected a token for each")
            first[token] = place

    def __len__(self) -> int:
        return len(self.ids)

    def _name(self, place: int) -> str:
        return "the filler" if self.filler and place == 0 else repr(self.texts[place])

    @classmethod
    def of_ids(cls, ids: Iterable[int], *, filler: int | None, texts: TokenTexts | None = None) -> "TaskVocabulary":
        """Take tokens by their ids.

        Args:
            ids: the words' tokens, in the task's order.
            filler: the token for the task's filler; None for a task that has none.
            texts: the tokens' texts, for reading contexts.
        """
        words = tuple(ids)
        written = tuple(f"#{token}" if texts is None else texts.text(token) for token in words)
        if filler is None:
            return cls(words, written, filler=False)
        return cls((filler, *words), ("·", *written))

    @classmethod
    def random(
        cls, words: int, d_vocab: int, *, filler: int | None, seed: int = 0, texts: TokenTexts | None = None
    ) -> "TaskVocabulary":
        """Draw words from all of the model's tokens, but for the filler and, where texts are known, special tokens.

        Args:
            words: how many.
            d_vocab: the model's number of tokens.
            filler: the token for the task's filler; None for a task that has none.
            seed: of the draw.
            texts: the tokens' texts.

        Raises:
            OptionError: when the model has too few tokens.
        """
        ordinary = torch.ones(d_vocab, dtype=torch.bool)
        left_out = {filler} | (texts.special if texts is not None else frozenset())
        ordinary[[token for token in left_out if token is not None and 0 <= token < d_vocab]] = False
        if texts is not None:  # embeddings are often padded beyond the tokens that exist
            ordinary[[token for token in range(d_vocab) if token not in texts.written]] = False
        choice = ordinary.nonzero().squeeze(1)
        if len(choice) < words:
            raise OptionError(
                f"the task has {words} words but the model {len(choice)} ordinary tokens: lower its vocab"
            )
        order = torch.randperm(len(choice), generator=torch.Generator().manual_seed(seed))[:words]
        return cls.of_ids(choice[order].tolist(), filler=filler, texts=texts)

    @classmethod
    def of_words(
        cls, words: Sequence[str], texts: TokenTexts, *, count: int | None = None, filler: int | None
    ) -> "TaskVocabulary":
        """Take words that are one token each, with the space before them.

        Args:
            words: in the task's order.
            texts: the tokens' texts.
            count: how many of them to take, from the first on; None for all.
            filler: the token for the task's filler; None for a task that has none.

        Raises:
            OptionError: when a word is not a single token, or there are too few.
        """
        ids = []
        for word in _first(words, count, of="words"):
            token = texts.find(word)
            if token is None:
                pieces = " + ".join(map(repr, texts.pieces(word)))
                raise OptionError(f"{word!r} is not a single token of {texts.source}: it is cut into {pieces}")
            ids.append(token)
        return cls.of_ids(ids, filler=filler, texts=texts)

    def check(self, d_vocab: int) -> None:
        """Make sure that all tokens are the model's; raises OptionError naming one that is not."""
        for place, token in enumerate(self.ids):
            if token >= d_vocab:
                raise OptionError(f"{self._name(place)} is token {token}: the model has tokens 0 to {d_vocab - 1}")

    def to_model(self, tokens: Int[Tensor, "..."]) -> Int[Tensor, "..."]:
        """Return the model's tokens for the task's."""
        return torch.tensor(self.ids, device=tokens.device)[tokens]

    def to_task(self, tokens: Int[Tensor, "..."]) -> Int[Tensor, "..."]:
        """Return the task's tokens for the model's, and −1 for those that stand for nothing."""
        table = torch.full((max(self.ids) + 1,), -1, device=tokens.device)
        table[list(self.ids)] = torch.arange(len(self), device=tokens.device)
        inside = (tokens >= 0) & (tokens < len(table))
        return torch.where(inside, table[torch.where(inside, tokens, 0)], -1)

    def decode(self, tokens: Int[Tensor, " position"]) -> list[str]:
        """Return the texts of a context in the task's tokens."""
        return [self.texts[token] for token in tokens.tolist()]

    def summary(self) -> dict[str, Any]:
        """Return what a report says about it."""
        return {
            "size": len(self),
            "ids_sha256": hashlib.sha256(" ".join(map(str, self.ids)).encode()).hexdigest(),
            "filler": self.ids[0] if self.filler else None,
            "words": list(self.texts[self.filler :][:_SHOWN]),
        }


def choose_vocabulary(
    chosen: str | Path,
    task: Task,
    d_vocab: int,
    *,
    filler: int | None = None,
    tokenizer: str | Path | None = None,
    seed: int = 0,
) -> TaskVocabulary:
    """Choose the tokens for a task as the command line asks for them.

    Args:
        chosen: `random`, or a file with a word a line, or with a token's id a line. The first ones are taken.
        task: gives the number of tokens, and whether the first is filler.
        d_vocab: the model's number of tokens.
        filler: the token for the task's filler; by default, the one that the model's texts begin with as far as its
            tokenizer is known, or else 0.
        tokenizer: a `tokenizer.json` or a `.gguf` with the tokens' texts.
        seed: of a random choice.

    Raises:
        OptionError: when a file is missing or does not fit; see the constructors of TaskVocabulary.
        CheckpointError: when the tokenizer's file cannot be read.
    """
    texts = None if tokenizer is None else read_token_texts(tokenizer)
    has_filler = FILLER in task.relations.classes
    if not has_filler and filler is not None:
        raise OptionError(f"the task {task.name} has no filler: leave out the token for it")
    if has_filler and filler is None:
        known = None if texts is None else texts.beginning
        filler = 0 if known is None else known
    words = task.d_vocab - has_filler
    if str(chosen) == "random":
        made = TaskVocabulary.random(words, d_vocab, filler=filler, seed=seed, texts=texts)
    else:
        lines = _lines(Path(chosen))
        if all(line.isdecimal() and len(line) < 10 for line in lines):
            ids = [int(line) for line in _first(lines, words, of="tokens")]
            made = TaskVocabulary.of_ids(ids, filler=filler, texts=texts)
        elif texts is None:
            raise OptionError(
                f"{chosen} holds words: give the model's tokenizer.json or .gguf with --tokenizer as well"
            )
        else:
            made = TaskVocabulary.of_words(lines, texts, count=words, filler=filler)
    made.check(d_vocab)
    return made


def _first(items: Sequence[str], count: int | None, *, of: str) -> Sequence[str]:
    if count is not None and len(items) < count:
        raise OptionError(
            f"the task has {count} words but the vocabulary {len(items)} {of}: give more, or lower its vocab"
        )
    return items[:count]


def _lines(path: Path) -> list[str]:
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise OptionError(f"{path} is too large for a list of words: expected at most {_MOST_BYTES:,} bytes")
        lines = [line.strip() for line in path.read_text("utf-8").splitlines()]
    except OSError as error:
        raise OptionError(
            f"{path}: expected 'random' or a file of words, but it cannot be read: {error.strerror}"
        ) from error
    except UnicodeDecodeError as error:
        raise OptionError(f"{path}: expected a file of words, a word a line, in UTF-8") from error
    return [line for line in lines if line]
