"""The mean scales at which the coordinates of a model with norms or caps are numbers in nats."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class StreamScales:
    """Means of the factors that depend on the context.

    A norm divides by its root mean square σ, a soft cap flattens by its slope `1 − tanh²(x / cap)`. Coordinates are
    given at the means of both; an ablation in the model multiplies them by the actual factor over the mean.

    Attributes:
        query: mean of 1/σ of each layer's norm, at the rows whose queries are read: all, in the last layer those of the
            queries.
        key: mean of 1/σ of each layer's norm, at all rows.
        readout: mean of 1/σ of the last norm, at the queries.
        score_slopes: mean slope of the score cap, by layer and head.
        logit_slope: mean slope of the logit cap.
    """

    query: tuple[float, ...]
    key: tuple[float, ...]
    readout: float
    score_slopes: tuple[tuple[float, ...], ...]
    logit_slope: float

    @classmethod
    def ones(cls, n_layers: int, n_heads: int) -> "StreamScales":
        """Return the scales of a model without norms and caps."""
        return cls((1.0,) * n_layers, (1.0,) * n_layers, 1.0, ((1.0,) * n_heads,) * n_layers, 1.0)

    def to_dict(self) -> dict[str, Any]:
        """Return the scales as JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "StreamScales":
        """Read what `to_dict` returned."""
        slopes = tuple(tuple(row) for row in values["score_slopes"])
        return cls(**{**values, "query": tuple(values["query"]), "key": tuple(values["key"]), "score_slopes": slopes})
