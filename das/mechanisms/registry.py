"""The mechanisms there are, by their names in files, and which a definition can charge."""

from __future__ import annotations

from fractions import Fraction

from das.definition import Definition
from das.errors import BudgetError
from das.mechanisms.gaussian import DiscreteGaussian
from das.mechanisms.laplace import DiscreteLaplace
from das.mechanisms.mechanism import Mechanism, require_chargeable

# Of several that a definition can charge, the first is the one it takes where none is named.
_MECHANISMS: dict[str, type[Mechanism]] = {}


def register(mechanism: type[Mechanism]) -> type[Mechanism]:
    """Make a mechanism known under its name in files; usable as a decorator.

    Raises:
      BudgetError: Another mechanism has this name, or no definition of privacy can charge it.
    """
    if not mechanism.norms:
        raise BudgetError(f"mechanism {mechanism.kind}", "can be charged in no definition")
    if _MECHANISMS.setdefault(mechanism.kind, mechanism) is not mechanism:
        raise BudgetError("mechanism", "has the name of another", got=mechanism.kind)
    return mechanism


register(DiscreteGaussian)
register(DiscreteLaplace)


def mechanism_of(kind: str) -> type[Mechanism]:
    """Return the mechanism of this name.

    Raises:
      BudgetError: There is none.
    """
    mechanism = _MECHANISMS.get(kind)
    if mechanism is None:
        raise BudgetError("mechanism", "is unknown", got=kind, want=" or ".join(_MECHANISMS))
    return mechanism


def read_mechanism(kind: str, parameter: Fraction) -> Mechanism:
    """Make the mechanism that has this kind and parameter.

    Raises:
      BudgetError: The kind is unknown or the parameter out of range.
    """
    return mechanism_of(kind).of(parameter)


def chargeable(definition: Definition) -> tuple[type[Mechanism], ...]:
    """The mechanisms whose costs a definition of privacy can count; its default first.

    >>> [mechanism.title for mechanism in chargeable(Definition.PURE)]
    ['discrete Laplace']
    """
    return tuple(one for one in _MECHANISMS.values() if definition in one.norms)


def choose_mechanism(definition: Definition, kind: str | None = None) -> type[Mechanism]:
    """Return the mechanism of this name, or the default of the definition.

    Raises:
      BudgetError: It is unknown, or the definition cannot charge it.
    """
    if kind is None:
        return chargeable(definition)[0]
    mechanism = mechanism_of(kind)
    require_chargeable(mechanism, definition)
    return mechanism
