"""Registry of the mechanisms: their names in files, and the definitions that can charge them."""

from __future__ import annotations

from fractions import Fraction

from das.definition import Definition
from das.errors import BudgetError
from das.mechanisms.gaussian import DiscreteGaussian
from das.mechanisms.laplace import DiscreteLaplace
from das.mechanisms.mechanism import Mechanism, require_chargeable

# The first mechanism that a definition can charge is its default.
_MECHANISMS: dict[str, type[Mechanism]] = {}


def register(mechanism: type[Mechanism]) -> type[Mechanism]:
    """Register a mechanism under its name in files; usable as a decorator.

    Raises:
      BudgetError: A registered mechanism has the same name, or no privacy definition can charge it.
    """
    if not mechanism.norms:
        raise BudgetError(f"mechanism {mechanism.kind}", "has no cost under any privacy definition")
    if _MECHANISMS.setdefault(mechanism.kind, mechanism) is not mechanism:
        raise BudgetError("mechanism", "has the name of another mechanism", got=mechanism.kind)
    return mechanism


register(DiscreteGaussian)
register(DiscreteLaplace)


def mechanism_of(kind: str) -> type[Mechanism]:
    """Return the mechanism class with this name.

    Raises:
      BudgetError: No mechanism has this name.
    """
    mechanism = _MECHANISMS.get(kind)
    if mechanism is None:
        raise BudgetError("mechanism", "is unknown", got=kind, want=" or ".join(_MECHANISMS))
    return mechanism


def read_mechanism(kind: str, parameter: Fraction) -> Mechanism:
    """Return the mechanism with this kind and parameter.

    Raises:
      BudgetError: The kind is unknown or the parameter out of range.
    """
    return mechanism_of(kind).of(parameter)


def chargeable(definition: Definition) -> tuple[type[Mechanism], ...]:
    """Return the mechanism classes that a privacy definition can charge, its default first.

    >>> [mechanism.title for mechanism in chargeable(Definition.PURE)]
    ['discrete Laplace']
    """
    return tuple(known for known in _MECHANISMS.values() if definition in known.norms)


def choose_mechanism(definition: Definition, kind: str | None = None) -> type[Mechanism]:
    """Return the mechanism class with this name, or the default of the definition.

    Args:
      definition: The privacy definition that must be able to charge the mechanism.
      kind: Name of the mechanism; None for the default of the definition.

    Raises:
      BudgetError: The name is unknown, or the definition cannot charge the mechanism.
    """
    if kind is None:
        return chargeable(definition)[0]
    mechanism = mechanism_of(kind)
    require_chargeable(mechanism, definition)
    return mechanism
