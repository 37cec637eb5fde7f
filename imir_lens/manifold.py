"""The invariant manifold in parameter space, for models whose scores come from one merged matrix.

A disentangled transformer's head of layer l is on the manifold when its `W_KQ` is a combination of the matrices

    B(u, R, v) = V_uᵀ Eᵀ R E V_v        u, v paths entering layer l;  R in T on tokens, in P on positions

(`E V_u`, sizes [source, width], says where path u puts each token or position), and its readout when `W_U` combines
`V_pᵀ Eᵀ R` over the paths p and R in T. With `n_l = (H + 1)^l` paths into layer l the dimension is
`Σ_l H n_l² (|T| + |P|) + n_L |T|`. This is the basis `V_{1:l-1} (T ∪ P) V_{l-1:1}` of arXiv 2607.11875.

The matrices need not be orthogonal, so coefficients solve `G c = b` with the Gram matrix `G = ⟨B, B'⟩` and
`b = ⟨B, W⟩`; `manifold_basis` has both without building any B.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from imir_lens.errors import OptionError
from imir_lens.ids import CoordinateId, Head, offset_name
from imir_lens.manifold_basis import ReadoutBasis, ScoreBasis
from imir_lens.models.blueprint import shift_matrix
from imir_lens.models.disentangled import DisentangledTransformer
from imir_lens.paths import PathTable
from imir_lens.relations import TokenRelations

READOUT = "readout"


def manifold_dimension(n_layers: int, n_heads: int, *, token_relations: int = 2, offsets: int = 2) -> int:
    """Return the number of basis matrices: `Σ_l H n_l² (|T| + |P|) + n_L |T|` with `n_l = (H + 1)^l`.

    >>> [manifold_dimension(layers, 1) for layers in (2, 3, 5)], manifold_dimension(2, 1, token_relations=1)
    ([28, 100, 1428], 19)
    """
    paths = [(n_heads + 1) ** layer for layer in range(n_layers + 1)]
    scores = sum(n_heads * n * n * (token_relations + offsets) for n in paths[:-1])
    return scores + paths[-1] * token_relations


@dataclass(frozen=True)
class Energy:
    """Squared Frobenius norm of one matrix, split by the projection.

    Attributes:
        on: of the part on the manifold.
        off: of the rest.
        dimension: number of independent directions of the manifold in it.
        entries: number of entries of the matrix.
    """

    on: float
    off: float
    dimension: int
    entries: int

    @property
    def fraction(self) -> float:
        """Share on the manifold; 0 for a matrix of zeros. For random entries about `dimension / entries`."""
        total = self.on + self.off
        return self.on / total if total else 0.0


@dataclass(frozen=True)
class ManifoldProjection:
    """What `Manifold.project` found.

    Attributes:
        coefficients: coordinate id → coefficient of its basis matrix.
        parts: `L0H0` … and `readout` → energies.
        weights: the part of the weights on the manifold, by parameter name.
    """

    coefficients: dict[str, float]
    parts: dict[str, Energy]
    weights: dict[str, Tensor]

    @property
    def total(self) -> Energy:
        """Energies of all parts together."""
        parts = self.parts.values()
        return Energy(
            sum(part.on for part in parts),
            sum(part.off for part in parts),
            sum(part.dimension for part in parts),
            sum(part.entries for part in parts),
        )


class Manifold:
    """The basis for one architecture and one task's relations.

    Args:
        relations: the task's token relations.
        n_layers: L.
        n_heads: H, heads per layer.
        token_relations: names of the relations in T, class pairs `word>filler` among them; None takes the task's
            matchings, `same` and `assoc` where it has both.
        offsets: the k of the shifts in P.

    Raises:
        TaskError: when the task has no such relation.
        OptionError: when a relation or an offset is given twice.
    """

    def __init__(
        self,
        relations: TokenRelations,
        *,
        n_layers: int,
        n_heads: int,
        token_relations: Sequence[str] | None = None,
        offsets: Sequence[int] = (0, 1),
    ) -> None:
        names = tuple(relations.matchings) if token_relations is None else tuple(token_relations)
        for given in (names, offsets):
            if len(set(given)) < len(given):
                raise OptionError(f"the manifold's relations are given twice: {list(given)}")
        self.n_layers = n_layers
        self.n_heads = n_heads
        self.token_relations = names
        self.offsets = tuple(offsets)
        self.d_vocab = relations.d_vocab
        matrices = [relations.matrix(name).double() for name in names]
        self._token_matrices = (
            torch.stack(matrices) if matrices else torch.zeros(0, self.d_vocab, self.d_vocab).double()
        )

    @property
    def dimension(self) -> int:
        """Number of basis matrices, and of `ids`."""
        counts = {"token_relations": len(self.token_relations), "offsets": len(self.offsets)}
        return manifold_dimension(self.n_layers, self.n_heads, **counts)

    @property
    def ids(self) -> list[str]:
        """Coordinate ids: heads in order, then the readout."""
        heads = PathTable.full(self.n_layers, self.n_heads).heads
        return [name for head in heads for name in self._score_ids(head)] + self._readout_ids()

    def project(
        self, model: DisentangledTransformer, *, weights: Mapping[str, Tensor] | None = None
    ) -> ManifoldProjection:
        """Project weights onto the manifold, by least squares.

        Args:
            model: gives the places of the contents, and the weights.
            weights: parameter name → values to project in place of the model's: a gradient, or an update.

        Returns:
            Coefficients, energies, and the weights that the coefficients stand for. Where the basis is not independent
            (contents that overlap too much, a relation that contains another) the least coefficients are returned.

        Raises:
            OptionError: when the model has another architecture, or weights lack a parameter.
        """
        cfg = model.cfg
        for name in ("n_layers", "n_heads", "d_vocab"):
            if getattr(cfg, name) != getattr(self, name):
                raise OptionError(
                    f"the manifold has {name}={getattr(self, name)}, the model {name}={getattr(cfg, name)}"
                )
        given = dict(model.named_parameters()) if weights is None else weights
        coefficients: dict[str, float] = {}
        parts: dict[str, Energy] = {}
        projected: dict[str, Tensor] = {}
        for layer in range(self.n_layers):
            name = f"blocks.{layer}.attn.W_KQ"
            value = _parameter(given, name)
            basis = ScoreBasis(
                {"tok": model.contents(layer, "tok").double(), "pos": model.contents(layer, "pos").double()},
                {"tok": self._token_matrices, "pos": _shifts(cfg.n_ctx, self.offsets)},
            )
            kept = []
            for index, matrix in enumerate(value.double()):
                head = Head(layer, index)
                found, on = basis.fit(matrix)
                kept.append(on)
                coefficients |= zip(self._score_ids(head), found.tolist(), strict=True)
                parts[str(head)] = _energy(matrix, on, basis.rank)
            projected[name] = torch.stack(kept).to(value.dtype)
        name = "unembed.W_U"
        value = _parameter(given, name)
        readout = ReadoutBasis(model.contents(self.n_layers, "tok").double(), self._token_matrices)
        found, on = readout.fit(value.double())
        coefficients |= zip(self._readout_ids(), found.tolist(), strict=True)
        parts[READOUT] = _energy(value.double(), on, readout.rank)
        projected[name] = on.to(value.dtype)
        return ManifoldProjection(coefficients, parts, projected)

    def _score_ids(self, head: Head) -> list[str]:
        paths = PathTable.full(head.layer, self.n_heads).paths
        names = (self.token_relations, tuple(offset_name(k) for k in self.offsets))
        return [
            str(CoordinateId(head, u, v, relation))
            for source in names
            for u in paths
            for v in paths
            for relation in source
        ]

    def _readout_ids(self) -> list[str]:
        paths = PathTable.full(self.n_layers, self.n_heads).paths
        return [str(CoordinateId(None, None, path, name)) for path in paths for name in self.token_relations]


def _energy(matrix: Tensor, on: Tensor, rank: int) -> Energy:
    return Energy(on.square().sum().item(), (matrix - on).square().sum().item(), rank, matrix.numel())


def _shifts(n: int, offsets: Sequence[int]) -> Float[Tensor, "offset n n"]:
    return torch.stack([shift_matrix(n, k).double() for k in offsets]) if offsets else torch.zeros(0, n, n).double()


def _parameter(weights: Mapping[str, Tensor], name: str) -> Tensor:
    if name not in weights:
        raise OptionError(f"no weight {name!r} to project: found {', '.join(weights) or 'none'}")
    return weights[name].detach()
