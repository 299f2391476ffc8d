"""Files of invented offices: separators, encodings, codes of places and households of any kind."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

CODES = ("digits", "lost zeros", "letters", "any length", "accents", "several columns")
HEADERS = (("Região", "Município", "Freguesia"), ("Land", "Kreis", "Gemeinde"), ("A1", "A2", "A3"))


@dataclass
class Office:
    """An office with a file of persons, and what its statistician knows about it.

    Attributes:
      folder: Where its files lie.
      encoding: Encoding of the file of persons, until it is saved again.
      text: The file of persons.
      listed: The list of all places; None until the office is asked for it, if it has none ready.
      places: The true places, as texts of the columns of `key`.
      key: The columns that tell places apart.
      words: Options of `das init` that the statistician has learned to add.
      refusals: Messages so far.
    """

    folder: Path
    encoding: str
    text: str
    listed: str
    places: frozenset[tuple[str, ...]]
    key: tuple[str, ...]
    words: dict[str, str] = field(default_factory=dict)
    refusals: list[str] = field(default_factory=list)

    @property
    def data(self) -> Path:
        """Write the file of persons, and return its path."""
        path = self.folder / "persons.csv"
        path.write_bytes(self.text.encode(self.encoding))
        return path

    def give_list(self) -> None:
        """Write the public list, and name it."""
        path = self.folder / "places.csv"
        path.write_text(self.listed, encoding="utf-8")
        self.words["--geounits"] = str(path)

    def learn(self, message: str) -> bool:
        """Do what a message says; return whether that is anything new."""
        self.refusals.append(message)
        before = (self.encoding, dict(self.words))
        if "save it as CSV in UTF-8" in message:
            self.encoding = "utf-8"
        elif "by --geounits" in message and "--geocode" in self.words:
            self.give_list()
        elif "--geocode" in message:
            self.words["--geocode"] = ",".join(self.key)
        return before != (self.encoding, self.words)


def office(folder: Path, seed: int) -> Office:
    """Invent an office; equal seeds give equal files."""
    rng = random.Random(seed)
    kind, names = CODES[seed % len(CODES)], rng.choice(HEADERS)
    mark, has_household = rng.choice(",;\t|"), rng.random() < 0.7
    encoding = rng.choice(["utf-8", "utf-8", "utf-8-sig", "cp1252", "utf-16"])
    places = [
        _place(kind, region, town, n) for region in range(3) for town in range(4) for n in range(5)
    ]
    shown = names if kind in ("any length", "accents", "several columns") else names[2:]
    header, rows = [*shown, "Sexo", "Estado"], []
    header += ["Agregado"] if has_household else []
    for place in places[1:]:  # one place has nobody
        for _ in range(rng.randint(12, 30)):
            row = [
                *place[-len(shown) :],
                rng.choice("HM"),
                rng.choice(["solteiro", "casado", "viúvo"]),
            ]
            rows.append(row + ([f"AF{len(rows) // 3:07}"] if has_household else []))
    listed = [
        [*names, "Designação"],
        *([*place, f"Terra de {n}"] for n, place in enumerate(places)),
    ]
    key = names if kind == "several columns" else names[2:]
    made = Office(
        folder,
        encoding,
        "".join(f"{mark.join(row)}\n" for row in [header, *rows]),
        "".join(f"{mark.join(row)}\n" for row in listed),
        frozenset(place[-len(key) :] for place in places),
        key,
    )
    if rng.random() < 0.5:
        made.give_list()
    return made


def _place(kind: str, region: int, town: int, number: int) -> tuple[str, str, str]:
    """Return the codes of region, town and place."""
    above = f"{region + 1:02}", f"{region + 1:02}{town + 1:02}"
    if kind == "digits":
        return *above, f"{above[1]}{number + 1:03}"
    if kind == "lost zeros":
        return str(int(above[0])), str(int(above[1])), str(int(f"{above[1]}{number + 1:03}"))
    if kind == "letters":
        return "NLX"[region], "NLX"[region] + "ABCD"[town], f"{'NLX'[region]}{'ABCD'[town]}{number}"
    if kind == "several columns":  # numbers begin anew in each
        return f"{region + 1}", f"{town + 1:02}", f"{number + 1:02}"
    names = ("N", "LX", "ALGARVE") if kind == "any length" else ("AÇ", "É", "Ilhéus")
    return names[region], f"{names[region]}.{town}", f"{names[region]}{town}-{'X' * number}"
