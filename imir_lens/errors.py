"""The errors a user can cause.

Every message is one line that says what was expected, what was found and what to do. The command line prints it on
stderr and exits with 2; anything that is not an `ImirError` is a bug of ours.
"""

from collections.abc import Iterable
from difflib import get_close_matches


class ImirError(Exception):
    """Base of every error caused by input."""


class CheckpointError(ImirError):
    """A file that is missing, damaged, unsafe, or not a checkpoint."""


class UnsupportedModelError(ImirError):
    """A model whose architecture is known but not handled; the message names the feature."""


class TaskError(ImirError):
    """An unknown task, or a knob whose value breaks an inequality the task needs."""


class CoordinateError(ImirError):
    """A coordinate id or path that does not parse, or that the model does not have."""


class NotFittedError(ImirError):
    """A projector was asked for results before `fit`."""


class OptionError(ImirError):
    """An option out of its range, or an output place that cannot be used."""


def did_you_mean(value: str, options: Iterable[str]) -> str:
    """Return the tail of an error line: the nearest option, or all of them when none is near.

    >>> did_you_mean("recal", ["recall", "hop"])
    "did you mean 'recall'?"
    >>> did_you_mean("x", ["recall", "hop"])
    'choose one of: hop, recall'
    """
    known = sorted(options)
    near = get_close_matches(value, known, n=1)
    return f"did you mean {near[0]!r}?" if near else f"choose one of: {', '.join(known)}"
