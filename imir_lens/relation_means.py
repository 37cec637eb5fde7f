"""Orbit means of a block given in factors, `B_uv[s, t] = query_u[s] · key_v[t]`, for all pairs of paths at once.

A mean over orbit pairs is a trace, so one matrix product serves all pairs of paths and no block is ever formed.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from imir_lens.relations import TokenRelations


def token_contrasts(
    relations: TokenRelations,
    query: Float[Tensor, "query_path vocab d"],
    key: Float[Tensor, "key_path vocab d"],
) -> Float[Tensor, "query_path key_path relation"]:
    """Contrasts over the token relations, in the order of `relations.names`.

    With `base[a, b]` the mean over the unmatched pairs of classes a and b: a matching's contrast is the mean over its
    pairs of `B − base`, and a class contrast is `base[a, b] − base[a, reference]`.
    """
    classes = list(relations.classes)
    class_of = relations.class_of()
    query_sums = {name: query[:, ids].sum(1) for name, ids in relations.classes.items()}
    key_sums = {name: key[:, ids].sum(1) for name, ids in relations.classes.items()}

    # Sum and count of each matching's pairs inside each rectangle of classes.
    matched: dict[str, dict[tuple[str, str], tuple[Tensor, int]]] = {}
    for name, partner in relations.matchings.items():
        rows = (partner >= 0).nonzero().squeeze(1)
        columns = partner[rows]
        matched[name] = {}
        for a, b in torch.stack([class_of[rows], class_of[columns]]).unique(dim=1).T.tolist():
            inside = (class_of[rows] == a) & (class_of[columns] == b)
            total = query[:, rows[inside]].flatten(1) @ key[:, columns[inside]].flatten(1).T
            matched[name][classes[a], classes[b]] = (total, int(inside.sum()))

    base = {}
    for a, ids_a in relations.classes.items():
        for b, ids_b in relations.classes.items():
            whole, count = query_sums[a] @ key_sums[b].T, len(ids_a) * len(ids_b)
            rest, left = whole, count
            for rectangles in matched.values():
                if (a, b) in rectangles:
                    rest, left = rest - rectangles[a, b][0], left - rectangles[a, b][1]
            # Where every pair is matched (a class of one token) nothing is left to compare with: use the whole mean.
            base[a, b] = rest / left if left else whole / count

    out = []
    for rectangles in matched.values():
        pairs = sum(count for _, count in rectangles.values())
        out.append(sum((total - count * base[ab] for ab, (total, count) in rectangles.items())) / pairs)
    out += [base[a, b] - base[a, relations.reference] for a in relations.classes for b in relations.free_classes]
    return torch.stack(out, dim=-1)  # type: ignore[arg-type]


def offset_means(
    query: Float[Tensor, "query_path position d"], key: Float[Tensor, "key_path position d"]
) -> Float[Tensor, "query_path key_path offset"]:
    """Means over the pairs (i, j) with `i − j = k`, for k = −(P−1) … P−1."""
    n_positions = query.shape[1]
    out = []
    for k in range(-(n_positions - 1), n_positions):
        first, pairs = max(k, 0), n_positions - abs(k)
        rows, columns = query[:, first : first + pairs], key[:, first - k : first - k + pairs]
        out.append(rows.flatten(1) @ columns.flatten(1).T / pairs)
    return torch.stack(out, dim=-1)


def offset_means_of_rows(
    query: Float[Tensor, "position d"], key: Float[Tensor, "key_path position d"], rows: Int[Tensor, " row"]
) -> Float[Tensor, "key_path offset"]:
    """Means over the pairs (i, i − k) with i among `rows`; NaN at offsets that no row has."""
    n_positions = query.shape[0]
    block = torch.einsum("rd,vjd->vrj", query[rows], key)
    offset = (rows.unsqueeze(1) - torch.arange(n_positions, device=rows.device)) + n_positions - 1
    total = block.new_zeros(len(key), 2 * n_positions - 1).index_add_(1, offset.flatten(), block.flatten(1))
    return total / torch.bincount(offset.flatten(), minlength=2 * n_positions - 1)


def fix_offset_gauge(
    means: Float[Tensor, "query_path key_path offset"], *, ahead: bool = False
) -> Float[Tensor, "query_path key_path offset"]:
    """Subtract each block's median over the offsets that can occur; set the others (NaN, or a key ahead) to zero.

    A constant over all offsets is a constant over all keys, which no softmax sees. The median, unlike the mean, leaves
    a head that looks at one offset and treats the others alike with exactly one nonzero coordinate.

    Args:
        means: of each block.
        ahead: whether a query read directly sees keys ahead of it, as in bidirectional attention.
    """
    possible = means.clone()
    if not ahead:
        possible[0, :, : means.shape[2] // 2] = torch.nan
    return (possible - possible.nanquantile(0.5, dim=2, keepdim=True)).nan_to_num(0.0)
