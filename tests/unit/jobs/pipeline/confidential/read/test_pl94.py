"""PL 94-171 summary files, written here from persons and read back cell by cell."""

from __future__ import annotations

import csv
import io
import re
import subprocess
import sys
import zipfile
from collections import Counter
from itertools import combinations
from pathlib import Path
from unittest.mock import patch

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from das.errors import ConfigError, InputError
from jobs.pipeline.config.layouts import read_layout
from jobs.pipeline.config.models.data import Pl94Data
from jobs.pipeline.config.schema import load_schema
from jobs.pipeline.input import lines as read_lines
from jobs.pipeline.input import published
from tests.unit.jobs.pipeline.confidential.read.reading import DATA, ROOT, read

PERSONS = load_schema(ROOT / "conf" / "schema" / "pl94_tables.yaml")
QUARTERS = load_schema(ROOT / "conf" / "schema" / "group_quarters.yaml")
UNITS = load_schema(ROOT / "conf" / "schema" / "housing_units.yaml")
E2E = DATA / "ri_2018_e2e.pl.zip"
QUARTER_NAMES = ("correctional", "juvenile", "nursing", "other_inst", "college", "military",
         "other_noninst")  # fmt: skip
BLOCKS = ("720010101001000", "720010101001001")


def race_part(counts: np.ndarray) -> list[int]:
    """One race, alone ..., two or more, two races, ..., from 63 counts, by the definition."""
    names = [c for size in range(1, 7) for c in combinations(range(6), size)]
    of = {name: int(n) for name, n in zip(names, counts, strict=True)}
    by_size = {k: [n for name, n in of.items() if len(name) == k] for k in range(1, 7)}
    out = [sum(by_size[1]), *by_size[1], sum(sum(by_size[k]) for k in range(2, 7))]
    for size in range(2, 7):
        out += [sum(by_size[size]), *by_size[size]]
    return out


def tables_of(cells: np.ndarray, quarters: list[int]) -> dict[str, list[int]]:
    """P1 to P5 and H1 of one block from int[2, 2, 63] persons and seven types."""
    by_race, adults = cells.sum((0, 1)), cells[1]

    def hispanic_table(two: np.ndarray) -> list[int]:
        return [int(two.sum()), int(two[1].sum()), int(two[0].sum()), *race_part(two[0])]

    return {
        "P1": [int(cells.sum()), *race_part(by_race)],
        "P2": hispanic_table(cells.sum(0)),
        "P3": [int(adults.sum()), *race_part(adults.sum(0))],
        "P4": hispanic_table(adults),
        "H1": [9, 7, 2],
        "P5": [sum(quarters), sum(quarters[:4]), *quarters[:4], sum(quarters[4:]), *quarters[4:]],
    }


def random_cells(seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 40, (2, 2, 63)) * (rng.random((2, 2, 63)) < 0.3)


CELLS = [random_cells(1), random_cells(2)]
TYPES = [[0, 0, 0, 0, 0, 0, 0], [11, 0, 5, 2, 0, 7, 3]]


def lines(cells: list[np.ndarray] = CELLS) -> list[list[str]]:
    """Lines of the header and the three segments: a state record, then two blocks."""
    records = [("040", "72", sum(cells), [sum(t) for t in zip(*TYPES, strict=True)])]
    records += [("750", *row) for row in zip(BLOCKS, cells, TYPES, strict=True)]
    files: list[list[str]] = [[], [], [], []]
    for number, (level, code, counts, quarters) in enumerate(records, 1):
        record = f"{number:07d}"
        geo = ["PLST", "PR", level, "00", "00", "000", "00", record, f"{level}0000US{code}", code]
        geo += [""] * 76 + ['Añasco, «x» "y', *[""] * 10]
        files[0].append("|".join(geo))
        tables = tables_of(counts, quarters)
        for segment, names in ((1, ("P1", "P2")), (2, ("P3", "P4", "H1")), (3, ("P5",))):
            head = ["PLST", "PR", "000", f"{segment:02d}", record]
            values = [str(n) for name in names for n in tables[name]]
            files[segment].append("|".join(head + values))
    return files


NAMES = ("prgeo2020.pl", "pr000012020.pl", "pr000022020.pl", "pr000032020.pl")


def write_zip(path: Path, files: list[list[str]], names: tuple[str, ...] = NAMES) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in zip(NAMES, files, strict=True):
            if name in names:
                archive.writestr(name, "".join(f"{line}\n" for line in text).encode("latin-1"))
    return path


def config(path: Path, product: str = "persons") -> Pl94Data:
    return Pl94Data(input_format="pl94", path=path, product=product)


def expected() -> Counter[tuple[str, int]]:
    return Counter(
        {
            (code, cell): int(n)
            for code, cells in zip(BLOCKS, CELLS, strict=True)
            for cell, n in enumerate(cells.ravel())
            if n
        }
    )


def test_persons_of_a_zip_cell_by_cell(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "pr2020.pl.zip", lines())
    assert read(config(path), PERSONS, 15) == expected()


def test_folder_of_files_and_folder_of_zips(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "pr2020.pl.zip", lines())
    assert read(config(tmp_path), PERSONS, 15) == expected()
    with zipfile.ZipFile(path) as archive:
        archive.extractall(tmp_path / "plain")
    assert read(config(tmp_path / "plain"), PERSONS, 15) == expected()


def test_batches_do_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_zip(tmp_path / "pr2020.pl.zip", lines())
    monkeypatch.setattr(published, "BATCH_ROWS", 2)
    assert read(config(path), PERSONS, 15) == expected()


def test_group_quarters_and_housing_units(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "pr2020.pl.zip", lines())
    found = read(config(path, "group_quarters"), QUARTERS, 15)
    households = [int(cells.sum()) - sum(types) for cells, types in zip(CELLS, TYPES, strict=True)]
    assert found == Counter(
        {
            (code, level): n
            for code, house, types in zip(BLOCKS, households, TYPES, strict=True)
            for level, n in enumerate([house, *types])
            if n
        }
    )
    assert read(config(path, "housing_units"), UNITS, 15) == Counter(
        {(code, cell): n for code in BLOCKS for cell, n in enumerate((7, 2))}
    )


def test_product_must_fit_the_schema(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "pr2020.pl.zip", lines())
    with pytest.raises(ConfigError, match=r"data\.product persons: does not fit the schema"):
        read(config(path), QUARTERS, 15)


def change(file: int, line: int, field: int, value: str) -> list[list[str]]:
    files = lines()
    parts = files[file][line - 1].split("|")
    parts[field] = value
    files[file][line - 1] = "|".join(parts)
    return files


def message(path: Path, product: str = "persons") -> str:
    schema = {"persons": PERSONS, "group_quarters": QUARTERS, "housing_units": UNITS}[product]
    with pytest.raises(InputError) as caught:
        read(config(path, product), schema, 15)
    return str(caught.value)


@pytest.mark.parametrize(
    ("file", "line", "field", "value", "what"),
    [
        (1, 2, 5, "77777", "pr000012020.pl, row 2, P0010001: is not P0010002 + P0010009"),
        (1, 3, 5 + 71 + 2, "77777", "pr000012020.pl, row 3, P0020001: is not P0020002 + P0020003"),
        (1, 3, 5 + 10, "77777", "pr000012020.pl, row 3, P0010010: is not P0010011"),
        (2, 2, 5 + 71 + 73, "77777", "pr000022020.pl, row 2, H0010001: is not"),
        (1, 2, 20, "-77777", "pr000012020.pl, row 2, P0010016: count is negative"),
        (1, 2, 20, "", "pr000012020.pl, row 2, P0010016: count is missing"),
        (1, 2, 20, "77777.5", "pr000012020.pl, row 2, P0010016: is not an integer"),
        (2, 3, 20, "77777x", "pr000022020.pl, row 3, P0030016: is not an integer"),
        (2, 3, 4, "0077777", "pr000022020.pl, row 3: is of another record"),
        (0, 2, 9, "7277777", "prgeo2020.pl, row 2, GEOCODE: geocode does not fit"),
        (0, 2, 9, "", "prgeo2020.pl, row 2, GEOCODE: geocode does not fit"),
        (1, 2, 20, "7|77777", "pr000012020.pl, row 2: has the wrong number of fields; got 150"),
        (0, 3, 20, "|", "prgeo2020.pl, row 3: has the wrong number of fields; got 98; expected 97"),
    ],
)
def test_faults_name_file_and_line(
    tmp_path: Path, file: int, line: int, field: int, value: str, what: str
) -> None:
    path = write_zip(tmp_path / "pr2020.pl.zip", change(file, line, field, value))
    text = message(path)
    assert f"{path}/{what}" in text
    assert "77777" not in text


def test_tables_that_contradict_each_other(tmp_path: Path) -> None:
    adults_everywhere = [cells.copy() for cells in CELLS]
    adults_everywhere[1][1, 0, 4] += 60
    files = lines()
    files[2] = lines(adults_everywhere)[2]
    text = message(write_zip(tmp_path / "pr2020.pl.zip", files))
    assert "pr000022020.pl, row 3, P0030007 or P0040009: P2 and P4 give a negative count" in text
    files = lines()
    head, tail = files[3][1].rsplit("|", 10)[0], ["9999", "9999", "9999", *["0"] * 7]
    files[3][1] = "|".join([head, *tail])
    text = message(write_zip(tmp_path / "pr2020.pl.zip", files), "group_quarters")
    assert "pr000032020.pl, row 2, P0050001: exceeds P0010001" in text


def test_files_of_different_lengths(tmp_path: Path) -> None:
    for file in (0, 1, 2):
        files = lines()
        del files[file][-1]
        path = write_zip(tmp_path / "pr2020.pl.zip", files)
        assert ", row 3: is of another record" in message(path)


def test_zip_without_a_member_or_damaged(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "pr2020.pl.zip", lines(), NAMES[:3])
    assert f"{path}: lacks files" in message(path)
    assert "pr000032020.pl" in message(path)
    path = write_zip(tmp_path / "pr2020.pl.zip", lines(), ())
    assert "holds no PL 94-171 files" in message(path)
    path.write_bytes(b"no zip")
    assert f"{path}: is not a readable zip file" in message(path)
    whole = io.BytesIO(write_zip(tmp_path / "whole.zip", lines()).read_bytes()).getvalue()
    middle = len(whole) // 4
    path.write_bytes(whole[:middle] + bytes(200) + whole[middle + 200 :])
    assert str(path) in message(path)
    assert f"{tmp_path / 'nowhere'}: does not exist" in message(tmp_path / "nowhere")


def flagged(path: Path, offset: int, value: int) -> Path:
    """Set two bytes of the local and the central header of every member of a zip."""
    data = bytearray(path.read_bytes())
    for mark, skip in ((b"PK\x03\x04", 0), (b"PK\x01\x02", 2)):
        at = -1
        while (at := data.find(mark, at + 1)) >= 0:
            data[at + skip + offset : at + skip + offset + 2] = value.to_bytes(2, "little")
    path.write_bytes(bytes(data))
    return path


def test_zips_that_are_encrypted_or_packed_otherwise(tmp_path: Path) -> None:
    path = flagged(write_zip(tmp_path / "pr2020.pl.zip", lines()), 6, 1)
    assert "prgeo2020.pl: cannot be read; got an encrypted file; unpack it" in message(path)
    path = flagged(write_zip(tmp_path / "pr2020.pl.zip", lines()), 8, 97)
    assert "prgeo2020.pl: cannot be read; got an unknown compression method" in message(path)


@pytest.mark.parametrize("method", [8, 12, 14], ids=["deflate", "bzip2", "lzma"])
def test_members_that_are_no_stream_of_their_method(tmp_path: Path, method: int) -> None:
    path = tmp_path / "pr2020.pl.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name in NAMES:
            archive.writestr(name, b"\x09\x01\x05\x00" + b"\xff" * 500)
    assert f"{path}/prgeo2020.pl: cannot be read; got" in message(flagged(path, 8, method))


@pytest.mark.parametrize("file", [0, 1])
def test_a_line_that_does_not_end_takes_no_memory(tmp_path: Path, file: int) -> None:
    """125 kB of zip that unfold to 128 MB without an end of line."""
    path = write_zip(tmp_path / "pr2020.pl.zip", lines(), tuple(set(NAMES) - {NAMES[file]}))
    with (
        zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive,
        archive.open(NAMES[file], "w", force_zip64=True) as handle,
    ):
        for _ in range(128):
            handle.write(bytes(1 << 20))
    program = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from das.errors import InputError\n"
        "from tests.unit.jobs.pipeline.confidential.read.test_pl94 import PERSONS, config, read\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10\n"
        "before = peak()\n"
        "try: read(config(Path(sys.argv[1])), PERSONS, 15)\n"
        "except InputError as error: print(error)\n"
        "print(peak() - before)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, path],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    error, mib = done.stdout.splitlines()
    assert f"{NAMES[file]}, row 1: has a line that does not end" in error
    assert int(mib) < 100  # 24 MiB here; the whole line, twice over, would take 256


def test_counts_that_int64_cannot_add(tmp_path: Path) -> None:
    large = str(2 * 10**17)
    text = message(write_zip(tmp_path / "pr2020.pl.zip", change(1, 2, 5, large)))
    assert "pr000012020.pl, row 2, P0010001: count is too large" in text


def test_empty_files(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "pr2020.pl.zip", [[], [], [], []])
    assert "prgeo2020.pl: is empty" in message(path)


def test_real_files_against_an_independent_derivation() -> None:
    cells = pq.read_table(DATA / "ri_2018_e2e_cells.parquet").to_pandas()
    table = cells.pivot(index="geoid", columns="column", values="n").fillna(0).astype(int)
    names = [f"v{v}h{h}r{r:02d}" for v in range(2) for h in range(2) for r in range(63)]
    table = table.reindex(
        columns=[*names, "hh_pop", *(f"gq_{t}" for t in QUARTER_NAMES), "hu"], fill_value=0
    )
    stacked = table[names].set_axis(range(252), axis=1).stack()
    oracle = Counter({key: int(n) for key, n in stacked[stacked > 0].items()})
    assert read(config(E2E), PERSONS, 15) == oracle
    stacked = (
        table[["hh_pop", *(f"gq_{t}" for t in QUARTER_NAMES)]].set_axis(range(8), axis=1).stack()
    )
    oracle = Counter({key: int(n) for key, n in stacked[stacked > 0].items()})
    assert read(config(E2E, "group_quarters"), QUARTERS, 15) == oracle
    assert read(config(E2E, "housing_units"), UNITS, 15).total() == table["hu"].sum()


@pytest.mark.parametrize("name", ['"x', 'x"', '"', "é\x85", "\xef»¿"])
def test_names_of_any_characters_cost_no_record(tmp_path: Path, name: str) -> None:
    files = lines()
    files[0] = [line.replace('Añasco, «x» "y', name) for line in files[0]]
    assert read(config(write_zip(tmp_path / "pr2020.pl.zip", files)), PERSONS, 15) == expected()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x\nx", "row 2: has the wrong number of fields"),
        ("x\rx", "row 2: holds a carriage return"),
        ("\0", "row 2: holds a null byte"),
    ],
)
def test_a_name_that_breaks_a_line_is_refused(tmp_path: Path, text: str, said: str) -> None:
    files = lines()
    files[0][1] = files[0][1].replace('Añasco, «x» "y', text)
    with pytest.raises(InputError, match=f"{NAMES[0]}, {said}"):
        read(config(write_zip(tmp_path / "pr2020.pl.zip", files)), PERSONS, 15)


def test_a_state_that_comes_twice_is_refused(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "pr2020.pl.zip", lines())
    (tmp_path / "again.zip").write_bytes(path.read_bytes())
    with pytest.raises(InputError, match=r"holds a state twice; got \['pr'\]"):
        read(config(tmp_path), PERSONS, 15)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(NAMES[1].upper().replace(".PL", ".pl"), b"")
    with pytest.raises(InputError, match="has a file twice"):
        read(config(path), PERSONS, 15)


_TEXTS = st.text(st.sampled_from(['"', "é", "\x85", "ï", "»", "¿", "'", "a", " ", ","]), max_size=5)
_DIRT = st.sampled_from([b'"', b"\n", b"\r", b"\r\n", b"\n\n", b"\0", b"|", b"\xff", b"\x1c", b"x"])


def _by_csv(content: bytes) -> list[list[str]] | None:
    """Lines by Python's csv; None if no reader should take them."""
    text = content.decode("latin-1")
    if "\0" in text or re.search(r"\r(?!\n)", text):
        return None
    rows = list(csv.reader(io.StringIO(text, newline=""), delimiter="|", quoting=csv.QUOTE_NONE))
    return rows if rows and all(len(row) == 97 for row in rows) else None


def test_dirty_headers_give_the_records_of_other_parsers_or_are_refused(tmp_path: Path) -> None:
    path, plain, seen = tmp_path / NAMES[0], tmp_path / "utf-8.pl", Counter[str]()
    layout = read_layout("pl94")
    columns = layout.columns(layout.files[0])
    state = published.FileSet(layout, layout.files[:1], [published.StoredFile(path)], [columns])
    wanted = {"SUMLEV": 2, "LOGRECNO": 7, "GEOCODE": 9}
    kinds = dict.fromkeys(wanted, pa.string())
    connection = duckdb.connect(config={"threads": 1})

    @settings(max_examples=200)
    @given(
        texts=st.lists(_TEXTS, min_size=1, max_size=8),
        dirt=st.lists(st.tuples(st.integers(0, 2000), _DIRT), max_size=2),
        block=st.sampled_from([1, 200, 1 << 20]),
        end=st.sampled_from(["\n", "\r\n"]),
    )
    def check(texts: list[str], dirt: list[tuple[int, bytes]], block: int, end: str) -> None:
        rows = [lines()[0][1].replace('Añasco, «x» "y', text) for text in texts]
        content = bytearray("".join(row + end for row in rows).encode("latin-1"))
        for place, what in dirt:
            at = place % (len(content) + 1)
            content[at:at] = what
        path.write_bytes(content)
        expected = _by_csv(bytes(content))
        with patch.object(read_lines, "BLOCK_BYTES", block):
            if expected is None:
                with pytest.raises(InputError, match=f"^{path}, row "):
                    list(state.rows(kinds))
                seen["refused"] += 1
                return
            found = [
                row
                for _, geo in state.rows(kinds)
                for row in zip(*(geo[name].to_pylist() for name in wanted), strict=True)
            ]
        assert found == [tuple(row[at] for at in wanted.values()) for row in expected]
        seen["read"] += 1
        if len({line.endswith("\r") for line in content.decode("latin-1").split("\n")[:-1]}) > 1:
            return  # DuckDB takes one kind of line end
        plain.write_text(content.decode("latin-1"), encoding="utf-8", newline="")
        shown = ", ".join(f"column{at:02d}" for at in wanted.values())
        others = connection.execute(
            f"SELECT {shown} FROM read_csv(?, delim='|', quote='', escape='', header=false, "
            "all_varchar=true, auto_detect=false, nullstr='no such value', new_line=?, columns=?)",
            [
                str(plain),
                end.encode("unicode_escape").decode(),
                {f"column{i:02d}": "VARCHAR" for i in range(97)},
            ],
        ).fetchall()
        assert others == found
        seen["read as DuckDB does"] += 1

    with connection:
        check()
    assert min(seen[kind] for kind in ("read", "refused", "read as DuckDB does")) > 20, seen
