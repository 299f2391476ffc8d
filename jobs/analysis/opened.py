"""A release as a value, for programs of analysts: what `topdown_das.open_release` gives.

Every member calls what a command calls, and returns an Arrow table with one row per number; nothing
is computed here. What a release says of itself is read when it is opened, numbers when asked for.
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
    """A finished release; `topdown_das.open_release` opens one.

    Attributes:
      folder: Where it lies: a path, or the address of a place in a store.
      manifest: What it says of itself: budget, guarantee, software, digests; docs/documents.md has
        every key.
    """

    folder: Place
    manifest: Manifest
    _resolved: Resolved
    _product: Product

    # --- what it is of ----------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Name of the run."""
        return self.manifest.name

    @property
    def records(self) -> str:
        """What is counted, such as `persons`."""
        return self._product.name

    @property
    def products(self) -> tuple[str, ...]:
        """What else `open_release` opens in this folder, such as `units`, and this itself."""
        return tuple(self._resolved.products)

    @property
    def schema(self) -> Schema:
        """Attributes with their levels, and recodes; queries name them."""
        return self._product.plan.schema

    @property
    def geolevels(self) -> tuple[str, ...]:
        """Names of the geolevels, the root first; those of the census off the spine come last."""
        return self._product.plan.geolevels

    def measured(self, geolevel: str) -> tuple[str, ...]:
        """Queries that were measured at a geolevel.

        Raises:
          ConfigError: There is no such geolevel.
        """
        if self._known(geolevel) in self._product.plan.off_spine:
            return ()
        dataset = Dataset.open(self._product.release.measurements(geolevel))
        return tuple(entry["query"] for entry in dataset.facts["queries"])

    def geounits(self, geolevel: str) -> pa.Table:
        """The geounits of a geolevel, by geocode.

        Returns:
          Columns geocode, parent, n_children, only_child and chain_end (docs/data-model.md); codes
          are text. Of a run on another spine than the census they are those of the spine, and
          census_geocode is that of the census, at geolevels that both have.

        Raises:
          ConfigError: There is no such geolevel.
          OutputError: A file cannot be read.
        """
        return read_geography(self._product.release, self._known(geolevel))

    # --- numbers ----------------------------------------------------------------------------------

    def table(self, query: str, geolevel: str, *, confidence: float | None = None) -> pa.Table:
        """Protected counts beside unbiased estimates, as `das tables` writes them.

        Args:
          query: Any on the schema, such as `"sex * votingage"`, `"age[65+]"` or `"total"`.
          geolevel: For all its geounits.
          confidence: Of intervals; default: 0.9 for estimates, that of the replicates for counts.

        Returns:
          Columns geolevel, geocode, name (where there are names), one per attribute with its label,
          count, estimate, standard_error, estimate_lower and estimate_upper, and after `das
          replicate` with this confidence those of an interval of the count (docs/tables.md).

        Raises:
          ConfigError: There is no such geolevel, or the confidence is not between 1/2 and 1.
          SchemaError: The query does not parse.
          OutputError: A file cannot be read.
        """
        return read_table(self._product, self._known(geolevel), query, confidence)

    def measurements(self, query: str, geolevel: str) -> pa.Table:
        """Noisy answers as they were drawn: unbiased, and with noise of a known distribution.

        Args:
          query: One of `measured(geolevel)`.
          geolevel: Whose geounits; only children have no answers of their own.

        Returns:
          Columns geocode, query, label, answer (whole number), mechanism, parameter (an exact
          fraction as text) and variance (of the noise of one answer). Of a run on another spine
          than the census geocode is that of the spine, and census_geocode, the last column, that of
          tables and microdata, at geolevels that both have.

        Raises:
          ConfigError: There is no such geolevel, or it is not on the spine.
          OutputError: The query was not measured there, or a file cannot be read.
        """
        found = self.noisy_answers(query, geolevel)
        each, text = len(found.labels), pa.string()
        noise = {m: (m.kind, str(m.parameter), m.variance()) for m in {*found.mechanisms}}
        said = np.array([noise[one] for one in found.mechanisms], object).reshape(-1, 3)
        kinds, parameters, variances = np.repeat(said, each, axis=0).T
        labels = np.tile(np.array(found.labels, object), len(found.geocodes))
        columns = {
            "geocode": pa.array(np.repeat(found.geocodes, each), text),
            "query": pa.array(np.full(found.answers.size, query), text),
            "label": pa.array(labels, text),
            "answer": pa.array(found.answers.ravel(), pa.int64()),
            "mechanism": pa.array(kinds, text),
            "parameter": pa.array(parameters, text),
            "variance": pa.array(variances, pa.float64()),
        }
        plan = self._product.plan
        if plan.census is not None and geolevel in plan.census_digits:
            own, census = read_both_geocodes(self._product.release, geolevel)
            named = census[np.searchsorted(own, found.geocodes)]
            columns["census_geocode"] = pa.array(np.repeat(named, each), text)
        return pa.table(columns)

    def noisy_answers(self, query: str, geolevel: str) -> NoisyAnswers:
        """The same as an int64 matrix with the exact mechanism of each row, for inference.

        Raises:
          ConfigError, OutputError: As `measurements`.
        """
        if self._known(geolevel) in self._product.plan.off_spine:
            raise ConfigError(
                str(self.folder),
                f"was not measured at {geolevel}, which the spine has not: estimates are sums of "
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
        """Unbiased estimates of any query from all noisy answers, as `das estimate` has them.

        Args:
          query: On the schema, such as `"sex * votingage"` or `"total"`.
          geolevel: For all its geounits.
          geounits: For these geocodes, of any geolevels.
          areas: For these areas: leaf geocodes by name, or a file as `das estimate --area` reads.
          **intervals: `confidence` of the intervals, 0.9 by default; `simultaneous=True` for
            intervals that hold for all answers of the table at once; `positive=True` to exclude
            truths below zero.

        Returns:
          Columns area (geocode or name), query, label, estimate, standard_error, lower, upper,
          confidence, simultaneous and positive.

        Raises:
          ConfigError: No area is named, or what is named is not there.
          InputError: A geounit does not exist, or the file cannot be understood.
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
        """Covariances of the estimates of a query, or of two, as `das estimate --covariance`.

        Args:
          query: On the schema.
          geounit: In this geounit.
          other: The other query; the same by default.
          areas: In these areas, as for `estimates`.

        Returns:
          A row per area and pair of answers, with columns area, query, label, other_query,
          other_label, covariance and correlation (null where one of the two is exact). Of two
          queries that is every pair: m x m' rows, answers of `query` in their order, and with each
          all answers of `other`. Of a query with itself it is the upper triangle of the symmetric
          matrix, diagonal (the variances) included: m (m + 1) / 2 rows, row by row, in the order
          of the answers.

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
    ) -> AreaTables:
        """Tables of districts or other areas, as `das areas`.

        Args:
          areas: Leaf geocodes by name, or a block-assignment file.
          tables: Such as `"sex * age[65+]"`; the total of every area is always there.
          confidence: Of the intervals.
          ideal: Persons of the ideal area. Default: an even share of all in the areas.

        Returns:
          A value with `table`, of protected counts, estimates, intervals and deviations
          (docs/areas.md), `total_deviation`, `ideal` and `notes`: blocks in no area, or in two.

        Raises:
          ConfigError: No area is named.
          InputError: The file cannot be understood, or a geocode does not exist.
          SchemaError: A table does not parse.
          OutputError: A file of the release is missing or changed.
        """
        own = self._product
        alone = replace(self._resolved, products={own.name: own})
        if isinstance(areas, Mapping):
            codes = {name: np.unique(np.asarray([*of], np.bytes_)) for name, of in areas.items()}
            named = AreaFile(codes, ())
        else:
            named = self._file(areas)
        return tabulate_areas(alone, named, tables, confidence, ideal)

    # --- whether it is whole ----------------------------------------------------------------------

    def verify(self) -> dict[str, int | float]:
        """Check digests, ledger, sums over the tree and invariants, as `das verify`.

        Returns:
          How many datasets, families, exact answers and geounits with limits were checked.

        Raises:
          OutputError, LedgerError, VerificationError: A file is missing or changed, or a promise
            is broken.
        """
        return verify_run(self._resolved)

    def _areas(self, areas: AreasOrFile | None) -> Areas:
        """Leaf geocodes by the names of areas; warns of what is odd in a file."""
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
        """Name, records and geolevels."""
        return f"<Release {self.name!r} of {self.records}: {', '.join(self.geolevels)}>"


def open_release(folder: str | Place, product: str | None = None) -> Release:
    """Open a finished release, wherever its folder was copied.

    Args:
      folder: A path, or an address such as `s3://bucket/release`.
      product: What is counted, such as `units`, where a release has several. Default: the last.

    Raises:
      OutputError: It is no finished release, not whole, or of a format that a newer version wrote.
      ConfigError: It has no such product, or the address cannot be understood.
    """
    place = _place(folder)
    resolved = load_release(place)
    own = product_named(resolved, product, f"{place}, product")
    return Release(place, read_manifest(own.release), resolved, own)


def _place(given: str | Place) -> Place:
    try:
        return read_place(given)
    except ValueError as error:
        shown = without_secrets(str(given))
        raise ConfigError(f"path {shown}", str(error)) from None
