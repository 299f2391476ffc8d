"""Pin answers of a run to the counts of an earlier release.

Released counts are protected and public: this module reads nothing confidential and spends no
budget.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from das.arrays import BoolArray, Geocodes, IntArray, ObjectArray
from das.errors import ConfigError, InputError, LedgerError
from das.queries.query import Query, is_refinement, parse_query
from invariants.facilities import groups_of
from jobs.pipeline.config.models.kinds.kind import KindConfig, ReleasedCounts
from jobs.pipeline.config.models.kinds.query import InvariantConfig
from jobs.pipeline.config.product import Product
from jobs.pipeline.config.released import load_release
from jobs.pipeline.documents.account import Account
from jobs.pipeline.documents.document import read_document
from jobs.pipeline.plan import Level, Plan
from jobs.pipeline.release.verify import verify_datasets
from jobs.pipeline.storage.account import read_account
from jobs.pipeline.storage.answers import ANSWERS, answer_table, read_answers
from jobs.pipeline.storage.columns import texts
from jobs.pipeline.storage.dataset import LAST, Dataset, PartFile, PartWriter
from jobs.pipeline.storage.geography import families, read_both_geocodes, read_geography
from jobs.pipeline.storage.histograms import read_counts
from jobs.pipeline.storage.layout import ReleaseLayout
from jobs.pipeline.storage.place import Place
from jobs.pipeline.tasks.batches import Batch, geounit_batches
from jobs.pipeline.tasks.executor import Tasks

_NUMBERS = 4_000_000  # answers held at once in a task, 32 MB; default, not measured


@dataclass(frozen=True, eq=False)
class Released:
    """A query of a finished release to which a query of this run is pinned.

    Attributes:
      query: The query of this run, m answers.
      there: The query of the release, k answers.
      source: The product of the release.
      geolevel: The geolevel of the release whose census geocodes have the same length.
      answers: int64[m], for each answer of `query` the index of the matching answer of `there`.
    """

    query: Query
    there: Query
    source: Product
    geolevel: str
    answers: IntArray

    def geocodes(self) -> Geocodes:
        """Read bytes[G], the census geocodes of all geounits of the geolevel, sorted."""
        return np.sort(read_both_geocodes(self.source.release, self.geolevel)[1].astype(np.bytes_))

    def read(self, codes: ObjectArray) -> IntArray:
        """Read int64[G, m], released answers in census geounits; 0 without released persons."""
        plan, release = self.source.plan, self.source.release
        low, high = min(codes), max(codes)
        if plan.census is not None:  # further digits may be other ones on the spine
            low, high = low[: plan.shared_digits], high[: plan.shared_digits] + LAST
        on_spine, census = read_both_geocodes(release, self.geolevel, low, high)
        by_census = np.argsort(census)
        spots = np.sort(by_census[np.searchsorted(census[by_census], codes)])
        counts = read_counts(release, self.geolevel, on_spine[spots], plan.schema.size)
        answers = self.there.answer_at(counts, np.sort(self.answers))
        answers = answers[:, np.argsort(np.argsort(self.answers))]
        by_census = np.argsort(census[spots])
        return answers[by_census[np.searchsorted(census[spots][by_census], codes)]]

    def exact(self) -> dict[int, list[tuple[str, IntArray]]]:
        """List the exact queries of the release that are coarser than the pinned query.

        Returns:
          By length of census geocodes: name of the exact query, and int64[m], the position of the
          exact answer to which each pinned answer contributes.
        """
        found: dict[int, list[tuple[str, IntArray]]] = {}
        if len(self.answers) < self.there.size:  # the run does not pin the other answers
            return found
        digits = self.source.plan.census_digits
        for level in self.source.plan.levels:
            if digits.get(level.name, math.inf) > digits[self.geolevel]:
                continue
            for query in level.exact:
                if is_refinement(self.there, query):
                    groups = groups_of(self.there, query)[self.answers]
                    found.setdefault(digits[level.name], []).append((query.name, groups))
        return found


def bound_entries(stated: Sequence[KindConfig]) -> list[InvariantConfig]:
    """List the invariants that are pinned to an earlier release."""
    return [e for e in stated if isinstance(e, InvariantConfig) and e.released is not None]


def bound_query(plan: Plan, entry: InvariantConfig) -> Query:
    """Return the query of the plan that belongs to a pinned invariant."""
    name = parse_query(plan.schema, entry.query).name
    return next(one.query for one in plan.limits.pinned if one.query.name == name)


def open_released(plan: Plan, entry: InvariantConfig, config: ReleasedCounts) -> Released:
    """Open the release that an invariant is pinned to, and match the answers of both queries.

    Args:
      plan: The plan of this run.
      entry: The invariant.
      config: The key `released` of the invariant, with a path.

    Raises:
      OutputError: The path holds no finished release.
      ConfigError: The release lacks the product, geolevel, query or answers.
    """
    if config.path is None:
        raise ValueError("a table is no release")
    where = f"released {config.path}"
    resolved = load_release(config.path)
    name = resolved.last.name if config.product is None else config.product
    if name not in resolved.products:
        raise ConfigError(where, "has no such product", got=name, want=list(resolved.products))
    source = resolved.products[name]
    if source.plan.not_for_release and not plan.not_for_release:
        raise ConfigError(
            where,
            "has seeded noise, so its counts are not protected, and this run is for release",
            remedy="make the earlier release again with noise of the operating system",
        )
    digits = plan.census_digits[entry.geolevel]
    theirs = source.plan.census_digits
    geolevel = next((name for name, length in theirs.items() if length == digits), None)
    if geolevel is None:
        raise ConfigError(
            where,
            f"has no geolevel whose geocodes are as long as those of {entry.geolevel}",
            got=[*theirs.values()],
            want=digits,
        )
    query = bound_query(plan, entry)
    there = parse_query(source.plan.schema, config.query or query.name)
    answers = _answers(where, query, there, config.answers)
    return Released(query, there, source, geolevel, answers)


def _answers(where: str, query: Query, there: Query, named: dict[str, str] | None) -> IntArray:
    """Match the answers of a query of this run with those of a query of the release.

    Args:
      where: Place in the run file, for errors.
      query: Query of this run, with m answers.
      there: Query of the release.
      named: Label of an answer here -> label there; None matches equal labels.

    Returns:
      int64[m], for each answer of `query` the index of the matching answer of `there`.

    Raises:
      ConfigError: An answer has no match, or two answers have the same match.
    """
    if not there.is_partition:
        raise ConfigError(f"{where}: query {there.name}", "is no partition of its records")
    place = {label: index for index, label in enumerate(there.labels())}
    if named is None:
        wanted = query.labels()
        if sorted(wanted) != sorted(place):
            strange = sorted({*wanted} ^ {*place})
            raise ConfigError(
                f"{where}: query {there.name}",
                f"has other answers than {query.name} ({len(strange)} such)",
                got=strange[:3],
                remedy="recode the levels of the schema to those of the release, or name the "
                "answers under `answers`",
            )
        return np.array([place[label] for label in wanted], np.int64)
    if sorted(named) != sorted(query.labels()):
        raise ConfigError(
            f"{where}: answers",
            f"must name every answer of {query.name}",
            got=sorted(named),
            want=query.labels(),
        )
    unknown = [label for label in named.values() if label not in place]
    if unknown or len(set(named.values())) < len(named):
        raise ConfigError(
            f"{where}: answers",
            "name an unknown answer" if unknown else "name one answer twice",
            got=unknown or sorted(named.values()),
            want=f"some of {list(place)}",
        )
    return np.array([place[named[label]] for label in query.labels()], np.int64)


def check_released(released: Released) -> None:
    """Check geography and counts of the pinned geolevel against the manifest of the release.

    Raises:
      OutputError: A file is missing or was changed.
      VerificationError: A dataset is not the one that the manifest names.
    """
    layout, geolevel = released.source.release, released.geolevel
    verify_datasets(layout, [layout.geography(geolevel), layout.counts(geolevel)])


def refuse_other_account(released: Released, account: Place) -> None:
    """Refuse a run whose account lacks the grants that paid for the pinned release.

    Run and release are about the same people, so their costs add up in one account.

    Args:
      released: The release. A release with seeded noise has no account.
      account: The account of the run.

    Raises:
      LedgerError: A grant of the release is not in the account.
    """
    stated = released.source.release.account
    if not stated.exists():
        return
    known = {(one.product, one.grant) for one in read_account(account)}
    grants = read_document(Account, stated, remedy="restore it from a copy of the release").grants
    for grant in grants:
        if (grant.product, grant.grant) not in known:
            raise LedgerError(
                str(account),
                "lacks a grant of the release that this run is pinned to: both are about the same "
                "people, so their costs add up in one account",
                got=f"no grant {grant.grant!r} of {grant.product!r}",
                remedy="name the account of that release under privacy.account",
            )


def check_geounits(released: Released, codes: Geocodes) -> None:
    """Check that the release has the geounits of the run, and no others.

    Args:
      released: The release.
      codes: bytes[G], all geounits of the geolevel as the census has them, sorted.

    Raises:
      InputError: The run has a geounit that the release lacks, or the other way round.
    """
    theirs = released.geocodes()
    if len(codes) == len(theirs) and bool((codes == theirs).all()):
        return
    lacking = np.setdiff1d(codes, theirs, assume_unique=True)
    strange = np.setdiff1d(theirs, codes, assume_unique=True)
    some, what = (lacking, "lacks") if len(lacking) else (strange, "has, beyond those of the run,")
    raise InputError(
        f"released {released.source.release.root}",
        f"{what} geounits of the geolevel {released.geolevel} ({len(some)} such)",
        got=some[0].decode(),
        want="the geounits of the run",
        remedy="bind the run to a release of the same geounits",
    )


def bound_parts(
    plan: Plan, stated: Sequence[KindConfig], release: ReleaseLayout, tasks: Tasks, level: Level
) -> list[tuple[str, PartFile]]:
    """Write the pinned counts of a geolevel: of a release, or summed from one geolevel below.

    Args:
      plan: The plan.
      stated: The section `invariants` of the configuration, paths absolute.
      release: The release to write to; given counts one geolevel below are published there.
      tasks: Runs the tasks.
      level: The geolevel.

    Returns:
      (name of the query, part file) of all parts. Counts of public tables are not among them; the
      caller writes those.

    Raises:
      OutputError, VerificationError: A release is not finished, or was changed.
      ConfigError: A release lacks the pinned answers.
      InputError: A release has other geounits, or persons in answers whose cells are all structural
        zeros of this run.
    """
    out = []
    for entry in bound_entries(stated):
        config, query = entry.released, bound_query(plan, entry)
        is_stated = entry.geolevel == level.name
        if query not in level.bound or config is None or (is_stated and config.table is not None):
            continue
        run: Callable[[Batch], PartFile]
        source = level
        if is_stated:
            released = open_released(plan, entry, config)
            check_released(released)
            census = read_both_geocodes(release, level.name)[1]
            check_geounits(released, np.sort(census.astype(np.bytes_)))
            run = partial(_copy, release, level.name, released, plan.limits.possible_answers(query))
        else:
            source = plan.levels[level.index + 1]
            run = partial(_add_up, release, level.name, source.name, query)
        most = max(1, tasks.sizing.estimate_numbers.most // query.size)
        batches = geounit_batches(release, source, tasks.batches, most)
        out += [(query.name, part) for part in tasks.run(f"bind {level.name}", batches, run)]
    return out


def _copy(
    release: ReleaseLayout, geolevel: str, released: Released, possible: BoolArray, batch: Batch
) -> PartFile:
    """Write the counts of the pinned release in the geounits of a range.

    Raises:
      InputError: The release has persons in an answer whose cells are all structural zeros of the
        run; `possible` is false for such answers.
    """
    query = released.query
    codes, census = read_both_geocodes(release, geolevel, batch.low, batch.high)
    writer, step = PartWriter(release.given(geolevel), ANSWERS), max(1, _NUMBERS // query.size)
    for start in range(0, len(codes), step):
        some = slice(start, start + step)
        counts = released.read(census[some])
        wrong = (counts != 0) & ~possible
        if wrong.any():
            row, answer = np.argwhere(wrong)[0]
            raise InputError(
                f"{geolevel}, {census[some][row]}",
                "the release that bounds this run counts persons in an answer whose cells are all "
                "structural zeros of this run",
                got=query.labels()[answer],
                remedy="make that release with the same structural zeros, or remove them from this "
                "run",
            )
        writer.write(answer_table(codes[some], query.name, counts))
    return writer.close()


def _add_up(
    release: ReleaseLayout, geolevel: str, below: str, query: Query, batch: Batch
) -> PartFile:
    """Write the sums of families of the geolevel below, by parent."""
    children = read_geography(release, below, batch.low, batch.high, ("geocode", "parent"))
    codes, parents = texts(children), texts(children, "parent")
    starts = np.array([start for start, _ in families(parents)], np.int64)
    (counts,) = read_answers(Dataset.open(release.given(below)), [query], codes)
    writer = PartWriter(release.given(geolevel), ANSWERS)
    writer.write(answer_table(parents[starts], query.name, np.add.reduceat(counts, starts)))
    return writer.close()
