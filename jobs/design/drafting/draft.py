"""From a file of person records to a folder with schema, run file and allocation."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from pathlib import Path

from das.errors import ConfigError, InputError
from das.queries.query import parse_query
from das.rational import parse_fraction
from das.schema import Attribute, Recode, Schema
from das.tree.information import Information
from geography.lattice import Lattice, Spine
from jobs.design.drafting.attributes import CODEBOOK, Proposed, Wanted, attribute_name, propose
from jobs.design.drafting.codebook import read_codebook
from jobs.design.drafting.geolevels import (
    Geolevel,
    find_geocode,
    is_of_places,
    propose_geolevels,
    read_geolevels,
)
from jobs.design.drafting.texts import (
    ALLOCATION,
    Geocoded,
    RunText,
    allocation_head,
    checks_of,
    quoted,
    run_text,
    schema_text,
)
from jobs.design.folders import refuse_full
from jobs.design.planning.allocation import EVEN, Goal, allocation_text, optimize_allocation
from jobs.design.planning.errors import subtree_classes
from jobs.design.requests import DraftRequest
from jobs.pipeline.confidential.look import Column, Look, look_at, look_at_geocodes
from jobs.pipeline.config.load import load_plan, load_run
from jobs.pipeline.config.mistakes import at, refuse_unknown
from jobs.pipeline.config.models.values import GeocodeColumns, GeocodePart, names_of
from jobs.pipeline.config.runnable import require_runnable
from jobs.pipeline.input.geounits import list_geounits
from jobs.pipeline.storage.files import drafted, writing
from jobs.pipeline.storage.place import Place
from jobs.pipeline.storage.stores.store import OWNER_ONLY

_RHO = "1"
_FILES = ("schema.yaml", "allocation.yaml", "run.yaml")
_ALL = 1 << 62  # rows
_NEARLY = 0.9  # of the geocodes of the data are in a list that belongs to it


@dataclass(frozen=True)
class Draft:
    """What was written.

    Attributes:
      files: Schema, allocation and run file.
      checks: What the office has to look at.
      is_whole: Whether all rows of the data were looked at.
    """

    files: Sequence[Path]
    checks: tuple[str, ...]
    is_whole: bool


def draft(request: DraftRequest) -> Draft:
    """Look at a file of person records and write a run that `das validate` accepts.

    The same file and the same request give the same proposal. Nothing is counted.

    Raises:
      InputError: The file cannot be read.
      ConfigError, SchemaError, BudgetError: What is asked for does not fit it.
      OutputError: The folder holds something or cannot be written.
    """
    refuse_full(request.folder)
    rho = parse_fraction(_RHO if request.rho is None else request.rho, "--rho")
    if request.rows < 1:
        raise ConfigError("--rows", "is not positive", got=request.rows)
    look = look_at(request.data, request.rows, request.delimiter)
    _refuse_unknown(look, request)
    usable = [one for one in look.columns if one.name not in request.leave_out]
    data, listed, guessed = _geocoded_files(request, look, usable)
    levels, of_levels = _geolevels(request, data, listed)
    names = names_of(data.geocode)
    told = {*names, *data.geography.of_geocodes}
    apart = [one for one in usable if is_of_places(one) and one.name not in told]
    notes = [
        f"{data.geocode} does not tell {quoted(one.name)}: if a geocode has both as its parts, "
        "name all of them by --geocode, root first, with commas between"
        for one in (apart if guessed else ())
    ]
    asked = [_by_attributes(table, usable) for table in request.tables]
    kept = {*request.keep, *_named(usable, asked)}
    codebook = {} if request.codebook is None else read_codebook(request.codebook)
    wanted = Wanted(request.leave_out, kept, asked, codebook)
    counted = [one for one in look.columns if one.name not in names]
    proposed = propose(counted, data.geography.following - kept, wanted)
    tables = asked or ["total", *(one.name for one in proposed.attributes)]
    notes += [*of_levels, *_unlisted(look, proposed)]
    text = RunText(request, data, listed, guessed, levels, proposed, tables, rho, notes)
    _refuse_unknown_tables(tables, text.name, proposed)
    files = _write(request.folder, text)
    checks = [check for path in files for check in checks_of(path.read_text(encoding="utf-8"))]
    return Draft(files, tuple(dict.fromkeys(checks)), look.is_whole)


def _geocoded_files(
    request: DraftRequest, look: Look, usable: Sequence[Column]
) -> tuple[Geocoded, Geocoded | None, bool]:
    """Find the geocodes of the data and of the public list, and whether they were guessed."""
    place = request.geounits
    list_look = None if place is None else look_at(place, _ALL, alone=True)
    held = None if list_look is None else _held_by_list(request, look, usable, list_look)
    names = _asked_columns(request, look) or (held or find_geocode(usable),)
    for name in names:
        _of_codes(request.data, look, name)
    geocode: GeocodeColumns = names[0]
    if len(names) > 1:
        looks = [look, *([list_look] if list_look else [])]
        geocode = _parts(names, looks, request.geolevels or ())
    data = _geocoded(request.data, look, geocode, usable, request.rows)
    listed = None
    if place is not None and list_look is not None:
        listed = _listed(place, list_look, geocode, data.geography.geocodes)
    return data, listed, request.geocode is None and held is None


def _geocoded(
    path: Place, look: Look, geocode: GeocodeColumns, usable: Sequence[Column], rows: int
) -> Geocoded:
    """Look at the geocodes of a file.

    Raises:
      InputError: A column holds something else, or there is no such.
    """
    names = names_of(geocode)
    columns = [_of_codes(path, look, name) for name in names]
    others = [one.name for one in usable if one.name not in names and not one.fault]
    geography = look_at_geocodes(path, look, geocode, others, rows)
    if isinstance(geocode, str):
        return Geocoded(path, look, geocode, columns[0], geography)
    ends = accumulate(part.digits for part in geocode)
    prefixes = {part.column: end for part, end in zip(geocode[:-1], ends, strict=False)}
    together = replace(geography, prefixes=prefixes)
    return Geocoded(path, look, geocode, _as_one(geocode, columns), together)


def _refuse_unknown(look: Look, request: DraftRequest) -> None:
    """Refuse names of columns that the file does not have."""
    known = [one.name for one in look.columns]
    asked = {"--leave-out": request.leave_out, "--keep": request.keep}
    asked["--geocode"] = _asked_columns(request, look)
    for option, names in asked.items():
        refuse_unknown(option, "names a column that is not there", names, known)


def _asked_columns(request: DraftRequest, look: Look) -> tuple[str, ...]:
    """The columns that `--geocode` names; none if it does not."""
    if request.geocode is None:
        return ()
    if look.column(request.geocode) is not None:  # a name may hold a comma
        return (request.geocode,)
    return tuple(name.strip() for name in request.geocode.split(","))


def _of_codes(path: Place, look: Look, name: str) -> Column:
    """A column that holds geocodes or parts of them.

    Raises:
      InputError: It holds something else, or there is no such.
    """
    column = look.column(name)
    if column is None or not column.is_code:
        raise InputError(
            f"{path}, column {name}",
            "holds values that are no geocodes",
            want="ASCII letters and digits in every row",
            remedy="name another column by --geocode, or complete it",
        )
    return column


def _parts(
    names: Sequence[str], looks: Sequence[Look], geolevels: Sequence[str]
) -> list[GeocodePart]:
    """How long the part of a geocode in each of several columns is.

    What geolevels say, if each column is a step from one to the next; else the longest text.

    Args:
      names: The columns, in their order.
      looks: Of the data, and of the list of geounits.
      geolevels: As the command line has them.

    Raises:
      ConfigError: A part is longer, or shorter and no number that lost zeros.
    """
    ends = [0, *(level.digits for level in read_geolevels(geolevels) if level.digits)]
    seen = [[one for look in looks if (one := look.column(name)) is not None] for name in names]
    longest = [max(one.longest for one in columns) for columns in seen]
    steps = [below - above for above, below in pairwise(ends)]
    digits = steps if len(steps) == len(names) else longest
    for name, columns, length in zip(names, seen, digits, strict=True):
        for one in columns:
            _refuse_lengths(one, length, f"its part of a geocode, {name}")
    return [
        GeocodePart(column=name, digits=length) for name, length in zip(names, digits, strict=True)
    ]


def _refuse_lengths(column: Column, digits: int, of: str) -> None:
    """Refuse codes that are longer, or shorter without being numbers that lost zeros.

    Raises:
      ConfigError: There are such.
    """
    if column.longest > digits or (column.shortest < digits and not column.is_number):
        raise ConfigError(
            f"column {column.name}",
            f"has geocodes of other lengths than those of {of}",
            got=f"{column.shortest} to {column.longest} characters",
            want=f"{digits}",
            remedy="name the column by --geocode, and lengths by --geolevels",
        )


def _as_one(geocode: Sequence[GeocodePart], columns: Sequence[Column]) -> Column:
    """Several columns as that of the geocodes that they make, called like the last of them."""
    digits = sum(part.digits for part in geocode)
    lost = any(
        one.shortest < part.digits or not one.is_text
        for part, one in zip(geocode, columns, strict=True)
    )
    return Column(columns[-1].name, shortest=digits, longest=digits, is_code=True, is_text=not lost)


def _refuse_unknown_tables(tables: Sequence[str], name: str, proposed: Proposed) -> None:
    """Refuse tables that are no queries, saying so of columns that are no attributes.

    Raises:
      ConfigError: A table names a column that was left out.
      SchemaError: It names something else that is not there.
    """
    why = {attribute_name(column): reason for column, reason in proposed.left_out.items()}
    for table in tables:
        for term in (term.strip() for term in table.split("*")):
            if term in why:
                raise ConfigError("--table", f"{term} cannot be an attribute: it {why[term]}")
        with at("--table"):
            parse_query(_schema(name, proposed), table)


def _schema(name: str, proposed: Proposed) -> Schema:
    attributes = {one.name: Attribute(one.name, one.levels) for one in proposed.attributes}
    recodes = [
        Recode.from_groups(recode, attributes[one.name], groups)
        for one in proposed.attributes
        for recode, groups in one.recodes.items()
    ]
    return Schema(name, (*attributes.values(),), tuple(recodes))


def _named(columns: Sequence[Column], tables: Sequence[str]) -> set[str]:
    """Columns whose attributes tables name, by themselves."""
    terms = {term.strip() for table in tables for term in table.split("*")}
    return {one.name for one in columns if attribute_name(one.name) in terms}


def _by_attributes(table: str, columns: Sequence[Column]) -> str:
    """A table with names of columns, as the file has them, replaced by those of attributes."""
    names = {one.name.strip(): attribute_name(one.name) for one in columns}
    known = {*names.values()}
    terms = [term.strip() for term in table.split("*")]
    return " * ".join(term if term in known else names.get(term, term) for term in terms)


def _held_by_list(
    request: DraftRequest, look: Look, usable: Sequence[Column], list_look: Look
) -> str | None:
    """The column of the data that a list of geounits says to be that of the geocodes.

    Nearly all of its values are among the longest codes of the list, with or without zeros. Names
    are not asked, so it may be called anything. None if no column is so, or several are alike.
    """
    if request.geocode is not None or request.geounits is None:
        return None
    place, rows = request.geounits, request.rows
    listed = [one for one in list_look.columns if one.is_code and not one.fault]
    longest = max((one.longest for one in listed), default=0)
    finest = [one for one in listed if one.longest == longest]
    known = [_bare(_codes_of(place, list_look, one, _ALL)) for one in finest]
    found = []
    for one in usable:
        if one.is_code and not one.fault and one.longest <= longest:
            seen = one.codes
            codes = _bare(_codes_of(request.data, look, one, rows) if seen is None else seen)
            if any(len(codes & of) >= _NEARLY * len(codes) for of in known):
                found.append(one)
    names = [one.name for one in found if one.longest == max(each.longest for each in found)]
    return names[0] if len(names) == 1 else None


def _codes_of(path: Place, look: Look, column: Column, rows: int) -> Collection[str]:
    """The geocodes in a column."""
    return look_at_geocodes(path, look, column.name, (), rows).geocodes


def _bare(codes: Collection[str]) -> set[str]:
    """Codes without leading zeros, which spreadsheets lose."""
    return {code.lstrip("0") for code in codes}


def _listed(
    path: Place, look: Look, geocode: GeocodeColumns, geocodes: Collection[str]
) -> Geocoded:
    """What a list of geounits says.

    Where several columns of the data make a geocode, those of the same names, if it has them all.
    Its column is that with the name that the data give it, or the one that holds most of the
    geocodes of the data, with or without their zeros; else names and lengths tell.

    Raises:
      InputError, ConfigError: It holds no geocodes, or its column is not clear.
    """
    names = names_of(geocode)
    if not isinstance(geocode, str) and all(look.column(name) for name in names):
        return _geocoded(path, look, geocode, look.columns, _ALL)
    known = (*names, "geocode") if isinstance(geocode, str) else ("geocode",)
    by_name = next((look.column(name) for name in known if look.column(name)), None)
    if by_name is None and len(look.columns) == 1:
        by_name = look.columns[0]
    if by_name is None:
        by_name = _holding(path, look, geocodes)
    if by_name is None:
        with at(str(path)):
            by_name = look.column(find_geocode(look.columns, names[-1]))
    if by_name is None or not by_name.is_code:
        raise InputError(str(path), "holds no geocodes", want="letters and digits in every row")
    return _geocoded(path, look, by_name.name, look.columns, _ALL)


def _holding(path: Place, look: Look, geocodes: Collection[str]) -> Column | None:
    """The column of a list that holds most of the geocodes of the data; None if none holds any."""
    wanted = _bare(geocodes)
    held: dict[str, int] = {}
    for one in look.columns:
        if one.is_code and not one.fault:
            held[one.name] = len(wanted & _bare(_codes_of(path, look, one, _ALL)))
    most = max(held.values(), default=0)
    found = [name for name, number in held.items() if number == most]
    return look.column(found[0]) if most and len(found) == 1 else None


def _geolevels(
    request: DraftRequest, data: Geocoded, listed: Geocoded | None
) -> tuple[list[Geolevel], list[str]]:
    """Geolevels, root first, and what of them is to be checked.

    Raises:
      ConfigError: Geocodes differ in length, or geolevels do not fit them.
    """
    source = data if listed is None else listed
    given = read_geolevels(request.geolevels or ())
    digits = given[-1].digits if given else max(source.column.longest, data.column.longest)
    for one in {id(data): data, id(source): source}.values():
        _refuse_lengths(one.column, digits, "the last geolevel")
    codes = {code.zfill(digits) for code in source.geography.geocodes}
    notes = []
    if not {code.zfill(digits) for code in data.geography.geocodes} <= codes:
        notes.append(
            "some geocodes of the data are not in the list of geounits: das run will refuse them "
            "and name the rows"
        )
    if given:
        if len({code[: given[0].digits] for code in codes}) > 1:
            given = [Geolevel(_free_root(given), 0), *given]
        return given, notes
    is_lost = data.lost(digits) and source.lost(digits)
    if is_lost and not isinstance(data.geocode, str):
        notes.append(
            "the digits of each column of the geocodes are those of its largest number here: "
            "can your office's codes be longer?"
        )
    prefixes = {**data.geography.prefixes, **source.geography.prefixes}
    return propose_geolevels(codes, prefixes, data.column.name), notes


def _free_root(given: Sequence[Geolevel]) -> str:
    taken = {one.name for one in given}
    return next(name for name in ("country", "nation", "whole") if name not in taken)


def _unlisted(look: Look, proposed: Proposed) -> list[str]:
    """Columns with codes that their code list lacks."""
    notes = []
    for one in proposed.attributes:
        column = look.column(one.column)
        if one.source == CODEBOOK and column is not None:
            if column.codes is None or not column.codes <= set(one.codes):
                notes.append(
                    f"column {quoted(one.column)} has codes that are not in the code list: das run "
                    "will refuse them and name the rows"
                )
    return notes


def _write(folder: Path, text: RunText) -> list[Path]:
    """Write the files, all or none, and load them as `das validate` does."""
    with drafted(folder) as made:
        _fill(made, text)
        for file in made.iterdir():  # levels are read from the confidential file
            file.chmod(OWNER_ONLY)
    return [folder / name for name in _FILES]


def _fill(made: Path, text: RunText) -> None:
    schema, allocation, run = (made / name for name in _FILES)
    written = run_text(text)
    with writing(made):
        schema.write_text(schema_text(text), encoding="utf-8")
        run.write_text(written.replace(f"{ALLOCATION}\n", ""), encoding="utf-8")
    resolved = load_plan(run, text.tables)
    require_runnable(resolved)
    public, plan = resolved.config.geography.geounits, resolved.plan
    spine = plan.spine
    lattice = _regular(spine)
    if public is not None:
        lattice = Lattice.from_leaves(spine, list_geounits(public, spine))
    tree, goal = subtree_classes(lattice), Goal(reference=EVEN)
    best = optimize_allocation(plan, tree, text.tables, Information.GEOUNIT, goal)
    planned = allocation_head(text.tables, spine.levels) + allocation_text(best, text.name)
    with writing(made):
        allocation.write_text(planned, encoding="utf-8")
        run.write_text(written, encoding="utf-8")
    require_runnable(load_run(run))


def _regular(spine: Spine) -> Lattice:
    """A tree in which every geounit has two parts: what is planned for it knows no data."""
    codes = ["0" * spine.digits[0]]
    for above, digits in pairwise(spine.digits):
        codes = [f"{code}{part:0{digits - above}d}" for code in codes for part in (0, 1)]
    return Lattice.from_leaves(spine, codes)
