"""Coordinate ids: the one place that prints and parses them.

Grammar::

    id        = score | readout
    score     = head "/score/q:" source "/k:" path "/" relation
    readout   = "readout/via:" source "/" relation
    head      = "L" layer "H" head
    path      = "res" | head ("." head)*          heads in increasing layers; "res" is the empty path
    source    = path | "const"                    "const" has a class name as its relation
    relation  = "same" | "assoc" | "assoc-reverse" | "offset" sign k | class ">" class | class

`offset+1` means that the key is one position before the query. `word>filler` is the constant of one ordered pair of
token classes (query class > key class; at the readout, source class > output class).
"""

import re
from dataclasses import dataclass
from functools import total_ordering
from itertools import pairwise

from imir_lens.errors import CoordinateError

_HEAD = re.compile(r"L(\d+)H(\d+)")
_OFFSET = re.compile(r"offset([+-]\d+)")
_SCORE = re.compile(r"(?P<head>L\d+H\d+)/score/q:(?P<query>[^/]+)/k:(?P<key>[^/]+)/(?P<relation>[^/]+)")
_READOUT = re.compile(r"readout/via:(?P<via>[^/]+)/(?P<relation>[^/]+)")


@total_ordering
@dataclass(frozen=True)
class Head:
    """One attention head, printed `L1H0`."""

    layer: int
    index: int

    def __str__(self) -> str:
        return f"L{self.layer}H{self.index}"

    def __lt__(self, other: "Head") -> bool:
        return (self.layer, self.index) < (other.layer, other.index)

    @classmethod
    def parse(cls, text: str) -> "Head":
        """Read `L1H0`.

        Raises:
            CoordinateError: when `text` is not a head.
        """
        match = _HEAD.fullmatch(text)
        if match is None:
            raise CoordinateError(f"{text!r} is not a head: expected e.g. 'L1H0'")
        return cls(int(match[1]), int(match[2]))


@dataclass(frozen=True)
class Path:
    """A chain of heads in increasing layers, printed `L0H0.L1H0`; the empty path is `res`."""

    heads: tuple[Head, ...] = ()

    def __post_init__(self) -> None:
        layers = [head.layer for head in self.heads]
        if any(later <= earlier for earlier, later in pairwise(layers)):
            raise CoordinateError(f"path {self} does not go up in layers")

    def __str__(self) -> str:
        return ".".join(map(str, self.heads)) if self.heads else "res"

    def then(self, head: Head) -> "Path":
        """Return this path continued through `head`."""
        return Path((*self.heads, head))

    @classmethod
    def parse(cls, text: str) -> "Path":
        """Read `res` or `L0H0.L1H0`.

        Raises:
            CoordinateError: when `text` is not a path, or its layers do not increase.
        """
        return cls() if text == "res" else cls(tuple(Head.parse(part) for part in text.split(".")))


@dataclass(frozen=True)
class CoordinateId:
    """One coordinate of the manifold.

    Attributes:
        head: the head whose score it belongs to; None for a readout.
        query: path of the query content (None means `const`); at a readout, always None.
        key: path of the key content; at a readout, the path read (None means `const`).
        relation: the relation's name, see the module's grammar.

    Raises:
        CoordinateError: when a head would read a path that does not end below it.
    """

    head: Head | None
    query: Path | None
    key: Path | None
    relation: str

    def __post_init__(self) -> None:
        if self.head is None:
            return
        for path in self.paths:
            if path.heads and path.heads[-1].layer >= self.head.layer:
                raise CoordinateError(f"in '{self}', path {path} does not end below layer {self.head.layer}")

    @property
    def is_score(self) -> bool:
        """Whether it is a score coordinate (a readout otherwise)."""
        return self.head is not None

    @property
    def offset(self) -> int | None:
        """The k of `offset+k`, or None."""
        match = _OFFSET.fullmatch(self.relation)
        return int(match[1]) if match else None

    @property
    def paths(self) -> tuple[Path, ...]:
        """The paths it reads."""
        return tuple(path for path in (self.query, self.key) if path is not None)

    def __str__(self) -> str:
        if self.head is None:
            return f"readout/via:{'const' if self.key is None else self.key}/{self.relation}"
        query = "const" if self.query is None else self.query
        return f"{self.head}/score/q:{query}/k:{self.key}/{self.relation}"

    @classmethod
    def parse(cls, text: str) -> "CoordinateId":
        """Read an id.

        >>> CoordinateId.parse("L1H0/score/q:res/k:L0H0/same").key
        Path(heads=(Head(layer=0, index=0),))

        Raises:
            CoordinateError: when `text` is not an id; the message shows the nearest form.
        """
        if match := _SCORE.fullmatch(text):
            head = Head.parse(match["head"])
            query = None if match["query"] == "const" else Path.parse(match["query"])
            key = Path.parse(match["key"])
            return cls(head, query, key, match["relation"])
        if match := _READOUT.fullmatch(text):
            via = match["via"]
            return cls(None, None, None if via == "const" else Path.parse(via), match["relation"])
        raise CoordinateError(
            f"{text!r} is not a coordinate id: expected e.g. 'L1H0/score/q:res/k:L0H0/same' or 'readout/via:L1H0/same'"
        )


def offset_name(k: int) -> str:
    """Return the relation name of offset k: `offset+1`, `offset+0`, `offset-2`."""
    return f"offset{k:+d}"
