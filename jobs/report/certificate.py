"""The certificate of a release: one page to sign. Public."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction

from das.privacy.attack import attacks_of_total
from das.privacy.neighborhoods import Comparable
from das.privacy.semantics import Change
from das.queries.sensitivity import Neighbors
from jobs.documents.manifest import Manifest, Statement
from jobs.neighborhoods import FROM_DATA
from jobs.report import text
from jobs.report.budget import Spending, account_table, query_order, share_table
from jobs.report.render import render
from jobs.report.table import Cell, Column, Table, name
from jobs.report.text import words
from jobs.storage.files import replace_file
from jobs.storage.modes import READABLE
from jobs.storage.place import Place

_HOUSEHOLD = 4  # records of the example of a group
_MOST_QUERIES = 14  # rows of the budget that fit; of more, geolevels alone are listed
_PLAIN_ODDS = 1_000_000  # larger ones are powers of ten


@dataclass(frozen=True)
class Verified:
    """What `das verify` found.

    Attributes:
      manifest: SHA-256 of the manifest.
      when: When it was checked.
      checked: How much of what: datasets, families, exact answers, geounits with limits.
    """

    manifest: str
    when: datetime
    checked: Mapping[str, int]


def write_certificate(manifest: Manifest, verified: Verified, out: Place) -> None:
    """Write the certificate as one HTML page, which fits a sheet of A4.

    Args:
      manifest: Of the release.
      verified: What was found when the release was verified.
      out: The file; replaced at once.

    Raises:
      OutputError: It cannot be written.
    """
    privacy = manifest.privacy
    is_pure = privacy.definition.is_pure
    spending = Spending.of(manifest)
    total = Fraction(privacy.total)
    group = total * (_HOUSEHOLD if is_pure else _HOUSEHOLD**2)
    one = manifest.records.removesuffix("s")
    is_wide = len(query_order(spending.rows)) > _MOST_QUERIES
    context = {
        "manifest": manifest,
        "one": one,
        "many": manifest.records,
        "is_pure": is_pure,
        "is_bounded": privacy.neighbors is Neighbors.BOUNDED,
        "is_void": manifest.not_for_release,
        "protects_none": privacy.neighborhood.comparable is Comparable.NONE,
        "unit": text.unit(privacy.definition),
        "total": privacy.total,
        "value": text.decimal(float(total)),
        "epsilon": text.upward(privacy.epsilon),
        "delta": text.small(privacy.delta),
        "epsilon_simple": text.upward(privacy.epsilon_simple),
        "odds": odds(privacy.epsilon_simple),
        "group": str(group),
        "household": _HOUSEHOLD,
        "changes": _changes_table(manifest),
        "budget": _levels_table(spending) if is_wide else share_table(spending),
        "account": None if manifest.account is None else account_table(manifest.account),
        "exact": [(row.query, ", ".join(map(words, row.geolevels))) for row in manifest.invariants],
        "limits": [f"{words(limit.kind)} {words(limit.name)}".strip() for limit in manifest.limits],
        "from_data": manifest.geounits_source == FROM_DATA,
        "identity": _identity(manifest, verified),
        "signatures": ("Prepared by", "Privacy reviewed by", "Release approved by"),
    }
    page = render("certificate.html.j2", context, styles=("style.css", "certificate.css"))
    replace_file(out, page, mode=READABLE)


def odds(epsilon: float) -> str:
    """What even odds become at most, e^epsilon to 1, rounded up.

    Odds move by the privacy loss of what is seen. Pure privacy bounds it by epsilon. Under rho-zCDP
    it is above rho + 2 sqrt(rho ln(1/delta)) with a probability of at most delta, which is how Bun
    and Steinke (TCC 2016, proposition 1.3) prove their epsilon: so odds are told by that one. The
    smaller epsilon that holds at the same delta does not say so: a loss above it may be likelier.

    >>> odds(0.5), odds(17.2)
    ('1.65 to 1', '3.0 × 10⁷ to 1')
    """
    if epsilon > 700:  # beyond the largest float
        power = math.ceil(epsilon / math.log(10))
        return f"10{str(power).translate(text.SUPERSCRIPT)} to 1"
    factor = math.exp(epsilon) * (1 + 1e-12)
    if factor < 100:
        return f"{math.ceil(100 * factor) / 100:.2f} to 1"
    if factor < _PLAIN_ODDS:
        return f"{math.ceil(factor):,} to 1"
    power = math.floor(math.log10(factor))
    mantissa = math.ceil(10 * factor / 10.0**power) / 10
    return f"{text.scientific(mantissa * 10.0**power)} to 1"


def _changes_table(manifest: Manifest) -> Table:
    """For each kind of change: what it costs, as odds, and how often a guess can be right."""
    is_pure = manifest.privacy.definition.is_pure
    rows = []
    for one in manifest.statements:
        if one.total is None or one.epsilon_simple is None or one.comparable is Comparable.NONE:
            rows.append([Cell(_changed(one)), *[Cell("not protected")] * (3 if is_pure else 4)])
            continue
        attacks = attacks_of_total(manifest.privacy.definition, Fraction(one.total))
        found = float(attacks.advantage())
        if one.change is Change.RECORD and manifest.privacy.attacks is not None:
            found = min(found, manifest.privacy.attacks.advantage)
        right = math.ceil(500 * (1 + found)) / 10
        rows.append(
            [
                Cell(_changed(one)),
                Cell(odds(one.epsilon_simple)),
                Cell(f"{min(right, 100):.1f} of 100"),
                *([] if is_pure else [Cell(text.upward(one.epsilon))]),
                Cell(one.total, code=True),
            ]
        )
    columns = [
        Column("The two possible records differ in", numeric=False),
        Column("Even odds become at most"),
        Column("Right guesses at most"),
        *([] if is_pure else [Column(f"{text.EPSILON} at δ")]),
        Column(f"{text.unit(manifest.privacy.definition)}, exact"),
    ]
    return Table("changes", "What can be learned of one record", columns, rows)


def _changed(one: Statement) -> str:
    if one.change is Change.RECORD:
        return "anything, the place included"
    if one.change is Change.ATTRIBUTE:
        return f"only {words(one.name)}"
    return f"only the place, within one {words(one.name)}"


def _levels_table(spending: Spending) -> Table:
    """Shares of geolevels, where queries are too many for a sheet."""
    shares: dict[str, float] = {}
    for row in spending.rows:
        if row.chain_end == row.geolevel:
            shares[row.geolevel] = shares.get(row.geolevel, 0.0) + spending.share(row)
    rows = [[name(words(level)), Cell(text.fine_percent(v))] for level, v in shares.items()]
    columns = [Column("Geolevel", numeric=False), Column(f"Share of {spending.unit}")]
    note = f"{len(query_order(spending.rows))} queries; the report lists each."
    return Table("budget", "Budget by geolevel", columns, rows, note)


def _identity(manifest: Manifest, verified: Verified) -> list[tuple[str, str, bool]]:
    """(what, value, whether it is code) of all that says which release this is."""
    software = manifest.software
    ledger = next((file.sha256 for file in manifest.files if file.path == "ledger.jsonl"), None)
    checked = ", ".join(
        f"{count:,} {words(kind)}" for kind, count in verified.checked.items() if count
    )
    when = verified.when.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return [
        ("Created", text.moment(manifest.created), False),
        (
            "Software",
            f"{software.name} {software.version}, source "
            f"{software.revision or text.NOT_RECORDED}, Python {software.python}",
            False,
        ),
        ("Configuration", manifest.configuration_digest, True),
        ("Manifest, SHA-256", verified.manifest, True),
        *([("Ledger, SHA-256", ledger, True)] if ledger else []),
        ("Verified", f"{when}: every digest is right, budget and sums hold; {checked}", False),
    ]
