"""What tasks with one known transition kernel share: the kernel, drawn from a seed or brought by the user."""

from functools import cached_property
from typing import Any, TypeVar

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from imir_lens.errors import TaskError
from imir_lens.tasks.kernels import MOST_TOKENS, check_kernel, dirichlet_kernel, pair_scores, stationary
from imir_lens.tasks.token_episodes import TokenEpisodes
from imir_lens.tasks.variates import categorical

_Some = TypeVar("_Some", bound="FixedKernel")


class FixedKernel(TokenEpisodes):
    """A task whose tokens follow their parents by one kernel, the same in all contexts.

    Subclasses are `dataclass(frozen=True, eq=False)` with the knobs `d`, `concentration`, `gamma`, `kernel_seed`, and
    `given_kernel: InitVar`, which is no knob; their `__post_init__` calls `_take_kernel`.
    """

    concentration: float
    gamma: float
    kernel_seed: int | None

    @classmethod
    def with_kernel(cls: type[_Some], pi: Shaped[Tensor, "..."], **knobs: Any) -> _Some:
        """Return the task with a kernel of one's own, `pi[parent, child]`.

        Its `kernel_seed` is None, and `concentration` and `gamma` say nothing.

        Raises:
            TaskError: when it is not square, positive and stochastic.
        """
        kernel = check_kernel(pi).cpu()
        return cls(**{"d": len(kernel), "kernel_seed": None, **knobs, "given_kernel": kernel})

    def _take_kernel(self, given: Shaped[Tensor, "..."] | None) -> None:
        """Check the knobs of the kernel; keep the one that was given."""
        self._require(2 <= self.d <= MOST_TOKENS, f"2 <= d <= {MOST_TOKENS}", "d")
        if (given is None) == (self.kernel_seed is None):
            raise TaskError(
                f"{self.name} needs either a kernel_seed or a kernel of your own, with_kernel(pi): "
                f"kernel_seed={self.kernel_seed}"
            )
        if given is not None:
            kernel = check_kernel(given)
            if len(kernel) != self.d:
                raise TaskError(f"{self.name} with d={self.d} needs a kernel of that size; found {len(kernel)}")
            # an attribute of that name is what `dataclasses.replace` hands on
            object.__setattr__(self, "given_kernel", kernel)
            return
        self._require(1e-3 <= self.concentration <= 1e6, "0.001 <= concentration <= 1e6", "concentration")
        self._require(0 <= self.gamma <= 1, "0 <= gamma <= 1", "gamma")

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, FixedKernel)
            and type(other) is type(self)
            and other.knobs == self.knobs
            and (self.kernel_seed is not None or torch.equal(other.kernel, self.kernel))
        )

    def __hash__(self) -> int:
        return hash((self.name, *self.knobs.values()))

    @cached_property
    def kernel(self) -> Float[Tensor, "parent child"]:
        """The transition kernel `pi[parent, child]`, in float64.

        Raises:
            TaskError: when an entry is 0: gamma is 0 and the concentration very small.
        """
        if self.kernel_seed is None:
            given: Tensor = self.given_kernel  # type: ignore[attr-defined]
            return given
        return check_kernel(dirichlet_kernel(self.d, self.concentration, self.gamma, self.kernel_seed))

    @cached_property
    def log_kernel(self) -> Float[Tensor, "parent child"]:
        """Its logarithm."""
        return self.kernel.log()

    @cached_property
    def stationary_law(self) -> Float[Tensor, " token"]:
        """The law of every single position: mu with `mu pi = mu`."""
        return stationary(self.kernel)

    def pair_log_likelihood(self, values: Int[Tensor, "*batch position"]) -> Float[Tensor, "*batch position position"]:
        """Return `log pi[x_h', x_h]` at `[…, h, h']`; raises TaskError for tokens outside d."""
        self._check(values)
        return pair_scores(self.log_kernel.to(values.device), values)

    def predictive(
        self, weights: Float[Tensor, "context position position"], query: Int[Tensor, "context position"]
    ) -> Float[Tensor, "context position out"]:
        """Return `Σ_h' weights[h, h'] pi[x_h', ·]`."""
        self._check(query)
        return weights @ self.kernel.to(weights)[query]

    def chance(self) -> Float[Tensor, " vocab"]:
        """Return the stationary law: that of every token."""
        return self.stationary_law.float()

    def _stationary_draws(self, shape: tuple[int, ...], generator: torch.Generator) -> Int[Tensor, "*shape"]:
        return categorical(self.stationary_law.to(generator.device).expand(*shape, -1), generator)
