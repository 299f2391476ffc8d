"""Small noisy measurement files in the Census Bureau's layout, with noise that is of no release."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from das.arrays import IntArray
from das.queries.query import Query, parse_query
from das.schema import Schema

NAMES = {
    "nation": "US",
    "state": "State",
    "county": "County",
    "tract": "Tract",
    "block_group": "Block_Group",
    "block": "Block",
}
FLOAT = np.float32


@dataclass(frozen=True, eq=False)
class SyntheticNmf:
    """Files of some geounits: random counts with rounded normal noise.

    Attributes:
      schema: Attributes and cells.
      leaves: Geocodes.
      digits: Length of the geocodes of every geolevel, root first.
      sigma_sq: Geolevel to query to the variance of geounits that are in no chain.
      counts: int64[G, n], of the leaves.
      seed: Of the noise.
      extra: Rows of constraints by geolevel, as `constraint` makes them.
    """

    schema: Schema
    leaves: Sequence[str]
    digits: Mapping[str, int]
    sigma_sq: Mapping[str, Mapping[str, Fraction]]
    counts: IntArray
    seed: int = 3
    extra: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)

    def truth(self, geolevel: str) -> dict[str, IntArray]:
        """Counts of every geounit of a geolevel, int64[n] by geocode, in order."""
        found: dict[str, IntArray] = {}
        for code, row in zip(self.leaves, self.counts, strict=True):
            key = code[: self.digits[geolevel]]
            found[key] = found.get(key, np.zeros_like(row)) + row
        return dict(sorted(found.items()))

    def chain(self, geolevel: str, code: str) -> list[str] | None:
        """Geolevels measured together in a geounit, the last first; None if not here but below."""
        names = [*self.digits]
        index = names.index(geolevel)
        if index + 1 < len(names):
            below = [one for one in self.truth(names[index + 1]) if one.startswith(code)]
            if len(below) == 1:
                return None
        chain = [geolevel]
        while index and self._only(names[index], code[: self.digits[names[index]]]):
            index -= 1
            chain.append(names[index])
        return chain

    def _only(self, geolevel: str, code: str) -> bool:
        above = [*self.digits][[*self.digits].index(geolevel) - 1]
        parent = code[: self.digits[above]]
        return len([one for one in self.truth(geolevel) if one.startswith(parent)]) == 1

    def write(self, folder: Path) -> Path:
        """Write everything; returns the folder."""
        rng = np.random.default_rng(self.seed)
        for geolevel in self.digits:
            rows: list[dict[str, Any]] = []
            for code, cells in self.truth(geolevel).items():
                chain = self.chain(geolevel, code)
                for name, sigma_sq in self.sigma_sq[geolevel].items() if chain else ():
                    query = parse_query(self.schema, name)
                    variance = self._variance(chain or [], name, sigma_sq)
                    noise = np.rint(rng.normal(0, float(variance) ** 0.5, query.size))
                    rows.append(
                        {
                            **self._described(geolevel, code, query, f"{name}_dpq"),
                            "value": (_answers(query, cells) + noise).astype(int).tolist(),
                            "variance": FLOAT(float(variance)),
                        }
                    )
            rng.shuffle(rows)
            self._write(folder, geolevel, "DPQuery", rows)
            self._write(folder, geolevel, "Constraint", list(self.extra.get(geolevel, ())))
        return folder

    def _variance(self, chain: Sequence[str], name: str, sigma_sq: Fraction) -> Fraction:
        """That of a query whose precision grows as the budget of the chain does."""
        cost = {level: sum(1 / one for one in self.sigma_sq[level].values()) for level in chain}
        return sigma_sq * cost[chain[0]] / sum(cost.values(), Fraction(0))

    def _described(self, geolevel: str, code: str, query: Query, name: str) -> dict[str, Any]:
        terms = name.removesuffix("_dpq").split(" * ")
        recodes = {recode.name: recode.attribute for recode in self.schema.recodes}
        by = {recodes.get(term, term): term for term in terms}
        axes = {a.name: by.get(a.name, "*") for a in self.schema.attributes}
        if terms == ["detailed"]:
            axes = dict.fromkeys(axes, "detailed")
        return {
            "geocode": code if self.digits[geolevel] else "",
            "query_name": name,
            **axes,
            "query_shape": list(query.shape),
        }

    def _write(
        self, folder: Path, geolevel: str, kind: str, rows: Sequence[Mapping[str, Any]]
    ) -> None:
        state = self.digits.get("state", 0)
        by_state: dict[str, list[Mapping[str, Any]]] = {}
        for row in rows:
            code = str(row["geocode"])
            by_state.setdefault(code[:state] if len(code) >= state > 0 else "", []).append(row)
        for key, own in by_state.items():
            place = folder / f"{NAMES[geolevel]}.parquet" / kind / (f"State={key}" if key else "")
            place.mkdir(parents=True, exist_ok=True)
            columns: dict[str, Any] = {name: [row[name] for row in own] for name in own[0]}
            columns["variance"] = pa.array(np.array(columns["variance"], FLOAT))
            columns["value"] = pa.array(columns["value"], pa.list_(pa.int32()))
            pq.write_table(pa.table(columns), place / "part-00000.snappy.parquet")
            (place / "_SUCCESS").touch()


def _answers(query: Query, cells: IntArray) -> IntArray:
    return np.bincount(query.rows_of(np.arange(len(cells))), cells, query.size).astype(np.int64)


def constraint(code: str, name: str, sign: str, value: Sequence[int]) -> dict[str, Any]:
    """A row of a Constraint file, without the columns of the attributes."""
    return {
        "geocode": code,
        "query_name": f"{name}_con",
        "sign": sign,
        "value": list(value),
        "variance": 0.0,
    }


def random_counts(n: int, cells: int, seed: int = 1) -> npt.NDArray[np.int64]:
    """int64[n, cells]: few of many cells are positive."""
    rng = np.random.default_rng(seed)
    return rng.poisson(20 * (rng.random((n, cells)) < 0.2)).astype(np.int64)
