"""A run's trajectory: coordinates by role, loss, attention and the unexplained share over training steps."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from imir_lens.figures.axes import ABOVE, BELOW, LEFT, Axes, key, tick_label, ticks, words
from imir_lens.figures.style import number, role_class, role_symbol, svg

WIDTH: Final = 620.0
_RIGHT: Final = 84.0  # room for the roles' letters at the ends of their lines
_GAP: Final = 26.0
_MOST_AUXILIARY: Final = 4
_APART: Final = 15.0
Points = list[tuple[float | int, float | int]]


def trajectory_chart(data: Mapping[str, Any], *, name: str = "trajectory") -> str:
    """Draw a trajectory.

    Args:
        data: a trajectory, see `trajectory_schema.json`.
        name: prefix of the element ids.
    """
    steps = [point["step"] for point in data["checkpoints"]]
    panels = [
        _coordinates(data, steps),
        _shares(data, steps),
        _loss(data, steps),
        _attention(data, steps),
        _unexplained(data, steps),
    ]
    top, out = 20.0, []
    for heading, y_title, height, y_range, drawn, entries in panels:
        if not drawn:
            continue
        axes = _axes(steps, top + ABOVE, height, y_range)
        out.append(_frame(axes, steps, heading, y_title))
        out.append(_emergence(axes, data, letters=not out[1:]))
        for points, colour, dash, width in drawn:
            out.append(axes.line([(_shifted(x, axes), y) for x, y in points], colour, dash=dash, width=width))
        if top < ABOVE:
            out.append(_letters(axes, data))
        top += ABOVE + height + BELOW + 4
        out.append(key(LEFT + 8, top + 6, entries))
        top += _GAP
    return svg(
        LEFT + 8 + WIDTH + _RIGHT,
        top + 4,
        "".join(out),
        name=name,
        title="Coordinates, loss and attention along training",
        description=_description(data),
    )


def _axes(steps: Sequence[int], top: float, height: float, y_range: tuple[float, float]) -> Axes:
    last = max(steps[-1], 1)
    if is_logarithmic(steps):
        return Axes(LEFT + 8, top, WIDTH, height, (1, last + 1), y_range, log_x=True)
    return Axes(LEFT + 8, top, WIDTH, height, (0, last), y_range)


def is_logarithmic(steps: Sequence[int]) -> bool:
    """Whether recorded steps are drawn on a logarithmic axis: when half of them lie in the first tenth."""
    return steps[len(steps) // 2] < steps[-1] / 10


def _shifted(step: float | int, axes: Axes) -> float | int:
    """Return where a step is drawn: a logarithmic axis has no zero, so it shows step + 1."""
    return step + 1 if axes.log_x else step


def _frame(axes: Axes, steps: Sequence[int], heading: str, y_title: str) -> str:
    if axes.log_x:
        marks = [0, *(10**k for k in range(7) if 10**k <= steps[-1])]
        title = "optimizer step (logarithmic, from 0)"
    else:
        marks, title = [int(mark) for mark in ticks(0, steps[-1], 8) if mark == int(mark)], "optimizer step"
    labels = [tick_label(mark) for mark in marks]
    return axes.frame(heading, title, y_title, x_ticks=[_shifted(mark, axes) for mark in marks], x_labels=labels)


def _emergence(axes: Axes, data: Mapping[str, Any], *, letters: bool) -> str:
    """Draw a line at each role's emergence and at the fall of the loss."""
    found = [(role["role"], role["emergence"]["step"]) for role in data["roles"] if role["emergence"] is not None]
    fall = data["emergence"]["loss"]
    marks = [(role_class(role), role_symbol(role), step, f"{role} emerges at step {step}") for role, step in found]
    if fall is not None:
        marks.append(("r-auxiliary", "loss", fall["step"], f"the loss has fallen by half at step {fall['step']}"))
    out, end = [], 0.0
    for colour, letter, step, note in sorted(marks, key=lambda mark: mark[2]):
        x = axes.x(_shifted(step, axes))
        path = f'd="M{x:.1f} {axes.top:.1f}v{axes.height:.1f}"'
        out.append(f'<path class="edge {colour}" stroke-width="1.3" stroke-dasharray="3 3" {path}>')
        out.append(f"<title>{note}</title></path>")
        if letters:
            half = 3.4 * len(letter) + 2
            at = max(x, end + half)
            end = at + half
            out.append(words(at, axes.top - 4, letter, f"strong fill {colour}", anchor="middle"))
    return "".join(out)


def _coordinates(data: Mapping[str, Any], steps: Sequence[int]) -> Any:
    lines = [_line(steps, role["values"], role_class(role["role"]), "", 2.4) for role in data["roles"]]
    other = _auxiliary(data)
    lines += [_line(steps, track["values"], "r-auxiliary", "2 4", 1.4) for track in other]
    entries = [(role["role"], role_class(role["role"]), "line") for role in data["roles"]]
    entries += [("auxiliary", "r-auxiliary", "dotted")] if other else []
    whose = "" if data["roles_of"] == "circuit" else " of the reference circuit (none was detected)"
    values = [value for points, *_ in lines for _, value in points]
    return f"Coordinates by role{whose}", "value, in nats", 230.0, _span(values), lines, entries


def _shares(data: Mapping[str, Any], steps: Sequence[int]) -> Any:
    share, ends = data["settings"]["share"], (steps[0], steps[-1])
    lines = [
        _line(steps, [value / role["final"] for value in role["values"]], role_class(role["role"]), "", 2)
        for role in data["roles"]
        if role["emergence"] is not None
    ]
    values = [value for points, *_ in lines for _, value in points]
    entries = [("what counts as emerged", "r-auxiliary", "dashed")]
    drawn = [_line(ends, (share, share), "r-auxiliary", "7 4", 1.2), *lines] if lines else []
    return "The same as a share of the final value", "share", 130.0, _span(values), drawn, entries


def _auxiliary(data: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found = [track for track in data["tracks"] if track["role"] == "auxiliary"]
    return sorted(found, key=lambda track: -abs(track["values"][-1]))[:_MOST_AUXILIARY]


def _letters(axes: Axes, data: Mapping[str, Any]) -> str:
    """Write each role's sign and final value at the end of its line, kept apart."""
    ends = [
        (axes.y(role["values"][-1]), role_class(role["role"]), f"{role_symbol(role['role'])} {number(role['final'])}")
        for role in data["roles"]
    ]
    out, at = [], axes.top - _APART
    for y, colour, text in sorted(ends):
        at = max(y + 4, at + _APART)
        out.append(words(axes.left + axes.width + 7, at, text, f"strong fill {colour}"))
    return "".join(out)


def _loss(data: Mapping[str, Any], steps: Sequence[int]) -> Any:
    losses, evaluation = [point["loss"] for point in data["checkpoints"]], data["evaluation"]
    chance, bayes = evaluation["chance"]["loss"], evaluation["bayes"]["loss"]
    ends = (steps[0], steps[-1])
    lines = [
        _line(steps, losses, "r-auxiliary", "", 2.2),
        _line(ends, (chance, chance), "r-auxiliary", "2 4", 1.4),
        _line(ends, (bayes, bayes), "r-auxiliary", "7 4", 1.4),
    ]
    entries = [
        ("model", "r-auxiliary", "line"),
        ("chance", "r-auxiliary", "dotted"),
        ("optimal", "r-auxiliary", "dashed"),
    ]
    heading = f"Loss on {data['settings']['contexts']:,} held-out contexts"
    return heading, "loss, in nats", 130.0, _span([*losses, chance, bayes]), lines, entries


def _attention(data: Mapping[str, Any], steps: Sequence[int]) -> Any:
    kinds = (
        ("copy_mass", "r-alpha", "", "line", "by \N{GREEK SMALL LETTER ALPHA}'s offset"),
        ("match_mass", "r-beta", "7 4", "dashed", "query to its matches"),
        ("answer_mass", "r-gamma", "2 4", "dotted", "query to the answer"),
    )
    lines, entries = [], []
    for field, colour, dash, kind, text in kinds:
        masses = [[head[field] for head in point["heads"] if head[field] is not None] for point in data["checkpoints"]]
        if masses[0]:
            lines.append(_line(steps, [max(mass) for mass in masses], colour, dash, 2))
            entries.append((text, colour, kind))
    return "Attention, of the head with the most", "share", 110.0, (0.0, 1.0), lines, entries


def _unexplained(data: Mapping[str, Any], steps: Sequence[int]) -> Any:
    shares = [point["unexplained"] for point in data["checkpoints"]]
    lines = [
        _line(steps, [share["scores"] for share in shares], "r-beta", "", 1.8),
        _line(steps, [share["readout"] for share in shares], "r-gamma", "7 4", 1.8),
    ]
    entries = [("of the attention scores", "r-beta", "line"), ("of the logits", "r-gamma", "dashed")]
    return "Variance that no coordinate explains", "share", 90.0, (0.0, 1.0), lines, entries


def _line(steps: Sequence[int], values: Sequence[float | int], colour: str, dash: str, width: float | int) -> Any:
    points: Points = list(zip(steps, values, strict=True))
    return points, colour, dash, width


def _span(values: Sequence[float | int]) -> tuple[float, float]:
    low, high = min([0.0, *values]), max([0.0, *values])
    pad = 0.06 * ((high - low) or 1.0)
    return (low - pad if low < 0 else 0.0), high + pad


def _description(data: Mapping[str, Any]) -> str:
    parts = []
    for role in data["roles"]:
        when = "does not emerge" if role["emergence"] is None else f"emerges at step {role['emergence']['step']}"
        parts.append(f"{role['role']} {when} and ends at {number(role['final'])}")
    fall = data["emergence"]["loss"]
    parts.append("the loss does not fall" if fall is None else f"the loss has fallen by half at step {fall['step']}")
    return "; ".join(parts)
