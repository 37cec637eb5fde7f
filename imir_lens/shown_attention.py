"""`attention`: the patterns of a model's heads on one context, to look at."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

from imir_lens.detection import Circuit
from imir_lens.errors import OptionError
from imir_lens.figures.style import role_symbol
from imir_lens.ids import CoordinateId, Head
from imir_lens.lens_model import LensModel, open_model
from imir_lens.report.attention_page import AttentionView
from imir_lens.tasks.base import Batch

if TYPE_CHECKING:
    from imir_lens.report.document import Report

MOST_HEADS = 16
MOST_TOKENS = 256


def attention(
    model: nn.Module | str | Path | LensModel,
    batch: Batch | Int[Tensor, "*context position"],
    heads: "Circuit | Report | Iterable[str | Head] | str | None" = None,
    *,
    context: int = 0,
    decode: Callable[[Int[Tensor, " position"]], Sequence[str]] | None = None,
) -> AttentionView:
    """Show where heads look on one context.

    Args:
        model: a path or live model as in `open_model`, or an opened one.
        batch: contexts: of a task, or token ids.
        heads: which: those of a circuit or a report, labelled with their roles; one name or more ("L0H0"); None: all.
        context: which context of the batch.
        decode: from token ids to texts (a task's `decode`, say); default, the ids.

    Returns:
        A view that shows itself in a notebook. At most 16 heads and the last 256 tokens are shown; it says what was
        left out.

    Raises:
        OptionError: for a head or a context that does not exist, an empty context, or no heads at all.
        ImirError: as `open_model`.
    """
    lens = model if isinstance(model, LensModel) else open_model(model)
    tokens = batch.tokens if isinstance(batch, Batch) else torch.atleast_2d(batch)
    if not -len(tokens) <= context < len(tokens):
        raise OptionError(f"context {context}: the batch has {len(tokens)}")
    if not tokens.shape[1]:
        raise OptionError("a context without tokens: expected at least one")
    tokens = tokens[context].unsqueeze(0)
    labels = _labels(lens, heads)
    dropped = []
    if len(labels) > MOST_HEADS:
        dropped.append(f"{len(labels) - MOST_HEADS} more heads are not shown.")
        labels = dict(list(labels.items())[:MOST_HEADS])
    names = {head: f"blocks.{head.layer}.attn.hook_pattern" for head in labels}
    _, cache = lens.run_with_cache(tokens.to(lens.device), list(names.values()))
    first = max(0, tokens.shape[1] - MOST_TOKENS)
    if first:
        dropped.append(f"The first {first} tokens are not shown.")
    texts = [str(token) for token in tokens[0].tolist()] if decode is None else list(decode(tokens[0].cpu()))
    query = len(texts) - 1
    target = ""
    if isinstance(batch, Batch):
        query = int(batch.queries[context, 0])
        answer = batch.targets[context, :1].cpu()
        target = str(int(answer)) if decode is None else str(decode(answer)[0])
    patterns = {
        label: cache[names[head]][0, head.index, first:, first:].double().cpu().tolist()
        for head, label in labels.items()
    }
    example = {"tokens": texts[first:], "query": max(0, query - first), "target": target, "attention": patterns}
    return AttentionView(example, dropped=" ".join(dropped))


def _labels(lens: LensModel, heads: Any) -> dict[Head, str]:
    """Return the heads to show, in order, each with its name and, in a circuit, its roles."""
    w = lens.weights
    if heads is None:
        return {h: str(h) for h in (Head(layer, index) for layer in range(w.n_layers) for index in range(w.n_heads))}
    roles = _roles(heads)
    chosen: list[Head] = sorted(roles) if roles is not None else [_head(name) for name in _listed(heads)]
    if not chosen:
        raise OptionError("no heads to show: expected at least one (a circuit without units has none)")
    for head in chosen:
        if not (0 <= head.layer < w.n_layers and 0 <= head.index < w.n_heads):
            raise OptionError(f"head {head}: the model has {w.n_layers} layers of {w.n_heads} heads")
    found = roles or {}
    return {head: " ".join([str(head), *map(role_symbol, found.get(head, ()))]) for head in chosen}


def _listed(heads: Any) -> Iterable[Any]:
    """Return a head's name alone as a list of one, not as its letters."""
    return [heads] if isinstance(heads, str) else heads


def _roles(heads: Any) -> dict[Head, list[str]] | None:
    """Return the roles that each head of a circuit or report carries; None for a list of heads."""
    if isinstance(heads, Circuit):
        units = [(unit.id, unit.role) for unit in heads.units]
    elif hasattr(heads, "units") and hasattr(heads, "data"):
        units = [(CoordinateId.parse(unit["id"]), unit["role"]) for unit in heads.units]
    else:
        return None
    found: dict[Head, list[str]] = {}
    for name, role in units:
        carrier = name.head or (name.key.heads[-1] if name.key is not None and name.key.heads else None)
        for head in [*(h for path in name.paths for h in path.heads), *([name.head] if name.head else [])]:
            found.setdefault(head, [])
            if head == carrier and role not in found[head]:
                found[head].append(role)
    return found


def _head(name: str | Head) -> Head:
    if isinstance(name, Head):
        return name
    parts = name.removeprefix("L").split("H") if isinstance(name, str) else []
    if len(parts) != 2 or not all(part.isascii() and part.isdigit() for part in parts):
        raise OptionError(f"{name!r} is no head: expected a name such as 'L0H1'")
    return Head(int(parts[0]), int(parts[1]))
