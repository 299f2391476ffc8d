"""Hostile configurations: mutated run files, schemas, allocations and clusters, and raw YAML."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.builders.run_files import to_products
from tests.builders.toy import LEVELS
from tests.fuzz.case import (
    Case,
    Plain,
    Rng,
    places,
    toy_allocation,
    toy_schema,
    value_at,
    write_csv,
    write_toy,
    yaml_text,
)

# By the kind of value a key takes: what people, or those who mean ill, might write there.
FRACTIONS: list[Any] = [
    *("0", "-1", "1/0", "0/5", "-1/3", "1/3", "0.1", ".5", "5.", "1e5", "1/2/3", "+1", "--1", ""),
    *("NaN", "inf", " 1/2 ", "１/２", "1/" + "9" * 99, "1/" + "9" * 4000, "9" * 5000),  # noqa: RUF001
    *(0, 1, -1, 3, 10**99, 0.25, 1e308, float("inf"), float("nan"), True, None, [], {}),
    *(Plain(x) for x in ("010", "1:30", "0b11", "0x1F", "1_000", "1_0.5", "190:20:30.15", "0o17")),
    *(Plain("9" * n) for n in (90, 101, 4301, 20_000)),
    *("1/1000000000000000000000000000000", "999999999", "686430", "100000000000000000000"),
    *("1440/4099", "1/" + str(2**80), str(2**80), "0." + "0" * 90 + "1"),
]
PATHS: list[Any] = [
    *("", ".", "..", "/", "absent", "/absent/x.csv", "/etc/passwd", "/dev/null", "/dev/zero"),
    *("s3a://bucket/x", "S3://b/x", "hdfs:///x", "file:///x", "gs://b/x", "C:/x", "~/x", "~"),
    *("a\x00b", "\ud83d", "a\nb", "a" * 256, "a/" * 3000, "😀.csv", "../" * 4 + "etc/passwd"),
    *(
        "schema.yaml",
        "allocation.yaml",
        "run.yaml",
        "records.csv",
        "blocks.csv",
        "/proc",
        "/proc/1",
    ),
    *("/proc/self/mem", "x.parquet", None, 3, [], {}, True, "records.csv/x", "loop/x", "{path}"),
]
NAMES: list[Any] = [
    *("", " ", "a b", "total", "detailed", "sex", "age", "votingage", "sex * age", "sex*sex"),
    *(
        "prefix(age)",
        "prefix()",
        "ranges(sex)*x",
        "identity(age)",
        "(",
        ")",
        "*",
        "#",
        "a#b",
        "a*b",
    ),
    *("[/x]", "[bold", "[link=x]", "{0}", "{sex.__class__}", "{sex:9999999999}", "%s", "<b>"),
    *("=1+1", "@x", "../x", "a/b", "\x1b[31m", "a\x00", "\ud83d", "‮x", "😀", "a" * 10_000),
    *("__proto__", "0", "state", "county", "block", None, 7, 1.5, True, [], {}, ["sex"], {"a": 1}),
    *(Plain(x) for x in ("2020-13-45", "2020-01-01", "yes", "~", ".inf", "010", "12:30:45", "=")),
]
INTEGERS: list[Any] = [
    *(
        -1,
        0,
        1,
        2,
        10,
        99,
        100,
        101,
        10**6,
        2**31,
        2**63,
        10**30,
        0.5,
        1e9,
        True,
        None,
        "3",
        "x",
        [],
    ),
    *(Plain(x) for x in ("010", "0x7", "1e3", "1_0", "9" * 5000, "-0", "+3", "1:00")),
]
ANY: list[Any] = [
    *(
        None,
        "",
        0,
        -1,
        True,
        1.5,
        float("nan"),
        [],
        {},
        [None],
        [[]],
        {"a": 1},
        {"": ""},
        "x" * 30_000,
    ),
    *([["total"], ["detailed"]], ["sex", "sex"], [{"a": [1, 2]}], {"sex": ["male"]}, "yes"),
    *(Plain(x) for x in ("2020-13-45", "!!int x", "!!set {a, b}", "!!binary x", "*nowhere", "[")),
    *(
        Plain(x)
        for x in ("!!timestamp x", "!!python/name:os.system ''", "&a [*a]", "0x" + "f" * 5000)
    ),
]
BY_KEY = {
    **dict.fromkeys(("rho", "epsilon", "delta", "share", "total", "detailed"), FRACTIONS),
    **dict.fromkeys(("path", "directory", "account", "allocation", "schema"), PATHS),
    **dict.fromkeys(
        ("name", "query", "geolevel", "product", "budget_id", "input_format", "column"), NAMES
    ),
    **dict.fromkeys(("geocode", "method", "facilities", "units", "attribute", "pattern"), NAMES),
    **dict.fromkeys(
        ("digits", "seed", "at_most", "at_least", "coefficient", "tolerance"), INTEGERS
    ),
    **dict.fromkeys(("batches_per_slot", "n_records", "components", "n_fits", "steps"), INTEGERS),
    **dict.fromkeys(("low", "high"), INTEGERS),
    **dict.fromkeys(("spread", "least"), FRACTIONS),
    **dict.fromkeys(("mean", "model"), NAMES),
    "weights": PATHS,
    "delimiter": [";", "\t", ",,", "", '"', "\n", "é", "a", " ", None, "\x00", "\\", "|"],
}

RAW: dict[str, Callable[[Rng, str], str]] = {
    "cut": lambda rng, t: t[: rng.randrange(len(t))],
    "colons": lambda rng, t: t.replace(":", rng.choice(["", "::", " :", " ", ":\t"]), 2),
    "mark": lambda rng, t: "\ufeff" + t,
    "twice": lambda rng, t: t + "\n" + t,
    "dashes": lambda rng, t: "- " * rng.choice([40, 60, 2000, 20_000]) + t,
    "brackets": lambda rng, t: "[" * rng.choice([40, 60, 3000, 100_000]),
    "braces": lambda rng, t: "{a: " * rng.choice([40, 60, 3000, 20_000]),
    "itself": lambda rng, t: t + "\nx: &x [*x, *x]",
    "document": lambda rng, t: t + "\n---\n" + t,
    "version": lambda rng, t: "%YAML 9.9\n---\n" + t,
    "merge": lambda rng, t: rng.choice(["<<: [1, 2]\n", "<<: {a: 1}\n", "<<: *u\n"]) + t,
    "key": lambda rng, t: t + rng.choice(["\n? [1,2]\n: 3\n", "\n? {a: b}\n: 3\n", "\nyes: 1\n"]),
    "tag": lambda rng, t: t.replace(
        "name: ",
        rng.choice(
            [
                *("name: !!int ", "name: !!float ", "name: !!timestamp ", "name: !!set "),
                *("name: !!omap ", "name: !!pairs ", "name: !!binary ", "name: !!null "),
                *("name: !!python/object/apply:os.system ", "name: !own ", "name: !!bool "),
            ]
        ),
        1,
    ),
    "plain": lambda rng, t: t.replace(
        "name: ",
        "name: "
        + rng.choice(
            [
                *("2020-13-45 #", "9999999999-01-01 #", "2020-01-01T99:99:99 #", "9" * 4400 + " #"),
                *("0x" + "f" * 5000 + " #", "190:20:30 #", "1_0:99:99 #", ".inf #", "1e999 #"),
                *("0b" + "1" * 20_000 + " #", "2020-02-30 10:00:00 +99:99 #", "= #", "'\\0' #"),
                *('"\\0" #', '"\\ud83d" #', '"\\x1b[2J" #', "|\n  a\n  b\n#", ">\n  a\n#"),
            ]
        ),
        1,
    ),
    "bomb": lambda rng, t: (
        "a: &a [x,x,x,x,x,x,x,x,x]\n"
        + "".join(f"{b}: &{b} [{','.join([f'*{a}'] * 9)}]\n" for a, b in ("ab", "bc", "cd", "de"))
        + t
    ),
    "noise": lambda rng, t: "".join(
        c if rng.random() < 0.95 else chr(rng.randrange(1, 0x300)) for c in t
    ),
    "nothing": lambda rng, t: rng.choice(["", "null", "42", "[]", "{}", "x", "---", "...", "# x"]),
    "tab": lambda rng, t: "\t" + t,
    "windows": lambda rng, t: t.replace("\n", rng.choice(["\r\n", "\r", "\x85", "\u2028"])),
}
BYTES: dict[str, Callable[[Rng, bytes], bytes]] = {
    "random": lambda rng, b: rng.randbytes(300),
    "utf-16": lambda rng, b: b.decode().encode("utf-16"),
    "latin-1": lambda rng, b: b.replace(b"toy", b"\xe9\xff"),
    "nulls": lambda rng, b: b + bytes(1000),
    "half": lambda rng, b: b + b"\xc3",
    "flips": lambda rng, b: flipped(rng, b),
}


def flipped(rng: Rng, data: bytes) -> bytes:
    """Some bytes changed."""
    out = bytearray(data)
    for _ in range(rng.choice([1, 3, 20]) if out else 0):
        out[rng.randrange(len(out))] = rng.randrange(256)
    return bytes(out)


def variants(rng: Rng, folder: Path, run: dict[str, Any], allocation: dict[str, Any]) -> None:
    """Use more of what a run file may say."""
    kind = rng.randrange(7)
    if kind == 1:
        run["units"] = {
            "schema": "units.yaml",
            "data": {
                "input_format": "records",
                "path": str(folder / "records.csv"),
                "geocode": "block",
                "columns": {"sex": "sex", "age": "age"},
            },
            "privacy": {"rho": "1/7", "allocation": "allocation.yaml", "product": "homes"},
            "invariants": [{"query": "sex", "geolevel": "block"}],
        }
        (folder / "units.yaml").write_text(yaml_text(toy_schema()))
    elif kind == 2:
        table = {"path": str(folder / "public.csv"), "columns": {"female": "female"}}
        write_csv(folder / "public.csv", [("geocode", "female")])
        run["invariants"] += [
            {
                "facilities": "sex",
                "geolevel": "block",
                "table": table,
                "at_least": {"female": 0},
                "at_most": {"female": 99},
            },
            {"zero": {"sex": ["male"], "age": ["under_18"]}},
            {
                "name": "cap",
                "row": [{"cells": {"sex": ["male"]}, "coefficient": 2}],
                "geolevel": "county",
                "at_most": 5000,
            },
        ]
    elif kind == 3:
        run["solve"] = {
            "rounding_passes": [["total"], ["sex", "detailed"]],
            "tolerance": 1e-7,
            "fit_to": "tree",
            "empirical_bayes": ["tract"],
            "l2_passes": {"county": [["total"]]},
            "method": "nnls",
        }
    elif kind == 4:
        method = rng.choice(["orp", "hdmm", "auto", "residual_planner", "residual_planner_plus"])
        for level in allocation["levels"].values():
            del level["queries"]
            level["workload"] = {
                "method": method,
                "loss": rng.choice(["sum_of_variances", "largest_variance"]),
                "tables": {"total": "1", "sex": "1", "age": "2", "detailed": "1"},
                "bases": {"age": [rng.choice(["prefix", "ranges", "identity", "votingage"])]},
            }
    elif kind == 5:
        run["privacy"] = {
            "definition": "pure",
            "epsilon": "3",
            "allocation": "allocation.yaml",
            "neighbors": "unbounded",
            "delta": "1/10000000000",
            "on_demand_queries": ["detailed"],
            "budget_id": "g",
            "product": "p",
            "account": str(folder / "account.jsonl"),
            "randomness": {"source": "operating_system"},
        }
        run["solve"] = {"fit_to": "level"}
        run["runtime"] = {"master": "local[1]", "batches_per_slot": 2, "driver_memory": "1g"}
        run["output"] |= {"microdata": ["csv"], "tables": ["total", "prefix(age)"]}
    elif kind == 6:
        run["data"] = {
            "input_format": "block_table",
            "path": str(folder / "table.csv"),
            "pattern": "s{sex}a{age:02d}",
            "checks": {"all": {}},
            "delimiter": ",",
        }


def mutate(rng: Rng, document: Any) -> str:
    """Change one place of a document; returns where."""
    place = rng.choice(places(document))
    holder, key = value_at(document, place[:-1]), place[-1]
    chance = rng.random()
    if chance < 0.6:
        hostile = BY_KEY.get(key, ANY) if rng.random() < 0.7 else ANY
        holder[key] = copy.deepcopy(rng.choice(hostile))
        how = f"{holder[key]!r:.40}"
    elif chance < 0.7:
        del holder[key]
        how = "gone"
    elif chance < 0.8 and isinstance(holder, dict):
        new = rng.choice([one for one in NAMES if isinstance(one, str | int | type(None))])
        holder[new] = holder.pop(key)
        how = f"called {new!r:.40}"
    elif chance < 0.88:
        holder[key] = copy.deepcopy(value_at(document, rng.choice(places(document))))
        how = "of another place"
    elif chance < 0.94 and isinstance(holder, list):
        holder.insert(key, copy.deepcopy(rng.choice([*ANY, holder[key]])))
        how = "one more"
    else:
        value = holder[key]
        if isinstance(value, str):
            holder[key] = value + rng.choice(["x", " ", "\x00", "/2", "*", "'", "\n"])
        elif isinstance(value, int):
            holder[key] = rng.choice([value + 1, -value, value * 10**9, str(value), float(value)])
        elif isinstance(value, list):
            holder[key] = value * rng.choice([0, 2, 50])
        else:
            holder[key] = [value]
        how = "changed"
    return ".".join(map(str, place))[:60] + " " + how


def make_configuration(rng: Rng, folder: Path) -> Case:
    """Valid files, one of them mutated, for `das validate` and `das plan`."""
    run = write_toy(folder, rng)
    allocation = toy_allocation()
    variants(rng, folder, run, allocation)
    documents = {"run": to_products(run), "schema": toy_schema(), "allocation": allocation}
    which = rng.choices(list(documents), [5, 2, 3])[0]
    mode, notes = rng.random(), []
    if mode < 0.7:
        for _ in range(rng.choice([1, 1, 1, 2, 3])):
            if places(documents[which]):
                notes.append(mutate(rng, documents[which]))
    data = {}
    for name, document in documents.items():
        data[name] = yaml_text(document).encode("utf-8", "surrogatepass")
    if 0.7 <= mode < 0.93:
        raw = rng.choice(list(RAW))
        notes.append(f"raw {raw}")
        text = RAW[raw](rng, data[which].decode("utf-8", "surrogatepass"))
        data[which] = text.encode("utf-8", "surrogatepass")
    elif mode >= 0.93:
        how = rng.choice(list(BYTES))
        notes.append(f"bytes {how}")
        data[which] = BYTES[how](rng, data[which])
    for name, content in data.items():
        (folder / f"{name}.yaml").write_bytes(content)
    command = rng.choice(["validate", "validate", "plan"])
    arguments = [command, str(folder / "run.yaml")]
    outputs = []
    if command == "plan":
        arguments.append("--quiet")
        if rng.random() < 0.15:
            tables = ["total", "sex, age", "total,nope", "", ",", "sex*age", "[/x]", "prefix(age)"]
            arguments += ["--optimize", str(folder / "best.yaml"), "--tables", rng.choice(tables)]
            outputs.append(folder / "best.yaml")
        if rng.random() < 0.05:
            arguments += ["--report", str(folder / "plan.html")]
            outputs.append(folder / "plan.html")
    if rng.random() < 0.3:
        arguments.append("--json")
    return Case("configuration", f"{which}: {'; '.join(notes)}", arguments, outputs)


def make_strategy(rng: Rng, folder: Path) -> Case:
    """Random schemas, spines with chains, allocations and workloads that may well be legal."""
    n_levels = rng.choice([1, 2, 3, 4, 8, 24, 40])
    names = LEVELS[:n_levels] if n_levels <= 4 else [f"l{index}" for index in range(n_levels)]
    sizes = [rng.choice([1, 1, 2, 3, 5, 9]) for _ in range(rng.choice([1, 1, 2, 3, 4]))]
    attributes = [
        {"name": f"a{index}", "levels": [f"v{level}" for level in range(size)]}
        for index, size in enumerate(sizes)
    ]
    recodes = [
        {
            "name": f"r{index}",
            "attribute": f"a{index}",
            "groups": {"low": ["v0"], "high": [f"v{level}" for level in range(1, size)]},
        }
        for index, size in enumerate(sizes)
        if size > 1 and rng.random() < 0.5
    ]
    asked = ["total", "detailed", *(a["name"] for a in attributes), *(r["name"] for r in recodes)]
    for first, second in zip(attributes, attributes[1:], strict=False):
        asked.append(f"{first['name']} * {second['name']}")
    if rng.random() < 0.1:
        asked.append(f"{rng.choice(asked)} * {rng.choice(asked)}")  # mostly no query
    levels: dict[str, Any] = {}
    for name in names:
        chosen = rng.sample(asked, rng.randrange(1, len(asked)))
        if rng.random() < 0.9:
            chosen = list(dict.fromkeys(["detailed", *chosen]))
            if len(attributes) < 3 and rng.random() < 0.9:  # those that are the same as detailed
                same = {" * ".join(a["name"] for a in attributes)}
                chosen = [one for one in chosen if one not in same]
        share = f"1/{len(names)}"
        if rng.random() < 0.4:
            plain = [one for one in chosen if "r" not in one]
            weights = ["0", "1", "1/3", "1000000000", "1/1000000000"]
            levels[name] = {
                "share": share,
                "workload": {
                    "method": rng.choice(["auto", "orp", "hdmm", "residual_planner"]),
                    "loss": rng.choice(["sum_of_variances", "largest_variance"]),
                    "tables": {one: rng.choice(weights) for one in plain or ["detailed"]},
                    "bases": {
                        a["name"]: rng.sample(["identity", "prefix", "ranges"], rng.choice([1, 2]))
                        for a in attributes
                        if rng.random() < 0.4
                    },
                },
            }
        else:
            levels[name] = {"share": share, "queries": {q: f"1/{len(chosen)}" for q in chosen}}
    run = write_toy(folder, rng)
    width = max(n_levels, 10)
    codes = [
        "".join(rng.choice("01") if rng.random() < 0.3 else "0" for _ in range(width))
        for _ in range(rng.choice([1, 5, 60]))
    ]
    write_csv(folder / "blocks.csv", [("geocode",), *((code,) for code in dict.fromkeys(codes))])
    digits = list(range(n_levels - 1)) if n_levels > 1 else []
    run["geography"]["levels"] = [
        {"name": name, "digits": digit} for name, digit in zip(names, [*digits, width], strict=True)
    ]
    run["data"]["columns"] = {a["name"]: a["name"] for a in attributes}
    run["invariants"] = [
        {"query": rng.choice(asked), "geolevel": rng.choice(names)}
        for _ in range(rng.choice([0, 0, 1, 2]))
    ]
    run["privacy"] |= {
        "rho": rng.choice(["1", "1/1000000000000", "686430", "1000000000000000", "5/7"]),
        "neighbors": rng.choice(["bounded", "unbounded"]),
    }
    if rng.random() < 0.3:
        run["solve"] = {"fit_to": "level"}
    schema = {"name": "s", "attributes": attributes, "recodes": recodes}
    for file, document in (
        ("schema", schema),
        ("allocation", {"name": "a", "levels": levels}),
        ("run", to_products(run)),
    ):
        (folder / f"{file}.yaml").write_text(yaml_text(document))
    command = rng.choice(["validate", "plan", "plan"])
    arguments = [command, str(folder / "run.yaml")]
    if command == "plan":
        arguments.append("--quiet")
    if command == "plan" and rng.random() < 0.1:
        arguments += ["--optimize", str(folder / "best.yaml")]
    note = f"{n_levels} geolevels, sizes {sizes}"
    return Case("strategy", note, arguments, [folder / "best.yaml"])
