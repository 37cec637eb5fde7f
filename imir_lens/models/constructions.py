"""Circuits whose mechanism is known, as coordinates ready for `plant`.

Each function returns coordinate id → value, with defaults that bring the loss within 1e-3 of the Bayes loss on the task
it names, at that task's default knobs. A coordinate whose value is 0 is left out. `heads` moves parts to other heads.

Why the numbers are not simply large: the first position has nothing before it, so a previous-token head attends to
itself there, and a matching head then finds the queried word twice, at the word itself and behind it. The coordinate
that pushes a matching head off the token itself breaks that tie. With alpha = 4 a little of the attention goes
elsewhere, so that without this coordinate the wrong place wins outright: every coordinate below is needed.
"""

from collections.abc import Mapping

from imir_lens.errors import OptionError, did_you_mean
from imir_lens.ids import Head, Path, offset_name
from imir_lens.models.block_constructions import (
    copy_circuit,
    inversion_circuit,
    ioi_circuit,
    look_back_circuit,
    ngram_circuit,
    retrieval_circuit,
)
from imir_lens.models.circuit_parts import kept, places, readout_id, require_order, score_id
from imir_lens.models.planting import plant, plant_disentangled

__all__ = [
    "copy_circuit",
    "hop_circuit",
    "induction_circuit",
    "inversion_circuit",
    "ioi_circuit",
    "look_back_circuit",
    "memory_circuit",
    "mixed_circuit",
    "ngram_circuit",
    "plant",
    "plant_disentangled",
    "retrieval_circuit",
    "shared_circuit",
]

_RES = Path()


def induction_circuit(
    *,
    alpha: float = 4.0,
    beta: float = 60.0,
    gamma: float = 30.0,
    not_itself: float = -20.0,
    heads: Mapping[str, str] | None = None,
) -> dict[str, float]:
    """The canonical induction head, for `recall`: `… a b … a → b`.

    Head alpha copies the previous token to every position. Head beta, at the query a, attends to where the copied token
    is a, that is to b, and gamma reads b out. Two layers are the least: which token stands before b is not in b's own
    embedding, so a first layer has to bring it there before a second one can look for it.

    Args:
        alpha: attention to the previous position.
        beta: match of the query's token with the token before the key.
        gamma: copying of the attended token to its own logit.
        not_itself: match of the query's token with the key's own (auxiliary, negative).
        heads: where `alpha` and `beta` live; default L0H0 and L1H0.

    Raises:
        OptionError: for an unknown part, or parts in layers that cannot feed each other.
        CoordinateError: when a head does not parse.
    """
    place = places(heads, alpha="L0H0", beta="L1H0")
    require_order(place, "alpha", "beta")
    previous, match = Path((place["alpha"],)), place["beta"]
    return kept(
        {
            score_id(place["alpha"], _RES, _RES, offset_name(1)): alpha,
            score_id(match, _RES, previous, "same"): beta,
            score_id(match, _RES, _RES, "same"): not_itself,
            readout_id(Path((match,)), "same"): gamma,
        }
    )


def hop_circuit(
    hops: int,
    *,
    alpha: float = 4.0,
    beta: float = 60.0,
    gamma: float = 30.0,
    not_itself: float = -20.0,
    not_after: float = -20.0,
    heads: Mapping[str, str] | None = None,
) -> dict[str, float]:
    """Following a chain, for `hop`: `… a b … b c … a → c`, one matching head for each hop.

    Head alpha copies the previous token to every position. Head beta_1 works as in an induction head and brings b to
    the query; head beta_2 looks for places whose previous token is b. There are two: c, and whatever follows `a b`. The
    second is one after the place that beta_1 attended to, so a negative coordinate between that head's position content
    and the keys (`offset-1`) removes it. Later hops repeat this. Each hop asks for what the one before it brought, and
    all of them for the copied tokens, so a chain followed in order takes `hops + 1` layers at least.

    Args:
        hops: steps of the chain, at least 1; 1 is `induction_circuit`.
        alpha: attention to the previous position.
        beta: match of the word reached so far with the token before the key.
        gamma: copying of the last head's token to its own logit.
        not_itself: match of the word reached so far with the key's own token (auxiliary, negative).
        not_after: the key next to the place that the hop before attended to (auxiliary, negative).
        heads: where `alpha`, `beta_1`, `beta_2`, … live; default L0H0, L1H0, L2H0, …

    Raises:
        OptionError: for hops below 1, an unknown part, or parts in layers that cannot feed each other.
        CoordinateError: when a head does not parse.
    """
    if hops < 1:
        raise OptionError(f"a chain needs hops >= 1: hops={hops}")
    matches = [f"beta_{hop}" for hop in range(1, hops + 1)]
    place = places(heads, alpha="L0H0", **{name: f"L{layer}H0" for layer, name in enumerate(matches, start=1)})
    require_order(place, "alpha", *matches)
    copied = Path((place["alpha"],))
    reached = [_RES, *(Path((place[name],)) for name in matches)]
    circuit = {score_id(place["alpha"], _RES, _RES, offset_name(1)): alpha}
    for hop, name in enumerate(matches):
        circuit[score_id(place[name], reached[hop], copied, "same")] = beta
        circuit[score_id(place[name], reached[hop], _RES, "same")] = not_itself
        if hop > 0:
            circuit[score_id(place[name], reached[hop], _RES, offset_name(-1))] = not_after
    circuit[readout_id(reached[-1], "same")] = gamma
    return kept(circuit)


def memory_circuit(*, delta: float = 20.0, reverse: bool = False) -> dict[str, float]:
    """The fixed association read off the query's own token, for `recall` (`inversion`) with f_r = f_v = 0.

    No attention takes part, so no layer is needed: a → C(a) is one matrix from embedding to logits.

    Args:
        delta: the query's token to the logit of its associate.
        reverse: from a target to its source, where the association is directed (as `inversion` asks).
    """
    return kept({readout_id(_RES, "assoc-reverse" if reverse else "assoc"): delta})


def mixed_circuit(
    *,
    alpha: float = 4.0,
    beta: float = 60.0,
    gamma: float = 30.0,
    delta: float = 20.0,
    not_itself: float = -20.0,
    not_seen: float | None = None,
    rare: float = 8.0,
    length: int = 24,
    heads: Mapping[str, str] | None = None,
) -> dict[str, float]:
    """Induction and memory at once, for `recall` with f_r = burstiness = 0.5.

    Where the query's pair stands in the context the induction head answers; where it does not and the query is a common
    word, delta does. There remain rare queries without their pair: every rare word that the context has not shown is
    equally likely. A class constant rules out all other words, and a head that attends to everything alike rules out
    the words seen: it takes 6 off each of their logits beyond what the unmatched induction head adds. (A pair that is
    present is then copied with `gamma + not_seen / length`.) The induction head needs two layers. The last head can be
    any other than alpha's and beta's, so one head a layer needs three.

    Args:
        alpha: attention to the previous position.
        beta: match of the query's token with the token before the key.
        gamma: copying of the attended token to its own logit.
        delta: the query's token to the logit of its associate.
        not_itself: match of the query's token with the key's own (auxiliary, negative).
        not_seen: readout of the mean of the context to its own logits (auxiliary, negative); None for
            `-(6 length + gamma)`.
        rare: a rare query raises all rare words (auxiliary).
        length: the task's.
        heads: where `alpha`, `beta` and `seen` live; default L0H0, L1H0 and L2H0.

    Raises:
        OptionError: for an unknown part, parts in one head, or parts in layers that cannot feed each other.
        CoordinateError: when a head does not parse.
    """
    place = places(heads, alpha="L0H0", beta="L1H0", seen="L2H0")
    if place["seen"] in (place["alpha"], place["beta"]):
        raise OptionError(f"the head 'seen' attends to everything alike, so it cannot be {place['seen']} as well")
    parts = {name: str(place[name]) for name in ("alpha", "beta")}
    values = {"alpha": alpha, "beta": beta, "gamma": gamma, "not_itself": not_itself}
    return induction_circuit(**values, heads=parts) | kept(
        {
            readout_id(_RES, "assoc"): delta,
            readout_id(_RES, "rare>rare"): rare,
            readout_id(Path((place["seen"],)), "same"): -(6.0 * length + gamma) if not_seen is None else not_seen,
        }
    )


_SHARED_BETA = {"alpha": 7.0, "beta": 15.0, "gamma": 15.0}


def shared_circuit(
    role: str,
    *,
    alpha: float = 4.0,
    beta: float | None = None,
    gamma: float = 13.0,
    not_itself: float = -20.0,
    layers: tuple[int, int] = (0, 1),
) -> dict[str, float]:
    """An induction head of which one role is shared by heads 0 and 1 of a layer, in equal parts, for `recall`.

    - `alpha`: two heads attend to the previous token, and the matching head looks for half of beta in each.
    - `beta` or `gamma`: two heads match and are read, each with half of gamma. The two are one circuit, since a head
      that matches acts only through its readout; keeping one of the heads off the token itself is enough.

    The totals are just large enough for the task, so that half of one is not. Two layers, as for `induction_circuit`.

    Args:
        role: "alpha", "beta" or "gamma".
        alpha: attention to the previous position, of each such head.
        beta: match of the query's token with the token before the key, in all of each matching head; None for 7 where
            alpha is shared and 15 elsewhere.
        gamma: total copying of the attended token to its own logit.
        not_itself: match of the query's token with the key's own, in head 0 (auxiliary, negative).
        layers: of the previous-token heads and of the matching heads.

    Raises:
        OptionError: for another role, or layers that do not increase.
    """
    if role not in _SHARED_BETA:
        raise OptionError(f"unknown role to share {role!r}; {did_you_mean(role, _SHARED_BETA)}")
    first, second = layers
    if first >= second:
        raise OptionError(f"previous-token heads must be below the matching heads: layers={layers}")
    copying = [Head(first, 0), Head(first, 1)] if role == "alpha" else [Head(first, 0)]
    matching = [Head(second, 0)] if role == "alpha" else [Head(second, 0), Head(second, 1)]
    part = (_SHARED_BETA[role] if beta is None else beta) / len(copying)
    circuit = {score_id(head, _RES, _RES, offset_name(1)): alpha for head in copying}
    for head in matching:
        circuit |= {score_id(head, _RES, Path((source,)), "same"): part for source in copying}
        circuit[readout_id(Path((head,)), "same")] = gamma / len(matching)
    circuit[score_id(matching[0], _RES, _RES, "same")] = not_itself
    return kept(circuit)
