r"""How gradient descent on weights moves coordinates: the metric that training on coordinates has to use.

A coordinate is a linear function of a merged matrix, `c_a = ⟨J_a, W⟩`: a mean over the pairs of an orbit, or a
difference of two such means. The loss sees the matrix through its coordinates, so on the manifold
`∂L/∂W = Σ_a J_aᵀ ∂L/∂c_a` up to parts that move no coordinate. A step of gradient descent `ΔW = −lr ∂L/∂W` then gives

    Δc = −lr M ∂L/∂c        M_ab = ⟨J_a, J_b⟩

M is the inverse of the Gram matrix of the basis `B_a = C_uᵀ R C_v` (see `manifold`), taken with the gauge directions in
it and the gauge then divided out. Plain descent on the coordinates has the identity in place of M and follows another
path: a coordinate that many entries carry (`same`: one for each token) moves that many times more slowly in the
weights. Off the manifold the same step is what the projection of the weights does as long as the loss still depends on
the coordinates alone; by Theorem 1 of arXiv 2607.11875 the population gradient stays in the span.

With one-hot contents that do not overlap (`DisentangledTransformer`), different pairs of paths are orthogonal, and

- `offset+k`: `M = 1 / m_k`, with m_k the pairs of positions (i, i − k) that are ever used: rows of the queries only,
  where the last layer's query is read directly. The constant over all k is gauge and moves nothing;
- token relations: the rectangle of classes (a, b) falls into the pairs of each matching and a rest; means over these
  orbits are orthogonal with squared norms 1 / size, and every coordinate is a combination of them as in
  `relation_means.token_contrasts`;
- key bias of class b against the reference r: `M = w (δ_bb' / |b| + 1 / |r|)`, where w adds over the query paths 1 over
  the number of position rows that a constant query averages over; the output's class constants likewise.

Adam's steps do not scale with the gradient: every entry of a matrix that carries a coordinate moves by about the
learning rate, and so does the coordinate. Adam on coordinates therefore takes no metric.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from imir_lens.coordinates import Block, CoordinateSpace
from imir_lens.relations import TokenRelations


def coordinate_metric(
    space: CoordinateSpace, chosen: Bool[Tensor, " coordinate"] | None = None
) -> Float[Tensor, "chosen chosen"]:
    """Return M of a disentangled transformer's weights, for the chosen coordinates (default: all active ones).

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
        weight = 1 / (len(queried) if last or block.head is None else rows) + (n_paths - 1) / rows
        same_key = (at[:, None, :-1] == at[None, :, :-1]).all(2)
        return torch.where(same_key, weight * _class_metric(space.relations, relation), 0.0)
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
    """`⟨J_a, J_b⟩` of the token relations, over the orbits: what each matching has of each rectangle, and the rests."""
    classes, class_of = list(relations.classes), relations.class_of()
    counts = []  # [matching or rest, rectangle]
    for partner in relations.matchings.values():
        rows = (partner >= 0).nonzero().flatten()
        rectangle = class_of[rows] * len(classes) + class_of[partner[rows]]
        counts.append(torch.bincount(rectangle, minlength=len(classes) ** 2).double())
    sizes = torch.tensor([len(ids) for ids in relations.classes.values()], dtype=torch.float64)
    whole = torch.outer(sizes, sizes).flatten()
    matched = torch.stack(counts) if counts else whole.new_zeros(0, len(whole))
    sizes_of = torch.cat([matched, (whole - matched.sum(0)).unsqueeze(0)])  # [orbit kind, rectangle]
    n_kinds, n_rectangles = sizes_of.shape
    # base[rectangle]: the mean over its rest, or over all of it where every pair is matched.
    base = torch.zeros(n_rectangles, n_kinds, n_rectangles, dtype=torch.float64)
    for place in range(n_rectangles):
        if sizes_of[-1, place]:
            base[place, -1, place] = 1.0
        else:
            base[place, :, place] = sizes_of[:, place] / whole[place]
    means = []
    for kind, count in enumerate(matched):
        share = count / count.sum()
        mean = -torch.einsum("r,rks->ks", share, base)
        mean[kind] += share
        means.append(mean)
    reference = classes.index(relations.reference)
    for a in range(len(classes)):
        free = [b for b in range(len(classes)) if b != reference]
        means += [base[a * len(classes) + b] - base[a * len(classes) + reference] for b in free]
    combined = torch.stack(means).flatten(1)
    inverse = torch.where(sizes_of > 0, 1 / sizes_of.clamp(min=1), 0.0).flatten()
    return (combined * inverse) @ combined.T


def _class_metric(relations: TokenRelations, which: Int[Tensor, " some"]) -> Float[Tensor, "some some"]:
    sizes = [len(relations.classes[relations.free_classes[place]]) for place in which.tolist()]
    shared = 1 / len(relations.classes[relations.reference])
    diagonal = torch.tensor([1 / size for size in sizes], dtype=torch.float64).diag()
    return diagonal + torch.where((which.unsqueeze(1) >= 0) & (which >= 0), shared, 0.0)
