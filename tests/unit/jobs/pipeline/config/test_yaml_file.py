"""YAML files: plain values only; what two readers could take differently is one named error."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from das.errors import BudgetError, ConfigError
from das.rational import parse_fraction
from jobs.pipeline.config.models.products import ProductPrivacyConfig
from jobs.pipeline.config.yaml_file import read_map


def read(folder: Path, text: str | bytes) -> dict:
    file = folder / "file.yaml"
    file.write_bytes(text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text)
    return read_map(file)


def test_plain_values_are_read_as_they_are_written(tmp_path):
    text = """
a: text
b: 12
c: -3
d: 0.5
e: 1.0e-7
f: .inf
g: yes
h: FALSE
i: null
j: ~
k:
l: [1, two, {"010": "1:30"}]
m: 'null'
12: codes may be integers
n: !!str 010
o: "2020-01-01"
p: &x {q: 1}
r: *x
"""
    assert read(tmp_path, text) == {
        "a": "text",
        "b": 12,
        "c": -3,
        "d": 0.5,
        "e": 1e-7,
        "f": float("inf"),
        "g": True,
        "h": False,
        "i": None,
        "j": None,
        "k": None,
        "l": [1, "two", {"010": "1:30"}],
        "m": "null",
        12: "codes may be integers",
        "n": "010",
        "o": "2020-01-01",
        "p": {"q": 1},
        "r": {"q": 1},
    }


def test_a_byte_order_mark_is_no_part_of_the_first_key(tmp_path):
    assert read(tmp_path, "\ufeffname: x") == {"name": "x"}


# By what is wrong: the text, and what the message says beside file, line and column.
NOT_READ = {
    "octal": ("rho: 010", "line 1, column 6", "got 010"),
    "sexagesimal": ("rho: 1:30", "got 1:30"),
    "sexagesimal-float": ("rho: 190:20:30.15", "got 190:20:30.15"),
    "binary": ("rho: 0b11", "got 0b11"),
    "hexadecimal": ("rho: 0x1F", "got 0x1F"),
    "underscores": ("rho: 1_000", "got 1_000"),
    "underscores-in-a-float": ("rho: 1_0.5", "got 1_0.5"),
    "date": ("name: 2020-01-01", "reads as a date", "got 2020-01-01", "quotes"),
    "impossible-date": ("name: 2020-13-45", "reads as a date", "got 2020-13-45"),
    "time": ("name: 2020-01-01 10:99:99", "reads as a date"),
    "integer-of-many-digits": ("a: " + "9" * 5000, "over 100 digits"),
    "hexadecimal-of-many-digits": ("a: 0x" + "f" * 5000, "plain decimal"),
    "float-of-many-digits": ("a: 0." + "9" * 5000, "over 100 digits"),
    "tag-int": ("a: !!int x", "plain decimal", "got x"),
    "tag-int-quoted": ('a: !!int "5"', "plain decimal"),
    "tag-float": ("a: !!float x", "plain decimal"),
    "tag-timestamp": ("a: !!timestamp x", "reads as a date"),
    "tag-null": ("a: !!null x", "tag that is not read here"),
    "tag-bool": ("a: !!bool x", "tag that is not read here"),
    "tag-set": ("a: !!set {x, y}", "tag that is not read here"),
    "tag-set-of-text": ("a: !!set x", "tag that is not read here"),
    "tag-omap": ("a: !!omap [x: 1]", "tag that is not read here"),
    "tag-binary": ("a: !!binary x", "tag that is not read here"),
    "tag-python": ("a: !!python/object/apply:os.system ['id']", "tag that is not read here"),
    "tag-of-ones-own": ("a: !x y", "tag that is not read here"),
    "tag-map-on-a-list": ("a: !!map [x]", "tag that is not read here"),
    "tag-list-on-text": ("a: !!seq x", "tag that is not read here"),
    "equals": ("a: =", "got ="),
    "merge": ("u: &u {a: 1}\nv:\n  <<: *u", "line 3, column 3", "merges maps"),
    "merge-of-numbers": ("<<: [1, 2]", "merges maps"),
    "key-list": ("? [1, 2]\n: 3", "key that is not text"),
    "key-map": ("? {a: 1}\n: 3", "key that is not text"),
    "key-bool": ("yes: 3", "key that is not text", "got yes"),
    "key-float": ("0.5: 3", "key that is not text"),
    "key-null": ("~: 3", "key that is not text"),
    "key-twice": ("a: 1\nb: {c: 1, c: 2}", "line 2, column 11", "key 'c' appears twice"),
    "key-twice-as-number-and-text": ('1: a\n"1": b', "key '1' appears twice"),
    "lists-too-deep": ("a: " + "[" * 3000, "50 deep"),
    "lists-far-too-deep": ("a: " + "[" * 200_000, "50 deep"),
    "maps-too-deep": ("a: " + "{a: " * 3000, "50 deep"),
    "dashes-too-deep": ("- " * 20_000, "50 deep"),
    "alias-of-itself": ("x: &x [*x]", "too deeply"),
    "aliases-of-itself": ("x: &x [*x, *x, *x]", "too deeply"),
    "unknown-alias": ("x: *y", "is not valid YAML"),
    "null-character": ("a: \x00", "is not valid YAML"),
    "half-a-character": ("a: \ud83d", "is not UTF-8"),
    "latin-1": ("a: é".encode("latin-1"), "is not UTF-8", "at byte 3"),
    "two-documents": ("a: 1\n---\na: 1", "is not valid YAML"),
    "another-version": ("%YAML 9.9\n---\na: 1", "is not valid YAML"),
    "tab": ("\ta: 1", "is not valid YAML"),
    "open-bracket": ("a: [", "is not valid YAML"),
    "empty": ("", "must be a map", "got NoneType"),
    "list": ("[1]", "must be a map", "got list"),
    "number": ("42", "must be a map", "got int"),
    "utf-16": ("a: 1".encode("utf-16"), "is not UTF-8"),
}


@pytest.mark.parametrize("case", NOT_READ)
def test_what_is_not_plain_is_one_error_that_quotes_it(tmp_path, case):
    text, *said = NOT_READ[case]
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    message = str(caught.value)
    assert message.startswith(str(tmp_path / "file.yaml"))
    assert all(words in message for words in said), message
    assert "\n" not in message
    assert len(message) < 3000


def test_aliases_of_aliases_stop_before_memory_does(tmp_path):
    lines = ["a: &a [" + ", ".join("x" * 9) + "]"]
    for one, before in zip("bcdefghij", "abcdefghi", strict=True):
        lines.append(f"{one}: &{one} [" + ", ".join([f"*{before}"] * 9) + "]")
    began = time.process_time()
    with pytest.raises(ConfigError, match="aliases too often"):
        read(tmp_path, "\n".join(lines))
    assert time.process_time() - began < 30  # 3 s alone; ten lines name four billion values


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/dev/zero", "is too large"),
        (".", "cannot be read; got Is a directory"),
        ("absent.yaml", "cannot be read; got No such file or directory"),
        ("a\x00b", "is not a valid file name"),
        ("\ud83d", "is not a valid file name"),
        ("a" * 300, "cannot be read; got File name too long"),
    ],
)
def test_what_is_no_file_is_said(tmp_path, path, said):
    with pytest.raises(ConfigError, match=said):
        read_map(tmp_path / path)


@pytest.mark.parametrize("written", ["010", "1:30", "0b11", "1_000", "1_0.5"])
def test_a_budget_is_never_another_number_than_the_one_written(tmp_path, written):
    with pytest.raises(ConfigError, match=f"got {written}"):
        read(tmp_path, f"allocation: a\nrho: {written}")


@pytest.mark.parametrize(("written", "rho"), [("10", 10), ('"010"', 10), ('"0.50"', 0.5)])
def test_budgets_in_plain_decimal_are_read(tmp_path, written, rho):
    document = read(tmp_path, f"allocation: a\nrho: {written}")
    assert ProductPrivacyConfig.model_validate(document).rho == rho


@pytest.mark.parametrize(
    "text",
    ["9" * 101, "1/" + "9" * 101, "0." + "9" * 101, "9" * 10_000, "\u0661/\u0662", "\uff10", "1e5"],
)
def test_exact_amounts_are_short_and_in_ascii(text):
    with pytest.raises(BudgetError) as caught:
        parse_fraction(text, "share")
    assert len(str(caught.value)) < 1200


@pytest.mark.parametrize(
    "text", ["a: [1, 2, 3, 4, 5]", "{a: 1, b: 2, c: 3}", "a:\n- x\n- x\n- x\n- x\n"]
)
def test_too_many_values_are_refused_while_they_are_parsed(tmp_path, monkeypatch, text):
    monkeypatch.setattr("jobs.pipeline.config.yaml_file._MOST_VALUES", 6)
    with pytest.raises(ConfigError, match="there are more than 6 values"):
        read(tmp_path, text)
    assert read(tmp_path, "{a: 1, b: 2}") == {"a": 1, "b": 2}


@pytest.mark.long
@pytest.mark.parametrize("text", ["a: [" + "1," * 600_000 + "]", "a: 1\n" + "#\n" * (1 << 20)])
def test_a_file_of_absurd_size_is_refused_soon(tmp_path, text):
    began = time.process_time()
    with pytest.raises(ConfigError, match=r"more than 100,000 values|is too large"):
        read(tmp_path, text)
    assert time.process_time() - began < 20
