"""The ledger of a run on disk: what was granted, planned, measured, and sealed. Public.

A journal of lines in the order of events. `granted` names the budget, `planned` every query that it
pays for, `measured` one geolevel whose noisy answers are published, `measured lazily` one whose
lazy queries are too, which `measured` has paid for in full, `sealed` that the measured
geolevels cost exactly what was granted on every root-to-leaf path. There are no times in it,
because how long measuring takes depends on the data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from das.errors import LedgerError
from das.mechanisms.registry import read_mechanism
from das.privacy.ledger import Ledger, LedgerEntry
from jobs.storage.journal import append_to_journal, begin_journal, read_journal
from jobs.storage.layout import ReleaseLayout
from jobs.storage.place import Place

_LAZILY = "measured lazily"


@dataclass(frozen=True, eq=False)
class RunLedger:
    """What the file says.

    Attributes:
      planned: All entries that the run will make; sealed when it was planned.
      measured: Geolevels whose measurements are published, with the digest of the dataset.
      lazily: Geolevels whose lazy queries are published, with the digest of that dataset.
      is_sealed: Whether the run has spent all, and exactly, what was granted.
    """

    planned: Ledger
    measured: Mapping[str, str]
    lazily: Mapping[str, str]
    is_sealed: bool

    def spent(self) -> Ledger:
        """The entries of the measured geolevels.

        Raises:
          LedgerError: They cost more than was granted.
        """
        spent = replace(self.planned, entries=())
        for geolevel in self.measured:
            spent = spent.append(e for e in self.planned.entries if e.geolevel == geolevel)
        return spent


def start_ledger(path: Place, granted: Mapping[str, str], planned: Ledger) -> None:
    """Write the grant and the plan; the same ones from an earlier start are kept.

    Args:
      path: The file.
      granted: The budget and the source of randomness, exact.
      planned: The planned ledger, sealed.

    Raises:
      LedgerError: The file is of another plan, or was tampered with.
    """
    wanted: list[dict[str, Any]] = [
        {"event": "granted", **granted},
        {
            "event": "planned",
            "spine": list(planned.spine),
            "granted": str(planned.granted),
            **({"strata": list(planned.strata)} if planned.strata else {}),
            "entries": [_entry_line(entry) for entry in planned.entries],
        },
    ]
    begin_journal(path, wanted)


def record_measured(
    path: Place, geolevel: str, measurements_sha256: str, *, is_lazy: bool = False
) -> None:
    """Note that the measurements of a geolevel are published; a second note is not made.

    The note pays for all queries of the geolevel, lazy ones too: a note of these adds nothing.

    Args:
      path: The ledger.
      geolevel: Name of the geolevel.
      measurements_sha256: Digest of the dataset.
      is_lazy: Whether it is that of the lazy queries.

    Raises:
      LedgerError: Other measurements of the geolevel were noted before, or the geolevel costs more
        than is left.
    """
    event = _LAZILY if is_lazy else "measured"
    line = {"event": event, "geolevel": geolevel, "sha256": measurements_sha256}

    def decide(lines: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        before = [
            one for one in lines if (one.get("event"), one.get("geolevel")) == (event, geolevel)
        ]
        if before and before[0] != line:
            raise LedgerError(
                f"{path}, geolevel {geolevel}",
                "other measurements were recorded before; the published ones must not be used",
                remedy="restore them from a backup, or grant a new budget and measure anew",
            )
        if not before:
            _read(path, [*lines, line]).spent()
        return [] if before else [line]

    append_to_journal(path, decide)


def seal_ledger(path: Place) -> Ledger:
    """Check that the measured geolevels cost exactly what was granted, and say so in the file.

    Returns:
      The sealed ledger.

    Raises:
      LedgerError: They do not, or the file was tampered with.
    """

    def decide(lines: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        ledger = _read(path, lines)
        ledger.spent().seal()
        return [] if ledger.is_sealed else [{"event": "sealed"}]

    return _read(path, append_to_journal(path, decide)).spent()


def read_ledger(path: Place) -> RunLedger:
    """Read the ledger of a run.

    Raises:
      LedgerError: It is not complete enough, or was tampered with.
    """
    return _read(path, read_journal(path))


def recorded_draws(release: ReleaseLayout) -> dict[Place, str]:
    """Datasets of noisy answers that the ledger of a release names, with their digests.

    Raises:
      LedgerError: It is not complete enough, or was tampered with.
    """
    ledger = read_ledger(release.ledger)
    return {
        **{release.measurements(geolevel): sha for geolevel, sha in ledger.measured.items()},
        **{release.lazy_measurements(geolevel): sha for geolevel, sha in ledger.lazily.items()},
    }


def _read(path: Place, lines: Sequence[Mapping[str, Any]]) -> RunLedger:
    try:
        plan = lines[1]
        planned = Ledger(
            tuple(plan["spine"]),
            Fraction(plan["granted"]),
            tuple(_entry(entry) for entry in plan["entries"]),
            tuple(plan.get("strata", ())),
        )
        measured, lazily = (
            {line["geolevel"]: line["sha256"] for line in lines if line["event"] == event}
            for event in ("measured", _LAZILY)
        )
        return RunLedger(planned, measured, lazily, lines[-1]["event"] == "sealed")
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise LedgerError(
            str(path),
            "is not the ledger of a run",
            got=repr(error),
            remedy="run `das measure`; if it was measured before, restore it from a backup",
        ) from None


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
        read_mechanism(line["mechanism"], Fraction(line["parameter"])),
        Fraction(line["cost"]),
        line["geounits"],
        line.get("stratum", ""),
    )
