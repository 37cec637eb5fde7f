"""Which mechanism a circuit is, by its roles, and in which words.

- **in_context**: a gamma, and something that steers it: a positive score coordinate of a head on the gamma's path. What
  is copied to the output then depends on what stands where in the context.
- **in_weights**: a delta.
- **mixed**: both.
"""

from dataclasses import dataclass

from imir_lens.detection import Circuit
from imir_lens.ids import Head
from imir_lens.roles import Unit


@dataclass(frozen=True)
class Mechanism:
    """A mechanism's name, as in the verdict, and how a model that has it does its task."""

    name: str
    words: str


_IN_WEIGHTS = Mechanism("in_weights", "from memory, with associations stored in its weights")
_MIXED = Mechanism("mixed", "both in context and from memory")


def mechanism_of(circuit: Circuit) -> Mechanism | None:
    """Return the mechanism that a circuit's units add up to; None when they add up to none.

    Args:
        circuit: as detected; whether it matters to the model is for the ablations to say.
    """
    roles = circuit.by_role()
    words = _in_context(circuit)
    if words is not None:
        return _MIXED if "delta" in roles else Mechanism("in_context", words)
    return _IN_WEIGHTS if "delta" in roles else None


def _in_context(circuit: Circuit) -> str | None:
    """Say how the circuit copies from the context: by what its copying heads are steered."""
    roles = circuit.by_role()
    copied = _read_by(roles.get("gamma", []))
    if not any(unit.id.head in copied and unit.value > 0 for unit in circuit.units):
        return None
    looks_back = {unit.id.head for unit in roles.get("alpha", [])}
    if looks_back & _read_by(roles.get("beta", [])):
        return "in context, with an induction circuit"
    if "beta" in roles and looks_back & copied:
        return "in context, by matching a token and copying what stands a fixed distance from it"
    if "beta" in roles:
        return "in context, by matching and copying"
    if looks_back & copied:
        return "in context, by looking a fixed distance back and copying"
    return "in context, by attending and copying"


def _read_by(units: list[Unit]) -> set[Head | None]:
    return {head for unit in units for path in unit.id.paths for head in path.heads}
