"""The linear span that a population gradient is compared with: the basis `V_{1:l-1} (T ∪ P) V_{l-1:1}` for any T and P.

Tokens and positions are one index set of `vocab + n_ctx` members, and T ∪ P one list of matrices R on it. With `C_u`
the rows that path u gives to every member (`contents`), the span of a head's merged matrix is that of `C_uᵀ R C_v`, and
the span of the readout that of `C_pᵀ R` with R's columns among the tokens.

If the law of contexts, the loss and the weights are unchanged by a group that permutes tokens and positions, then so is
the gradient, hence it commutes with the group: it lies in the span of the orbits on pairs (`invariant_span`), provided
that the embeddings and the writes of heads respect the group. The paper's sets are smaller (`named_span`).
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from imir_lens.errors import OptionError
from imir_lens.manifold import Energy
from imir_lens.manifold_basis import ReadoutBasis, ScoreBasis
from imir_lens.models.blueprint import shift_matrix
from imir_lens.models.disentangled import DisentangledTransformer
from imir_lens.relations import orbits_on_pairs
from imir_lens.tasks.base import Task
from imir_lens.weights import CircuitWeights

READOUT = "readout"


@dataclass(frozen=True)
class Span:
    """T ∪ P.

    Attributes:
        relations: matrices on the tokens and, after them, the positions.
        d_vocab: number of tokens.
    """

    relations: Float[Tensor, "relation index index"]
    d_vocab: int

    def project(
        self, contents: Sequence[Float[Tensor, "_ _ _"]], weights: Mapping[str, Tensor], n_heads: int
    ) -> tuple[dict[str, Energy], dict[str, Tensor]]:
        """Project merged matrices, by least squares.

        Args:
            contents: `[path index width]` of the stream entering each layer, and of that after the last.
            weights: `L0H0` … and `readout` → matrix.
            n_heads: heads a layer.

        Returns:
            energies on the span and off it, and the projected matrices, by the same names.
        """
        energies: dict[str, Energy] = {}
        kept: dict[str, Tensor] = {}
        for layer, content in enumerate(contents[:-1]):
            basis = ScoreBasis({"all": content.double()}, {"all": self.relations})
            for index in range(n_heads):
                name = f"L{layer}H{index}"
                kept[name] = basis.fit(weights[name].double())[1]
                energies[name] = _energy(weights[name].double(), kept[name], basis.rank)
        columns = self.relations[:, :, : self.d_vocab]
        columns = columns[columns.flatten(1).any(1)]
        readout = ReadoutBasis(contents[-1].double(), columns)
        kept[READOUT] = readout.fit(weights[READOUT].double())[1]
        energies[READOUT] = _energy(weights[READOUT].double(), kept[READOUT], readout.rank)
        return energies, kept


def _energy(matrix: Tensor, on: Tensor, rank: int) -> Energy:
    return Energy(on.square().sum().item(), (matrix - on).square().sum().item(), rank, matrix.numel())


def invariant_span(task: Task, *, cyclic: bool) -> Span:
    """Return the orbits of the task's symmetry on pairs of tokens and positions.

    Args:
        task: gives the relabellings of tokens that leave its law unchanged.
        cyclic: let the cyclic shift of positions be a symmetry too, as on a ring. Otherwise every pair of positions is
            an orbit of its own: under a causal mask no shift is a symmetry.
    """
    vocab, length = task.d_vocab, task.n_positions
    stay = torch.arange(vocab, vocab + length)
    generators = [torch.cat([relabelling, stay]) for relabelling in task.symmetry_generators]
    if cyclic:
        generators.append(torch.cat([torch.arange(vocab), stay.roll(1)]))
    orbits = orbits_on_pairs(generators)
    return Span(torch.stack([(orbits == k).double() for k in range(int(orbits.max()) + 1)]), vocab)


def named_span(
    task: Task, *, tokens: Sequence[str] | None = None, offsets: Sequence[int] = (0, 1), cyclic: bool = True
) -> Span:
    """Return the span of named relations, with nothing that ties tokens to positions.

    Args:
        task: gives the token relations.
        tokens: their names, class pairs `word>filler` among them; None takes the matchings: T = {I, C}.
        offsets: k of the shifts; the default is the paper's P = {I, M}.
        cyclic: take shifts modulo the context length.

    Raises:
        TaskError: when the task has no such relation.
        OptionError: without any relation.
    """
    vocab, length = task.d_vocab, task.n_positions
    names = tuple(task.relations.matchings) if tokens is None else tokens
    shifts = [torch.eye(length).roll(-k, dims=1) if cyclic else shift_matrix(length, k) for k in offsets]
    parts = [(task.relations.matrix(name), slice(0, vocab)) for name in names]
    parts += [(shift, slice(vocab, vocab + length)) for shift in shifts]
    if not parts:
        raise OptionError("a span needs at least one relation: give token relations or offsets")
    relations = torch.zeros(len(parts), vocab + length, vocab + length, dtype=torch.float64)
    for row, (matrix, place) in zip(relations, parts, strict=True):
        row[place, place] = matrix.double()
    return Span(relations, vocab)


def stream_contents(model: DisentangledTransformer | CircuitWeights) -> list[Float[Tensor, "_ _ _"]]:
    """Return `E V_p` of tokens and positions for the paths entering each layer, and those after the last.

    In a disentangled transformer V_p are its fixed write maps; otherwise `V_p = OV_h1 … OV_hr`, as the weights are.
    """
    if isinstance(model, DisentangledTransformer):
        layers = range(model.cfg.n_layers + 1)
        return [torch.cat([model.contents(layer, "tok"), model.contents(layer, "pos")], dim=1) for layer in layers]
    found = [torch.cat([model.W_E, model.W_pos]).unsqueeze(0)]
    for layer in range(model.n_layers):
        written = [found[-1] @ model.W_OV(layer, head) for head in range(model.n_heads)]
        found.append(torch.cat([found[-1], *written]))
    return found


def merged_weights(model: DisentangledTransformer, values: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
    """Name a disentangled model's parameters, or as many other values, by head."""
    given = dict(model.named_parameters()) if values is None else values
    named = {
        f"L{layer}H{head}": matrix.detach()
        for layer in range(model.cfg.n_layers)
        for head, matrix in enumerate(given[f"blocks.{layer}.attn.W_KQ"])
    }
    return {**named, READOUT: given["unembed.W_U"].detach()}


def moved_onto(model: DisentangledTransformer, span: Span) -> DisentangledTransformer:
    """Return a copy of a model whose weights are the nearest ones in a span."""
    kept = span.project(stream_contents(model), merged_weights(model), model.cfg.n_heads)[1]
    copy = deepcopy(model)
    with torch.no_grad():
        for layer in range(model.cfg.n_layers):
            heads = torch.stack([kept[f"L{layer}H{head}"] for head in range(model.cfg.n_heads)])
            copy.attention(layer).W_KQ.copy_(heads)
        copy.unembed.W_U.copy_(kept[READOUT])
    return copy
