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
from jobs.pipeline.language import prose, tr, with_separators
from jobs.pipeline.neighborhoods import FROM_DATA, statement_words
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
    lead = prose("budget.lead", unit=spending.unit) + f" {relations(spending)}"
    blocks = [share_table(spending), measured_table(spending)]
    if spending.strata:
        lead += prose("budget.strata")
        blocks.insert(0, strata_table(spending))
    return Section("budget", tr("Privacy budget"), lead, blocks)


def relations(spending: Spending) -> str:
    """Say which relations between attributes counts and microdata keep."""
    joined = ", ".join(query for query in query_order(spending.rows) if " * " in query)
    kept = prose("relations.kept", tables=joined) if joined else prose("relations.none")
    expected = expected_rmse(spending.rows, spending.levels)
    noise = {level: rmse for (level, query), rmse in expected.items() if query == "detailed"}
    cells = [
        text.at_level(with_separators(f"{noise[level]:.3g}"), level)
        for level in spending.levels
        if level in noise
    ]
    if not cells:
        return f"{kept} " + prose("relations.unmeasured")
    deviations = f" {tr('to')} ".join(dict.fromkeys((cells[0], cells[-1])))
    return f"{kept} " + prose("relations.cells", deviations=deviations)


def noise_section(spending: Spending) -> Section:
    """Show the expected error of raw noisy answers."""
    levels = spending.levels
    expected = expected_rmse(spending.rows, levels)
    queries = query_order(spending.rows)
    titles = f" {tr('or')} ".join(tr(kind.title) for kind in noise_kinds(spending.rows))
    lead = prose("noise.lead", titles=titles)
    values = [[expected.get((level, query)) for level in levels] for query in queries]
    label = tr("Standard deviation of one noisy answer, in {records}", records=spending.records)
    caption = prose("noise.caption")
    axes, legend = (queries, levels), [("raw", tr("noisy answer"))]
    figure = query_figure("noise", axes, {"raw": values}, label, caption, legend)
    grid = level_grid("noise-grid", label, values, axes)
    return Section("noise", tr("Noise in the measurements"), lead, [figure, grid])


def account_table(
    account: Account,
    key: str = "account",
    caption: str = "",
    note: str = "",
) -> Table:
    """Tabulate several budgets and their sum.

    Args:
      account: The budgets.
      key: Identifier, unique on the page.
      caption: What the budgets have in common; default: the people.
      note: A line under the table; default: that losses add up.
    """
    caption = caption or tr("Budgets granted for the same people")
    note = note or tr("Losses of several products about the same people add up.")
    relations = {grant.neighbors for grant in account.grants}
    body = [[name(grant.product), name(grant.grant), *_loss(grant)] for grant in account.grants]
    together = [name(tr("all together")), Cell(EMPTY)]
    composed = [[*together, *_loss(total)] for total in account.composed]
    if len(relations) > 1:
        bounded = next(one for one in account.grants if one.neighbors is Neighbors.BOUNDED)
        unstated = [Cell(tr("not stated")), name(tr(Neighbors.UNBOUNDED)), *[Cell(EMPTY)] * 3]
        composed.append([*together, *unstated])
        note += prose("account.bounded", grant=bounded.grant, product=bounded.product)
    columns = [
        Column(tr("Product"), numeric=False),
        Column(tr("Grant"), numeric=False),
        Column(tr("Budget"), hint=tr("exact"), numeric=False),
        Column(tr("Neighbors"), numeric=False),
        Column(text.EPSILON, hint=tr("at δ, rounded up")),
        Column("δ"),
        Column(tr("A changed record"), hint=tr("exact")),
    ]
    body += composed if len(body) > 1 else []
    if Neighbors.UNBOUNDED not in relations:  # a changed record costs the budget itself
        columns, body = columns[:-1], [row[:-1] for row in body]
    exact = {grant.product: ", ".join(grant.exact) for grant in account.grants if grant.exact}
    if exact:
        stated = "; ".join(f"{product}: {what}" for product, what in exact.items())
        stated = stated.replace(" at ", f" {tr('at')} ")  # accounts write "QUERY at GEOLEVELS"
        note += " " + tr("All hold between data sets that agree on the exact values.")
        note += f" {stated}."
    if any(grant.exact is None for grant in account.grants):
        note += " " + tr("For some grants, what is exact was not recorded.")
    if len({grant.definition for grant in account.grants}) > 1:
        note += prose("account.units", rho=text.RHO, epsilon=text.EPSILON)
    return Table(key, caption, columns, body, note)


def statements_table(statements: Sequence[Statement], definition: Definition) -> Table:
    """Tabulate the costs of smaller changes of a record."""
    changes = []
    for statement in statements:
        sentence = CHANGES[statement.change]
        shown = tr(sentence, name=words(statement.name))
        changes.append(Cell(shown, shown, plain=tr(sentence, name=statement.name)))
    columns = [Column(tr("The two data sets differ in"), False, cells=changes)]
    note = prose("statements.note")
    if not definition.is_pure:
        best = (one.epsilon for one in statements)
        textbook = (one.epsilon_simple for one in statements)
        columns += [
            numbers(text.EPSILON, best, text.upward, tr("best formula")),
            numbers(text.EPSILON, textbook, text.upward, tr("textbook formula")),
        ]
        note += " " + prose("statements.epsilon")
    totals = (one.total for one in statements)
    columns.append(fractions(text.unit(definition), totals, tr("exact"), numeric=True))
    if any(one.in_words for one in statements):
        columns.append(names(tr("Limited by what is exact"), map(statement_words, statements)))
    return Table.of("statements", tr("Loss when one record changes in part"), columns, note)


def strata_table(spending: Spending) -> Table:
    """Tabulate the costs of a record of each stratum, and of changes within the stratum."""
    strata, unit = spending.strata, spending.unit
    costs = [{(row.change, row.name): row.total for row in one.statements} for one in strata]
    columns = [
        labels(tr("Stratum"), (one.stratum for one in strata)),
        numbers(tr("Cells"), (one.cells for one in strata)),
        fractions(unit, (one.own for one in strata), tr("own queries")),
        fractions(unit, (spending.privacy.total for _ in strata), tr("with those for everybody")),
    ]
    for kind in strata[0].statements:
        if kind.change is Change.ATTRIBUTE:
            changed = (cost[kind.change, kind.name] for cost in costs)
            only = tr(CHANGES[kind.change], name=words(kind.name))
            columns.append(fractions(unit, changed, only))
    note = prose("strata.note")
    return Table.of("strata", tr("Groups that are measured separately"), columns, note)


def attacks_table(bounds: Sequence[Attacks], mu_gdp: float | None) -> Table:
    """Tabulate bounds on an attacker who must distinguish two neighbors.

    Args:
      bounds: Bounds from one basis or several, all at the same false positive rates.
      mu_gdp: mu of the mu-GDP guarantee of continuous noise with the same rho; None under pure
        differential privacy.
    """
    rates = (text.ratio(row.false_positive_rate) for row in bounds[0].rates)
    columns = [numbers(tr("False positives"), rates, text.fine_percent)]
    for attacks in bounds:
        basis = tr("from {basis}", basis=tr(_BASES[attacks.basis]))
        found = (row.true_positive_rate for row in attacks.rates)
        columns.append(numbers(tr("True positives"), found, text.percent_above, basis))
        right = (row.predictive_value for row in attacks.rates)
        columns.append(numbers(tr("Right, if yes"), right, text.percent_above, basis))
    gains = f" {tr('and')} ".join(
        f"{text.percent_above(one.advantage)} {tr('from {basis}', basis=tr(_BASES[one.basis]))}"
        for one in bounds
    )
    note = prose("attacks.note", gains=gains)
    if mu_gdp is not None:
        note += prose("attacks.gdp", mu_gdp=text.upward(mu_gdp))
    return Table.of("attacks", tr("What an attacker can gain at most"), columns, note)


_BASES = {"rho": text.RHO, "epsilon": text.EPSILON, "noise": "the noise"}


CHANGES = {
    Change.RECORD: "anything in the record",
    Change.HOUSEHOLD: "anything in a household of at most {name} persons",
    Change.ATTRIBUTE: "only {name}",
    Change.WITHIN: "only the place, within one {name}",
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
    return [total, name(tr(budget.neighbors)), epsilon, delta, of_change]


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
    columns = [labels(tr("Query"), axes[0]), *gridded(map(words, axes[1]), grid)]
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
    sums = {tr("all queries"): {*queries}}
    if spending.strata:
        sums = {
            tr("for everybody and {stratum}", stratum=one.stratum): {
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
        words(level if end == level else f"{level} {tr('to')} {end}")
        for level, end in zip(levels, ends, strict=True)
    ]
    columns = [
        Column(tr("Query"), False, cells=[*map(label, queries), *map(name, sums)]),
        *gridded(titles, grid),
    ]
    caption = tr("Share of {unit} by query and geolevel", unit=spending.unit)
    return Table.of("budget-shares", caption, columns, prose("share.note"))


def noise_kinds(budget: Sequence[BudgetRow]) -> list[type[Mechanism]]:
    """List the noise mechanisms, each once."""
    return [mechanism_of(kind) for kind in dict.fromkeys(row.mechanism for row in budget)]


def measured_table(spending: Spending, *, counted: bool = True) -> Table:
    """Tabulate every measured query with its share, cost and noise.

    Args:
      spending: The spending to tabulate.
      counted: Whether the geounits of each row were counted.
    """
    symbols = f" {tr('or')} ".join(tr(kind.symbol) for kind in noise_kinds(spending.rows))
    rows = spending.rows
    chains = (row.chain_end if row.chain_end != row.geolevel else None for row in rows)
    deviations = [math.sqrt(row.variance) for row in rows]
    of, within = tr("of {unit}", unit=spending.unit), [NORMAL_90 * one for one in deviations]
    columns = [
        labels(tr("Query"), (row.query for row in rows)),
        labels(tr("Geolevel"), (row.geolevel for row in rows)),
        labels(tr("Down to"), chains, tr("only children")),
        numbers(tr("Share"), map(spending.share, rows), text.fine_percent, of),
        fractions(spending.unit, (row.cost for row in rows), tr("exact")),
        fractions(symbols, (row.parameter for row in rows), tr("exact parameter")),
        numbers(tr("Std. dev."), deviations, text.decimal, spending.records),
        numbers(tr("9 in 10"), within, text.decimal, tr("within ±")),
        numbers(tr("Answers"), (row.answers for row in rows), hint=tr("per geounit")),
    ]
    if counted:
        columns.append(numbers(tr("Geounits"), (row.geounits for row in rows)))
    note = prose("measured.note")
    if any(row.charged == "together" for row in spending.rows):
        note = f"{note} {tr(text.TOGETHER)}"
    return Table.of("budget-table", tr("Every measured query"), columns, note)


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
    return Section("privacy", tr("Privacy"), prose("guarantee.lead"), blocks)


def person_remark(manifest: Manifest) -> str:
    """Return a remark on the privacy loss of one person, if records can be of several people.

    A person who moves from one household to another changes two records, a group of two. Records of
    the product `persons` are people, so nothing is to be said.
    """
    records, changed = manifest.records, next(iter(manifest.statements), None)
    if records == "persons" or changed is None:
        return ""
    remark = prose("person.remark", records=records)
    if changed.comparable is Comparable.NONE or changed.total is None:
        return f"{remark} " + prose("person.unprotected")
    total, definition = Fraction(changed.total), manifest.privacy.definition
    two = group_total(definition, total, 2)
    return f"{remark} " + prose("person.moves", unit=text.unit(definition), loss=two)


def stated_loss(guarantee: Guarantee) -> str:
    """Return a guarantee in words, as plain text."""
    if guarantee.definition.is_pure:
        return tr("ε = {total}, pure differential privacy", total=guarantee.total)
    epsilon, delta = text.upward(guarantee.epsilon), text.small(guarantee.delta)
    return prose("guarantee.stated", total=guarantee.total, epsilon=epsilon, delta=delta)


def products_sections(manifest: Manifest, products: Sequence[Manifest]) -> list[Section]:
    """Write one section if the release has several products, else none.

    Args:
      manifest: Manifest of the product that the page describes.
      products: Manifests of all products.
    """
    if manifest.together is None:
        return []
    names_of_all = f" {tr('and')} ".join(product.records for product in products)
    lead = prose("products.lead", names_of_all=names_of_all.capitalize(), records=manifest.records)
    caption = tr("Cost of all products together")
    composition = account_table(manifest.together, "together", caption, prose("products.note"))
    exact = (
        [words(row.query) for row in product.invariants]
        + [tr("limits by {name}", name=words(limit.name)) for limit in product.limits]
        for product in products
    )
    queries = (", ".join(map(words, query_order(product.budget))) for product in products)
    counts = (product.counted for product in products)
    counted = [Cell(tr("none")) if count is None else number(count) for count in counts]
    columns = [
        names(tr("Product"), (product.records for product in products)),
        Column(tr("Records"), hint=tr("in the microdata"), cells=counted),
        numbers(tr("Cells"), (product.schema.cells for product in products)),
        names(tr("Measured"), queries, tr("queries")),
        names(tr("Published exactly"), (", ".join(stated) or tr("nothing") for stated in exact)),
    ]
    table = Table.of("products-table", tr("Products of this run"), columns)
    return [Section("products", tr("Products"), lead, [table, composition])]


def exact_section(manifest: Manifest) -> Section:
    """List invariants, geography and limits, which are published without noise."""
    stated = [(row.query, ", ".join(map(words, row.geolevels))) for row in manifest.invariants]
    stated = stated or [(tr("none"), "")]
    columns = [
        labels(tr("Query"), (query for query, _ in stated)),
        names(tr("Exact at"), (levels for _, levels in stated)),
    ]
    invariants = Table.of("invariants", tr("Queries published exactly"), columns)
    rows = manifest.geography
    columns = [
        labels(tr("Geolevel"), (row.geolevel for row in rows)),
        numbers(tr("Digits"), (row.digits for row in rows), hint=tr("of geocode")),
        numbers(tr("Geounits"), (row.geounits for row in rows)),
        numbers(tr("Measured"), (row.measured for row in rows)),
        numbers(tr("Only children"), (row.only_children for row in rows)),
    ]
    geography = Table.of("geography", tr("Geounits of each geolevel"), columns)
    from_data = manifest.geounits_source == FROM_DATA
    lead = prose("exact.lead_from_data") if from_data else prose("exact.lead")
    blocks: list[Block] = [Row([invariants, geography])]
    if manifest.limits:
        blocks.append(_limits_table(manifest))
    return Section("exact", tr("Published exactly"), lead, blocks)


def _limits_table(manifest: Manifest) -> Table:
    limits = manifest.limits
    stated = {limit.kind for limit in limits}
    notes = (tr(kind.limit.note) for kind in KINDS if kind.limit.kind in stated)
    kept_at = (", ".join(map(words, limit.geolevels)) or tr("every geolevel") for limit in limits)
    columns = [
        labels(tr("Kind"), (tr(limit.kind) for limit in limits)),
        labels(tr("Of"), (limit.name for limit in limits)),
        names(tr("Types"), (", ".join(map(words, limit.types or ())) for limit in limits)),
        names(tr("Holds at"), kept_at),
    ]
    return Table.of("limits", tr("Limits that counts keep"), columns, " ".join(filter(None, notes)))
