"""The planes of starts that are mapped, and the rays across them.

The plane of alphas was fixed beforehand. The bases of the two others were chosen among 48 random ones, on maps of 7×7
cells, so that all three circuits win somewhere.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from imir_lens.dynamics.initialisation import axis, slice_starts
from imir_lens.dynamics.rival_circuits import RivalCircuits
from imir_lens.tasks import make_task

LOW, HIGH = -2.0, 2.0
TASK = {"vocab": 16, "pairs": 3, "length": 9}


@dataclass(frozen=True)
class Plane:
    """Two parts vary, the others are fixed.

    Attributes:
        name: of the plane.
        x, y: the parts that vary, both from LOW to HIGH.
        base: values of the other parts.
        along: which of x and y the rays follow.
    """

    name: str
    x: str
    y: str
    base: dict[str, float]
    along: str = "y"

    def starts(self, rivals: RivalCircuits, x: list[float], y: list[float]) -> Float[Tensor, "cell part"]:
        """Return the starts of some rows of cells."""
        columns = (rivals.column(self.x), rivals.column(self.y))
        return slice_starts(rivals.start(**self.base), columns, x, y)

    def rays(
        self, rivals: RivalCircuits, count: int
    ) -> tuple[list[float], Float[Tensor, "ray part"], Float[Tensor, "ray part"]]:
        """Return where the rays stand, and their ends."""
        at = axis(LOW, HIGH, count)
        ends = [[LOW], [HIGH]]
        near, far = (
            self.starts(rivals, at, end) if self.along == "y" else self.starts(rivals, end, at) for end in ends
        )
        return at, near, far


PLANES = (
    Plane(
        "betas",
        "beta_01",
        "beta_02",
        {"alpha_0": 0.5, "alpha_1": -0.5, "beta_12": -1.0, "gamma_1": 0.5, "gamma_2": 0.5},
        along="x",
    ),
    Plane(
        "alphas",
        "alpha_0",
        "alpha_1",
        {"beta_01": 0.5, "beta_02": 0.5, "beta_12": 0.5, "gamma_1": 0.5, "gamma_2": 0.5},
        along="x",
    ),
    Plane(
        "gammas",
        "gamma_1",
        "gamma_2",
        {"alpha_0": 1.0, "alpha_1": -0.5, "beta_01": -1.0, "beta_02": -1.0, "beta_12": -0.5},
    ),
)


def rivals_of_benchmark() -> RivalCircuits:
    """Return the circuits: three layers, on a small recall task."""
    return RivalCircuits(make_task("recall", **TASK), n_layers=3)


def box_starts(rivals: RivalCircuits, box: str, chunk: int, count: int, seed: int) -> Float[Tensor, "run part"]:
    """Return a chunk of random starts: from [LOW, HIGH] ("signed") or [0, HIGH] ("positive") in all seven parts."""
    generator = torch.Generator().manual_seed(1_000_003 * seed + 2 * chunk + (box == "positive"))
    return rivals.random_starts(count, generator, low=LOW if box == "signed" else 0.0, high=HIGH)
