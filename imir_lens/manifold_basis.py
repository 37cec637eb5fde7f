"""Least squares on the manifold's basis matrices, none of which is ever built.

A basis matrix is `B = C_uᵀ R C_v` with `C_u [index, width]` the place of path u's content and R a relation. With
`K_uv = C_u C_vᵀ`,

    ⟨B(u,R,v), W⟩ = ⟨R, C_u W C_vᵀ⟩        ⟨B(u,R,v), B(u',R',v')⟩ = ⟨K_uu'ᵀ R, R' K_vv'ᵀ⟩

and the second, for all n² · n² pairs of paths at once, is one product of two (n² × index²) matrices.
"""

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor


class ScoreBasis:
    """The matrices `C_uᵀ R C_v` of one layer, tokens first; coefficients in the order source, u, v, R."""

    def __init__(self, contents: Mapping[str, Tensor], relations: Mapping[str, Tensor]) -> None:
        self.contents = contents  # source → [path, index, width]
        self.relations = relations  # source → [relation, index, index]
        self.shapes = {s: (len(contents[s]), len(contents[s]), len(relations[s])) for s in contents}
        gram = torch.cat([torch.cat([self._gram(s, t) for t in contents], dim=1) for s in contents])
        self.inverse, self.rank = _pseudo_inverse(gram)

    def _gram(self, s: str, t: str) -> Float[Tensor, "left right"]:
        overlap = torch.einsum("pad,qbd->pqab", self.contents[s], self.contents[t])
        left = torch.einsum("pqac,rab->pqrcb", overlap, self.relations[s])  # K_uu'ᵀ R
        right = torch.einsum("pqbd,rcd->pqrcb", overlap, self.relations[t])  # R' K_vv'ᵀ
        p, q = overlap.shape[:2]
        gram = left.flatten(0, 2).flatten(1) @ right.flatten(0, 2).flatten(1).T
        gram = gram.reshape(p, q, left.shape[2], p, q, right.shape[2])  # u u' R v v' R'
        return gram.permute(0, 3, 2, 1, 4, 5).reshape(p * p * left.shape[2], q * q * right.shape[2])

    def fit(self, matrix: Float[Tensor, "width width"]) -> tuple[Float[Tensor, " basis"], Float[Tensor, "width width"]]:
        """Return the coefficients and the matrix they stand for."""
        inner = []
        for source, content in self.contents.items():
            read = torch.einsum("pad,de,qbe->paqb", content, matrix, content)
            inner.append(torch.einsum("paqb,rab->pqr", read, self.relations[source]).flatten())
        found = self.inverse @ torch.cat(inner)
        on = torch.zeros_like(matrix)
        sizes = [u * v * r for u, v, r in self.shapes.values()]
        for source, part in zip(self.contents, found.split(sizes), strict=True):
            content = self.contents[source]
            block = torch.einsum("pqr,rab->paqb", part.reshape(self.shapes[source]), self.relations[source])
            on += torch.einsum("pad,paqb,qbe->de", content, block, content)
        return found, on


class ReadoutBasis:
    """The matrices `C_pᵀ R`; coefficients in the order p, R."""

    def __init__(
        self, content: Float[Tensor, "path index width"], relations: Float[Tensor, "relation index vocab"]
    ) -> None:
        self.content, self.relations = content, relations
        products = torch.einsum("rax,sbx->rsab", relations, relations)
        gram = torch.stack([self._row(path, products) for path in content])
        self.inverse, self.rank = _pseudo_inverse(gram.reshape(len(content) * len(relations), -1))

    def _row(self, path: Tensor, products: Tensor) -> Float[Tensor, "relation path relation_"]:
        overlap = torch.einsum("ad,qbd->qab", path, self.content)
        return torch.einsum("qab,rsab->rqs", overlap, products)

    def fit(self, matrix: Float[Tensor, "width vocab"]) -> tuple[Float[Tensor, " basis"], Float[Tensor, "width vocab"]]:
        """Return the coefficients and the matrix they stand for."""
        read = torch.einsum("pad,dx->pax", self.content, matrix)
        found = self.inverse @ torch.einsum("pax,rax->pr", read, self.relations).flatten()
        shaped = found.reshape(len(self.content), len(self.relations))
        block = torch.einsum("pr,rax->pax", shaped, self.relations)
        return found, torch.einsum("pad,pax->dx", self.content, block)


def _pseudo_inverse(gram: Float[Tensor, "basis basis"]) -> tuple[Float[Tensor, "basis basis"], int]:
    """Inverse on the span; eigenvalues below 1e-10 of the largest count as zero."""
    values, vectors = torch.linalg.eigh(gram)
    keep = values > 1e-10 * values.max() if len(values) else values > 0
    vectors = vectors[:, keep]
    return (vectors / values[keep]) @ vectors.T, int(keep.sum())
