"""Draft schema, run file and allocation from a file of person records."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import accumulate, pairwise
from pathlib import Path

from das.errors import ConfigError, InputError
from das.queries.query import parse_query
from das.rational import parse_fraction
from das.schema import Attribute, Recode, Schema
from das.strategy import noisy_queries
from das.tree.allocation import with_queries
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
from jobs.design.drafting.merge import merge, places_of
from jobs.design.drafting.recode import FILE as GEOCODES
from jobs.design.drafting.recode import Recoded, is_plain, match_columns, read_list, recode
from jobs.design.drafting.texts import (
    SHARE_OF_PAIRS,
    Geocoded,
    RunText,
    allocation_head,
    checks_of,
    drafted_text,
    quoted,
    schema_text,
)
from jobs.design.folders import refuse_full
from jobs.design.planning.allocation import EVEN, Goal, allocation_text, optimize_allocation
from jobs.design.planning.errors import subtree_classes
from jobs.design.requests import DraftRequest
from jobs.pipeline.confidential.look import (
    FEW_RECORDS,
    NOT_UTF8,
    Column,
    Geography,
    Look,
    look_at,
    look_at_geocodes,
)
from jobs.pipeline.config.files import absolute_path
from jobs.pipeline.config.load import load_plan, load_run
from jobs.pipeline.config.mistakes import at, refuse_unknown
from jobs.pipeline.config.models.values import GeocodePart, GeocodeTable, names_of
from jobs.pipeline.config.runnable import require_runnable
from jobs.pipeline.input.geounits import list_geounits
from jobs.pipeline.storage.account import proposed_account
from jobs.pipeline.storage.files import drafted, writing
from jobs.pipeline.storage.place import Place
from jobs.pipeline.storage.stores.store import OWNER_ONLY

_RHO = "1"
RUN_FILE = "run.yaml"
_FILES = ("schema.yaml", "allocation.yaml", RUN_FILE)
ALL_ROWS = 1 << 62  # rows
_UNLISTED = (
    "some geocodes of the data are not in the list of geounits: das run refuses them and names the "
    "rows"
)
_NEARLY = 0.9  # share of geocodes of the data in a matching list; default, not measured


@dataclass(frozen=True)
class Draft:
    """Written draft.

    Attributes:
      run_file: The run file.
      files: All files.
      checks: Points for the office to check.
      is_whole: Whether all rows of the data were read.
    """

    run_file: Path
    files: Sequence[Path]
    checks: tuple[str, ...]
    is_whole: bool

    @classmethod
    def of(cls, run_file: Path, files: Sequence[Path], look: Look) -> Draft:
        """Read the points to check from the written files."""
        texts = [path.read_text(encoding="utf-8") for path in files if path.suffix == ".yaml"]
        checks = [check for text in texts for check in checks_of(text)]
        return cls(run_file, files, tuple(dict.fromkeys(checks)), look.is_whole)


def draft(request: DraftRequest) -> Draft:
    """Read a file of person records and draft a run that `das validate` accepts.

    Equal files and requests give equal drafts. No persons are counted.

    Raises:
      InputError: The file cannot be read.
      ConfigError, SchemaError, BudgetError: The request does not match the file.
      OutputError: The folder is not empty or cannot be written.
    """
    rho, look, wanted = requested_look(request)
    usable = [column for column in look.columns if column.name not in request.leave_out]
    recoded, is_new, guessed = None, True, False
    if request.into is not None:
        request, recoded, table = places_of(request, request.into, ALL_ROWS)
    if recoded is None:
        data, listed, guessed, recoded = _geocoded_files(request, look, usable)
    else:
        is_new, (data, listed) = False, _by_table(request, look, usable, recoded, table)
    if guessed:
        _refuse_doubtful(data, listed, usable)
    levels, notes = _geolevels(request, data, listed, recoded)
    names = names_of(data.geocode)
    counted = [column for column in look.columns if column.name not in names]
    proposed = propose(counted, data.geography.following - {*wanted.kept}, wanted)
    tables = wanted.tables or ["total", *(column.name for column in proposed.attributes)]
    notes += unlisted_codes(look, proposed)
    of_places = None if recoded is None else recoded.names
    account = proposed_account(absolute_path(request.data))
    head = (request, proposed, tables, rho, *account, notes)
    text = RunText(*head, data, listed, guessed, levels, of_places)
    refuse_unknown_tables(tables, text.name, proposed)
    with drafted(request.folder) as made:
        if recoded is not None and is_new:
            with writing(made):
                recoded.write(made / GEOCODES)
        text = _fill(made, text)
        hide(made)
    run_file = request.folder / RUN_FILE if request.into is None else merge(text, request.into)
    made_files = [*(request.folder / name for name in _FILES[:-1]), run_file]
    made_files += [file] if (file := request.folder / GEOCODES).exists() else []
    return Draft.of(run_file, made_files, look)


def hide(made: Path) -> None:
    """Let nobody else read the drafted files: levels come from the confidential file."""
    for file in made.iterdir():
        file.chmod(OWNER_ONLY)


def requested_look(request: DraftRequest, rows: int | None = None) -> tuple[Fraction, Look, Wanted]:
    """Read the columns of the data.

    Returns:
      The budget, the columns, and the requirements on attributes.

    Raises:
      InputError: The file cannot be read.
      ConfigError: An option names an unknown column, or a number is invalid.
      OutputError: The folder is not empty.
    """
    refuse_full(request.folder)
    rho = parse_fraction(_RHO if request.rho is None else request.rho, "--rho")
    if request.rows < 1:
        raise ConfigError("--rows", "is not positive", got=request.rows)
    look = look_at(request.data, request.rows if rows is None else rows, request.delimiter)
    _refuse_unknown(look, request)
    usable = [column for column in look.columns if column.name not in request.leave_out]
    tables = [_by_attributes(table, usable) for table in request.tables]
    codebook = {} if request.codebook is None else read_codebook(request.codebook)
    kept = {*request.keep, *_named(usable, tables)}
    return rho, look, Wanted(request.leave_out, kept, tables, codebook)


def unlisted_codes(look: Look, proposed: Proposed) -> list[str]:
    """Return a note for each column with codes that are not in the code list."""
    return [
        f"column {quoted(attribute.column)} has codes that are not in the code list: das run "
        "refuses them and names the rows"
        for attribute in proposed.attributes
        if attribute.source == CODEBOOK
        and (column := look.column(attribute.column)) is not None
        and (column.codes is None or not column.codes <= set(attribute.codes))
    ]


def _refuse_doubtful(data: Geocoded, listed: Geocoded | None, usable: Sequence[Column]) -> None:
    """Refuse a guessed column of geocodes that may be a household, or a part of the geocode.

    Raises:
      ConfigError: Another column of places does not follow from it; or, without a list, its values
        have few records each.
    """
    known = {*names_of(data.geocode), *data.geography.of_geocodes}
    others = [column.name for column in usable if is_of_places(column) and column.name not in known]
    if others:
        raise ConfigError(
            f"column {data.geocode}",
            "does not determine all columns of places, so several may make up the geocode",
            got=others,
            remedy="name the column by --geocode, or all parts, root first, separated by commas; "
            "or give the public list of places by --geounits",
        )
    if listed is None and data.geography.is_sparse:
        raise ConfigError(
            f"column {data.geocode}",
            f"has fewer than {FEW_RECORDS} records per value on average, like a household, and its "
            "values would be published",
            want="the column of the smallest places whose counts are released",
            remedy="name it by --geocode, or give the public list of places by --geounits",
        )


def _geocoded_files(
    request: DraftRequest, look: Look, usable: Sequence[Column]
) -> tuple[Geocoded, Geocoded | None, bool, Recoded | None]:
    """Return the geocodes of the data and of the public list.

    Returns:
      The data; the list; whether the column of geocodes was guessed; the table of new geocodes, if
      the codes of the office are no geocodes.
    """
    path = request.geounits
    list_look = None if path is None else look_at(path, ALL_ROWS, alone=True)
    if path is not None and list_look is not None:
        recoded = _recoded(request, look, usable, list_look)
        if recoded is not None:
            table = request.folder / GEOCODES
            return *_by_table(request, look, usable, recoded, table), False, recoded
    matched = None if list_look is None else _matched_by_list(request, look, usable, list_look)
    names = _stated_columns(request, look) or (matched or find_geocode(usable),)
    for name in names:
        _of_codes(request.data, look, name)
    geocode: str | list[GeocodePart] = names[0]
    if len(names) > 1:
        looks = [look, *([list_look] if list_look else [])]
        geocode = _parts(names, looks, request.geolevels or ())
    data = _geocoded(request.data, look, geocode, usable, request.rows)
    listed = None
    if path is not None and list_look is not None:
        listed = _listed(path, list_look, geocode, data.geography.geocodes)
    return data, listed, request.geocode is None and matched is None, None


def _recoded(
    request: DraftRequest, look: Look, usable: Sequence[Column], list_look: Look
) -> Recoded | None:
    """Number the places of the list, if the codes that data and list share are no geocodes."""
    if request.geounits is None:
        return None
    stated, listed = _stated_columns(request, look), read_list(request.geounits, list_look)
    shared = {name.strip() for name in listed}
    codes_of = {
        column.name: _codes_of(request.data, look, column, request.rows)
        if column.codes is None
        else column.codes
        for column in usable
        if not column.fault
        and (column.codes is not None or column.name.strip() in shared or column.name in stated)
    }
    matched = match_columns(codes_of, listed, [name for name in stated if name in codes_of])
    plain = [
        column
        for name, column in matched.items()
        if is_plain(look.column(name)) and is_plain(list_look.column(column))
    ]
    is_key = any(len({*listed[column]}) == len(listed[column]) for column in plain)
    if len(plain) == len(matched) or (is_key and not stated):
        return None
    recoded = recode(listed, list_look, matched)
    if recoded is not None and request.geolevels is not None:
        raise ConfigError(
            "--geolevels",
            "cannot state lengths, since das init numbers the places",
            got=", ".join(request.geolevels),
            remedy="leave it out, and rename the geolevels in run.yaml",
        )
    return recoded


def _by_table(
    request: DraftRequest, look: Look, usable: Sequence[Column], recoded: Recoded, path: Place
) -> tuple[Geocoded, Geocoded]:
    """Return the geocodes of the data and of a table of geocodes."""
    digits = recoded.levels[-1].digits
    geocode = GeocodeTable(table=path, columns=[*recoded.columns])
    column = Column("geocode", shortest=digits, longest=digits, is_code=True)
    others = [one.name for one in usable if one.name not in recoded.columns and not one.fault]
    seen = look_at_geocodes(request.data, look, geocode, others, request.rows)
    data = Geocoded(request.data, look, geocode, column, replace(seen, prefixes={}))
    geography = Geography(frozenset(recoded.table["geocode"]))
    return data, Geocoded(path, Look(",", (column,), True), "geocode", column, geography)


def _geocoded(
    path: Place, look: Look, geocode: str | list[GeocodePart], usable: Sequence[Column], rows: int
) -> Geocoded:
    """Read the geocodes of a file.

    Raises:
      InputError: A column is missing or holds no geocodes.
    """
    names = names_of(geocode)
    columns = [_of_codes(path, look, name) for name in names]
    others = [column.name for column in usable if column.name not in names and not column.fault]
    geography = look_at_geocodes(path, look, geocode, others, rows)
    if isinstance(geocode, str):
        return Geocoded(path, look, geocode, columns[0], geography)
    ends = accumulate(part.digits for part in geocode)
    prefixes = {part.column: end for part, end in zip(geocode[:-1], ends, strict=False)}
    together = replace(geography, prefixes=prefixes)
    digits = sum(part.digits for part in geocode)
    is_whole = all(
        column.is_text and column.shortest >= part.digits
        for part, column in zip(geocode, columns, strict=True)
    )
    name = columns[-1].name
    column = Column(name, shortest=digits, longest=digits, is_code=True, is_text=is_whole)
    return Geocoded(path, look, geocode, column, together)


def _refuse_unknown(look: Look, request: DraftRequest) -> None:
    """Refuse column names that the file lacks, and columns of another encoding than UTF-8."""
    known = [column.name for column in look.columns]
    named = {"--leave-out": request.leave_out, "--keep": request.keep}
    for option, names in {**named, "--geocode": _stated_columns(request, look)}.items():
        refuse_unknown(option, "names an unknown column", names, known)
    for column in look.columns:
        if column.fault == NOT_UTF8 and column.name not in request.leave_out:
            raise InputError(
                f"{request.data}, column {column.name}",
                column.fault,
                got="another encoding, such as Windows-1252",
                remedy="save it as CSV in UTF-8, or leave the column out by --leave-out",
            )


def _stated_columns(request: DraftRequest, look: Look) -> tuple[str, ...]:
    """Return the columns that `--geocode` names; none without the option."""
    if request.geocode is None:
        return ()
    if look.column(request.geocode) is not None:  # a name may hold a comma
        return (request.geocode,)
    return tuple(name.strip() for name in request.geocode.split(","))


def _of_codes(path: Place, look: Look, name: str) -> Column:
    """Return a column that holds geocodes or parts of them.

    Raises:
      InputError: The column is missing or holds no geocodes.
    """
    column = look.column(name)
    if column is None or not column.is_code:
        raise InputError(
            f"{path}, column {name}",
            "holds values that are no geocodes",
            want="ASCII letters and digits in every row",
            remedy="name another column by --geocode, or give the public list of places with these "
            "codes by --geounits: das init then numbers them, and tables show your codes",
        )
    return column


def _parts(
    names: Sequence[str], looks: Sequence[Look], geolevels: Sequence[str]
) -> list[GeocodePart]:
    """Return the columns that make up a geocode, each with its number of digits.

    Digits follow from the geolevels if each column is one step between them; else from the longest
    text.

    Args:
      names: Names of the columns, in order.
      looks: Columns of the data, and of the list of geounits.
      geolevels: Geolevels of the command line.

    Raises:
      ConfigError: A part is too long, or too short without being a number that lost zeros.
    """
    ends = [0, *(level.digits for level in read_geolevels(geolevels) if level.digits)]
    steps = [below - above for above, below in pairwise(ends)]
    parts = []
    for index, name in enumerate(names):
        columns = [column for look in looks if (column := look.column(name)) is not None]
        longest = max(column.longest for column in columns)
        digits = steps[index] if len(steps) == len(names) else longest
        for column in columns:
            _refuse_lengths(column, digits, f"its part of a geocode, {name}")
        parts.append(GeocodePart(column=name, digits=digits))
    return parts


def _refuse_lengths(column: Column, digits: int, of: str) -> None:
    """Refuse codes that are too long, or too short without being numbers that lost zeros.

    Numbers did not lose their leading zeros if some of them has one.

    Raises:
      ConfigError: A code has a wrong length.
    """
    may_lack_zeros = column.is_number and not column.has_zeros
    if column.longest > digits or (column.shortest < digits and not may_lack_zeros):
        raise ConfigError(
            f"column {column.name}",
            f"has geocodes of other lengths than those of {of}",
            got=f"{column.shortest} to {column.longest} characters",
            want=f"{digits}",
            remedy="name the column by --geocode, and lengths by --geolevels; or give the public "
            "list of places with these codes by --geounits",
        )


def refuse_unknown_tables(tables: Sequence[str], name: str, proposed: Proposed) -> None:
    """Refuse tables that are no queries, and explain columns that are no attributes.

    Raises:
      ConfigError: A table names a column that was left out.
      SchemaError: A table names another unknown attribute.
    """
    why = {attribute_name(column): reason for column, reason in proposed.left_out.items()}
    for table in tables:
        for term in (term.strip() for term in table.split("*")):
            if term in why:
                raise ConfigError("--table", f"{term} cannot be an attribute: it {why[term]}")
        with at("--table"):
            parse_query(_schema(name, proposed), table)


def _schema(name: str, proposed: Proposed) -> Schema:
    attributes = [Attribute(proposal.name, proposal.levels) for proposal in proposed.attributes]
    recodes = [
        Recode.from_groups(recode, attribute, groups)
        for attribute, proposal in zip(attributes, proposed.attributes, strict=True)
        for recode, groups in proposal.recodes.items()
    ]
    return Schema(name, tuple(attributes), tuple(recodes))


def _named(columns: Sequence[Column], tables: Sequence[str]) -> set[str]:
    """Return the columns whose attributes the tables name."""
    terms = {term.strip() for table in tables for term in table.split("*")}
    return {column.name for column in columns if attribute_name(column.name) in terms}


def _by_attributes(table: str, columns: Sequence[Column]) -> str:
    """Replace the names of columns in a table such as "SEX * AGE" by the names of attributes."""
    names = {column.name.strip(): attribute_name(column.name) for column in columns}
    known = {*names.values()}
    terms = [term.strip() for term in table.split("*")]
    return " * ".join(term if term in known else names.get(term, term) for term in terms)


def _matched_by_list(
    request: DraftRequest, look: Look, usable: Sequence[Column], list_look: Look
) -> str | None:
    """Return the column of the data whose values match a list of geounits.

    At least 90 % of the values are among the longest codes of the list, with or without leading
    zeros. Names of columns do not matter. None if no column or several columns match.
    """
    if request.geocode is not None or request.geounits is None:
        return None
    path = request.geounits
    listed = [column for column in list_look.columns if column.is_code and not column.fault]
    longest = max((column.longest for column in listed), default=0)
    finest = [column for column in listed if column.longest == longest]
    known = [_bare(_codes_of(path, list_look, column, ALL_ROWS)) for column in finest]
    matching = []
    for column in usable:
        if column.is_code and not column.fault and column.longest <= longest:
            seen: Collection[str] | None = column.codes
            if seen is None:
                seen = _codes_of(request.data, look, column, request.rows)
            codes = _bare(seen)
            if any(len(codes & of) >= _NEARLY * len(codes) for of in known):
                matching.append(column)
    most = max((column.longest for column in matching), default=0)
    names = [column.name for column in matching if column.longest == most]
    return names[0] if len(names) == 1 else None


def _codes_of(path: Place, look: Look, column: Column, rows: int) -> Collection[str]:
    """Return the geocodes in a column."""
    return look_at_geocodes(path, look, column.name, (), rows).geocodes


def _bare(codes: Collection[str]) -> set[str]:
    """Remove leading zeros, which spreadsheets lose."""
    return {code.lstrip("0") for code in codes}


def _listed(
    path: Place, look: Look, geocode: str | list[GeocodePart], geocodes: Collection[str]
) -> Geocoded:
    """Read the geocodes of a public list of geounits.

    If several columns of the data make up a geocode, columns of the same names are used. Otherwise
    the column has the same name as in the data, or holds most of the geocodes of the data with or
    without leading zeros, or is found by names and lengths.

    Raises:
      InputError, ConfigError: The list holds no geocodes, or several columns could hold them.
    """
    names = names_of(geocode)
    if not isinstance(geocode, str) and all(look.column(name) for name in names):
        return _geocoded(path, look, geocode, look.columns, ALL_ROWS)
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
    return _geocoded(path, look, by_name.name, look.columns, ALL_ROWS)


def _holding(path: Place, look: Look, geocodes: Collection[str]) -> Column | None:
    """Return the column of a list that holds most geocodes of the data; None if unclear."""
    wanted = _bare(geocodes)
    n_matches: dict[str, int] = {}
    for column in look.columns:
        if column.is_code and not column.fault:
            n_matches[column.name] = len(wanted & _bare(_codes_of(path, look, column, ALL_ROWS)))
    most = max(n_matches.values(), default=0)
    best = [name for name, number in n_matches.items() if number == most]
    return look.column(best[0]) if most and len(best) == 1 else None


def _geolevels(
    request: DraftRequest, data: Geocoded, listed: Geocoded | None, recoded: Recoded | None
) -> tuple[list[Geolevel], list[str]]:
    """Return geolevels, root first, and notes for the office to check.

    Raises:
      ConfigError: Geocodes differ in length, or do not match the geolevels.
    """
    if recoded is not None:
        is_listed = data.geography.geocodes <= recoded.codes
        return [*recoded.levels], [] if is_listed else [_UNLISTED]
    source = data if listed is None else listed
    given = read_geolevels(request.geolevels or ())
    digits = given[-1].digits if given else max(source.column.longest, data.column.longest)
    for file in {id(data): data, id(source): source}.values():
        _refuse_lengths(file.column, digits, "the last geolevel")
    codes = {code.zfill(digits) for code in source.geography.geocodes}
    notes = []
    if not {code.zfill(digits) for code in data.geography.geocodes} <= codes:
        notes.append(_UNLISTED)
    if given:
        if len({code[: given[0].digits] for code in codes}) > 1:
            taken = {level.name for level in given}
            root = next(name for name in ("country", "nation", "whole") if name not in taken)
            given = [Geolevel(root, 0), *given]
        return given, notes
    is_lost = data.lost(digits) and source.lost(digits)
    if is_lost and not isinstance(data.geocode, str):
        notes.append(
            "the digits of each column of geocodes were taken from the largest number in the file: "
            "can your office's codes be longer?"
        )
    prefixes = {**data.geography.prefixes, **source.geography.prefixes}
    return propose_geolevels(codes, prefixes, data.column.name), notes


def _fill(made: Path, text: RunText) -> RunText:
    """Write all files, and load them as `das validate` does.

    Pairs of attributes that no table joins are measured too, at all geolevels but the last.

    Returns:
      The contents, with the standard error of these pairs.
    """
    schema, allocation, run = (made / name for name in _FILES)
    named = {"folder": ""}
    with writing(made):
        schema.write_text(schema_text(text), encoding="utf-8")
        run.write_text(drafted_text("run", text, **named, is_planned=False), encoding="utf-8")
    resolved = load_plan(run, text.tables)
    require_runnable(resolved)
    public, plan = resolved.config.geography.geounits, resolved.plan
    spine = plan.spine
    leaves = _regular(spine) if public is None else list_geounits(public, spine)
    lattice = Lattice.from_leaves(spine, leaves)
    tree, goal = subtree_classes(lattice), Goal(reference=EVEN)
    best = optimize_allocation(plan, tree, text.tables, Information.GEOUNIT, goal)
    pairs = [parse_query(plan.schema, pair) for pair in text.pairs]
    if pairs:
        strategy = with_queries(best.strategy, pairs, len(text.above), SHARE_OF_PAIRS)
        place = ", ".join(text.above)
        source = f"{best.source}; then {SHARE_OF_PAIRS} of {place} for pairs without a table"
        best, names = replace(best, strategy=strategy, source=source), {one.name for one in pairs}
        noise = noisy_queries(strategy, plan.budget, 0, 0)
        variance = max(one.mechanism.variance() for one in noise if one.query.name in names)
        text = replace(text, pair_error=variance**0.5)
    planned = allocation_head(text.tables, spine.levels) + allocation_text(best, text.name)
    with writing(made):
        allocation.write_text(planned, encoding="utf-8")
        run.write_text(drafted_text("run", text, **named, is_planned=True), encoding="utf-8")
    require_runnable(load_run(run))
    return text


def _regular(spine: Spine) -> list[str]:
    """Return the leaves of a binary tree, so that planning does not depend on the data."""
    codes = ["0" * spine.digits[0]]
    for above, digits in pairwise(spine.digits):
        codes = [f"{code}{part:0{digits - above}d}" for code in codes for part in (0, 1)]
    return codes
