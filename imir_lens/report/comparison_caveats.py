"""What of two reports does not compare: settings in which they differ, said before any number."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from imir_lens.figures.style import shorten

_SAME_HEADS: Final = ("n_layers", "n_heads", "positions", "normalization", "attn_only")
_FIELDS: Final = {
    "n_layers": "layers",
    "n_heads": "heads in a layer",
    "d_model": "d_model",
    "d_head": "d_head",
    "d_vocab": "vocabulary",
    "n_ctx": "context length",
    "positions": "positions",
    "normalization": "normalisation",
    "attn_only": "attention only",
}
_LONGEST: Final = 80
Data = Mapping[str, Any]


def ids_correspond(first: Data, second: Data) -> bool:
    """Whether a coordinate id names the same thing in two reports: one task, and models of one architecture."""
    if first["task"]["name"] != second["task"]["name"]:
        return False
    return all(first["model"][field] == second["model"][field] for field in _SAME_HEADS)


def caveats(first: Data, second: Data) -> list[str]:
    """Return what does not compare, the gravest first; empty when all settings agree.

    Args:
        first: a report.
        second: another one.
    """
    return [
        *_task(first, second),
        *_model(first, second),
        *_contexts(first, second),
        *_search(first, second),
        *_evidence(first, second),
    ]


def _task(first: Data, second: Data) -> Iterator[str]:
    one, two = (shorten(report["task"]["name"], _LONGEST) for report in (first, second))
    if first["task"]["name"] != second["task"]["name"]:
        yield (
            f"The tasks differ: {one} in A, {two} in B. Losses and accuracies answer different questions, and units "
            "are compared by role and shape only."
        )
    knobs = [report["task"]["knobs"] for report in (first, second)]
    if first["task"]["name"] == second["task"]["name"] and knobs[0] != knobs[1]:
        yield (
            f"The task's knobs differ: {_differences(*knobs)}. Each model was tested on contexts of its own, so losses "
            "and accuracies are not on one scale."
        )
    vocabularies = [report["model"].get("vocabulary", {}).get("ids_sha256") for report in (first, second)]
    if vocabularies[0] != vocabularies[1]:
        yield "The models were asked in different tokens of their vocabularies."


def _model(first: Data, second: Data) -> Iterator[str]:
    one, two = ({title: report["model"][field] for field, title in _FIELDS.items()} for report in (first, second))
    if one != two:
        grave = any(first["model"][field] != second["model"][field] for field in _SAME_HEADS)
        follows = (
            "An id does not name the same thing in both, so units are compared by role and shape only."
            if grave
            else "Ids name the same things, but the models differ in size."
        )
        yield f"The models differ: {_differences(one, two)}. {follows}"
    elif first["model"]["sha256"] is not None and first["model"]["sha256"] == second["model"]["sha256"]:
        if same_report(first, second):
            return
        yield "Both reports are of one checkpoint (equal sha256): what differs comes from the analysis, not the model."


def _contexts(first: Data, second: Data) -> Iterator[str]:
    titles = {"contexts": "test contexts", "test_seed": "their seed"}
    one, two = ({title: report["evaluation"][field] for field, title in titles.items()} for report in (first, second))
    if one != two:
        yield f"The test contexts differ: {_differences(one, two)}. Small differences of losses may be chance."


def _search(first: Data, second: Data) -> Iterator[str]:
    found = [
        {
            "seed": report["seed"],
            "search contexts": report["evaluation"].get("search_contexts"),
            "their seed": report["evaluation"]["search_seed"],
            "loss budget": report["circuit"]["budget"],
        }
        for report in (first, second)
    ]
    if found[0] != found[1]:
        yield (
            f"The searches differ: {_differences(*found)}. Units of little effect may be in one circuit and not in the "
            "other for that alone."
        )
    if first["ablation"] != second["ablation"]:
        yield "Coordinates were removed in different ways (see the end), so losses without them do not compare."
    if first["created_with"] != second["created_with"]:
        yield f"Other versions made them: {_differences(first['created_with'], second['created_with'])}."


def _evidence(first: Data, second: Data) -> Iterator[str]:
    silent = [
        letter for letter, report in zip("AB", (first, second), strict=True) if _mechanism(report) == "not_detected"
    ]
    if silent:
        units = [letter for letter, side in zip("AB", (first, second), strict=True) if side["circuit"]["units"]]
        kept = [letter for letter in silent if letter in units]
        yield (
            f"Not detected in {' and '.join(silent)} is not the same as absent"
            + (f"; units listed for {' and '.join(kept)} are what the search kept, not a mechanism." if kept else ".")
        )


def _mechanism(report: Data) -> str:
    return str(report["verdict"]["mechanism"])


def _differences(one: Mapping[str, Any], two: Mapping[str, Any]) -> str:
    """Write `vocab 64 in A, 65 in B; …` for every name whose values differ."""
    found = [name for name in dict.fromkeys([*one, *two]) if one.get(name) != two.get(name)]
    return "; ".join(f"{_short(name)} {_short(one.get(name))} in A, {_short(two.get(name))} in B" for name in found)


def _short(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return shorten("none" if value is None else str(value), _LONGEST)


def same_report(first: Data, second: Data) -> bool:
    """Whether two reports say the same: equal but for versions and the seconds that the search took."""
    one, two = (
        {**report, "created_with": None, "circuit": {**report["circuit"], "seconds": None}}
        for report in (first, second)
    )
    return one == two
