r"""How gradient descent on weights moves coordinates: the metric that training on coordinates has to use.

Let a merged matrix be `W = Σ_a c_a B_a + (rest)` with `B_a = C_uᵀ R C_v` the matrix of coordinate a (see `manifold`) and
`G_ab = ⟨B_a, B_b⟩` their Gram matrix, gauge directions included. The loss sees the matrix only through the
coefficients, so `∂L/∂c_a = ⟨B_a, ∂L/∂W⟩`. A step of gradient descent `ΔW = −lr ∂L/∂W`, projected back on the basis by
least squares, moves the coefficients by `Δc = G⁻¹ (⟨B_a, ΔW⟩)_a`, hence

    Δc = −lr G⁻¹ ∂L/∂c

Plain descent on the coordinates has the identity in place of `G⁻¹` and follows another path: a coordinate that many
entries carry (`same`: one for each token) moves that many times more slowly in the weights. This holds whether or not
the gradient lies in the span of the basis; when it does (Theorem 1 of arXiv 2607.11875) the rest stays what it was and
the coordinates are the whole motion.

With one-hot contents that do not overlap (`DisentangledTransformer`), matrices of different pairs of paths are
orthogonal, and

- `offset+k` has `G = m_k`, the number of pairs of positions (i, i − k) that are ever used: rows of the queries only,
  where the last layer's query is read directly;
- token relations have `G = (|R ∩ R'|)` over the matchings and all rectangles of classes; those of the reference class
  are gauge: they are inverted with the others, and then left out (the loss does not depend on them);
- the key bias of a class b, against the reference r, is the sum over the n query paths of a block of positions and
  tokens: `G⁻¹ = n / rows · (δ_bb' / |b| + 1 / |r|)`, and the same for the output's class constants.

Adam's steps do not scale with the gradient: every entry of a matrix that carries a coordinate moves by about the
learning rate, and so does the coordinate. Adam on coordinates therefore needs no metric.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from imir_lens.coordinates import Block, CoordinateSpace
from imir_lens.relations import TokenRelations


def coordinate_metric(
    space: CoordinateSpace, chosen: Bool[Tensor, " coordinate"] | None = None
) -> Float[Tensor, "chosen chosen"]:
    """Return `G⁻¹` of a disentangled transformer's weights, for the chosen coordinates (default: all active ones).

    Args:
        space: which coordinates there are.
        chosen: those that are trained; pass the same to `train_many`.
    """
    mask = space.active if chosen is None else chosen.cpu()
    places = mask.nonzero().flatten()
    found = torch.zeros(len(places), len(places), dtype=torch.float64)
    tokens = _token_metric(space.relations)
    for block in space.blocks:
        inside = ((places >= block.start) & (places < block.stop)).nonzero().flatten()
        local = places[inside] - block.start
        if len(local):
            part = _of_block(space, block, local, tokens)
            found[inside.unsqueeze(1), inside] = part
    return found


def _of_block(
    space: CoordinateSpace, block: Block, local: Int[Tensor, " some"], tokens: Float[Tensor, "relation relation"]
) -> Float[Tensor, "some some"]:
    at = torch.stack(torch.unravel_index(local, block.shape), dim=1)
    relation, n_tokens = at[:, -1], len(space.relations.names)
    rows = space.n_positions
    queried = space.query_positions if space.query_positions is not None else tuple(range(rows))
    last = block.head is not None and block.head.layer == space.paths.n_layers - 1
    if block.kind.endswith("bias"):
        n_paths = len(space.paths) if block.head is None else space.paths.n_entering[block.head.layer]
        return _class_metric(space.relations, relation) * n_paths / (len(queried) if last or block.head is None else rows)
    same_paths = (at[:, None, :-1] == at[None, :, :-1]).all(2)
    is_token = relation < n_tokens
    found = torch.zeros(len(at), len(at), dtype=torch.float64)
    both = same_paths & is_token.unsqueeze(1) & is_token
    first, second = both.nonzero().unbind(1)
    found[first, second] = tokens[relation[first], relation[second]]
    for index in (~is_token).nonzero().flatten().tolist():
        offset = int(relation[index]) - n_tokens - space.n_positions + 1
        used = queried if last and int(at[index, 0]) == 0 else tuple(range(rows))
        pairs = sum(0 <= i - offset < rows for i in used)
        found[index, index] = 1 / pairs if pairs else 0.0
    return found


def _token_metric(relations: TokenRelations) -> Float[Tensor, "relation relation"]:
    """Inverse Gram matrix over matchings and all rectangles, the reference's left out afterwards."""
    names = [*relations.matchings, *(f"{a}>{b}" for a in relations.classes for b in relations.classes)]
    class_of = relations.class_of()
    gram = torch.zeros(len(names), len(names), dtype=torch.float64)
    n_matchings, classes = len(relations.matchings), list(relations.classes)
    pairs = [torch.stack([(p >= 0).nonzero().flatten(), p[p >= 0]]) for p in relations.matchings.values()]
    for i, mine in enumerate(pairs):
        for j, theirs in enumerate(pairs):
            partner = list(relations.matchings.values())[j]
            gram[i, j] = int((partner[mine[0]] == mine[1]).sum()) if theirs.numel() else 0
        rectangle = class_of[mine[0]] * len(classes) + class_of[mine[1]]
        counts = torch.bincount(rectangle, minlength=len(classes) ** 2).double()
        gram[i, n_matchings:] = gram[n_matchings:, i] = counts
    sizes = torch.tensor([len(ids) for ids in relations.classes.values()], dtype=torch.float64)
    gram[n_matchings:, n_matchings:] = torch.outer(sizes, sizes).flatten().diag()
    # A class of one token has `same` equal to its rectangle: then the least motion, as in `Manifold.project`.
    inverse = torch.linalg.pinv(gram, hermitian=True, rtol=1e-10)
    kept = [names.index(name) for name in relations.names]
    return inverse[kept][:, kept]


def _class_metric(relations: TokenRelations, which: Int[Tensor, " some"]) -> Float[Tensor, "some some"]:
    sizes = [len(relations.classes[relations.free_classes[place]]) for place in which.tolist()]
    shared = 1 / len(relations.classes[relations.reference])
    diagonal = torch.tensor([1 / size for size in sizes], dtype=torch.float64).diag()
    return diagonal + torch.where((which.unsqueeze(1) >= 0) & (which >= 0), shared, 0.0)
