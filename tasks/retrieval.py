"""Retrieval: conditional retrieval, `[key field value] … key field → value`, two matches in conjunction."""

from dataclasses import dataclass

import torch

from imir_lens.tasks.base import Batch
from imir_lens.tasks.block_form import BlockForm, Link
from imir_lens.tasks.block_list import BlockListTask
from imir_lens.tasks.layout import choose
from imir_lens.tasks.registry import register


@register
@dataclass(frozen=True)
class Retrieval(BlockListTask):
    """A table of values, one block for every key and field; the last two tokens name a key and a field.

    A context draws `keys` key words, `fields` field words and one value for every pair of them, all distinct and
    uniform over the words. Each pair is written as the block `[key field value]`; all blocks stand in random order,
    with filler between them at random. The context ends in the key and the field of a block drawn uniformly, and the
    answer is its value. What the literature leaves open and we chose: every key has every field, so that neither match
    alone helps (the key leaves `fields` values, the field leaves `keys`); keys, fields and values are one kind of word,
    told apart by their place alone.

    The reference circuit has two heads in its first layer, one for each distance over which a word must be brought, and
    one head that adds up both matches. Since roles never swap places, one first-layer head that looks at both distances
    can do the job of two (`retrieval_circuit(shared=True)`), at the same depth and with as many coordinates.

    Attributes:
        vocab: number of tokens; id 0 is filler, the words are 1 .. vocab − 1.
        keys: keys in a context.
        fields: fields of each key.
        length: tokens in a context, the query's two included.

    Raises:
        TaskError: when the words or the blocks do not fit; the message names the inequality.
    """

    vocab: int = 64
    keys: int = 3
    fields: int = 3
    length: int = 32

    name = "retrieval"
    summary = "conditional retrieval: match a key and a field at once, answer their value"

    def __post_init__(self) -> None:
        sizes = ("keys", "fields")
        for knob in sizes:
            self._require(getattr(self, knob) >= 1, f"{knob} >= 1", knob)
        words = "keys + fields + keys*fields <= vocab-1 distinct words"
        self._require(self.keys + self.fields + self.n_blocks <= self.vocab - 1, words, *sizes, "vocab")
        self._require(3 * self.n_blocks <= self.length - 2, "3*keys*fields <= length-2", *sizes, "length")

    @property
    def form(self) -> BlockForm:
        """Triples; the query gives the first two slots of one."""
        return BlockForm(("key", "field", "value"), (Link(0, 1), Link(1, 0)), answer=2)

    @property
    def n_blocks(self) -> int:
        """Number of whole blocks in a context."""
        return self.keys * self.fields

    def sample(self, contexts: int, generator: torch.Generator) -> Batch:
        """Draw contexts.

        `latent`: `starts` [context block] the blocks' positions in order, `words` [context block 3], and `queried`
        [context] the block that is asked for.
        """
        words = choose(contexts, self.keys + self.fields + self.n_blocks, self.vocab - 1, generator) + 1
        key, field, value = words.split([self.keys, self.fields, self.n_blocks], dim=1)
        table = torch.stack([key.repeat_interleave(self.fields, 1), field.repeat(1, self.keys), value], dim=2)
        order = choose(contexts, self.n_blocks, self.n_blocks, generator)
        blocks = table.gather(1, order.unsqueeze(2).expand(-1, -1, 3))
        queried = torch.randint(self.n_blocks, (contexts,), generator=generator, device=generator.device)
        asked = blocks[torch.arange(contexts, device=generator.device), queried]
        starts = self.place(contexts, generator)
        return self.lay_out(starts, blocks, asked[:, :2], asked[:, 2], {"queried": queried})
