"""Python interface to a release, returned by `topdown_das.open_release`.

Every member calls the function behind a command and returns an Arrow table with one row per number.
The manifest is read when the release is opened, numbers when they are requested.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from das.errors import ConfigError
from das.schema import Schema
from jobs.analysis.area_files import AreaFile, read_areas
from jobs.analysis.areas import AreaTables, tabulate_areas
from jobs.analysis.estimate import Areas, estimate_areas, estimate_covariances
from jobs.analysis.geocodes import NamedGeounits
from jobs.analysis.measurements import NoisyAnswers, read_measurements
from jobs.analysis.requests import IntervalSettings, product_named
from jobs.analysis.tables import read_table
from jobs.pipeline.config.local_path import read_place, without_secrets
from jobs.pipeline.config.product import Product, Resolved
from jobs.pipeline.config.released import load_release
from jobs.pipeline.documents.covariance import parse_pair
from jobs.pipeline.documents.manifest import Manifest, read_manifest
from jobs.pipeline.release.verify import verify_run
from jobs.pipeline.storage.dataset import Dataset
from jobs.pipeline.storage.geography import read_both_geocodes, read_geography
from jobs.pipeline.storage.place import Place

AreasOrFile = Areas | str | Path


@dataclass(frozen=True, eq=False)
class Release:
    """Finished release, opened by `topdown_das.open_release`.

    Attributes:
      folder: Path of the release, or its address in an object store.
      manifest: Budget, guarantee, software and digests; docs/documents.md describes every key.
    """

    folder: Place
    manifest: Manifest
    _resolved: Resolved
    _product: Product

    # --- contents ---------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Return the name of the run."""
        return self.manifest.name

    @property
    def records(self) -> str:
        """Return the kind of records counted, such as `persons`."""
        return self._product.name

    @property
    def products(self) -> tuple[str, ...]:
        """Return the names of all products of this folder, such as `persons` and `units`."""
        return tuple(self._resolved.products)

    @property
    def schema(self) -> Schema:
        """Return the attributes, their levels and recodes, which queries name."""
        return self._product.plan.schema

    @property
    def geolevels(self) -> tuple[str, ...]:
        """Return the names of the geolevels, root first; those off the spine come last."""
        return self._product.plan.geolevels

    def measured(self, geolevel: str) -> tuple[str, ...]:
        """Return the queries that were measured at a geolevel.

        Raises:
          ConfigError: The geolevel is unknown.
        """
        if self._known(geolevel) in self._product.plan.off_spine:
            return ()
        dataset = Dataset.open(self._product.release.measurements(geolevel))
        return tuple(entry["query"] for entry in dataset.facts["queries"])

    def geounits(self, geolevel: str) -> pa.Table:
        """Return the geounits of a geolevel by geocode.

        Returns:
          Table with columns geocode, parent, n_children, only_child and chain_end
          (docs/data-model.md); codes are text. With a designed spine these are spine codes, and
          census_geocode has the census code at geolevels that both have.

        Raises:
          ConfigError: The geolevel is unknown.
          OutputError: A file cannot be read.
        """
        return read_geography(self._product.release, self._known(geolevel))

    # --- numbers ----------------------------------------------------------------------------------

    def table(self, query: str, geolevel: str, *, confidence: float | None = None) -> pa.Table:
        """Return protected counts and unbiased estimates, as written by `das tables`.

        Args:
          query: Any query on the schema, such as `"sex * votingage"`, `"age[65+]"` or `"total"`.
          geolevel: Geolevel whose geounits are tabulated.
          confidence: Confidence level; default: 0.9 for estimates, and for counts the level that
            `das replicate` used.

        Returns:
          Table with columns geolevel, geocode, name (if names exist), one label column per
          attribute, count, estimate, standard_error, estimate_lower and estimate_upper. After `das
          replicate` with this confidence also an interval of the count (docs/tables.md).

        Raises:
          ConfigError: The geolevel is unknown, or the confidence is not between 1/2 and 1.
          SchemaError: The query does not parse.
          OutputError: A file cannot be read.
        """
        return read_table(self._product, self._known(geolevel), query, confidence)

    def measurements(self, query: str, geolevel: str) -> pa.Table:
        """Return noisy answers as drawn: unbiased, with noise of known distribution.

        Args:
          query: One of `measured(geolevel)`.
          geolevel: Geolevel of the answers; only children are measured with their parent.

        Returns:
          Table with columns geocode, query, label, answer (whole number), mechanism, parameter
          (exact fraction as text) and variance (of the noise of one answer). With a designed spine
          geocode is the spine code, and census_geocode has the code of tables and microdata, at
          geolevels that both have.

        Raises:
          ConfigError: The geolevel is unknown, or not on the spine.
          OutputError: The query was not measured there, or a file cannot be read.
        """
        noisy = self.noisy_answers(query, geolevel)
        n_answers, text = len(noisy.labels), pa.string()
        noise = {m: (m.kind, str(m.parameter), m.variance()) for m in {*noisy.mechanisms}}
        described = np.array([noise[m] for m in noisy.mechanisms], object).reshape(-1, 3)
        kinds, parameters, variances = np.repeat(described, n_answers, axis=0).T
        labels = np.tile(np.array(noisy.labels, object), len(noisy.geocodes))
        columns = {
            "geocode": pa.array(np.repeat(noisy.geocodes, n_answers), text),
            "query": pa.array(np.full(noisy.answers.size, query), text),
            "label": pa.array(labels, text),
            "answer": pa.array(noisy.answers.ravel(), pa.int64()),
            "mechanism": pa.array(kinds, text),
            "parameter": pa.array(parameters, text),
            "variance": pa.array(variances, pa.float64()),
        }
        plan = self._product.plan
        if plan.census is not None and geolevel in plan.census_digits:
            spine, census = read_both_geocodes(self._product.release, geolevel)
            named = census[np.searchsorted(spine, noisy.geocodes)]
            columns["census_geocode"] = pa.array(np.repeat(named, n_answers), text)
        return pa.table(columns)

    def noisy_answers(self, query: str, geolevel: str) -> NoisyAnswers:
        """Return noisy answers as an int64 matrix, with the mechanism of each row.

        Raises:
          ConfigError, OutputError: As `measurements`.
        """
        if self._known(geolevel) in self._product.plan.off_spine:
            raise ConfigError(
                str(self.folder),
                f"was not measured at {geolevel}, which is not on the spine: estimates are sums of "
                f"{self._product.plan.leaf.name}",
                want=[*self._product.plan.spine.levels],
            )
        return read_measurements(self._product.release.root, geolevel, query)

    def estimates(
        self,
        query: str,
        geolevel: str | None = None,
        *,
        geounits: Sequence[str] = (),
        areas: AreasOrFile | None = None,
        **intervals: Any,  # noqa: ANN401 - what IntervalSettings takes
    ) -> pa.Table:
        """Return unbiased estimates of any query from all noisy answers, as `das estimate`.

        Args:
          query: Any query on the schema, such as `"sex * votingage"` or `"total"`.
          geolevel: Geolevel whose geounits are all estimated.
          geounits: Further geocodes, at any geolevels.
          areas: Leaf geocodes by name of area, or an area file as for `das estimate --area`.
          **intervals: `confidence`, 0.9 by default; `simultaneous=True` for intervals that hold for
            all answers of the table at once; `positive=True` to use that counts are nonnegative.

        Returns:
          Table with columns area (geocode or name), query, label, estimate, standard_error, lower,
          upper, confidence, simultaneous and positive.

        Raises:
          ConfigError: No area is named, or the geolevel is unknown.
          InputError: A geounit does not exist, or the area file is invalid.
          SchemaError: The query does not parse.
        """
        plan, release = self._product.plan, self._product.release
        codes = NamedGeounits(plan, release).named(geounits, geolevel)
        wanted = IntervalSettings(**intervals)
        return estimate_areas(plan, release, query, self._areas(areas), codes, wanted)

    def covariance(
        self,
        query: str,
        geounit: str | None = None,
        *,
        other: str | None = None,
        areas: AreasOrFile | None = None,
    ) -> pa.Table:
        """Return covariances of the estimates of queries, as `das estimate --covariance`.

        Args:
          query: Any query on the schema.
          geounit: Geocode at any geolevel.
          other: The second query; default: the same query.
          areas: Areas as for `estimates`.

        Returns:
          Table with one row per area and pair of answers: area, query, label, other_query,
          other_label, covariance and correlation (null if one of the two is exact). Two queries
          give all m x m' pairs, row by row. One query gives the upper triangle of its covariance
          matrix including the diagonal (the variances): m (m + 1) / 2 rows, row by row.

        Raises:
          ConfigError, InputError, SchemaError: As `estimates`.
        """
        pair = parse_pair(self.schema, query if other is None else f"{query}; {other}")
        codes = [] if geounit is None else [geounit]
        plan, release = self._product.plan, self._product.release
        return estimate_covariances(plan, release, pair, self._areas(areas), codes)

    def areas(
        self,
        areas: AreasOrFile,
        tables: Sequence[str] = (),
        *,
        confidence: float = 0.9,
        ideal: float | None = None,
        share: str | None = None,
    ) -> AreaTables:
        """Return tables of districts or other areas, as `das areas`.

        Args:
          areas: Leaf geocodes by name of area, or a block-assignment file.
          tables: Queries such as `"sex * age[65+]"`; totals are always included.
          confidence: Confidence level of the intervals.
          ideal: Persons of the ideal area; default: the mean over the areas.
          share: A query of one answer, such as total, in which each count has a share.

        Returns:
          `table` with protected counts, estimates, intervals and deviations (docs/areas.md),
          `total_deviation`, `ideal`, and `notes` on blocks in no area or in several.

        Raises:
          ConfigError: No area is named.
          InputError: The area file is invalid, or a geocode does not exist.
          SchemaError: A query does not parse.
          OutputError: A file of the release is missing or changed.
        """
        product = self._product
        resolved = replace(self._resolved, products={product.name: product})
        if isinstance(areas, Mapping):
            codes = {name: np.unique(np.array([*areas[name]], np.bytes_)) for name in areas}
            named = AreaFile(codes, ())
        else:
            named = self._file(areas)
        return tabulate_areas(resolved, named, tables, confidence, ideal, share)

    # --- verification -----------------------------------------------------------------------------

    def verify(self) -> dict[str, int | float]:
        """Check digests, ledger, sums over the tree and invariants, as `das verify`.

        Returns:
          Numbers of checked datasets, families, exact answers and geounits with constraints.

        Raises:
          OutputError, LedgerError, VerificationError: A file is missing or changed, or a check
            fails.
        """
        return verify_run(self._resolved)

    def _areas(self, areas: AreasOrFile | None) -> Areas:
        """Return leaf geocodes by name of area, none for None; emit warnings about an area file."""
        if areas is None or isinstance(areas, Mapping):
            return areas or {}
        file = self._file(areas)
        for note in file.notes:
            warnings.warn(f"{areas}: {note}", stacklevel=3)
        return file.areas

    def _file(self, areas: str | Path) -> AreaFile:
        plan = self._product.plan
        leaves = NamedGeounits(plan, self._product.release).leaves
        return read_areas(_place(areas), leaves, plan.leaf.name)

    def _known(self, geolevel: str) -> str:
        if geolevel not in self.geolevels:
            raise ConfigError(
                str(self.folder), "has no such geolevel", got=geolevel, want=[*self.geolevels]
            )
        return geolevel

    def __repr__(self) -> str:
        """Return name, records and geolevels as text."""
        return f"<Release {self.name!r} of {self.records}: {', '.join(self.geolevels)}>"


def open_release(folder: str | Place, product: str | None = None) -> Release:
    """Open a finished release from any folder.

    Args:
      folder: Path, or address such as `s3://bucket/release`.
      product: Name of a product, such as `units`; default: the last.

    Raises:
      OutputError: The folder is no complete release, or was written by a newer version.
      ConfigError: The product is unknown, or the address is invalid.
    """
    path = _place(folder)
    resolved = load_release(path)
    opened = product_named(resolved, product, f"{path}, product")
    return Release(path, read_manifest(opened.release), resolved, opened)


def _place(given: str | Place) -> Place:
    try:
        return read_place(given)
    except ValueError as error:
        shown = without_secrets(str(given))
        raise ConfigError(f"path {shown}", str(error)) from None
