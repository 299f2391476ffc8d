"""The stages that see confidential data: plan, read, resolve_constraints, measure, evaluate."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial

from das.errors import LedgerError
from das.mechanisms.entropy import NoiseKey
from geography.lattice import Lattice
from jobs.pipeline.confidential.between import check_ties
from jobs.pipeline.confidential.check import check_input
from jobs.pipeline.confidential.draw import Drawn, draw_part
from jobs.pipeline.confidential.evaluate import evaluate as write_evaluation
from jobs.pipeline.confidential.exact import publish_invariants
from jobs.pipeline.confidential.geounits import planned_geounits
from jobs.pipeline.confidential.histograms import write_truth
from jobs.pipeline.confidential.households import household_errors
from jobs.pipeline.confidential.inputs import check_areas
from jobs.pipeline.confidential.measure import MeasureStage
from jobs.pipeline.confidential.read.formats import reader_of
from jobs.pipeline.config.allocation import freeze, planned_parts
from jobs.pipeline.config.product import Product, account_of, reservation_of
from jobs.pipeline.config.runnable import refuse_large_families
from jobs.pipeline.documents.document import write_document
from jobs.pipeline.folder.identity import check_same_input, input_files
from jobs.pipeline.folder.spending import spending_of
from jobs.pipeline.input.geounits import list_names
from jobs.pipeline.input.values import geocode_bytes
from jobs.pipeline.job import Job
from jobs.pipeline.neighborhoods import FROM_DATA, geounits_from_data
from jobs.pipeline.plan import Level, planned_ledger
from jobs.pipeline.release.bound import bound_parts
from jobs.pipeline.release.census import census_codes
from jobs.pipeline.release.implied import publish_given_counts, publish_implied
from jobs.pipeline.storage.account import noted_failures
from jobs.pipeline.storage.dataset import Dataset, is_published
from jobs.pipeline.storage.files import read_json, write_json
from jobs.pipeline.storage.geography import read_geography, write_geography
from jobs.pipeline.storage.journal import remove_journal
from jobs.pipeline.storage.ledger import finalize_ledger, read_ledger, start_ledger
from jobs.pipeline.storage.place import remove_tree


def plan(job: Job) -> None:
    """Write the public geounits and the planned ledgers.

    Without a public list, the geounits come from the input.

    Raises:
      InputError: The input files changed since they were read.
    """
    config, levels = job.resolved.config, job.resolved.plan.geolevels
    seen = config.output.roots.confidential / "input.json"
    read = [p.confidential.histograms(level) for p in job.products for level in levels]
    read += [job.release.geography(level) for level in levels]
    measured = any((p.release.root / "measurements").exists() for p in job.products)
    if measured or all(is_published(dataset) for dataset in read):
        check_same_input(config, seen)
    if all(is_published(dataset) for dataset in read):
        return
    if seen.exists() and read_json(seen, "remove the run folder") != input_files(config):
        # Nothing is measured yet. Datasets of an earlier start with other input must not remain.
        remove_tree(job.release.root / "geography")
        for product in job.products:
            remove_tree(product.confidential.root / "histograms")
            remove_journal(product.release.ledger)
    write_json(seen, input_files(config))
    is_from_data = config.geography.source == FROM_DATA
    if is_from_data:
        job.reporter.say(f"exact: {geounits_from_data(job.resolved.plan.leaf.name)}")
    noted = _noted(job, job.resolved.last) if is_from_data else nullcontext()
    with job.stage("plan", "geounits"), noted:
        lattice, census = planned_geounits(job.resolved, job.tasks)
        for product in job.products:
            refuse_large_families(product.plan, lattice)
            check_areas(product, lattice)
        for product in job.products:
            plan = product.plan
            # Later starts on any machine use the same planned strategies.
            if planned := planned_parts(plan.strategy):
                freeze(product.release.planned, plan.digest, planned)
            granted = {**plan.budget.exact(), "randomness": plan.randomness}
            start_ledger(product.release.ledger, granted, planned_ledger(plan, lattice))
        listed = config.geography.geounits
        named = lattice if census is None else census.lattice
        names = {} if listed is None else list_names(listed, named)
        write_geography(lattice, job.release, names, census)


def read(job: Job) -> None:
    """Write the confidential histograms of every product."""
    for product in job.products:
        plan, layout = product.plan, product.confidential
        if all(is_published(layout.histograms(level)) for level in plan.geolevels):
            continue
        reader = reader_of(product.config.input, plan.schema, plan.census_spine.digits[-1])
        with job.stage("read", product.label("histograms")), _noted(job, product):
            write_truth(
                reader,
                _lattice(product),
                schema=plan.schema,
                layout=layout,
                tasks=job.tasks,
                census=census_codes(plan, product.release),
            )
        if job.resolved.config.geography.source == FROM_DATA:
            leaves = Dataset.open(layout.histograms(plan.leaf.name))
            records = sum(int(part.facts["persons"]) for part in leaves.parts)
            size = records / len(_lattice(product).codes[-1])
            text = f"{product.name} of a geounit of {plan.leaf.name}, on average: {size:.2g}"
            job.reporter.say(text)


def _lattice(product: Product) -> Lattice:
    """Read the planned geounits."""
    spine = product.plan.spine
    leaves = read_geography(product.release, spine.levels[-1], columns=("geocode",))
    codes = leaves.column("geocode").combine_chunks()
    return Lattice.from_leaves(spine, geocode_bytes(codes, spine.digits[-1]))


def resolve_constraints(job: Job) -> None:
    """Check the data against the invariants; publish exact values and the bounds they imply.

    This stage precedes the reservation of budget, so a contradiction costs nothing.

    Raises:
      InfeasibleError, InputError: Invariants contradict each other, or the data break one.
    """
    products = job.resolved.products
    for product in job.products:
        plan, release, stated = product.plan, product.release, product.config.invariants
        binding = {name: (products[name].plan, products[name].release) for name in product.bound_by}
        with job.stage("resolve_constraints", product.label("invariants")):
            bound = partial(bound_parts, plan, stated, release, job.tasks)
            publish_given_counts(plan, stated, release, binding, bound)
            with _noted(job, product):
                check_input(plan, stated, release, product.confidential, job.tasks)
            for level in range(len(plan.spine.levels)):
                publish_invariants(plan, level, release, product.confidential, job.tasks)
            # Other products must be solved before bounds that depend on them are known.
            if not plan.limits.depends_on_other_products:
                publish_implied(plan, release, job.tasks)
    for product in job.products:
        if product.plan.limits.ties is not None:
            with (
                job.stage("resolve_constraints", product.label("constraints")),
                _noted(job, product),
            ):
                check_ties(product, products, job.tasks)


def _noted(job: Job, product: Product) -> AbstractContextManager[None]:
    """Record failed checks of the data in the account: an error reveals facts about the data."""
    reservation = reservation_of(job.resolved, product, job.identity)
    return noted_failures(account_of(job.resolved.config), reservation)


def measure(job: Job) -> None:
    """Measure every geolevel of every product once, after budget is reserved.

    On-demand queries are drawn later, while the geolevels are solved.

    Raises:
      LedgerError: Published measurements are gone, or a copy of this folder drew them.
    """
    for product in job.products:
        for level in product.plan.levels:
            _measure_level(job, product, level, is_on_demand=False)
        if not product.plan.on_demand:
            finalize_ledger(product.release.ledger)


def measure_on_demand(job: Job, product: Product, level: Level) -> None:
    """Draw the on-demand queries of a geolevel, after the geolevel above is solved.

    Raises:
      LedgerError: As for `measure`.
    """
    if level.on_demand:
        _measure_level(job, product, level, is_on_demand=True)


def _measure_level(job: Job, product: Product, level: Level, *, is_on_demand: bool) -> None:
    """Draw the on-demand queries of a geolevel, or all others, once.

    Published answers are final. If a driver dies before publication, its files are unreadable and
    the answers are drawn under a new key. The account admits one published draw of each part
    (`jobs.pipeline.folder.draws`). The key is dropped when the call returns.
    """
    spending = spending_of(job.resolved, product, job.identity)
    part = next(p for p in spending.parts if (p.name, p.is_on_demand) == (level.name, is_on_demand))

    def draw(key: NoiseKey) -> Drawn:
        stage = MeasureStage(product.plan, product.release, product.confidential, job.tasks)
        _refuse_other_noise(product, level.index)
        with job.stage("measure", product.label(part.account_name), level.name):
            return stage.draw(level.index, key, is_on_demand=is_on_demand)

    draw_part(spending, part, draw, moved=job.moved)


def _refuse_other_noise(product: Product, level: int) -> None:
    """Check that queries and noise of a geolevel equal those planned in the ledger."""
    plan, ledger, levels = product.plan, product.release.ledger, product.plan.spine.levels
    entries = [e for e in read_ledger(ledger).planned.entries if e.geolevel == levels[level]]
    for end in {entry.chain_end for entry in entries}:
        paid = {entry.query: entry.mechanism for entry in entries if entry.chain_end == end}
        noise = plan.noise(level, levels.index(end))
        if {noisy.query.name: noisy.mechanism for noisy in noise} != paid:
            raise LedgerError(
                str(ledger),
                f"is of another plan of geolevel {levels[level]}",
                got=sorted(paid),
                want=sorted(noisy.query.name for noisy in noise),
                remedy=f"restore {product.release.planned} from a backup",
            )


def evaluate(job: Job) -> None:
    """Compare the release with the truth, and write the confidential evaluations."""
    for product in job.products:
        with job.stage("evaluate", product.label("against the truth")):
            evaluation = write_evaluation(
                product.release,
                product.confidential,
                product.plan,
                job.tasks,
                tables=[*product.tabulated.values()],
                grouping=product.grouping,
            )
            households = household_errors(
                product.plan, product.release, product.confidential, job.tasks
            )
            if households:
                with_them = replace(evaluation, households=households)
                write_document(product.confidential.evaluation, with_them)
