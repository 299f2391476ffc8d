"""The ledger of a run on disk: what was granted, planned, measured, and finalized. Public.

A journal of lines in the order of events. `granted` names the budget. `planned` names what it pays
for: every query of a census, or every part of a survey, which is a statistic, a table or a model.
`measured` names one geolevel or part whose noisy answers are published, with their digest.
`measured lazily` names a geolevel whose on-demand queries are published, which `measured` has paid
for in full. `sealed` states that everything was measured, at exactly the granted cost. There are no
times in it, because how long measuring takes depends on the data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Generic, TypeVar

from das.errors import LedgerError
from das.mechanisms.registry import read_mechanism
from das.privacy.ledger import Ledger, LedgerEntry
from das.rational import stated_fraction
from jobs.pipeline.storage.journal import append_to_journal, begin_journal, read_journal
from jobs.pipeline.storage.layout import ReleaseLayout
from jobs.pipeline.storage.place import Place

_MEASURED, _LAZILY = "measured", "measured lazily"


@dataclass(frozen=True)
class PlannedParts:
    """The parts of a survey, whose costs sum to the granted budget.

    Attributes:
      granted: Total budget.
      costs: Planned cost of each part, in order of measurement.
    """

    granted: Fraction
    costs: Mapping[str, Fraction]


Planned = TypeVar("Planned", bound=Ledger | PlannedParts)


@dataclass(frozen=True, eq=False)
class RunLedger(Generic[Planned]):
    """Content of the ledger of a run.

    Attributes:
      planned: All planned measurements: entries of geolevels, or parts of a survey.
      measured: Geolevels or parts whose measurements are published, with the digest of the dataset.
      lazily: Geolevels whose on-demand queries are published, with the digest of that dataset.
      costs: Cost of the noise of each measured part of a survey; empty for geolevels.
      is_finalized: Whether the run has spent exactly the granted budget.
      randomness: Source of the noise at the time when the grant was claimed.
    """

    planned: Planned
    measured: Mapping[str, str]
    lazily: Mapping[str, str]
    costs: Mapping[str, Fraction]
    is_finalized: bool
    randomness: str

    def spent(self: RunLedger[Ledger]) -> Ledger:
        """Return the entries of the measured geolevels.

        Raises:
          LedgerError: The entries cost more than was granted.
        """
        spent = replace(self.planned, entries=())
        for geolevel in self.measured:
            spent = spent.append(e for e in self.planned.entries if e.geolevel == geolevel)
        return spent


def start_ledger(path: Place, granted: Mapping[str, str], planned: Ledger | PlannedParts) -> None:
    """Write grant and plan; a ledger with the same lines from an earlier start is kept.

    Args:
      path: The file.
      granted: The budget and the source of randomness, exact.
      planned: The planned ledger, finalized, or the planned parts.

    Raises:
      LedgerError: The file is of another plan, or was tampered with; or the costs of the parts do
        not sum to the granted budget.
    """
    if isinstance(planned, PlannedParts):
        total = sum(planned.costs.values(), Fraction(0))
        if total != planned.granted:
            raise LedgerError(str(path), "parts do not cost what is granted", got=total)
        plan: dict[str, Any] = {"parts": {name: str(c) for name, c in planned.costs.items()}}
    else:
        plan = {
            "spine": list(planned.spine),
            "granted": str(planned.granted),
            **({"strata": list(planned.strata)} if planned.strata else {}),
            "entries": [_entry_line(entry) for entry in planned.entries],
        }
    begin_journal(path, [{"event": "granted", **granted}, {"event": "planned", **plan}])


def record_measured(
    path: Place, name: str, sha256: str, *, is_on_demand: bool = False, cost: Fraction | None = None
) -> None:
    """Record that the measurements of a geolevel or part are published, once.

    The record of a geolevel covers the cost of all its queries. The record of its on-demand queries
    adds no cost.

    Args:
      path: The ledger.
      name: Name of the geolevel or part.
      sha256: Digest of the dataset.
      is_on_demand: Whether the dataset is that of the on-demand queries of a geolevel.
      cost: Cost of the noise of a part of a survey; None for a geolevel.

    Raises:
      LedgerError: Other measurements of the geolevel or part were recorded, or the cost exceeds the
        rest of the budget.
    """

    def decide(lines: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        kind = _kind_of_plan(_read(path, lines).planned)
        named = {"event": _LAZILY if is_on_demand else _MEASURED, kind: name}
        line = {**named, "sha256": sha256, **({} if cost is None else {"cost": str(cost)})}
        before = [earlier for earlier in lines if named.items() <= earlier.items()]
        if before and before[0] != line:
            raise LedgerError(
                f"{path}, {kind} {name}",
                "other measurements were recorded before; the published ones must not be used",
                remedy="restore them from a backup, or grant a new budget and measure anew",
            )
        if not before:
            _refuse_overspent(path, _read(path, [*lines, line]))
        return [] if before else [line]

    append_to_journal(path, decide)


def finalize_ledger(path: Place) -> None:
    """Check that everything is measured at exactly the granted cost, and record it in the file.

    Raises:
      LedgerError: A part is missing, the cost differs, or the file was tampered with.
    """

    def decide(lines: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        ledger = _read(path, lines)
        if isinstance(ledger.planned, PlannedParts):
            missing = [name for name in ledger.planned.costs if name not in ledger.measured]
            if missing:
                raise LedgerError(str(path), "has parts that were not measured", got=missing)
        else:
            ledger.spent().finalize()
        return [] if ledger.is_finalized else [{"event": "sealed"}]

    append_to_journal(path, decide)


def read_ledger(path: Place) -> RunLedger[Ledger]:
    """Read the ledger of a census.

    Raises:
      LedgerError: The ledger is incomplete, of a survey, or was tampered with.
    """
    return _of_kind(path, _read(path, read_journal(path)), Ledger)


def read_ledger_of_parts(path: Place) -> RunLedger[PlannedParts]:
    """Read the ledger of a survey.

    Raises:
      LedgerError: The ledger is incomplete, of a census, or was tampered with.
    """
    return _of_kind(path, _read(path, read_journal(path)), PlannedParts)


def is_recorded(path: Place, name: str, *, is_on_demand: bool = False) -> bool:
    """Return whether the ledger states that a geolevel or part is measured.

    Raises:
      LedgerError: As `read_ledger`.
    """
    ledger = _read(path, read_journal(path))
    return name in (ledger.lazily if is_on_demand else ledger.measured)


def recorded_draws(release: ReleaseLayout) -> dict[Place, str]:
    """Return the datasets of noisy answers that the ledger of a release names, with their digests.

    Raises:
      LedgerError: The ledger is incomplete, or was tampered with.
    """
    ledger = _read(release.ledger, read_journal(release.ledger))
    is_survey = isinstance(ledger.planned, PlannedParts)
    place = release.measured_part if is_survey else release.measurements
    return {
        **{place(name): sha for name, sha in ledger.measured.items()},
        **{release.lazy_measurements(geolevel): sha for geolevel, sha in ledger.lazily.items()},
    }


def _read(path: Place, lines: Sequence[Mapping[str, Any]]) -> RunLedger[Any]:
    try:
        granted, plan = lines[0], lines[1]
        planned: Any
        if "parts" in plan:
            costs = {str(part): stated_fraction(cost) for part, cost in plan["parts"].items()}
            planned = PlannedParts(stated_fraction(granted["total"]), costs)
        else:
            planned = Ledger(
                tuple(plan["spine"]),
                stated_fraction(plan["granted"]),
                tuple(_entry(entry) for entry in plan["entries"]),
                tuple(plan.get("strata", ())),
            )
        kind = _kind_of_plan(planned)
        measured, lazily = (
            {line[kind]: line["sha256"] for line in lines if line["event"] == event}
            for event in (_MEASURED, _LAZILY)
        )
        spent = {line[kind]: stated_fraction(line["cost"]) for line in lines if "cost" in line}
        is_finalized = lines[-1]["event"] == "sealed"
        source = str(granted.get("randomness", ""))
        return RunLedger(planned, measured, lazily, spent, is_finalized, source)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise LedgerError(
            str(path),
            "is not the ledger of a run" if lines else "is missing or empty",
            got=repr(error) if lines else None,
            remedy="use `das run RUN --only measure`; if it was measured before, restore it from a "
            "backup",
        ) from None


def _of_kind(path: Place, ledger: RunLedger[Any], kind: type[Planned]) -> RunLedger[Planned]:
    if not isinstance(ledger.planned, kind):
        other = "a survey" if kind is Ledger else "a census"
        raise LedgerError(str(path), f"is the ledger of a run of {other}")
    return ledger


def _kind_of_plan(planned: Ledger | PlannedParts) -> str:
    return "part" if isinstance(planned, PlannedParts) else "geolevel"


def _refuse_overspent(path: Place, ledger: RunLedger[Any]) -> None:
    if isinstance(ledger.planned, Ledger):
        ledger.spent()
        return
    for part, cost in ledger.costs.items():
        most = ledger.planned.costs.get(part, Fraction(0))
        if cost > most:
            raise LedgerError(f"{path}, {part}", "costs more than was planned", got=cost, want=most)


def _entry_line(entry: LedgerEntry) -> dict[str, Any]:
    return {
        "geolevel": entry.geolevel,
        "chain_end": entry.chain_end,
        "query": entry.query,
        "attributes": list(entry.attributes),
        "mechanism": entry.mechanism.kind,
        "parameter": str(entry.mechanism.parameter),
        "cost": str(entry.cost),
        "geounits": entry.geounits,
        **({"stratum": entry.stratum} if entry.stratum else {}),
    }


def _entry(line: Mapping[str, Any]) -> LedgerEntry:
    return LedgerEntry(
        line["geolevel"],
        line["chain_end"],
        line["query"],
        tuple(line["attributes"]),
        read_mechanism(line["mechanism"], stated_fraction(line["parameter"])),
        stated_fraction(line["cost"]),
        line["geounits"],
        line.get("stratum", ""),
    )
