"""Circuits for the other members of the block-list class, as coordinates ready for `plant`; see `constructions`.

Where tokens have to be brought from other places of a block, one first-layer head for each distance does it, and a head
above them matches; `imir_lens.tasks.block_form` derives these parts from a task's form. Two layers are the least then:
a token's embedding does not say what stands beside it, so one layer has to bring that before another can compare it,
or read it at a place that was found.

Each circuit is the task's reference circuit, with values that come within 1e-3 of the Bayes loss.
"""

from collections.abc import Mapping

from imir_lens.ids import Head, Path, offset_name
from imir_lens.models.circuit_parts import kept, places, readout_id, require_apart, require_order, score_id
from imir_lens.tasks.block_form import BlockForm, linked_parts
from imir_lens.tasks.copy import Copy
from imir_lens.tasks.inversion import Inversion
from imir_lens.tasks.ngram import Ngram
from imir_lens.tasks.retrieval import Retrieval

_RES = Path()


def retrieval_circuit(
    *,
    alpha: float = 10.0,
    beta: float = 60.0,
    gamma: float = 30.0,
    shared: bool = False,
    heads: Mapping[str, str] | None = None,
) -> dict[str, float]:
    """Two matches in conjunction, for `retrieval`: `… K F V … K F → V`.

    Heads alpha_1 and alpha_2 copy the word one and two back to every position. At the query F, head beta_1 looks for
    places with F one back and, through what alpha_1 brought to the query, with K two back; only V has both, so its
    score is twice that of any place with one of them. Two layers are the least, as for every circuit that matches what
    stands beside a token. Nothing else is needed: the first positions, at which alpha has nothing to bring, match at
    most one of the two.

    A second head in the first layer keeps the two places apart, but is not indispensable: keys and fields never swap
    places, so one head may look at both (`shared`), the nearer one a little more, and the conjunction is still where
    the two matches, now weaker, agree.

    Args:
        alpha: attention to one back and two back, each; where it is shared, two less to two back.
        beta: each of the two matches.
        gamma: copying of the attended word to its own logit.
        shared: one first-layer head for both distances.
        heads: where `alpha_1`, `alpha_2` and `beta_1` live, or `alpha` and `beta_1` where shared; default L0H0, L0H1
            and L1H0.

    Raises:
        OptionError: for an unknown part, parts in one head that do not share it, or parts in layers that cannot feed
            each other.
        CoordinateError: when a head does not parse.
    """
    form = Retrieval().form
    if not shared:
        return _linked(form, alpha=alpha, beta=beta, gamma=gamma, heads=heads)[0]
    place = places(heads, alpha="L0H0", beta_1="L1H0")
    both = str(place["alpha"])
    require_order(place, "alpha", "beta_1")
    parts = linked_parts(form, heads={"alpha_1": both, "alpha_2": both, "beta_1": str(place["beta_1"])})
    look = {parts.alphas[1]: alpha, parts.alphas[2]: alpha - 2.0}
    return kept(look | dict.fromkeys(parts.matches, beta) | {parts.readout: gamma})


def ngram_circuit(
    n: int = 3,
    *,
    alpha: float | None = None,
    beta: float = 60.0,
    gamma: float = 30.0,
    not_itself: float | None = None,
    heads: Mapping[str, str] | None = None,
) -> dict[str, float]:
    """The conjunction of n − 1 matches, for `ngram`: `… a b c … a b → c`.

    Head alpha_k copies the token k back to every position, for k = 1 … n − 1. Head beta compares what stands k − 1 back
    of the query with what stands k back of the key, for all k at once; the scores add up, and only where all agree do
    they reach their sum. Two layers are the least, as for every circuit that matches what stands beside a token; n − 1
    heads in the first keep what stood at each distance apart, which one head would blur: here any token may stand at
    any distance.

    For n = 2 this is an induction head: the first position, at which alpha has nothing to bring and attends to itself,
    then matches in full, and `not_itself` removes it. For larger n it matches at most in part.

    Args:
        n: as the task's.
        alpha: attention to k back, each; None for 4 at n = 2, as in `induction_circuit`, and 10 otherwise.
        beta: each of the matches.
        gamma: copying of the attended token to its own logit.
        not_itself: match of the query's token with the key's own (auxiliary, negative); None for −20 at n = 2 and 0
            otherwise.
        heads: where `alpha_1`, …, `alpha_{n−1}` and `beta_1` live; default L0H0, L0H1, … and L1H0.

    Raises:
        TaskError: for n below 2.
        OptionError: for an unknown part, parts in one head, or parts in layers that cannot feed each other.
        CoordinateError: when a head does not parse.
    """
    form = Ngram(n=n, length=max(2 * n - 1, 1)).form
    alpha = (4.0 if n == 2 else 10.0) if alpha is None else alpha
    circuit, matcher = _linked(form, alpha=alpha, beta=beta, gamma=gamma, heads=heads)
    removed = (-20.0 if n == 2 else 0.0) if not_itself is None else not_itself
    return circuit | kept({score_id(matcher, _RES, _RES, "same"): removed})


def inversion_circuit(
    *,
    alpha: float = 4.0,
    beta: float = 60.0,
    gamma: float = 30.0,
    not_here: float = -20.0,
    heads: Mapping[str, str] | None = None,
) -> dict[str, float]:
    """Match forward, read back, for `inversion`: `… x y … y → x`.

    Head alpha_1 copies the previous word to every position. Head beta_1, at the query y, attends to where y stands, and
    gamma reads what alpha_1 had brought there: x. The query's own place holds y as well, with whatever stands before
    it; a negative coordinate at offset 0 keeps the head off it. Two layers are the least: x is not in the embedding of
    y, so one layer has to bring it there before another, which finds the place, can read it.

    Args:
        alpha: attention to the previous position.
        beta: match of the query's word with the key's own. It compares tokens where they stand.
        gamma: copying of what alpha brought to the attended place to its own logit.
        not_here: attention of beta's head to the query's own place (auxiliary, negative).
        heads: where `alpha_1` and `beta_1` live; default L0H0 and L1H0.

    Raises:
        OptionError: for an unknown part, or parts in layers that cannot feed each other.
        CoordinateError: when a head does not parse.
    """
    circuit, matcher = _linked(Inversion().form, alpha=alpha, beta=beta, gamma=gamma, heads=heads)
    return circuit | kept({score_id(matcher, _RES, _RES, offset_name(0)): not_here})


def copy_circuit(
    *,
    alpha: float = 4.0,
    beta: float = 60.0,
    gamma: float = 30.0,
    not_itself: float = -20.0,
    heads: Mapping[str, str] | None = None,
) -> dict[str, float]:
    """An induction head at every place of the repetition, for `copy` with a random gap: `… a b c … a b → c`.

    It solves `repeated` too, where `not_itself` is not needed.

    Parts and reasons are those of `induction_circuit`; a word of the repetition never finds the repetition itself,
    since what follows it there is yet to come. Two layers are the least.

    Args:
        alpha: attention to the previous position.
        beta: match of the query's word with the word before the key.
        gamma: copying of the attended word to its own logit.
        not_itself: match of the query's word with the key's own (auxiliary, negative).
        heads: where `alpha_1` and `beta_1` live; default L0H0 and L1H0.

    Raises:
        OptionError: for an unknown part, or parts in layers that cannot feed each other.
        CoordinateError: when a head does not parse.
    """
    circuit, matcher = _linked(Copy().form, alpha=alpha, beta=beta, gamma=gamma, heads=heads)
    return circuit | kept({score_id(matcher, _RES, _RES, "same"): not_itself})


def look_back_circuit(
    distance: int, *, alpha: float = 10.0, gamma: float = 20.0, heads: Mapping[str, str] | None = None
) -> dict[str, float]:
    """Copying from a fixed distance, for `copy` with a fixed gap: distance = segment + gap − 1.

    And for `repeated` with a fixed period: distance = period − 1.

    One layer is the least: the answer is not in the query's own embedding.

    Args:
        distance: how far back the answer stands.
        alpha: attention to that place.
        gamma: copying of the attended word to its own logit.
        heads: where `alpha` lives; default L0H0.

    Raises:
        OptionError: for an unknown part.
        CoordinateError: when a head does not parse.
    """
    head = places(heads, alpha="L0H0")["alpha"]
    return kept(
        {
            score_id(head, _RES, _RES, offset_name(distance)): alpha,
            readout_id(Path((head,)), "same"): gamma,
        }
    )


def ioi_circuit(
    *,
    gap: int = 1,
    alpha: float = 10.0,
    names: float = 10.0,
    gamma: float | None = None,
    inhibition: float | None = None,
    heads: Mapping[str, str] | None = None,
) -> dict[str, float]:
    """Copy the names and inhibit the repeated one, for `ioi`: `… A … B … A · → B`.

    With a gap, the place of prediction is filler and says nothing, so one layer is the least. Head `names` attends to
    all names alike; reading it gives the other name γ/3 and the repeated one, which stands twice, 2γ/3. Head `alpha`
    fetches the repeated name, and reading that one negatively puts it below all others. One head is not enough: from
    filler the first mention of the repeated name looks like the other name, so no pattern gives the latter more.

    Without a gap the query is the repeated name itself. Then one head does it: it attends to names, but not to those
    that are like the query, and only the other name is left.

    Args:
        gap: as the task's.
        alpha: attention to `gap` back (with a gap only).
        names: attention to names of all kinds (auxiliary).
        gamma: copying of the names; None for 60 with a gap and 30 without.
        inhibition: of the repeated name (auxiliary, negative): its readout, with a gap, None for −60; its match with
            the query, without, None for −20.
        heads: where `alpha` and `names` live; default L0H0 and L0H1, or L0H0 for `names` without a gap.

    Raises:
        OptionError: for an unknown part, or parts in one head.
        CoordinateError: when a head does not parse.
    """
    if gap == 0:
        mover = places(heads, names="L0H0")["names"]
        return kept(
            {
                _name_bias(mover): names,
                score_id(mover, _RES, _RES, "same"): -20.0 if inhibition is None else inhibition,
                readout_id(Path((mover,)), "same"): 30.0 if gamma is None else gamma,
            }
        )
    place = places(heads, alpha="L0H0", names="L0H1")
    require_apart(place, "alpha", "names")
    return kept(
        {
            score_id(place["alpha"], _RES, _RES, offset_name(gap)): alpha,
            _name_bias(place["names"]): names,
            readout_id(Path((place["alpha"],)), "same"): -60.0 if inhibition is None else inhibition,
            readout_id(Path((place["names"],)), "same"): 60.0 if gamma is None else gamma,
        }
    )


def _name_bias(head: Head) -> str:
    return f"{head}/score/q:const/k:res/name"


def _linked(
    form: BlockForm, *, alpha: float, beta: float, gamma: float, heads: Mapping[str, str] | None
) -> tuple[dict[str, float], Head]:
    """A form's reference circuit with values, and the head that matches."""
    movers = {f"alpha_{k}": f"L0H{index}" for index, k in enumerate(form.offsets)}
    place = places(heads, **movers, beta_1="L1H0")
    require_apart(place, *movers)
    for mover in movers:
        require_order(place, mover, "beta_1")
    parts = linked_parts(form, heads={name: str(head) for name, head in place.items()})
    circuit = dict.fromkeys(parts.alphas.values(), alpha) | dict.fromkeys(parts.matches, beta) | {parts.readout: gamma}
    return kept(circuit), place["beta_1"]
