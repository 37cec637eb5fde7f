"""The shape of a causal transformer."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from imir_lens.errors import CheckpointError, OptionError, did_you_mean
from imir_lens.models.config import typed_field
from imir_lens.models.limits import check_numbers

_ARCHITECTURE = "imir-lens/causal"
_REQUIRED = ("d_input", "n_positions", "n_examples")


@dataclass(frozen=True)
class CausalConfig:
    """Sizes of a `CausalTransformer`.

    Attributes:
        d_input: d, the number of tokens; with `continuous`, the dimension of the vectors.
        n_positions: H, the positions of an example.
        n_examples: L, the length of `w_L`: how many examples back a copyer can look.
        n_heads: K, the copyer heads; 0 for as many as examples.
        continuous: whether inputs are vectors and not tokens.

    Raises:
        OptionError: when a size is too small.
        CheckpointError: when there are more numbers than `models.limits` allows.
    """

    d_input: int
    n_positions: int
    n_examples: int
    n_heads: int = 0
    continuous: bool = False

    def __post_init__(self) -> None:
        least = {"d_input": 1 if self.continuous else 2, "n_positions": 2, "n_examples": 1, "n_heads": 0}
        for name, smallest in least.items():
            if (found := getattr(self, name)) < smallest:
                raise OptionError(f"{name} must be at least {smallest} in a causal transformer: found {name}={found}")
        if self.n_heads == 0:
            object.__setattr__(self, "n_heads", self.n_examples)
        check_numbers(self._n_numbers)

    @property
    def d_context(self) -> int:
        """Width of what the copyers write beside each other: K·d."""
        return self.n_heads * self.d_input

    @property
    def _n_numbers(self) -> int:
        copyers = self.n_heads * (self.n_examples + 2 * self.n_positions - 1)
        return copyers + self.d_context**2 + self.d_input**2

    def to_dict(self) -> dict[str, Any]:
        """Return the fields, with an `architecture` that says whose they are."""
        return {"architecture": _ARCHITECTURE, **{f.name: getattr(self, f.name) for f in fields(self)}}

    @classmethod
    def from_dict(cls, cfg: Mapping[str, Any]) -> "CausalConfig":
        """Read what `to_dict` wrote; None means the default.

        Raises:
            CheckpointError: when a field is missing, unknown or of another type, or out of range.
        """
        types = {f.name: f.type for f in fields(cls)}
        given = {name: value for name, value in cfg.items() if name != "architecture" and value is not None}
        if unknown := [name for name in given if name not in types]:
            raise CheckpointError(
                f"cfg gives {unknown[0]}, which a causal transformer does not have; {did_you_mean(unknown[0], types)}"
            )
        if missing := [name for name in _REQUIRED if name not in given]:
            raise CheckpointError(f"cfg of a causal transformer without {', '.join(missing)}")
        try:
            return cls(**{name: typed_field(name, value, types[name]) for name, value in given.items()})
        except OptionError as error:
            raise CheckpointError(f"cfg of a causal transformer: {error}") from error


def is_causal(cfg: Mapping[str, Any]) -> bool:
    """Whether a cfg is what `CausalConfig.to_dict` wrote."""
    return cfg.get("architecture") == _ARCHITECTURE
