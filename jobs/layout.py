"""Where everything of a run lies. Two roots: what may be published, and what may not.

OUT/run.json                             the configuration that owns the folder, its identity
OUT/stages.json, peak.json               what the run cost
OUT/release/geography/level=<L>/         public geounits of each geolevel
OUT/release/measurements/level=<L>/      noisy measurements
OUT/release/invariants/level=<L>/        exact answers of the invariants
OUT/release/counts/level=<L>/            protected counts
OUT/release/microdata/{parquet,csv}/     one row per person
OUT/release/tables/level=<L>/            tables of protected counts, CSV
OUT/release/ledger.jsonl                 what was granted, what every query costs, what is measured
OUT/release/account.json                 budgets granted for the same people until it was measured
OUT/release/manifest.json, report.html
OUT/release/NOT_FOR_RELEASE.txt          only if the noise was seeded
OUT/confidential/histograms/level=<L>/   the truth
OUT/confidential/histograms/runs/        sorted pieces of the input, while it is read
OUT/confidential/input.json              size and time of change of the input files
OUT/confidential/evaluation.json, report.html
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ReleaseLayout:
    """Paths under OUT/release. All that the stages after measuring are given."""

    root: Path

    def geography(self, geolevel: str) -> Path:
        """Dataset of the geounits of a geolevel."""
        return self.root / "geography" / f"level={geolevel}"

    def measurements(self, geolevel: str) -> Path:
        """Dataset of the noisy measurements of a geolevel."""
        return self.root / "measurements" / f"level={geolevel}"

    def invariants(self, geolevel: str) -> Path:
        """Dataset of the exact answers at a geolevel."""
        return self.root / "invariants" / f"level={geolevel}"

    def counts(self, geolevel: str) -> Path:
        """Dataset of the protected counts of a geolevel."""
        return self.root / "counts" / f"level={geolevel}"

    def tables(self, geolevel: str) -> Path:
        """Dataset of the tables of a geolevel."""
        return self.root / "tables" / f"level={geolevel}"

    @property
    def microdata(self) -> Path:
        """Folder of the microdata."""
        return self.root / "microdata"

    @property
    def ledger(self) -> Path:
        """The ledger of the run."""
        return self.root / "ledger.jsonl"

    @property
    def account(self) -> Path:
        """All budgets granted for the same people when the run measured them."""
        return self.root / "account.json"

    @property
    def manifest(self) -> Path:
        """The manifest."""
        return self.root / "manifest.json"

    @property
    def report(self) -> Path:
        """The public report."""
        return self.root / "report.html"


@dataclass(frozen=True)
class ConfidentialLayout:
    """Paths under OUT/confidential. Never given to the stages after measuring."""

    root: Path

    def histograms(self, geolevel: str) -> Path:
        """Dataset of the true histograms of a geolevel."""
        return self.root / "histograms" / f"level={geolevel}"

    @property
    def evaluation(self) -> Path:
        """Error metrics against the truth."""
        return self.root / "evaluation.json"

    @property
    def report(self) -> Path:
        """The internal report."""
        return self.root / "report.html"


def release_layout(out: Path) -> ReleaseLayout:
    """The publishable half of a run folder."""
    return ReleaseLayout(out / "release")


def confidential_layout(out: Path) -> ConfidentialLayout:
    """The confidential half of a run folder."""
    return ConfidentialLayout(out / "confidential")
