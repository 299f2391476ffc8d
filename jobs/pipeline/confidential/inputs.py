"""Check input files before a run: that they exist and fit the run file.

Of confidential files only the column names are read; of public ones, the list of geounits and the
tables of counts. The checks run before Spark starts. Modules that open files are imported
where they are used, so that a run file is checked without Arrow while its input files do not exist.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from das.errors import DasError, InputError
from geography.lattice import Lattice
from jobs.pipeline.config.mistakes import Mistakes, at
from jobs.pipeline.config.models.kinds.kind import PublicTable, ReleasedCounts
from jobs.pipeline.config.models.kinds.query import InvariantConfig
from jobs.pipeline.config.product import Product, Resolved, account_of
from jobs.pipeline.config.runnable import refuse_large_families
from jobs.pipeline.storage.place import Place


def absent_files(resolved: Resolved) -> list[str]:
    """List the files that a run file names and that do not exist, each with its key.

    Raises:
      InputError: The store of a file denies access.
    """
    absent = []
    for key, path in _named_files(resolved):
        try:
            if not path.exists():
                absent.append(f"{key}: {path}")
        except OSError as error:
            raise InputError(f"{key}: {path}", "cannot be read", got=error.strerror) from None
    return absent


def check_geounits(resolved: Resolved) -> None:
    """Check the public list of geounits against the spine, if a list is given.

    Raises:
      InputError, GeographyError: A geocode does not fit, appears twice, or has another root; or a
        geounit has two names.
      ConfigError: A family of geounits is too large for the method that solves it.
      InputError: An earlier release to which a product is pinned has other geounits, or a public
        table of counts has geounits that are not in the list.
    """
    public = resolved.config.geography.geounits
    if public is not None and _is_open(public.path):
        from jobs.pipeline.input.geounits import list_names
        from jobs.pipeline.input.spine import public_lattice

        geography = resolved.config.geography
        entities = None if geography.spine is None else geography.spine.entities
        if entities is not None and not _is_open(entities.path):
            return
        lattice, census = public_lattice(geography, resolved.plan.census_spine)
        under_census = lattice if census is None else census.lattice
        list_names(public, under_census)
        for product in resolved.products.values():
            refuse_large_families(product.plan, lattice)
            check_areas(product, lattice)
            for entry, config in _bound_entries(product):
                _check_bound_geounits(product, entry, config, under_census)
            for where, geolevel, table in _tables(product):
                _check_table_geounits(where, geolevel, table, under_census)


def check_areas(product: Product, lattice: Lattice) -> None:
    """Check the types of geounits for the evaluation of a product; missing files are skipped.

    Raises:
      InputError: A file does not fit the geounits.
    """
    for name, file in product.grouping.areas.items():
        if file.path.exists():
            from jobs.pipeline.input.areas import read_areas

            where = f"{product.keys}evaluate.areas.{name}"
            codes = lattice.codes[product.plan.level(name).index]
            with at(where):
                read_areas(file, codes)


def refuse_unreadable(resolved: Resolved) -> None:
    """Check the input of a run, unless it was read before.

    Raises:
      DasError: As `check_inputs`.
    """
    from jobs.pipeline.storage.dataset import is_published

    products, levels = resolved.products.values(), resolved.plan.geolevels
    read = [product.confidential.histograms(level) for product in products for level in levels]
    if not all(is_published(dataset) for dataset in read):
        check_inputs(resolved)


def check_inputs(resolved: Resolved) -> None:
    """Check that all input files are there, readable and have the columns that the run file names.

    Raises:
      DasError: A check fails; the error names all failures.
    """
    mistakes, absent = Mistakes(), absent_files(resolved)
    with mistakes.at():
        if absent:
            raise InputError(
                "input",
                "does not exist",
                got=", ".join(absent),
                remedy="paths are relative to the folder of the run file",
            )
    _check_present(resolved, mistakes)
    mistakes.refuse()


def check_present(resolved: Resolved) -> list[str]:
    """Check the columns of existing input files, and the list of geounits.

    Of confidential files only the column names are read; files without read permission are skipped.

    Returns:
      Files that this user may not read, each with its key.

    Raises:
      DasError: Files do not fit the run file; the error names all of them.
    """
    mistakes = Mistakes()
    _check_present(resolved, mistakes)
    mistakes.refuse()
    return [f"{key}: {path}" for key, path in _named_files(resolved) if _is_closed(path)]


def _is_closed(path: Place) -> bool:
    """Return whether a local file exists but is not readable; stores are not checked."""
    return isinstance(path, Path) and path.exists() and not os.access(path, os.R_OK)


def _check_present(resolved: Resolved, mistakes: Mistakes) -> None:
    """Check each existing input: names and columns only, so cheap for large files."""
    products = resolved.products.values()
    inputs = [(p.config.input, p.plan.schema) for p in products if _is_open(p.config.input.path)]
    if inputs:
        from jobs.pipeline.confidential.read.formats import check_columns

        for data, schema in inputs:
            with mistakes.at():
                check_columns(data, schema)
        for product in products:
            if product.plan.solving.learned is not None:
                from jobs.pipeline.confidential.training import refuse_same_file

                with mistakes.at():
                    refuse_same_file(product)
    for product in products:
        for _, _, table in _tables(product):
            with mistakes.at():
                _check_table_columns(table)
        for entry, config in _bound_entries(product):
            with mistakes.at(f"{product.keys}invariants"):
                _check_bound(resolved, product, entry, config)
    with mistakes.at():
        check_geounits(resolved)


def _tables(product: Product) -> Iterator[tuple[str, str, PublicTable]]:
    """Yield the existing public tables of the invariants, each with its key and geolevel."""
    for index, entry in enumerate(product.config.invariants):
        table = entry.public_table
        if table is not None and _is_open(table.path):
            yield f"{product.keys}invariants.{index}", entry.stated_at, table


def _check_table_columns(table: PublicTable) -> None:
    """Check that a public table has the columns that the run file names."""
    from jobs.pipeline.input.files import plan_chunks
    from jobs.pipeline.input.geounits import table_of

    plan_chunks(table_of(table, table.columns.values()))


def _check_table_geounits(where: str, geolevel: str, table: PublicTable, lattice: Lattice) -> None:
    """Check that the list of geounits has all geounits of a public table of counts."""
    from jobs.pipeline.input.public_tables import read_public
    from jobs.pipeline.release.implied import refuse_strange

    try:
        _check_table_columns(table)
    except DasError:  # reported by the check of columns
        return
    index = lattice.spine.levels.index(geolevel)
    with at(where):
        codes, _ = read_public(table, [*table.columns], lattice.spine.digits[index])
        refuse_strange(str(table.path), codes, lattice.codes[index], geolevel)


def _bound_entries(product: Product) -> Iterator[tuple[InvariantConfig, ReleasedCounts]]:
    """Yield the invariants that come from existing earlier releases."""
    for entry in product.config.invariants:
        if isinstance(entry, InvariantConfig) and entry.released is not None:
            path = entry.released.path
            if path is not None and _is_open(path):
                yield entry, entry.released


def _check_bound(
    resolved: Resolved, product: Product, entry: InvariantConfig, config: ReleasedCounts
) -> None:
    """Check that an earlier release is complete, has the answers, and uses the same account."""
    from jobs.pipeline.release.bound import check_released, open_released, refuse_other_account

    released = open_released(product.plan, entry, config)
    check_released(released)
    if product.plan.spends:
        refuse_other_account(released, account_of(resolved.config))


def _check_bound_geounits(
    product: Product, entry: InvariantConfig, config: ReleasedCounts, lattice: Lattice
) -> None:
    """Check that an earlier release has the same geounits as the run."""
    from jobs.pipeline.release.bound import check_geounits as check_bound_geounits
    from jobs.pipeline.release.bound import open_released

    try:
        released = open_released(product.plan, entry, config)
    except DasError:  # reported by the check of the release
        return
    codes = lattice.codes[lattice.spine.levels.index(entry.geolevel)]
    with at(f"{product.keys}invariants"):
        check_bound_geounits(released, codes)


def _is_open(path: Place) -> bool:
    return path.exists() and not _is_closed(path)


def _named_files(resolved: Resolved) -> Iterator[tuple[str, Place]]:
    geounits = resolved.config.geography.geounits
    if geounits is not None:
        yield "geography.geounits.path", geounits.path
    spine = resolved.config.geography.spine
    if spine is not None and spine.entities is not None:
        yield "geography.spine.entities.path", spine.entities.path
    for product in resolved.products.values():
        yield f"{product.keys}data.path", product.config.input.path
        for index, entry in enumerate(product.config.invariants):
            table, released = entry.public_table, entry.released_before
            if table is not None:
                yield f"{product.keys}invariants.{index}.table.path", table.path
            if released is not None and released.path is not None:
                yield f"{product.keys}invariants.{index}.released.path", released.path
        for name, file in product.grouping.areas.items():
            yield f"{product.keys}evaluate.areas.{name}.path", file.path
