"""The ledger of a survey run: what was granted, what each part costs, what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from das.errors import LedgerError
from jobs.storage.journal import append_to_journal, begin_journal, read_journal
from jobs.storage.place import Place

_BACKUP = "restore it from a backup; what was granted counts as spent"


@dataclass(frozen=True)
class Spending:
    """A part that was measured.

    Attributes:
      sha256: Digest of its measurements.
      cost: What they cost, exact.
    """

    sha256: str
    cost: Fraction


@dataclass(frozen=True)
class SurveyLedger:
    """What the file says.

    Attributes:
      granted: Total budget.
      planned: What each part may cost; sums to the total.
      measured: The parts that were measured.
      is_sealed: Whether all were.
    """

    granted: Fraction
    planned: Mapping[str, Fraction]
    measured: Mapping[str, Spending]
    is_sealed: bool

    @property
    def spent(self) -> Fraction:
        """What was measured costs in all."""
        return sum((one.cost for one in self.measured.values()), Fraction(0))


def start_ledger(path: Place, granted: Mapping[str, str], parts: Mapping[str, Fraction]) -> None:
    """Write the grant and the plan; the same ones from an earlier start are kept.

    Args:
      path: The file.
      granted: The budget and the source of randomness, exact.
      parts: What each part may cost.

    Raises:
      LedgerError: The file is of another plan; or the parts do not cost what is granted.
    """
    total = sum(parts.values(), Fraction(0))
    if total != Fraction(granted["total"]):
        raise LedgerError(str(path), "parts do not cost what is granted", got=total)
    wanted: list[dict[str, Any]] = [
        {"event": "granted", **granted},
        {"event": "planned", "parts": {name: str(cost) for name, cost in parts.items()}},
    ]
    begin_journal(path, wanted)


def record_measured(path: Place, part: str, spending: Spending) -> None:
    """Note that a part was measured, once; seal the ledger when all were.

    Raises:
      LedgerError: Other measurements of it were noted before, or it costs more than was planned.
    """
    line = {
        "event": "measured",
        "part": part,
        "sha256": spending.sha256,
        "cost": str(spending.cost),
    }

    def decide(lines: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        ledger = _read(path, lines)
        before = ledger.measured.get(part)
        if before is not None and before != spending:
            raise LedgerError(
                f"{path}, {part}",
                "other measurements were recorded before; the published ones must not be used",
                remedy="restore them from a backup, or grant a new budget and measure anew",
            )
        most = ledger.planned.get(part, Fraction(0))
        if spending.cost > most:
            raise LedgerError(
                f"{path}, {part}", "costs more than was planned", got=spending.cost, want=most
            )
        added = [] if before is not None else [line]
        is_whole = {*ledger.measured, part} == {*ledger.planned}
        return [*added, *([] if ledger.is_sealed or not is_whole else [{"event": "sealed"}])]

    append_to_journal(path, decide)


def read_ledger(path: Place) -> SurveyLedger:
    """Read the ledger of a run.

    Raises:
      LedgerError: It is not complete enough, or was tampered with.
    """
    return _read(path, read_journal(path))


def _read(path: Place, lines: Sequence[Mapping[str, Any]]) -> SurveyLedger:
    try:
        measured = {
            str(line["part"]): Spending(str(line["sha256"]), Fraction(line["cost"]))
            for line in lines
            if line["event"] == "measured"
        }
        planned = {str(part): Fraction(cost) for part, cost in lines[1]["parts"].items()}
        is_sealed = any(line["event"] == "sealed" for line in lines)
        return SurveyLedger(Fraction(lines[0]["total"]), planned, measured, is_sealed)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise LedgerError(
            str(path), "is not the ledger of a survey", got=repr(error), remedy=_BACKUP
        ) from None
