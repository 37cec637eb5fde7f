"""What a coordinate, a role or a mechanism means, in plain English."""

from typing import Final

from imir_lens.figures.style import Real, base_role
from imir_lens.ids import CoordinateId, Path

ROLE_MEANINGS: Final[dict[str, str]] = {
    "alpha": "position: a head attends a fixed distance back, and what it fetches is read further on",
    "beta": "match: a head attends where a token, or one fetched there, equals the one looked for",
    "gamma": "copy: an attended token is written to the output as itself",
    "delta": "memory: the output is raised for the fixed associate of a token, whatever the context says",
    "auxiliary": "whatever else the circuit needs",
}

MECHANISMS: Final[dict[str, str]] = {
    "in_context": "in-context learning",
    "in_weights": "in-weights learning",
    "mixed": "in-context and in-weights learning",
    "causal_bma": "Bayesian averaging over causal structures",
    "not_detected": "no mechanism detected",
}

EVIDENCE_LEVELS: Final = (
    "weights only",
    "single ablation",
    "joint ablation",
    "sufficiency and necessity",
    "stability",
)

_COUNTS: Final = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def _count(k: int) -> str:
    return _COUNTS[k] if k < len(_COUNTS) else str(k)


def fetched(path: Path | None, thing: str = "token") -> str:
    """Say what a path carries: `the token fetched by L0H0 and passed on by L1H0`."""
    if path is None or not path.heads:
        return f"the current {thing}"
    first, *rest = map(str, path.heads)
    return f"the {thing} fetched by {first}" + "".join(f" and passed on by {head}" for head in rest)


def evidence_step(level: str) -> int:
    """Return how far up the ladder of `EVIDENCE_LEVELS` a level stands, from 1; 0 when it is not on it.

    >>> evidence_step("sufficiency and necessity"), evidence_step("a guess")
    (4, 0)
    """
    plain = level.strip().lower().replace("_", " ").replace("-", " ")
    return EVIDENCE_LEVELS.index(plain) + 1 if plain in EVIDENCE_LEVELS else 0


def _where(k: int) -> str:
    """`one position before`, `the same as`, `two positions after`."""
    if k == 0:
        return "the same as"
    return f"{_count(abs(k))} position{'s' if abs(k) > 1 else ''} {'before' if k > 0 else 'after'}"


def _key(path: Path | None) -> str:
    return "the key token" if path is None or not path.heads else fetched(path)


def _offset(head: str, identity: CoordinateId, k: int, towards: str) -> str:
    query, key = identity.query, identity.key
    if any(path.heads for path in identity.paths):
        there = "the key's position" if key is None or not key.heads else fetched(key, "position")
        return f"{head} {towards} keys where {there} is {_where(k)} {fetched(query, 'position')}."
    if k == 0:
        return f"{head} {towards} the current position itself."
    direction = "back" if k > 0 else "ahead"
    return f"{head} {towards} the position {_count(abs(k))} {direction}."


def _score(identity: CoordinateId, role: str, value: Real | None) -> str:
    head = f"Head {identity.head}"
    less = value is not None and value < 0
    towards = "attends away from" if less else "attends to"
    place = "attends away from keys where" if less else "attends where"
    query, key, relation = identity.query, identity.key, identity.relation
    raw = not any(path.heads for path in identity.paths)
    if identity.offset is not None:
        return _offset(head, identity, identity.offset, towards)
    if relation == "same":
        if raw and base_role(role) != "beta":
            return f"{head} is {'pushed away from' if less else 'drawn to'} the same token itself."
        if key is not None and not key.heads:
            return f"{head} {place} the key token equals {fetched(query)}."
        return f"{head} {place} {fetched(key)} equals {fetched(query)}."
    if relation == "assoc":
        return f"{head} {place} {_key(key)} is the associate of {fetched(query)}."
    if relation == "assoc-reverse":
        return f"{head} {place} {fetched(query)} is the associate of {_key(key)}."
    asked, separator, wanted = relation.partition(">")
    if separator:
        seen = f"keys where {_key(key)} is of class {wanted}" if key is not None and key.heads else f"{wanted} tokens"
        return f"{head} {towards} {seen} when {fetched(query)} is of class {asked}."
    if key is not None and key.heads:
        return f"{head} {towards} keys where {fetched(key)} is of class {relation}, whatever the query."
    return f"{head} {towards} {relation} tokens, whatever the query."


def _readout(identity: CoordinateId, role: str, value: Real | None) -> str:
    less = value is not None and value < 0
    path, relation = identity.key, identity.relation
    moved = "lowered" if less else "raised"
    # The last head of a path is the one that attends from the query; earlier ones fed it.
    through = path is not None and bool(path.heads)
    if through and path is not None and len(path.heads) == 1:
        token = f"the token attended by {path.heads[0]}"
    else:
        token = fetched(path)
    if relation == "same":
        if less:
            return f"{token[0].upper()}{token[1:]} is suppressed at the output."
        return f"{token[0].upper()}{token[1:]} is copied to the output."
    memory = " (memorised association)" if base_role(role) == "delta" else ""
    if relation == "assoc":
        return f"The output is {moved} for the associate of {token}{memory}."
    if relation == "assoc-reverse":
        return f"The output is {moved} for the token whose associate is {token}{memory}."
    asked, separator, wanted = relation.partition(">")
    if separator:
        return f"The output is {moved} for {wanted} tokens when {token} is of class {asked}."
    if identity.offset is not None:
        return f"The output depends on a position {_where(identity.offset)} that of {token}."
    source = f", through {path}" if through else ", whatever the context" if path is None else ""
    return f"The output is {moved} for {relation} tokens{source}."


def describe(identity: str, role: str, value: Real | None = None) -> str:
    """Say in one sentence what a coordinate does.

    >>> describe("L0H0/score/q:res/k:res/offset+1", "alpha", 6.7)
    'Head L0H0 attends to the position one back.'
    >>> describe("L1H0/score/q:res/k:L0H0/same", "beta", 27.7)
    'Head L1H0 attends where the token fetched by L0H0 equals the current token.'
    >>> describe("readout/via:res/assoc", "delta", 2.2)
    'The output is raised for the associate of the current token (memorised association).'

    Args:
        identity: a coordinate id, see `imir_lens.ids`.
        role: its role in the circuit.
        value: its value; a negative one turns `attends to` into `attends away from`.

    Returns:
        a sentence.

    Raises:
        CoordinateError: when the id does not parse.
    """
    parsed = CoordinateId.parse(identity)
    return _score(parsed, role, value) if parsed.is_score else _readout(parsed, role, value)


KINDS: Final = {
    "offset": "attention at a fixed distance",
    "match": "attention to the same token, through what heads have moved",
    "associate": "attention to an associated token",
    "class": "attention to a class of tokens",
    "copy": "an attended token's own logit",
    "recall": "an associated token's logit",
}
"""What the coordinates of a kind do."""
