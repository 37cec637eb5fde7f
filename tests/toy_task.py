"""A tiny task with every kind of token relation, and small models with random weights on it."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from imir_lens.lens_model import LensModel, open_model
from imir_lens.models.config import TransformerConfig
from imir_lens.models.transformer import ImirTransformer
from imir_lens.relations import TokenRelations
from imir_lens.tasks.base import Batch, Task

_CLASSES = {"filler": [0], "noun": [1, 4, 7], "verb": [2, 5, 8], "name": [3, 6, 9, 10]}
# Directed: from nouns to verbs, and around the names; its reverse is another relation.
_ASSOC = {1: 2, 4: 5, 7: 8, 3: 6, 6: 9, 9: 10, 10: 3}
VOCAB = 11


def relations(reference: str = "filler") -> TokenRelations:
    """Four classes, one of a single token; `same` without the filler; a directed association and its reverse."""
    forward, backward, same = torch.full((VOCAB,), -1), torch.full((VOCAB,), -1), torch.arange(VOCAB)
    same[0] = -1
    for s, t in _ASSOC.items():
        forward[s], backward[t] = t, s
    return TokenRelations(
        {name: torch.tensor(ids) for name, ids in _CLASSES.items()},
        {"same": same, "assoc": forward, "assoc-reverse": backward},
        reference=reference,
    )


@dataclass(frozen=True)
class ToyTask(Task):
    """Random tokens, two queries at different places in every context, one of which may not count."""

    length: int = 7

    name = "toy"
    summary = "random tokens"

    @property
    def d_vocab(self) -> int:
        return VOCAB

    @property
    def n_positions(self) -> int:
        return self.length

    @property
    def query_positions(self) -> tuple[int, ...]:
        return tuple(range(self.length // 2, self.length))

    @property
    def relations(self) -> TokenRelations:
        return relations()

    @property
    def symmetry_generators(self) -> list[Int[Tensor, " vocab"]]:
        return [torch.arange(VOCAB)]

    @property
    def reference_circuit(self) -> tuple[str, ...]:
        return ()

    def sample(self, contexts: int, generator: torch.Generator) -> Batch:
        half = self.length // 2
        tokens = torch.randint(VOCAB, (contexts, self.length), generator=generator)
        queries = half + torch.rand(contexts, self.length - half, generator=generator).topk(2).indices
        targets = torch.randint(VOCAB, (contexts, 2), generator=generator)
        mask = torch.rand(contexts, 2, generator=generator) < 0.7
        mask[:, 0] = True
        return Batch(tokens, queries, targets, mask)

    def bayes(self, batch: Batch) -> Float[Tensor, "context query vocab"]:
        return torch.full((*batch.targets.shape, VOCAB), 1 / VOCAB)

    def chance(self) -> Float[Tensor, " vocab"]:
        return torch.full((VOCAB,), 1 / VOCAB)

    def decode(self, tokens: Int[Tensor, " position"]) -> list[str]:
        return [str(token) for token in tokens.tolist()]


def toy_batch(contexts: int = 5, *, length: int = 7, seed: int = 3) -> Batch:
    return ToyTask(length).sample(contexts, torch.Generator().manual_seed(seed))


def random_model(
    n_layers: int, n_heads: int, *, seed: int = 1, std: float = 0.5, length: int = 7, dtype: torch.dtype = torch.float64
) -> LensModel:
    """A model of the toy task in which every weight and every bias is random, and patterns are far from uniform."""
    config = TransformerConfig(
        d_model=12,
        d_head=6,
        n_heads=n_heads,
        n_layers=n_layers,
        n_ctx=length + 2,
        d_vocab=VOCAB,
        attn_only=True,
        normalization_type=None,
        dtype=dtype,
    )
    generator = torch.Generator().manual_seed(seed)
    model = ImirTransformer(config, generator=generator)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(std * torch.randn(parameter.shape, generator=generator))
    return open_model(model)
