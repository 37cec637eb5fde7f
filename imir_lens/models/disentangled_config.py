"""The shape of a disentangled transformer."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from imir_lens.errors import CheckpointError, OptionError, did_you_mean
from imir_lens.ids import Path
from imir_lens.models.config import typed_field
from imir_lens.models.limits import check_layers, check_numbers

_STREAMS = ("add", "concat")
_EMBEDDINGS = ("centred", "onehot")
_DIRECTIONS = ("bidirectional", "causal")
_ARCHITECTURE = "imir-lens/disentangled"


@dataclass
class DisentangledConfig:
    """Sizes and options; the remaining fields of a TransformerLens config are constants here.

    Attributes:
        d_vocab: number of tokens.
        n_ctx: longest context.
        n_layers: L.
        n_heads: H, heads per layer.
        stream: "concat" or "add".
        d_model: width of the additive stream; 0 for the least width in which no contents overlap,
            `(d_vocab + n_ctx) (1 + H)^L`, which is always the final width of the concatenated stream.
        embedding: "onehot", or "centred" (one-hot less its mean: the symmetric setting in which training stays on the
            manifold).
        attention_dir: "causal", or "bidirectional" (no mask: the setting in which positions may be cyclic).
        init_std: standard deviation of the initial `W_KQ` and `W_U`.

    Raises:
        OptionError: when an option is unknown or the widths do not fit.
        CheckpointError: when there are more layers or numbers than `models.limits` allows.
    """

    d_vocab: int
    n_ctx: int
    n_layers: int
    n_heads: int = 1
    stream: str = "concat"
    d_model: int = 0
    embedding: str = "onehot"
    init_std: float = 0.02
    attention_dir: str = "causal"

    attn_only: ClassVar[bool] = True
    normalization_type: ClassVar[str | None] = None
    positional_embedding_type: ClassVar[str] = "standard"
    use_attn_scale: ClassVar[bool] = False
    attn_scale: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        for name, known in (("stream", _STREAMS), ("embedding", _EMBEDDINGS), ("attention_dir", _DIRECTIONS)):
            if getattr(self, name) not in known:
                raise OptionError(f"unknown {name} {getattr(self, name)!r}; {did_you_mean(getattr(self, name), known)}")
        for name in ("d_vocab", "n_ctx", "n_heads"):
            if getattr(self, name) < 1:
                raise OptionError(f"{name} must be at least 1: {name}={getattr(self, name)}")
        if self.n_layers < 0:
            raise OptionError(f"n_layers must not be negative: n_layers={self.n_layers}")
        check_layers(self.n_layers)
        if self.d_model == 0:
            self.d_model = self.apart(self.n_layers)
        elif self.stream == "concat" and self.d_model != self.apart(self.n_layers):
            raise OptionError(
                f"a concatenated stream ends {self.apart(self.n_layers)} wide: leave out d_model={self.d_model}"
            )
        elif self.d_model < self.apart(0):
            raise OptionError(
                f"an additive stream needs d_model >= d_vocab + n_ctx = {self.apart(0)}: d_model={self.d_model}"
            )
        check_numbers(self._n_numbers)

    @property
    def _n_numbers(self) -> int:
        """Numbers in the fixed and learned matrices."""
        a_head = [self.width(layer) ** 2 for layer in range(self.n_layers)]
        kinds = 1 if self.stream == "concat" else 2  # W_KQ, and the additive stream's W_O
        return kinds * self.n_heads * sum(a_head) + self.apart(0) * self.width(0) + self.d_vocab * self.d_model

    def apart(self, layer: int) -> int:
        """Width that keeps the contents entering a layer apart: D_l = (d_vocab + n_ctx) (1 + H)^l."""
        return (self.d_vocab + self.n_ctx) * (1 + self.n_heads) ** layer

    def width(self, layer: int) -> int:
        """Width of the stream entering a layer."""
        return self.apart(layer) if self.stream == "concat" else self.d_model

    @property
    def d_head(self) -> int:
        """Width of queries, keys and values in the last layer."""
        return self.width(max(self.n_layers - 1, 0))

    @property
    def d_vocab_out(self) -> int:
        """Number of output tokens."""
        return self.d_vocab

    @property
    def orthogonal(self) -> bool:
        """Whether the contents of different paths never overlap."""
        return self.d_model >= self.apart(self.n_layers)

    def start(self, path: Path) -> int:
        """First dimension of a path's content, in an orthogonal stream."""
        return sum(self.apart(head.layer) * (1 + head.index) for head in path.heads)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields, with an `architecture` that says whose they are."""
        return {"architecture": _ARCHITECTURE, **{f.name: getattr(self, f.name) for f in fields(self)}}

    @classmethod
    def from_dict(cls, cfg: Mapping[str, Any]) -> "DisentangledConfig":
        """Read what `to_dict` wrote; None means the default.

        Raises:
            CheckpointError: when a field is missing, unknown or of another type, or the values do not fit.
        """
        types = {f.name: f.type for f in fields(cls)}
        given = {name: value for name, value in cfg.items() if name != "architecture" and value is not None}
        if unknown := [name for name in given if name not in types]:
            near = did_you_mean(unknown[0], types)
            raise CheckpointError(f"cfg gives {unknown[0]}, which a disentangled model does not have; {near}")
        if missing := [name for name in ("d_vocab", "n_ctx", "n_layers") if name not in given]:
            raise CheckpointError(f"cfg of a disentangled model without {', '.join(missing)}")
        try:
            return cls(**{name: typed_field(name, value, types[name]) for name, value in given.items()})
        except OptionError as error:
            raise CheckpointError(f"cfg of a disentangled model: {error}") from error


def is_disentangled(cfg: Mapping[str, Any]) -> bool:
    """Whether a cfg is what `DisentangledConfig.to_dict` wrote."""
    return cfg.get("architecture") == _ARCHITECTURE
