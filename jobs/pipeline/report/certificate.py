"""The certificate of a release: one page to sign, with all its products. Public."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from das.privacy.attack import attacks_of_total
from das.privacy.cost import Pure, to_zero_concentrated
from das.privacy.neighborhoods import Comparable
from das.privacy.semantics import Change
from das.rational import stated_fraction
from jobs.pipeline.documents.account import Guarantee, covering
from jobs.pipeline.documents.manifest import Manifest, ReleaseManifest, Statement
from jobs.pipeline.language import prose, spoken, tr, with_separators
from jobs.pipeline.neighborhoods import FROM_DATA, explained, relation_words
from jobs.pipeline.printable import counted
from jobs.pipeline.report import text
from jobs.pipeline.report.budget import (
    CHANGES,
    Spending,
    account_table,
    person_remark,
    query_order,
    relations,
    share_table,
)
from jobs.pipeline.report.page import render
from jobs.pipeline.report.table import Cell, Column, Table, labels, numbers
from jobs.pipeline.report.text import words
from jobs.pipeline.report.tiles import banners
from jobs.pipeline.storage.files import READABLE, replace_file
from jobs.pipeline.storage.place import Place

_SIGNATURES = ("Prepared by", "Privacy reviewed by", "Release approved by")
_HOUSEHOLD = 4  # records of the example of a group
_MOST_QUERIES = 14  # rows of the budget that fit; of more, geolevels alone are listed
_ODDS = "{factor} to 1"
_PLAIN_ODDS = 1_000_000  # larger ones are powers of ten


@dataclass(frozen=True)
class Verified:
    """Result of `das verify`.

    Attributes:
      manifests: SHA-256 of the manifest of each product.
      when: Time of the check.
      checked: Number of checked items by kind: datasets, families, exact answers, geounits with
        limits. Values that are not integers are not shown.
    """

    manifests: Sequence[str]
    when: datetime
    checked: Mapping[str, int | float | str]


def one_of(records: str) -> str:
    """Return the singular of the name of records.

    >>> one_of("families"), one_of("people"), one_of("households")
    ('family', 'person', 'household')
    """
    if records.endswith("ies"):
        return f"{records[:-3]}y"
    return "person" if records == "people" else records.removesuffix("s")


def write_certificate(manifests: Sequence[Manifest], verified: Verified, out: Place) -> None:
    """Write the certificate of a census as one HTML page: a sheet of A4 for each product.

    Args:
      manifests: Manifests of the products, the last product's last.
      verified: Result of verifying the release.
      out: The file; replaced at once.

    Raises:
      OutputError: The file cannot be written.
    """
    with spoken(manifests[-1].language):
        write_page(manifests, [_of_census(manifest) for manifest in manifests], verified, out)


def _of_census(manifest: Manifest) -> dict[str, Any]:
    """Return the variables of the template that only a product of a census has."""
    privacy = manifest.privacy
    protects_none = privacy.neighborhood.comparable is Comparable.NONE
    spending = Spending.of(manifest)
    is_wide = len(query_order(spending.rows)) > _MOST_QUERIES
    source = prose("geounits.public")
    if manifest.geounits_source == FROM_DATA:
        source = prose("geounits.from_data")
    limits = relation_words(privacy.neighbors, privacy.neighborhood)
    remarks = [
        source,
        person_remark(manifest),
        relations(spending),
        "" if protects_none else limits,
        explained(privacy.nearest, privacy),
    ]
    for level in manifest.solve:
        if level.learned is not None and level.learned.corrected:
            tables = level.learned.source.partition(":")[0]
            remarks.append(tr("Counts were corrected by regressions on {tables}.", tables=tables))
    advantages = [] if privacy.attacks is None else [privacy.attacks.advantage]
    return {
        "many": manifest.records,
        "neighborhood": limits,
        "protects_none": protects_none,
        "states_household": any(one.change is Change.HOUSEHOLD for one in manifest.statements),
        "changes": changes_table(
            manifest, [_change(one, advantages) for one in manifest.statements]
        ),
        "budget": _levels_table(spending) if is_wide else share_table(spending),
        "exact": [
            (row.query, f"{tr('at')} {', '.join(map(words, row.geolevels))}")
            for row in manifest.invariants
        ],
        "limits": [f"{tr(limit.kind)} {words(limit.name)}".strip() for limit in manifest.limits],
        "remarks": [remark for remark in remarks if remark],
        "open_sessions": manifest.open_sessions,
    }


def write_page(
    manifests: Sequence[ReleaseManifest],
    contexts: Sequence[Mapping[str, Any]],
    verified: Verified,
    out: Place,
) -> None:
    """Write the certificate of any release.

    Args:
      manifests: Manifests of the products of the release.
      contexts: For each product, variables of the template that only this kind of release has, and
        `many`, the name of its records.
      verified: Result of verifying the release.
      out: The file; replaced at once.

    Raises:
      OutputError: The file cannot be written.
    """
    manifest = manifests[-1]
    is_verified = manifest.privacy.randomness != "elsewhere"
    products = [
        {**_promise(one, context["many"]), **context}
        for one, context in zip(manifests, contexts, strict=True)
    ]
    shared = {
        "manifest": manifest,
        "products": products,
        "unverified": None if is_verified else banners(manifest)[-1],
        "account": None if manifest.account is None else account_table(manifest.account),
        "identity": _identity(manifests, [product["many"] for product in products], verified),
        "signatures": [*map(tr, _SIGNATURES)] if is_verified else (),
    }
    page = render(
        "certificate.html.j2",
        shared,
        styles=("style.css", "certificate.css"),
        scripts=(),
    )
    replace_file(out, page, mode=READABLE)


def _promise(manifest: ReleaseManifest, records: str) -> dict[str, Any]:
    """Return the variables of the template about what everything released discloses."""
    privacy = whole_of(manifest)
    total = stated_fraction(privacy.total)
    return {
        "privacy": privacy,
        "one": one_of(records),
        "is_several": privacy is not manifest.privacy,
        "unit": text.unit(privacy.definition),
        "value": text.decimal(float(total)),
        "odds": odds(privacy.epsilon_simple),
        "group": str(total * (_HOUSEHOLD if privacy.definition.is_pure else _HOUSEHOLD**2)),
        "household": _HOUSEHOLD,
    }


def odds(epsilon: float) -> str:
    """Return the upper bound e^epsilon on what even odds become, rounded up, as "N to 1".

    The privacy loss of an observed release multiplies the odds. Pure differential privacy bounds
    the loss by epsilon. Under rho-zCDP the loss is above rho + 2 sqrt(rho ln(1/delta)) with a
    probability of at most delta, which is how Bun and Steinke (TCC 2016, proposition 1.3) prove
    their epsilon. So this epsilon gives the odds. The smaller epsilon that holds at the same delta
    gives no such bound: the loss can exceed it with a probability above delta.

    >>> odds(0.5), odds(17.2)
    ('1.65 to 1', '3.0 × 10⁷ to 1')
    """
    if epsilon > 700:  # beyond the largest float
        power = math.ceil(epsilon / math.log(10))
        return tr(_ODDS, factor=f"10{str(power).translate(text.SUPERSCRIPT)}")
    factor = math.exp(epsilon) * (1 + 1e-12)
    if factor < 100:
        return tr(_ODDS, factor=with_separators(f"{math.ceil(100 * factor) / 100:.2f}"))
    if factor < _PLAIN_ODDS:
        return tr(_ODDS, factor=text.integer(math.ceil(factor)))
    power = math.floor(math.log10(factor))
    mantissa = math.ceil(10 * factor / 10.0**power) / 10
    return tr(_ODDS, factor=text.scientific(mantissa * 10.0**power))


Loss = tuple[str, float, float]
"""rho or epsilon as a fraction, epsilon at delta, and epsilon by the textbook formula."""
ChangeRow = tuple[str, Loss | None, Sequence[float]]
"""Difference of two records; its privacy loss, or None if unprotected; further known bounds on the
advantage of an attacker."""


def whole_of(manifest: ReleaseManifest) -> Guarantee:
    """Return the guarantee for everything released about the people of a release."""
    together = manifest.together if isinstance(manifest, Manifest) else None
    return covering(manifest.privacy, manifest.account, together)


def _with_whole(
    manifest: ReleaseManifest, changes: Sequence[ChangeRow], whole: Guarantee
) -> list[ChangeRow]:
    """Put the cost of all releases about the same people before the cost of one product.

    Where grants of both definitions are added, rows of a pure product are stated in rho, too.
    """
    of_product = manifest.privacy
    if whole is of_product:
        return [*changes]
    first, of_first, _ = changes[0]
    rows: list[ChangeRow] = []
    if of_first is not None:  # else no two possible data sets are left to compare
        rows.append((tr("{change}; all releases", change=first), loss_of(whole), ()))
    for what, loss, advantages in changes:
        if loss is not None and of_product.definition is not whole.definition:
            rho = to_zero_concentrated(Pure(stated_fraction(loss[0]))).rho
            loss = (str(rho), *loss[1:])
        rows.append((tr("{change}; this product alone", change=what), loss, advantages))
    return rows


def loss_of(guarantee: Guarantee) -> Loss:
    """Return the privacy loss of a guarantee."""
    return guarantee.total, guarantee.epsilon, guarantee.epsilon_simple


def changes_table(manifest: ReleaseManifest, changes: Sequence[ChangeRow]) -> Table:
    """Tabulate, for each kind of change, the privacy loss as odds and the share of right guesses.

    Args:
      manifest: Manifest of the release.
      changes: Rows on the changes of a record of one product.
    """
    whole, rows = whole_of(manifest), []
    for what, loss, advantages in _with_whole(manifest, changes, whole):
        if loss is None:
            rows.append([Cell(what), *[Cell(tr("not protected"))] * 4])
            continue
        total, epsilon, epsilon_simple = loss
        attacks = attacks_of_total(whole.definition, stated_fraction(total))
        advantage = min([float(attacks.advantage()), *advantages])
        right = min(math.ceil(500 * (1 + advantage)) / 10, 100)
        guesses = tr("{share} of 100", share=with_separators(f"{right:.1f}"))
        shown = (what, odds(epsilon_simple), guesses, text.upward(epsilon))
        rows.append([*map(Cell, shown), Cell(total, code=True)])
    columns = [
        Column(tr("The two possible records differ in"), numeric=False),
        Column(tr("Even odds become at most")),
        Column(tr("Right guesses at most")),
        Column(tr("ε at δ")),
        Column(tr("{unit}, exact", unit=text.unit(whole.definition))),
    ]
    if whole.definition.is_pure:  # epsilon holds at any delta
        del columns[3]
        rows = [row[:3] + row[4:] for row in rows]
    return Table("changes", tr("What can be learned of one record"), columns, rows)


def _change(one: Statement, advantages: Sequence[float]) -> ChangeRow:
    """Return the row of a statement; `advantages` are empty unless it is about whole records."""
    what = tr(CHANGES[one.change], name=words(one.name))
    if one.change is Change.RECORD:
        what = tr("anything, the place included")
    is_void = one.comparable is Comparable.NONE
    if is_void or one.total is None or one.epsilon is None or one.epsilon_simple is None:
        return what, None, ()
    loss = (one.total, one.epsilon, one.epsilon_simple)
    return what, loss, advantages if one.change is Change.RECORD else ()


def _levels_table(spending: Spending) -> Table:
    """Tabulate shares of geolevels, if the queries are too many for one sheet."""
    shares: dict[str, float] = {}
    for row in spending.rows:
        if row.chain_end == row.geolevel:
            shares[row.geolevel] = shares.get(row.geolevel, 0.0) + spending.share(row)
    columns = [
        labels(tr("Geolevel"), shares),
        numbers(tr("Share of {unit}", unit=spending.unit), shares.values(), text.fine_percent),
    ]
    queries = len(query_order(spending.rows))
    note = tr("{queries} queries; the report lists each.", queries=queries)
    return Table.of("budget", tr("Budget by geolevel"), columns, note)


def _identity(
    manifests: Sequence[ReleaseManifest], products: Sequence[str], verified: Verified
) -> list[tuple[str, str, bool]]:
    """List (label, value, whether it is code) of the facts that identify the release."""
    manifest, digests = manifests[-1], list[tuple[str, str, bool]]()
    software = manifest.software
    for name, one, digest in zip(products, manifests, verified.manifests, strict=True):
        of = f" {tr('of {name}', name=name)}" if len(products) > 1 else ""
        ledger = next((file.sha256 for file in one.files if file.path == "ledger.jsonl"), None)
        digests.append((f"{tr('Manifest')}{of}, SHA-256", digest, True))
        digests += [(f"{tr('Ledger')}{of}, SHA-256", ledger, True)] if ledger else []
    checked = ", ".join(
        with_separators(counted(count, tr(words(kind))))
        for kind, count in verified.checked.items()
        if isinstance(count, int) and count
    )
    return [
        (tr("Created"), text.moment(manifest.created), False),
        (
            tr("Software"),
            f"{software.name} {software.version}, {tr('source')} "
            f"{software.revision or tr(text.NOT_RECORDED)}, Python {software.python}",
            False,
        ),
        (tr("Configuration"), manifest.configuration_digest, True),
        *digests,
        (
            tr("Verified"),
            prose("verified", when=text.moment(verified.when), checked=checked),
            False,
        ),
    ]
