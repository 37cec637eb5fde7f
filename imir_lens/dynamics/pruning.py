r"""Pruning: a circuit written back into a checkpoint of the same architecture.

Embeddings and unembedding stay. Layer by layer, with X the rows of everything that enters (tokens and positions,
`E_σ V_p` along every path p through heads that are still alive), each head gets the merged matrices that come nearest
to holding the circuit's coordinates and nothing else:

    scores   min ‖(X_q M X_kᵀ − Σ c R) Π‖      M = W_Q W_Kᵀ / scale, rank ≤ d_head
    moves    min ‖X M W_U Π − Σ c R‖            M = W_V W_O, rank ≤ d_head; what later heads read of a path stays as
                                              it was, in the part of the stream that W_U does not read

Π removes the gauge: constants over the keys of one path and source, and over the vocabulary. Both are least squares of
reduced rank: project the target on the ranges, cut its singular values, and divide by X. Heads without a part in the
circuit become zero; b_Q holds what constant queries ask of keys, b_U the output's constants, all other biases are zero.

The circuit cannot always be had exactly. `W_E W_U` is untouched, so what the unembedding reads of the query's own token
stays; contents can be more than d_model has room for; what one `W_V W_O` moves for two readers it moves for both; and
where the vocabulary fills the stream, what later heads read is read out too. `Pruned` has what is left, in numbers.
"""

import copy
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from imir_lens.coordinates import Coordinates
from imir_lens.detection import Circuit
from imir_lens.errors import CoordinateError, UnsupportedModelError
from imir_lens.evaluation import Score, at_queries, score_logits
from imir_lens.ids import CoordinateId, Head, Path
from imir_lens.models.blueprint import shift_matrix
from imir_lens.models.transformer import ImirTransformer
from imir_lens.projector import ImirProjector
from imir_lens.surrogate import Surrogate
from imir_lens.tasks.base import Batch
from imir_lens.terms import Reads
from imir_lens.weights import CircuitWeights

_NEGLIGIBLE = 1e-5  # singular values below this share of the largest are rounding


@dataclass(frozen=True)
class Pruned:
    """A pruned model and what pruning did.

    Attributes:
        model: of the same architecture; save it with `save_checkpoint`.
        wanted: id → value of the circuit's coordinates.
        found: all coordinates of the pruned model.
        before, circuit, after: scores of the model, the circuit's surrogate and the pruned model.
        ranks: head → (rank of W_Q W_Kᵀ, rank of W_V W_O); heads that are left out became zero.
        numbers_before, numbers_after: numbers that are not zero in W_Q, W_K, W_V and W_O.
    """

    model: ImirTransformer
    wanted: dict[str, float]
    found: Coordinates
    before: Score
    circuit: Score
    after: Score
    ranks: dict[Head, tuple[int, int]]
    numbers_before: int
    numbers_after: int

    @property
    def kept(self) -> dict[str, float]:
        """The circuit's coordinates as they came out."""
        index = self.found.space.paths.index
        return {
            name: self.found[name] if all(path in index for path in CoordinateId.parse(name).paths) else 0.0
            for name in self.wanted
        }

    @property
    def rest(self) -> tuple[str, float]:
        """The largest coordinate that should not be there: its id and value."""
        return next(
            (str(name), value)
            for name, value in self.found.largest(len(self.wanted) + 1)
            if str(name) not in self.wanted
        )


def prune(model: ImirTransformer, circuit: Circuit | Coordinates, batch: Batch) -> Pruned:
    """Write a circuit into a copy of a model.

    Args:
        model: attention only, without norms, with learned positions.
        circuit: what `detect` found, or coordinates of which those that are not zero are kept.
        batch: contexts to score on.

    Raises:
        UnsupportedModelError: for a model that is more than products of weights.
        CoordinateError: when the circuit is empty, or of another shape of model.
    """
    if isinstance(circuit, Circuit):
        circuit = circuit.coordinates.only([unit.id for unit in circuit.units])
    weights = CircuitWeights.from_state(model.state_dict(), model.cfg)
    space = circuit.space
    if not weights.form.plain:
        raise UnsupportedModelError("pruning needs an attention-only model with learned positions, no norm and no cap")
    if not bool(circuit.values.any()):
        raise CoordinateError("the circuit is empty: there is nothing to keep")
    if (space.paths.n_layers, space.paths.n_heads) != (weights.n_layers, weights.n_heads):
        raise CoordinateError(
            f"the circuit is for {space.paths.n_layers} layers of {space.paths.n_heads} heads, the model has "
            f"{weights.n_layers} of {weights.n_heads}"
        )
    fitter = _Fitter(weights, circuit)
    pruned = copy.deepcopy(model)
    fitted = fitter.fit()
    with torch.no_grad():
        for name, parameter in pruned.named_parameters():
            if name in fitted:
                parameter.copy_(fitted[name])
        before, after = (score_logits(at_queries(m(batch.tokens), batch), batch) for m in (model, pruned))
        surrogate = score_logits(Surrogate(space).logits(circuit.values, batch), batch)
    projector = ImirProjector(space.relations, space.n_positions, query_positions=space.query_positions)
    return Pruned(
        pruned,
        {str(space.id(place)): float(circuit.values[place]) for place in circuit.values.nonzero().flatten().tolist()},
        projector.fit(CircuitWeights.from_state(pruned.state_dict(), pruned.cfg)).coordinates_,
        before,
        surrogate,
        after,
        fitter.ranks,
        _numbers(model),
        _numbers(pruned),
    )


@dataclass(frozen=True)
class _Content:
    """What one path carries of one source: a row for each token or position."""

    path: Path
    source: str
    rows: Float[Tensor, "index d_model"]


class _Fitter:
    """Fits head after head, following what the heads below now write."""

    def __init__(self, weights: CircuitWeights, circuit: Coordinates) -> None:
        self.weights, self.space, self.values = weights, circuit.space, circuit.values.double()
        self.reads = Reads.of(self.space, self.values != 0)
        self.ranks: dict[Head, tuple[int, int]] = {}
        n = self.space.n_positions
        self.queried = list(self.space.query_positions or range(n))
        self.contents = [
            _Content(Path(), "tok", weights.W_E.double()),
            _Content(Path(), "pos", weights.W_pos[:n].double()),
        ]
        self.unembed = weights.W_U.double()
        self.unembed = self.unembed - self.unembed.mean(1, keepdim=True)
        # The part of the stream that the unembedding does not read.
        left, size, _ = torch.linalg.svd(self.unembed, full_matrices=True)
        self.unread = left[:, int((size > _NEGLIGIBLE * size[0]).sum()) :]

    def fit(self) -> dict[str, Tensor]:
        """Return the new parameters."""
        w = self.weights
        out: dict[str, Tensor] = {}
        for layer in range(w.n_layers):
            shape = (w.W_Q.shape[1], w.W_Q.shape[2], w.W_Q.shape[3])
            new = {name: torch.zeros(shape, dtype=torch.float64) for name in ("W_Q", "W_K", "W_V")}
            new["W_O"] = new["W_V"].transpose(1, 2).clone()
            new |= {name: torch.zeros(shape[0], shape[2], dtype=torch.float64) for name in ("b_Q", "b_K", "b_V")}
            new["b_O"] = torch.zeros(shape[1], dtype=torch.float64)
            written: list[_Content] = []
            for index in range(shape[0]):
                head = Head(layer, index)
                if not any(place in self.reads.needed for _, place in self.space.paths.extensions(head)):
                    continue
                query, key = self._scores(head)
                value, output = self._moves(head)
                new["W_Q"][index, :, : query.shape[1]], new["b_Q"][index, : query.shape[1]] = query[:-1], query[-1]
                new["W_K"][index, :, : key.shape[1]] = key
                new["W_V"][index, :, : value.shape[1]], new["W_O"][index, : value.shape[1]] = value, output
                self.ranks[head] = query.shape[1], value.shape[1]
                moved = value @ output
                written += [_Content(c.path.then(head), c.source, c.rows @ moved) for c in self.contents]
            self.contents += [c for c in written if float(c.rows.norm()) > _NEGLIGIBLE * float(w.W_E.norm())]
            out |= {f"blocks.{layer}.attn.{name}": value for name, value in new.items()}
        out["unembed.b_U"] = self._output_constants()
        return out

    def _scores(self, head: Head) -> tuple[Float[Tensor, "d_model_and_one rank"], Float[Tensor, "d_model rank"]]:
        """Factors of W_Q (with b_Q as a last row) and W_K."""
        last = head.layer == self.weights.n_layers - 1
        entering = self.contents
        queries, targets = [], []
        for u in entering:
            rows = self.queried if last and u.source == "pos" and not u.path.heads else list(range(len(u.rows)))
            queries.append(torch.nn.functional.pad(u.rows[rows], (0, 1)))
            targets.append(torch.cat([self._score_target(head, u, v)[rows] for v in entering], dim=1))
        constant = torch.zeros(1, queries[0].shape[1], dtype=torch.float64)
        constant[0, -1] = 1.0
        queries.append(constant)
        targets.append(torch.cat([self._bias_target(head, v) for v in entering]).unsqueeze(0))
        keys = torch.cat([v.rows - v.rows.mean(0) for v in entering])
        target = torch.cat(targets)
        start = 0
        for v in entering:
            part = target[:, start : start + len(v.rows)]
            part -= part.mean(1, keepdim=True)
            start += len(v.rows)
        left, right = _reduced_rank(torch.cat(queries), target * self.weights.scale, keys, self.weights.W_Q.shape[3])
        return left, right

    def _moves(self, head: Head) -> tuple[Float[Tensor, "d_model rank"], Float[Tensor, "rank d_model"]]:
        """Factors W_V and W_O."""
        index = self.space.paths.index
        original = (self.weights.W_V[head.layer, head.index] @ self.weights.W_O[head.layer, head.index]).double()
        read_out, kept = [], []
        for content in self.contents:
            through = index.get(content.path.then(head)) if content.path in index else None
            goes_on = through is not None and content.source in self._carried(through)
            kept.append(content.rows @ original if goes_on else torch.zeros_like(content.rows))
            read_out.append(self._readout_target(content, through))
        rows, kept_rows, target = torch.cat([c.rows for c in self.contents]), torch.cat(kept), torch.cat(read_out)
        target = target - target.mean(1, keepdim=True)
        needed = int(torch.linalg.matrix_rank(kept_rows))
        if needed <= self.unread.shape[1]:
            # What later heads read goes where the unembedding does not look.
            wanted = target @ torch.linalg.pinv(self.unembed) + kept_rows @ self.unread @ self.unread.T
        else:
            wanted = target @ torch.linalg.pinv(self.unembed) + kept_rows
        identity = torch.eye(rows.shape[1], dtype=torch.float64)
        left, right = _reduced_rank(rows, wanted, identity, self.weights.W_V.shape[3])
        return left, right.T

    def _carried(self, place: int) -> set[str]:
        """Which sources anything above reads along paths that begin like this one, or, at the readout, go on."""
        begin, found = self.space.paths.paths[place].heads, set()
        n_tokens = len(self.space.relations.names)
        follows = [path.heads[: len(begin)] == begin for path in self.space.paths.paths]
        for head in self.space.paths.heads:
            score = self.space.block("score", head).view(self.values) != 0
            bias = self.space.block("score_bias", head).view(self.values) != 0
            for other in range(len(score)):
                if follows[other]:
                    both = score[other].any(0) | score[:, other].any(0)
                    found |= {"tok"} if bool(both[:n_tokens].any() | bias[other].any()) else set()
                    found |= {"pos"} if bool(both[n_tokens:].any()) else set()
        if any(follows[other] and other != place for other in self.reads.readout):
            found |= {"tok"}
        return found

    def _score_target(self, head: Head, u: _Content, v: _Content) -> Float[Tensor, "query key"]:
        zero = torch.zeros(len(u.rows), len(v.rows), dtype=torch.float64)
        index, space = self.space.paths.index, self.space
        if u.source != v.source or u.path not in index or v.path not in index:
            return zero
        values = space.block("score", head).view(self.values)[index[u.path], index[v.path]]
        n_tokens = len(space.relations.names)
        if u.source == "tok":
            named = zip(space.relations.names, values[:n_tokens].tolist(), strict=True)
            return zero + sum(c * space.relations.matrix(name).double() for name, c in named if c)
        shifts = zip(space.offsets, values[n_tokens:].tolist(), strict=True)
        return zero + sum(c * shift_matrix(space.n_positions, k).double() for k, c in shifts if c)

    def _bias_target(self, head: Head, v: _Content) -> Float[Tensor, " key"]:
        place = self.space.paths.index.get(v.path)
        if v.source != "tok" or place is None:
            return torch.zeros(len(v.rows), dtype=torch.float64)
        return self._class_constants(self.space.block("score_bias", head).view(self.values)[place])

    def _readout_target(self, content: _Content, through: int | None) -> Float[Tensor, "index vocab"]:
        zero = torch.zeros(len(content.rows), self.unembed.shape[1], dtype=torch.float64)
        if content.source != "tok" or through is None:
            return zero
        values = self.space.block("readout").view(self.values)[through].tolist()
        names = zip(self.space.relations.names, values, strict=True)
        return zero + sum(c * self.space.relations.matrix(name).double() for name, c in names if c)

    def _class_constants(self, values: Float[Tensor, " free_class"]) -> Float[Tensor, " vocab"]:
        out = torch.zeros(self.space.relations.d_vocab, dtype=torch.float64)
        for name, value in zip(self.space.relations.free_classes, values.tolist(), strict=True):
            out[self.space.relations.classes[name]] = value
        return out

    def _output_constants(self) -> Float[Tensor, " vocab"]:
        """Bias that leaves the circuit's class constants at the queries, whose own position the unembedding reads."""
        read = self.weights.W_pos[self.queried].double().mean(0) @ self.weights.W_U.double()
        return self._class_constants(self.space.block("readout_bias").view(self.values)) - read


def _reduced_rank(
    left: Float[Tensor, "rows a"], target: Float[Tensor, "rows columns"], right: Float[Tensor, "columns b"], rank: int
) -> tuple[Float[Tensor, "a rank"], Float[Tensor, "b rank"]]:
    """Factors of the M of at most this rank that minimises `‖left M rightᵀ − target‖`."""
    divide_left, divide_right = torch.linalg.pinv(left, rtol=1e-4), torch.linalg.pinv(right, rtol=1e-4)
    reached = left @ (divide_left @ target @ divide_right.T) @ right.T
    u, size, v = torch.linalg.svd(reached, full_matrices=False)
    kept = min(rank, int((size > _NEGLIGIBLE * size[0]).sum())) if float(size[0]) > 0 else 0
    root = size[:kept].sqrt()
    return divide_left @ (u[:, :kept] * root), divide_right @ (v[:kept].T * root)


def _numbers(model: ImirTransformer) -> int:
    names = ("W_Q", "W_K", "W_V", "W_O")
    return sum(int((p != 0).sum()) for name, p in model.named_parameters() if name.rpartition(".")[2] in names)
