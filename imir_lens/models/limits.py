"""How large a model may be: a size from a file or a command line must not exhaust the machine."""

from typing import Final

from imir_lens.errors import CheckpointError

MOST_LAYERS: Final = 1_000
MOST_NUMBERS: Final = 2_000_000_000  # 8 GB in float32: far more than an analysis by coordinates can treat
_MOST_SHOWN: Final = 10**24


def check_layers(n_layers: int) -> None:
    """Refuse more layers than anyone trains; raises CheckpointError."""
    if n_layers > MOST_LAYERS:
        raise CheckpointError(f"cfg gives n_layers={_shown(n_layers)}: expected at most {MOST_LAYERS:,}")


def check_numbers(count: int) -> None:
    """Refuse a model that holds more numbers than `MOST_NUMBERS`, before anything is allocated.

    Raises:
        CheckpointError: with the count and the limit.
    """
    if count > MOST_NUMBERS:
        raise CheckpointError(
            f"cfg asks for a model of {_shown(count)} numbers (weights and masks): expected at most {MOST_NUMBERS:,}; "
            "lower its sizes"
        )


def _shown(count: int) -> str:
    # Python refuses to print an integer of thousands of digits.
    return f"{count:,}" if count < _MOST_SHOWN else "more than 10^24"
