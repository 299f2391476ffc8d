"""Datasets exist wholly or not at all, and every damage is an error that names the path."""

from __future__ import annotations

import contextlib
import json
import os
import uuid
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import jobs.pipeline.storage.dataset
from das.errors import OutputError
from jobs.pipeline.storage.dataset import (
    LAST,
    MANIFEST,
    PROPOSED,
    Dataset,
    PartFile,
    PartWriter,
    RangeReader,
    accept,
    are_proposed,
    check_sizes,
    dataset_digest,
    find_damage,
    is_proposed,
    is_published,
    leftovers,
    propose,
    publish,
    read_proposal,
    remove_dataset,
    replace_published,
    sweep,
    verify_files,
    withdraw,
)
from jobs.pipeline.storage.place import Place, StoredPlace

SCHEMA = pa.schema([("geocode", pa.string()), ("value", pa.int64())])


def table(*codes: str, start: int = 0) -> pa.Table:
    values = list(range(start, start + len(codes)))
    return pa.table({"geocode": list(codes), "value": values}, schema=SCHEMA)


def part(dataset: Place, *codes: str, start: int = 0, **facts: object) -> PartFile:
    writer = PartWriter(dataset, SCHEMA)
    writer.write(table(*codes, start=start))
    return writer.close(**facts)


def names(dataset: Place) -> set[str]:
    return {path.name for path in dataset.iterdir()}


@pytest.fixture
def dataset(tmp_path) -> Path:
    return tmp_path / "level=block"


@pytest.fixture
def anywhere(folder: Place) -> Place:
    """Where a dataset may lie: on a disk or in a store."""
    return folder / "run" / "level=block"


@pytest.fixture
def stored() -> StoredPlace:
    return StoredPlace(f"memory://{uuid.uuid4().hex}", "run/level=block")


def test_a_part_describes_its_file(dataset):
    writer = PartWriter(dataset, SCHEMA)
    writer.write(table())
    writer.write(table("a", "b"))
    writer.write(table())
    writer.write(table("b", "c"))
    described = writer.close(seconds=1.5)
    path = dataset / described.file
    assert (described.rows, described.low, described.high) == (4, "a", "c")
    assert described.facts == {"seconds": 1.5}
    assert described.bytes == path.stat().st_size
    assert pq.read_table(path).column("geocode").to_pylist() == ["a", "b", "b", "c"]


def test_a_part_without_rows_is_a_readable_file(anywhere):
    empty = part(anywhere)
    assert (empty.rows, empty.low, empty.high) == (0, "", "")
    publish(anywhere, [empty], {})
    assert Dataset.open(anywhere).read().schema == SCHEMA


def test_rows_are_gathered_into_row_groups_of_the_wanted_size(dataset, monkeypatch):
    monkeypatch.setattr(jobs.pipeline.storage.dataset, "ROW_GROUP_BYTES", 40)
    writer = PartWriter(dataset, SCHEMA)
    for index in range(9):
        writer.write(table(f"{index:04}"))  # 4 + 8 bytes and an offset
    path = dataset / writer.close().file
    sizes = [pq.ParquetFile(path).metadata.row_group(g).num_rows for g in range(3)]
    assert sum(sizes) == 9
    assert 2 <= sizes[0] <= 4


def test_nothing_is_readable_before_the_manifest(anywhere):
    written = part(anywhere, "a", "b")
    assert not is_published(anywhere)
    with pytest.raises(OutputError) as caught:
        Dataset.open(anywhere)
    assert str(caught.value) == f"{anywhere}: is not complete; run the stage that writes it"
    publish(anywhere, [written], {"geolevel": "block"})
    assert is_published(anywhere)
    assert Dataset.open(anywhere) == Dataset(anywhere, (written,), {"geolevel": "block"})
    assert Dataset.open(anywhere).read().equals(table("a", "b"))


def test_a_second_publish_is_refused_and_the_first_stays(anywhere):
    first = part(anywhere, "a")
    publish(anywhere, [first], {"attempt": 1})
    before = (anywhere / MANIFEST).read_bytes()
    second = part(anywhere, "b")
    with pytest.raises(OutputError) as caught:
        publish(anywhere, [second], {"attempt": 2})
    assert str(caught.value) == f"{anywhere}: was already published by another run"
    assert (anywhere / MANIFEST).read_bytes() == before
    assert Dataset.open(anywhere) == Dataset(anywhere, (first,), {"attempt": 1})
    assert names(anywhere) == {MANIFEST, first.file}
    verify_files(anywhere)


def test_a_late_file_of_an_attempt_that_was_given_up_is_found_and_swept(anywhere):
    publish(anywhere, [part(anywhere, "a")], {})
    late = part(anywhere, "b")
    with pytest.raises(OutputError, match=f"{late.file}: is not named by the manifest"):
        verify_files(anywhere)
    sweep(anywhere)
    verify_files(anywhere)


def test_files_of_failed_attempts_are_invisible_and_swept(dataset):
    left = part(dataset, "a", "z")
    (dataset / "part-half.parquet").write_bytes(b"PAR1 half")
    kept = part(dataset, "b")
    publish(dataset, [kept], {})
    assert names(dataset) == {MANIFEST, kept.file}
    room = dataset / f"part-{'0' * 32}.rows"  # of a workbook whose driver was killed
    room.mkdir()
    (room / "tmp").write_bytes(b"rows")
    sweep(dataset)
    assert not [*room.iterdir()]
    assert left.file not in names(dataset)
    assert Dataset.open(dataset).read().column("geocode").to_pylist() == ["b"]


def test_a_late_attempt_after_publishing_is_invisible(anywhere):
    kept = part(anywhere, "b")
    publish(anywhere, [kept], {})
    part(anywhere, "a", "b", "c")
    assert Dataset.open(anywhere).read().column("geocode").to_pylist() == ["b"]


@pytest.mark.parametrize("call", ["fsync", "link"])
def test_a_crash_before_the_manifest_is_linked_leaves_nothing_readable(dataset, monkeypatch, call):
    written = part(dataset, "a")

    def crash(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(os, call, crash)
        with pytest.raises(KeyboardInterrupt):
            publish(dataset, [written], {})
    assert not is_published(dataset)
    assert names(dataset) == {written.file}
    publish(dataset, [written], {})
    assert Dataset.open(dataset).read().num_rows == 1


def test_a_full_disk_is_an_error_that_names_the_folder(dataset, monkeypatch):
    written = part(dataset, "a")

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError) as caught:
        publish(dataset, [written], {})
    assert str(caught.value) == (
        f"{dataset / MANIFEST}: cannot be written; got No space left on device; "
        "give the disk room; then repeat the command, or continue a run with `das run OUT`"
    )
    assert not is_published(dataset)
    assert names(dataset) == {written.file}


@pytest.mark.parametrize("call", ["write_table", "close"])
def test_a_part_that_the_disk_refuses_gives_back_what_it_took(dataset, monkeypatch, call):
    writer = PartWriter(dataset, SCHEMA)
    writer.write(table("a"))
    assert len(names(dataset)) == 1

    def full(*_, **__):
        raise OSError(28, "Error writing bytes to file")

    with monkeypatch.context() as patched:
        patched.setattr(pq.ParquetWriter, call, full)
        with pytest.raises(OutputError, match="got No space left on device; give the disk room"):
            writer.close()
    assert not names(dataset)


def test_a_part_survives_a_crash_of_the_machine(dataset, monkeypatch):
    """It is synced whole: before that, a manifest could outlive the file that it names."""
    synced = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(os.fstat(handle)))
    written = part(dataset, "a", "b")
    assert [(one.st_ino, one.st_size) for one in synced] == [
        ((dataset / written.file).stat().st_ino, written.bytes)
    ]


def test_a_crash_after_the_manifest_leaves_a_complete_dataset(dataset, monkeypatch):
    written = part(dataset, "a")
    link = os.link

    def crash_after(*arguments):
        link(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "link", crash_after)
    with pytest.raises(KeyboardInterrupt):
        publish(dataset, [written], {})
    assert is_published(dataset)
    verify_files(dataset)


def test_parts_are_listed_in_order_of_their_rows(anywhere):
    parts = [
        part(anywhere, "c", "d", start=2),
        part(anywhere),
        part(anywhere, "a", "b"),
        part(anywhere, "e", start=4),
    ]
    publish(anywhere, parts, {})
    opened = Dataset.open(anywhere)
    assert [one.low for one in opened.parts] == ["", "a", "c", "e"]
    assert opened.read().equals(table("a", "b", "c", "d", "e"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"facts": {}}',
        '{"files": []}',
        '{"files": [{"file": "a"}], "facts": {}}',
        '{"files": [{"unknown": 1}], "facts": {}}',
        '{"files": null, "facts": {}}',
        "\udcff",
    ],
)
def test_a_damaged_manifest_is_an_error_that_names_it(dataset, text):
    publish(dataset, [part(dataset, "a")], {})
    (dataset / MANIFEST).write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(OutputError) as caught:
        Dataset.open(dataset)
    assert str(caught.value).startswith(f"{dataset / MANIFEST}: is damaged; got ")


def test_a_missing_file_is_an_error_that_names_it(anywhere):
    written = part(anywhere, "a")
    publish(anywhere, [written], {})
    (anywhere / written.file).unlink()
    for read in (lambda: Dataset.open(anywhere).read(), lambda: verify_files(anywhere)):
        with pytest.raises(OutputError) as caught:
            read()
        assert str(caught.value).startswith(str(anywhere / written.file))
        assert "`das run OUT`" in str(caught.value)
        assert "remove" not in str(caught.value)  # noisy answers would be lost


def test_a_missing_file_is_an_error_even_if_no_row_of_it_is_wanted(anywhere):
    written = part(anywhere, "a")
    publish(anywhere, [written], {})
    (anywhere / written.file).unlink()
    with pytest.raises(OutputError):
        Dataset.open(anywhere).read("x", "y")


@pytest.mark.parametrize("damage", ["flip", "truncate", "replace"])
def test_a_changed_file_is_found_by_its_digest(dataset, damage):
    written = part(dataset, *"abcdef")
    publish(dataset, [written], {})
    verify_files(dataset)
    path = dataset / written.file
    content = bytearray(path.read_bytes())
    if damage == "flip":
        content[len(content) // 3] ^= 1
    elif damage == "truncate":
        content = content[:-1]
    else:
        other = part(dataset, *"abcdeg")
        content = bytearray((dataset / other.file).read_bytes())
    path.write_bytes(content)
    with pytest.raises(OutputError) as caught:
        verify_files(dataset)
    assert str(caught.value).startswith(
        f"{path}: was changed after it was published; `das run OUT`"
    )
    assert [str(one) for one in find_damage(dataset)] == [str(caught.value)]


def test_every_damaged_file_is_found(dataset):
    parts = [part(dataset, "a"), part(dataset, "b"), part(dataset, "c"), part(dataset, "d")]
    publish(dataset, parts, {})
    assert not find_damage(dataset)
    (dataset / parts[1].file).unlink()
    (dataset / parts[2].file).write_bytes(b"")
    assert {one.where for one in find_damage(dataset)} == {
        str(dataset / parts[index].file) for index in (1, 2)
    }
    (dataset / MANIFEST).write_text("{")
    assert [one.where for one in find_damage(dataset)] == [str(dataset / MANIFEST)]


@pytest.mark.parametrize(("length", "what"), [(None, "is missing"), (5, "was changed after")])
def test_files_that_are_not_whole_are_missed(dataset, length, what):
    written = part(dataset, "a")
    publish(dataset, [written], {})
    check_sizes(dataset.parent)
    path = dataset / written.file
    path.unlink() if length is None else os.truncate(path, length)
    with pytest.raises(OutputError) as caught:
        check_sizes(dataset.parent)
    assert str(caught.value).startswith(f"{path}: {what}")


def test_a_file_that_is_no_table_is_an_error_that_names_it(dataset):
    written = part(dataset, "a")
    publish(dataset, [written], {})
    (dataset / written.file).write_bytes(b"no table")
    with pytest.raises(OutputError) as caught:
        Dataset.open(dataset).read()
    assert str(caught.value).startswith(f"{dataset / written.file}: cannot be read; got ")


def test_files_of_an_unpublished_dataset_cannot_be_verified(anywhere):
    part(anywhere, "a")
    with pytest.raises(OutputError, match="is not complete"):
        verify_files(anywhere)


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OutputError) as caught:
        PartWriter(tmp_path / "file" / "level=block", SCHEMA)
    assert str(caught.value).startswith(f"{tmp_path / 'file' / 'level=block'}: cannot be created")


def test_columns_are_chosen_with_and_without_rows(anywhere):
    written = part(anywhere, "a", "b")
    publish(anywhere, [written], {})
    assert Dataset.open(anywhere).read(columns=["value"]).to_pydict() == {"value": [0, 1]}
    assert Dataset.open(anywhere).read("b", "b", ["value"]).to_pydict() == {"value": [1]}
    nothing = Dataset.open(anywhere).read("x", "y", ["value"])
    assert nothing.schema == pa.schema([("value", pa.int64())])
    assert nothing.num_rows == 0


def test_within_keeps_the_parts_that_may_hold_a_geocode_of_the_range(anywhere):
    parts = [part(anywhere, "a", "b"), part(anywhere, "c", "e"), part(anywhere)]
    publish(anywhere, parts, {"geolevel": "block"})
    opened = Dataset.open(anywhere)
    for low, high, files in (
        ("b", "c", [0, 1]),
        ("d", "d", [1]),
        ("f", "z", []),
        ("", LAST, [0, 1]),
    ):
        near = opened.within(low, high)
        assert [one.file for one in near.parts] == [parts[index].file for index in files]
        assert (near.path, near.facts) == (anywhere, {"geolevel": "block"})


def test_an_opened_dataset_knows_its_size_and_stays_what_it_was(dataset):
    first, second = part(dataset, "a", "b"), part(dataset, "c")
    publish(dataset, [first, second], {})
    opened = Dataset.open(dataset)
    on_disk = sum(path.stat().st_size for path in dataset.glob("part-*"))
    assert (opened.rows, opened.bytes) == (3, on_disk)
    replace_published(opened, [second], {"carried": True})
    assert (opened.rows, opened.facts) == (3, {})
    assert (Dataset.open(dataset).rows, Dataset.open(dataset).facts) == (1, {"carried": True})


def test_the_text_of_an_opened_dataset_says_nothing_of_its_rows(anywhere):
    publish(anywhere, [part(anywhere, "secret")], {"persons": 31_337})
    text = repr(Dataset.open(anywhere))
    assert "secret" not in text
    assert "31337" not in text
    assert anywhere.name in text


def test_no_parts_give_an_empty_table(anywhere):
    assert Dataset(anywhere, (), {}).read().num_rows == 0


def test_the_manifest_is_plain_json(anywhere):
    written = part(anywhere, "a", note="x")
    publish(anywhere, [written], {"seconds": 1})
    document = json.loads((anywhere / MANIFEST).read_text())
    assert document["facts"] == {"seconds": 1}
    assert PartFile(**document["files"][0]) == written
    assert replace(written, rows=2) != written


def test_what_is_proposed_cannot_be_read_before_it_is_accepted(anywhere):
    digest = propose(anywhere, "x", [part(anywhere, "a")], {"geolevel": "block"})
    assert is_proposed(anywhere, "x")
    assert not is_proposed(anywhere, "y")
    assert are_proposed(anywhere)
    proposed = read_proposal(anywhere, "x")
    assert (proposed.sha256, proposed.facts) == (digest, {"geolevel": "block", "attempt": "x"})
    with pytest.raises(OutputError, match="is not complete"):
        Dataset.open(anywhere)
    left = part(anywhere, "b")
    accept(anywhere, "x")
    assert not is_proposed(anywhere, "x")
    assert not are_proposed(anywhere)
    assert dataset_digest(anywhere) == digest
    assert not (anywhere / left.file).exists()
    assert not (anywhere / PROPOSED.format("x")).exists()
    verify_files(anywhere)


def test_what_is_withdrawn_is_gone(anywhere):
    assert leftovers(anywhere) == []
    left = part(anywhere, "a")
    propose(anywhere, "x", [left], {})
    assert {*leftovers(anywhere)} == {left.file, PROPOSED.format("x")}
    withdraw(anywhere, "x")
    assert leftovers(anywhere) == []
    withdraw(anywhere, "x")
    publish(anywhere, [part(anywhere, "a")], {})
    withdraw(anywhere, "x")
    assert leftovers(anywhere) == []
    verify_files(anywhere)


def test_what_an_attempt_that_lost_proposed_is_removed_beside_what_is_published(anywhere):
    """A second draw, though nobody opens it, must not lie in a folder that is handed out."""
    kept, other = part(anywhere, "a"), part(anywhere, "b")
    publish(anywhere, [kept], {})
    propose(anywhere, "lost", [kept, other], {})
    withdraw(anywhere, "lost")
    verify_files(anywhere)


@pytest.mark.parametrize("replacements", [0, 1, 2])
def test_a_removed_dataset_comes_back_as_what_is_published_next(
    anywhere, monkeypatch, replacements
):
    """Also if its removal was stopped after each step."""
    for steps in range(6):
        publish(anywhere, [part(anywhere, "old")], {}, replaceable=True)
        for _ in range(replacements):
            replace_published(Dataset.open(anywhere), [part(anywhere, "newer")], {})
        with monkeypatch.context() as patch:
            patch.setattr(
                jobs.pipeline.storage.dataset,
                "remove_files",
                dying(jobs.pipeline.storage.dataset, steps),
            )
            with contextlib.suppress(KeyboardInterrupt):
                remove_dataset(anywhere)
        remove_dataset(anywhere)  # as whoever goes on does: it is not complete, or still outdated
        assert not is_published(anywhere)
        publish(anywhere, [part(anywhere, "new")], {})
        assert Dataset.open(anywhere).read().column("geocode").to_pylist() == ["new"]
        verify_files(anywhere)
        remove_dataset(anywhere)


def test_in_a_store_only_what_is_published_for_it_is_replaced(stored):
    """Readers of the others do not look for a later manifest."""
    publish(stored, [part(stored, "a")], {})
    with pytest.raises(ValueError, match="not replaced"):
        replace_published(Dataset.open(stored), [part(stored, "b")], {})
    assert Dataset.open(stored).read().column("geocode").to_pylist() == ["a"]


def test_readers_find_the_last_manifest_though_its_driver_died_before_it_was_copied(
    stored, monkeypatch
):
    publish(stored, [part(stored, "a")], {}, replaceable=True)
    for code in "bc":
        with monkeypatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
            patch.setattr(jobs.pipeline.storage.dataset, "replace_file", dies)
            replace_published(Dataset.open(stored), [part(stored, code)], {})
        opened = Dataset.open(stored)
        assert opened.read().column("geocode").to_pylist() == [code]
        assert opened.sha256 == dataset_digest(stored)
    sweep(stored.parent)
    assert (stored / MANIFEST).read_bytes() == (stored / "_manifest.2.json").read_bytes()
    verify_files(stored)


def dies(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_late_sweep_leaves_what_a_later_manifest_names(stored):
    """Of a driver that slept between publishing and sweeping, while another one replaced."""
    first = part(stored, "a")
    publish(stored, [first], {}, replaceable=True)
    replace_published(Dataset.open(stored), [part(stored, "b")], {})
    jobs.pipeline.storage.dataset._sweep_one(stored, [first])
    assert not find_damage(stored)


def test_a_store_is_asked_once_to_open_and_once_for_all_sizes(stored, monkeypatch):
    for level in ("tract", "block"):
        publish(stored / level, [part(stored / level, code) for code in "abc"], {})
    asked: list[str] = []
    for name in ("read", "read_range", "stat", "stats", "entries", "replace", "create", "remove"):
        monkeypatch.setattr(stored.store, name, noting(asked, name, getattr(stored.store, name)))
    opened = Dataset.open(stored / "block")
    assert asked == ["read"]
    asked.clear()
    assert opened.read().num_rows == 3
    assert asked == ["read"] * 3, "one for each part"
    asked.clear()
    check_sizes(stored)
    assert sorted(asked) == ["read", "read", "stats"]
    asked.clear()
    publish(stored / "county", [part(stored / "county", "a")], {})
    assert asked == ["create", "create", "stats"]


def noting(asked: list[str], name: str, ask):
    def noted(*arguments, **named):
        asked.append(name)
        return ask(*arguments, **named)

    return noted


def dying(module, steps: int):
    """Removing dies after so many files; what it removed is gone."""
    remove, left = module.remove_files, [steps]

    def removing(dataset, names):
        if left[0] <= 0:
            raise KeyboardInterrupt
        left[0] -= 1
        remove(dataset, names)

    return removing


def test_an_attempt_that_is_withdrawn_takes_nothing_of_another_along(anywhere):
    mine, other = part(anywhere, "a"), part(anywhere, "b")
    propose(anywhere, "mine", [mine], {})
    propose(anywhere, "other", [other], {})
    withdraw(anywhere, "mine")
    assert names(anywhere) == {other.file, PROPOSED.format("other")}
    accept(anywhere, "other")
    withdraw(anywhere, "other")
    verify_files(anywhere)


def test_damaged_files_are_not_accepted(anywhere):
    one = part(anywhere, "a")
    propose(anywhere, "x", [one], {})
    (anywhere / one.file).unlink()
    with pytest.raises(OutputError, match=f"{one.file}: is missing"):
        accept(anywhere, "x")
    assert not is_published(anywhere)


def test_a_proposal_does_not_replace_what_is_published(anywhere):
    publish(anywhere, [part(anywhere, "a")], {})
    before = dataset_digest(anywhere)
    propose(anywhere, "x", [part(anywhere, "b")], {})
    assert not is_proposed(anywhere, "x")
    with pytest.raises(OutputError, match="already published"):
        accept(anywhere, "x")
    assert dataset_digest(anywhere) == before


@pytest.fixture
def grouped(dataset, monkeypatch) -> Dataset:
    """Twenty rows, two of each geocode, in row groups of three to five."""
    monkeypatch.setattr(jobs.pipeline.storage.dataset, "ROW_GROUP_BYTES", 60)
    parts = []
    for first in (0, 10):
        writer = PartWriter(dataset, SCHEMA)
        for row in range(first, first + 10):
            writer.write(table(f"{row // 2:02}", start=row))
        parts.append(writer.close())
    publish(dataset, parts, {})
    assert all(pq.ParquetFile(dataset / p.file).num_row_groups in (2, 3, 4) for p in parts)
    return Dataset.open(dataset)


def recorded(monkeypatch) -> list[int]:
    """The row groups that are decoded from now on."""
    decoded: list[int] = []
    read = pq.ParquetFile.read_row_groups

    def reading(self, groups, *rest, **options):
        decoded.extend(groups)
        return read(self, groups, *rest, **options)

    monkeypatch.setattr(pq.ParquetFile, "read_row_groups", reading)
    return decoded


def test_ranges_that_ascend_decode_each_row_group_once(grouped, monkeypatch):
    decoded = recorded(monkeypatch)
    reader = RangeReader(grouped)
    pieces = [reader.read(f"{code:02}", f"{code:02}") for code in range(10)]
    assert pa.concat_tables(pieces).equals(grouped.read())
    once = sum(pq.ParquetFile(grouped.path / p.file).num_row_groups for p in grouped.parts)
    assert len(decoded) == 2 * once  # by the pieces, and by the whole


def test_row_groups_beside_a_range_are_not_decoded(grouped, monkeypatch):
    decoded = recorded(monkeypatch)
    assert grouped.read("04", "04").column("value").to_pylist() == [8, 9]
    assert decoded == [decoded[0]]


def test_columns_come_without_the_geocode_that_cuts_them(grouped):
    reader = RangeReader(grouped, ("value",))
    assert reader.read("03", "05").to_pydict() == {"value": [*range(6, 12)]}
    assert reader.read("06x", "06y").schema == pa.schema([("value", pa.int64())])


def test_of_a_large_file_in_a_store_only_what_a_range_needs_is_asked(stored, monkeypatch):
    monkeypatch.setattr("jobs.pipeline.storage.place.READ_AHEAD", 1)
    monkeypatch.setattr(jobs.pipeline.storage.dataset, "ROW_GROUP_BYTES", 1 << 17)
    rows = 200_000
    writer = PartWriter(stored, SCHEMA)
    for start in range(0, rows, 5000):
        codes = [f"{row:06}" for row in range(start, start + 5000)]
        values = [pow(7, row, 2**61 - 1) for row in range(start, start + 5000)]
        writer.write(pa.table([codes, values], schema=SCHEMA))
    publish(stored, [writer.close()], {})
    opened = Dataset.open(stored)
    asked: list[int] = []
    read = type(stored.store).read_range
    monkeypatch.setattr(
        type(stored.store),
        "read_range",
        lambda self, name, a, b: asked.append(b - a) or read(self, name, a, b),
    )
    found = opened.read("100000", "100002").column("value").to_pylist()
    assert found == [pow(7, row, 2**61 - 1) for row in range(100_000, 100_003)]
    assert 0 < sum(asked) < opened.bytes / 5


def test_floats_are_written_without_a_dictionary_and_lists_without_statistics(dataset):
    schema = pa.schema(
        [("geocode", pa.string()), ("x", pa.list_(pa.float64())), ("n", pa.list_(pa.int64()))]
    )
    writer = PartWriter(dataset, schema)
    writer.write(pa.table([["a", "b"], [[1.0], [1.0, 2.0]], [[1], [1]]], schema=schema))
    group = pq.ParquetFile(dataset / writer.close().file).metadata.row_group(0)
    columns = {group.column(i).path_in_schema: group.column(i) for i in range(3)}
    has_dictionary = {name: c.has_dictionary_page for name, c in columns.items()}
    assert has_dictionary == {"geocode": True, "x.list.element": False, "n.list.element": True}
    assert [name for name, c in columns.items() if c.is_stats_set] == ["geocode"]
