"""Sections on the guarantee and the budget: measured queries, their costs and noise. Public."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from das.definition import Definition
from das.mechanisms.mechanism import Mechanism
from das.mechanisms.registry import mechanism_of
from das.privacy.attack import attacks_of_total
from das.privacy.budget import group_total
from das.privacy.neighborhoods import Comparable
from das.privacy.semantics import Change
from das.queries.sensitivity import Neighbors
from jobs.pipeline.config.models.kinds.registry import KINDS
from jobs.pipeline.documents.account import Account, Grant, Guarantee, covering
from jobs.pipeline.documents.manifest import (
    NORMAL_90,
    Attacks,
    BudgetRow,
    Manifest,
    Privacy,
    ReleaseManifest,
    Statement,
    StratumStatements,
    attacks_of,
    expected_rmse,
)
from jobs.pipeline.neighborhoods import FROM_DATA
from jobs.pipeline.report import text
from jobs.pipeline.report.page import Block, Prose, Row, Section
from jobs.pipeline.report.plots import Figure, Panel, line_panels
from jobs.pipeline.report.table import (
    EMPTY,
    Cell,
    Column,
    Table,
    fractions,
    gridded,
    label,
    labels,
    name,
    names,
    number,
    numbers,
    shaded,
)
from jobs.pipeline.report.text import words

_MOST_PANELS = 16


@dataclass(frozen=True)
class Spending:
    """Measured queries on which a release or a plan spends its budget.

    Attributes:
      privacy: The guarantee of the whole budget.
      rows: Measured queries.
      levels: Geolevels, the root first.
      records: Name of the records, such as persons or units.
      strata: Strata of records with separate queries.
    """

    privacy: Privacy
    rows: Sequence[BudgetRow]
    levels: Sequence[str]
    records: str
    strata: Sequence[StratumStatements] = ()

    @classmethod
    def of(cls, manifest: Manifest) -> Spending:
        """Return the spending of a release."""
        return cls(
            manifest.privacy, manifest.budget, manifest.levels, manifest.records, manifest.strata
        )

    @property
    def unit(self) -> str:
        """Return the letter of the unit of costs."""
        return text.unit(self.privacy.definition)

    def share(self, row: BudgetRow) -> float:
        """Return the share of the budget that a budget row costs."""
        return text.ratio(row.cost) / (text.ratio(self.privacy.total) or 1.0)


def budget_section(spending: Spending) -> Section:
    """Show shares of the budget and all measured queries."""
    lead = text.prose("budget.lead", unit=spending.unit) + f" {relations(spending)}"
    blocks = [share_table(spending), measured_table(spending)]
    if spending.strata:
        lead += text.prose("budget.strata")
        blocks.insert(0, strata_table(spending))
    return Section("budget", "Privacy budget", lead, blocks)


def relations(spending: Spending) -> str:
    """Say which relations between attributes counts and microdata keep."""
    joined = ", ".join(query for query in query_order(spending.rows) if " * " in query)
    kept = text.prose("relations.kept", tables=joined) if joined else text.prose("relations.none")
    noise = expected_rmse(spending.rows, spending.levels)
    cells = [
        f"{noise[level, 'detailed']:.3g} at {words(level)}"
        for level in spending.levels
        if (level, "detailed") in noise
    ]
    if not cells:
        return f"{kept} " + text.prose("relations.unmeasured")
    deviations = " to ".join(dict.fromkeys((cells[0], cells[-1])))
    return f"{kept} " + text.prose("relations.cells", deviations=deviations)


def noise_section(spending: Spending) -> Section:
    """Show the expected error of raw noisy answers."""
    levels = spending.levels
    expected = expected_rmse(spending.rows, levels)
    queries = query_order(spending.rows)
    titles = " or ".join(kind.title for kind in noise_kinds(spending.rows))
    lead = text.prose("noise.lead", titles=titles)
    values = [[expected.get((level, query)) for level in levels] for query in queries]
    label = f"Standard deviation of one noisy answer, in {spending.records}"
    caption = text.prose("noise.caption")
    axes, legend = (queries, levels), [("raw", "noisy answer")]
    figure = query_figure("noise", axes, {"raw": values}, label, caption, legend)
    grid = level_grid("noise-grid", label, values, axes)
    return Section("noise", "Noise in the measurements", lead, [figure, grid])


def account_table(
    account: Account,
    key: str = "account",
    caption: str = "Budgets granted for the same people",
    note: str = "Losses of several products about the same people add up.",
) -> Table:
    """Tabulate several budgets and their sum.

    Args:
      account: The budgets.
      key: Identifier, unique on the page.
      caption: What the budgets have in common.
      note: A line under the table.
    """
    relations = {grant.neighbors for grant in account.grants}
    body = [[name(grant.product), name(grant.grant), *_loss(grant)] for grant in account.grants]
    together = [name("all together"), Cell(EMPTY)]
    composed = [[*together, *_loss(total)] for total in account.composed]
    if len(relations) > 1:
        bounded = next(one for one in account.grants if one.neighbors is Neighbors.BOUNDED)
        unstated = [Cell("not stated"), name(Neighbors.UNBOUNDED), *[Cell(EMPTY)] * 3]
        composed.append([*together, *unstated])
        note += text.prose("account.bounded", grant=bounded.grant, product=bounded.product)
    columns = [
        Column("Product", numeric=False),
        Column("Grant", numeric=False),
        Column("Budget", hint="exact", numeric=False),
        Column("Neighbors", numeric=False),
        Column(text.EPSILON, hint="at δ, rounded up"),
        Column("δ"),
        Column("A changed record", hint="exact"),
    ]
    body += composed if len(body) > 1 else []
    if Neighbors.UNBOUNDED not in relations:  # a changed record costs the budget itself
        columns, body = columns[:-1], [row[:-1] for row in body]
    exact = {grant.product: ", ".join(grant.exact) for grant in account.grants if grant.exact}
    if exact:
        stated = "; ".join(f"{product}: {what}" for product, what in exact.items())
        note += f" All hold between data sets that agree on the exact values. {stated}."
    if any(grant.exact is None for grant in account.grants):
        note += " For some grants, what is exact was not recorded."
    if len({grant.definition for grant in account.grants}) > 1:
        note += text.prose("account.units", rho=text.RHO, epsilon=text.EPSILON)
    return Table(key, caption, columns, body, note)


def statements_table(statements: Sequence[Statement], definition: Definition) -> Table:
    """Tabulate the costs of smaller changes of a record."""
    changes = []
    for statement in statements:
        sentence = CHANGES[statement.change]
        shown = sentence.format(words(statement.name))
        changes.append(Cell(shown, shown, plain=sentence.format(statement.name)))
    columns = [Column("The two data sets differ in", False, cells=changes)]
    note = "A change that affects few measured queries costs less than one of the whole record."
    if not definition.is_pure:
        best = (one.epsilon for one in statements)
        textbook = (one.epsilon_simple for one in statements)
        columns += [
            numbers(text.EPSILON, best, text.upward, "best formula"),
            numbers(text.EPSILON, textbook, text.upward, "textbook formula"),
        ]
        note += " Both epsilons hold at the same \N{GREEK SMALL LETTER DELTA}, rounded up."
    totals = (one.total for one in statements)
    columns.append(fractions(text.unit(definition), totals, "exact", numeric=True))
    if any(one.in_words for one in statements):
        columns.append(names("Limited by what is exact", (one.in_words for one in statements)))
    return Table.of("statements", "Loss when one record changes in part", columns, note)


def strata_table(spending: Spending) -> Table:
    """Tabulate the costs of a record of each stratum, and of changes within the stratum."""
    strata, unit = spending.strata, spending.unit
    costs = [{(row.change, row.name): row.total for row in one.statements} for one in strata]
    columns = [
        labels("Stratum", (one.stratum for one in strata)),
        numbers("Cells", (one.cells for one in strata)),
        fractions(unit, (one.own for one in strata), "own queries"),
        fractions(unit, (spending.privacy.total for _ in strata), "with those for everybody"),
    ]
    for kind in strata[0].statements:
        if kind.change is Change.ATTRIBUTE:
            changed = (cost[kind.change, kind.name] for cost in costs)
            columns.append(fractions(unit, changed, f"only {words(kind.name)}"))
    note = text.prose("strata.note")
    return Table.of("strata", "Groups that are measured separately", columns, note)


def attacks_table(bounds: Sequence[Attacks], mu_gdp: float | None) -> Table:
    """Tabulate bounds on an attacker who must distinguish two neighbors.

    Args:
      bounds: Bounds from one basis or several, all at the same false positive rates.
      mu_gdp: mu of the mu-GDP guarantee of continuous noise with the same rho; None under pure
        differential privacy.
    """
    rates = (text.ratio(row.false_positive_rate) for row in bounds[0].rates)
    columns = [numbers("False positives", rates, text.fine_percent)]
    for attacks in bounds:
        basis = f"from {_BASES[attacks.basis]}"
        found = (row.true_positive_rate for row in attacks.rates)
        columns.append(numbers("True positives", found, text.percent_above, basis))
        right = (row.predictive_value for row in attacks.rates)
        columns.append(numbers("Right, if yes", right, text.percent_above, basis))
    gains = " and ".join(
        f"{text.percent_above(attacks.advantage)} from {_BASES[attacks.basis]}"
        for attacks in bounds
    )
    note = text.prose("attacks.note", gains=gains)
    if mu_gdp is not None:
        note += text.prose("attacks.gdp", mu_gdp=text.upward(mu_gdp))
    return Table.of("attacks", "What an attacker can gain at most", columns, note)


_BASES = {"rho": text.RHO, "epsilon": text.EPSILON, "noise": "the noise"}


CHANGES = {
    Change.RECORD: "anything in the record",
    Change.HOUSEHOLD: "anything in a household of at most {} persons",
    Change.ATTRIBUTE: "only {}",
    Change.WITHIN: "only the place, within one {}",
}


def _loss(budget: Guarantee) -> list[Cell]:
    """Describe a budget, what it implies, and the cost of a changed record if known."""
    is_pure, unit = budget.definition.is_pure, text.unit(budget.definition)
    changed = budget.total if budget.neighbors is Neighbors.BOUNDED else None
    if isinstance(budget, Grant) and budget.changed_record is not None:
        changed = budget.changed_record
    total, of_change = (
        Cell(EMPTY) if cost is None else Cell(f"{unit} = {cost}", text.ratio(cost), code=True)
        for cost in (budget.total, changed)
    )
    delta = Cell("0", 0.0) if is_pure else Cell(text.small(budget.delta), text.ratio(budget.delta))
    epsilon = number(budget.epsilon, text.upward)
    return [total, name(budget.neighbors), epsilon, delta, of_change]


def query_order(budget: Sequence[BudgetRow]) -> list[str]:
    """List measured queries, those with the fewest answers first."""
    size: dict[str, int] = {}
    for row in budget:
        size.setdefault(row.query, row.answers)
    return sorted(size, key=lambda query: size[query])


def query_figure(
    key: str,
    axes: tuple[Sequence[str], Sequence[str]],
    series: Mapping[str, Sequence[Sequence[float | None]]],
    label: str,
    caption: str,
    legend: Sequence[tuple[str, str]],
) -> Figure:
    """Draw a panel for each of the first queries.

    Args:
      key: Identifier, unique on the page.
      axes: (queries, geolevels).
      series: Role of a color -> one row per query, one value per geolevel.
      label: Name and unit of the values.
      caption: How to read the figure.
      legend: (role, meaning) of every color.
    """
    queries, levels = axes
    panels = [
        Panel(words(query), [*map(words, levels)], {role: rows[i] for role, rows in series.items()})
        for i, query in enumerate(queries[:_MOST_PANELS])
    ]
    return Figure(key, line_panels(key, panels, label), caption, legend)


def level_grid(
    key: str,
    caption: str,
    values: Sequence[Sequence[float | None]],
    axes: tuple[Sequence[str], Sequence[str]],
    note: str = "",
) -> Table:
    """Return a table of queries by geolevels, shaded by the logarithm of the value.

    Args:
      key: Identifier, unique on the page.
      caption: What the table shows.
      values: One row per query, one value per geolevel.
      axes: (queries, geolevels).
      note: A line under the table.
    """
    grid = shaded(values, text.decimal, logarithmic=True)
    columns = [labels("Query", axes[0]), *gridded(map(words, axes[1]), grid)]
    return Table.of(key, caption, columns, note)


def share_table(spending: Spending) -> Table:
    """Tabulate shares of the budget by query and geolevel, along a path without only children.

    If all geounits of a geolevel begin a chain of only children, the shares of the most frequent
    chain are shown. The shares of all geolevels then sum to one.
    """
    main: dict[str, BudgetRow] = {}
    for row in sorted(
        spending.rows, key=lambda row: (row.chain_end == row.geolevel, row.geounits), reverse=True
    ):
        main.setdefault(row.geolevel, row)
    share = {
        (row.geolevel, row.query): spending.share(row)
        for row in spending.rows
        if row.chain_end == main[row.geolevel].chain_end
    }
    levels = [level for level in spending.levels if level in main]
    queries = query_order(spending.rows)
    values = [[share.get((level, query)) for level in levels] for query in queries]
    grid = shaded(values, text.fine_percent)
    stratum_of = {row.query: row.stratum for row in spending.rows}
    sums = {"all queries": {*queries}}
    if spending.strata:
        sums = {
            f"for everybody and {one.stratum}": {
                query for query in queries if stratum_of[query] in ("", one.stratum)
            }
            for one in spending.strata
        }
    for counted in sums.values():
        some = [row for query, row in zip(queries, values, strict=True) if query in counted]
        totals = (sum(filter(None, column)) for column in zip(*some, strict=True))
        grid.append([number(total, text.fine_percent) for total in totals])
    ends = [main[level].chain_end for level in levels]
    titles = [
        words(level if end == level else f"{level} to {end}")
        for level, end in zip(levels, ends, strict=True)
    ]
    columns = [
        Column("Query", False, cells=[*map(label, queries), *map(name, sums)]),
        *gridded(titles, grid),
    ]
    caption = f"Share of {spending.unit} by query and geolevel"
    return Table.of("budget-shares", caption, columns, text.prose("share.note"))


def noise_kinds(budget: Sequence[BudgetRow]) -> list[type[Mechanism]]:
    """List the noise mechanisms, each once."""
    return [mechanism_of(kind) for kind in dict.fromkeys(row.mechanism for row in budget)]


def measured_table(spending: Spending, *, counted: bool = True) -> Table:
    """Tabulate every measured query with its share, cost and noise.

    Args:
      spending: The spending to tabulate.
      counted: Whether the geounits of each row were counted.
    """
    symbols = " or ".join(kind.symbol for kind in noise_kinds(spending.rows))
    rows = spending.rows
    chains = (row.chain_end if row.chain_end != row.geolevel else None for row in rows)
    deviations = [math.sqrt(row.variance) for row in rows]
    columns = [
        labels("Query", (row.query for row in rows)),
        labels("Geolevel", (row.geolevel for row in rows)),
        labels("Down to", chains, "only children"),
        numbers("Share", map(spending.share, rows), text.fine_percent, f"of {spending.unit}"),
        fractions(spending.unit, (row.cost for row in rows), "exact"),
        fractions(symbols, (row.parameter for row in rows), "exact parameter"),
        numbers("Std. dev.", deviations, text.decimal, spending.records),
        numbers("9 in 10", (NORMAL_90 * one for one in deviations), text.decimal, "within ±"),
        numbers("Answers", (row.answers for row in rows), hint="per geounit"),
    ]
    if counted:
        columns.append(numbers("Geounits", (row.geounits for row in rows)))
    note = text.prose("measured.note")
    if any(row.charged == "together" for row in spending.rows):
        note = f"{note} {text.TOGETHER}"
    return Table.of("budget-table", "Every measured query", columns, note)


def guarantee_section(
    manifest: ReleaseManifest,
    template: str,
    values: Mapping[str, object],
    tables: Sequence[Table],
    *accounts: Account | None,
) -> Section:
    """Describe the guarantee, and what is and is not protected.

    Args:
      manifest: Manifest of the release.
      template: File name of the template for this kind of release.
      values: Values of the template, without the guarantee.
      tables: Tables of further guarantees, shown below the guarantee.
      accounts: Accounts as for `covering`; the first one is shown.
    """
    privacy = manifest.privacy
    whole = covering(privacy, *accounts)
    stated = {
        **vars(privacy),
        "together": None if whole is privacy else stated_loss(whole),
        "void": manifest.not_for_release,
        "total_value": text.decimal(text.ratio(privacy.total)),
    }
    blocks: list[Block] = [Prose(template, {**stated, **values}), *tables]
    if privacy.attacks is not None and whole is privacy:
        blocks.append(attacks_table([privacy.attacks], privacy.mu_gdp))
    elif privacy.attacks is not None:
        found = attacks_of_total(whole.definition, Fraction(whole.total))
        blocks.append(attacks_table([attacks_of(found, whole.definition.unit)], None))
    if accounts[0] is not None:
        blocks.append(account_table(accounts[0]))
    return Section("privacy", "Privacy", text.prose("guarantee.lead"), blocks)


def person_remark(manifest: Manifest) -> str:
    """Return a remark on the privacy loss of one person, if records can be of several people.

    A person who moves from one household to another changes two records, a group of two. Records of
    the product `persons` are people, so nothing is to be said.
    """
    records, changed = manifest.records, next(iter(manifest.statements), None)
    if records == "persons" or changed is None:
        return ""
    remark = text.prose("person.remark", records=records)
    if changed.comparable is Comparable.NONE or changed.total is None:
        return f"{remark} To a person who moves from one to another nothing is promised."
    total, definition = Fraction(changed.total), manifest.privacy.definition
    two = group_total(definition, total, 2)
    return (
        f"{remark} A person who moves from one to another changes two: {text.unit(definition)} = "
        f"{two} of this product. For larger changes nothing is promised beyond that of a group."
    )


def stated_loss(guarantee: Guarantee) -> str:
    """Return a guarantee in words, as plain text."""
    if guarantee.definition.is_pure:
        return f"{text.EPSILON} = {guarantee.total}, pure differential privacy"
    return (
        f"{text.RHO} = {guarantee.total}, zero-concentrated differential privacy, and "
        f"{text.EPSILON} = {text.upward(guarantee.epsilon)} at δ = {text.small(guarantee.delta)}"
    )


def products_sections(manifest: Manifest, products: Sequence[Manifest]) -> list[Section]:
    """Write one section if the release has several products, else none.

    Args:
      manifest: Manifest of the product that the page describes.
      products: Manifests of all products.
    """
    if manifest.together is None:
        return []
    names_of_all = " and ".join(product.records for product in products)
    lead = text.prose(
        "products.lead", names_of_all=names_of_all.capitalize(), records=manifest.records
    )
    caption = "Cost of all products together"
    composition = account_table(manifest.together, "together", caption, text.prose("products.note"))
    exact = (
        [words(row.query) for row in product.invariants]
        + [f"limits by {words(limit.name)}" for limit in product.limits]
        for product in products
    )
    queries = (", ".join(map(words, query_order(product.budget))) for product in products)
    counts = (product.counted for product in products)
    counted = [Cell("none") if count is None else number(count) for count in counts]
    columns = [
        names("Product", (product.records for product in products)),
        Column("Records", hint="in the microdata", cells=counted),
        numbers("Cells", (product.schema.cells for product in products)),
        names("Measured", queries, "queries"),
        names("Published exactly", (", ".join(stated) or "nothing" for stated in exact)),
    ]
    table = Table.of("products-table", "Products of this run", columns)
    return [Section("products", "Products", lead, [table, composition])]


def exact_section(manifest: Manifest) -> Section:
    """List invariants, geography and limits, which are published without noise."""
    stated = [(row.query, ", ".join(map(words, row.geolevels))) for row in manifest.invariants]
    stated = stated or [("none", "")]
    columns = [
        labels("Query", (query for query, _ in stated)),
        names("Exact at", (levels for _, levels in stated)),
    ]
    invariants = Table.of("invariants", "Queries published exactly", columns)
    rows = manifest.geography
    columns = [
        labels("Geolevel", (row.geolevel for row in rows)),
        numbers("Digits", (row.digits for row in rows), hint="of geocode"),
        numbers("Geounits", (row.geounits for row in rows)),
        numbers("Measured", (row.measured for row in rows)),
        numbers("Only children", (row.only_children for row in rows)),
    ]
    geography = Table.of("geography", "Geounits of each geolevel", columns)
    from_data = manifest.geounits_source == FROM_DATA
    lead = "Invariants carry no noise and lie outside the privacy guarantee. So does the list of "
    lead += "geounits, " + ("taken from the data." if from_data else "which was public before.")
    blocks: list[Block] = [Row([invariants, geography])]
    if manifest.limits:
        blocks.append(_limits_table(manifest))
    return Section("exact", "Published exactly", lead, blocks)


def _limits_table(manifest: Manifest) -> Table:
    limits = manifest.limits
    stated = {limit.kind for limit in limits}
    notes = (kind.limit.note for kind in KINDS if kind.limit.kind in stated)
    kept_at = (", ".join(map(words, limit.geolevels)) or "every geolevel" for limit in limits)
    columns = [
        labels("Kind", (limit.kind for limit in limits)),
        labels("Of", (limit.name for limit in limits)),
        names("Types", (", ".join(map(words, limit.types or ())) for limit in limits)),
        names("Holds at", kept_at),
    ]
    return Table.of("limits", "Limits that counts keep", columns, " ".join(filter(None, notes)))
