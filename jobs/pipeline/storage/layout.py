"""Paths of all files of a run, under two roots: publishable and confidential files.

The confidential root is OUT/confidential, or the folder that the run file names. Such a folder
holds everything listed here under OUT/confidential, and OWNER.json, which names the run.

OUT/run.json                             identity; digest of the configuration, run file and files
OUT/driver.lock                          held by the one driver at work
OUT/summary.json                         what the run cost
OUT/draws.jsonl                          attempts to draw a geolevel, as the account has them
OUT/release/geography/level=<L>/         public geounits of each geolevel
OUT/release/configuration/               public part of the run file, schemas, allocations
OUT/release/schemas/                     JSON Schemas of the documents
OUT/release/account.json                 budgets granted for the same people until it was measured
OUT/release/solves.jsonl                 settings with which it was solved
OUT/release/README.md                    what this is and what lies where
OUT/release/manifest.json                the products, and digests of their manifests and the above
OUT/release/NOT_FOR_RELEASE.txt          only if the noise was seeded
OUT/release/products/NAME/               a product, such as persons:
  measurements/level=<L>/                noisy measurements
  lazy_measurements/level=<L>/           noisy answers of on-demand queries, those that were drawn
  support/level=<L>/                     counts of the root that say where its on-demand queries are
                                         drawn
  invariants/level=<L>/                  exact answers of the invariants
  given/level=<L>/                       facility counts and published tables, as given
  implied/level=<L>/                     constraints that they imply for every geounit
  tied/level=<L>/                        implied constraints that include counts of other products
  counts/level=<L>/                      protected counts
  microdata/{parquet,csv}/               one row per person
  joined/{parquet,csv}/                  one row per person, with the unit it lives in
  tables/level=<L>/                      a file for each table and format
  ledger.jsonl                           granted budget, cost of every query, measured datasets
  planned.json                           planned strategies, once they are measured
  README.md                              what this is and how to read it
  codebook.json, codebook.md             what names, codes and labels stand for
  manifest.json, report.html
  NOT_FOR_RELEASE.txt                    only if the noise was seeded
  intervals/level=<L>/                   intervals of released counts, from replicates
  intervals/intervals.json               errors and intervals by size class, from replicates
OUT/replicates/release/                  errors of each replicate, and replicates at work
OUT/solutions/NAME/                      another solution of the same measurements, like release
OUT/confidential/input.json              size and time of change of the input files
OUT/confidential/solutions/NAME/         what another solution cost
OUT/confidential/products/NAME/          a product:
  histograms/level=<L>/                  the truth
  histograms/runs/                       sorted pieces of the input, while it is read
  keys/                                  half of the noise key at work, while tasks draw
  evaluation.json, report.html
  solutions/NAME/                        the same two of another solution

A survey is one product at the roots themselves. Before 0.2.0 the last product of a census was at
the root, and each other product in a folder of its name there. Such a folder keeps its layout.

A release can come from an untrusted source, so it must consist of plain files. A link could lead a
command to read or overwrite any file of the user, and a pipe or device could block it forever. Both
are refused before any file is opened. Names within documents are checked where documents are read
(`jobs.pipeline.documents.document`, `jobs.pipeline.config.released`), so nothing outside of the
folder is reached.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from das.errors import OutputError
from jobs.pipeline.storage.journal import is_begun
from jobs.pipeline.storage.place import Place, lies_in

MICRODATA = ("parquet", "csv")
"""Formats of the microdata, each in a folder of its name."""
_INTERVALS = "intervals"
_PRODUCTS = "products"


@dataclass(frozen=True)
class ReleaseLayout:
    """Places of one product under OUT/release, the only paths of the stages after measuring.

    Attributes:
      root: Folder of the product.
      public: Folder of what all products share, if not the same.
      folders: Folder of each product below that one, by the name of the product.
    """

    root: Place
    public: Place | None = None
    folders: Mapping[str, str] = field(default_factory=dict)

    @property
    def shared(self) -> Place:
        """Return the folder that all products share."""
        return self.public or self.root

    @property
    def whole(self) -> ReleaseLayout:
        """Return the layout of the shared folder; in older releases, also of the last product."""
        return ReleaseLayout(self.shared, folders=self.folders)

    def product(self, name: str) -> ReleaseLayout:
        """Return the layout of a product of the same release."""
        return ReleaseLayout(self.shared / self.folders[name], self.shared, self.folders)

    @property
    def is_product(self) -> bool:
        """Return whether the folder itself is that of a product, as for a survey."""
        return not self.folders or self.root in self._products

    @property
    def _products(self) -> list[Place]:
        return [self.shared / folder for folder in self.folders.values()]

    def is_own(self, path: Place) -> bool:
        """Return whether a path in this folder lies outside of the products within it."""
        within = [p for p in self._products if p != self.root and lies_in(p, self.root)]
        return not any(lies_in(path, product) for product in within)

    def is_of_replicates(self, dataset: Place) -> bool:
        """Return whether replicates of the product made a dataset of it, after it was finalized."""
        return self.is_product and lies_in(dataset, self.root / _INTERVALS)

    def geography(self, geolevel: str) -> Place:
        """Return the dataset of geounits of a geolevel."""
        return self.shared / "geography" / f"level={geolevel}"

    def measurements(self, geolevel: str) -> Place:
        """Return the dataset of noisy measurements of a geolevel."""
        return self.root / "measurements" / f"level={geolevel}"

    def lazy_measurements(self, geolevel: str) -> Place:
        """Return the dataset of drawn on-demand answers of a geolevel."""
        return self.root / "lazy_measurements" / f"level={geolevel}"

    def measured_part(self, part: str) -> Place:
        """Return the dataset of noisy measurements of a part of a survey."""
        return self.root / "measurements" / f"part={part}"

    def support(self, geolevel: str) -> Place:
        """Return the dataset of root counts by the last query of the support."""
        return self.root / "support" / f"level={geolevel}"

    def invariants(self, geolevel: str) -> Place:
        """Return the dataset of exact answers of a geolevel."""
        return self.root / "invariants" / f"level={geolevel}"

    def given(self, geolevel: str) -> Place:
        """Return the dataset of given public counts of a geolevel."""
        return self.root / "given" / f"level={geolevel}"

    def implied(self, geolevel: str) -> Place:
        """Return the dataset of constraints implied by given counts of a geolevel."""
        return self.root / "implied" / f"level={geolevel}"

    def tied(self, geolevel: str) -> Place:
        """Return the dataset of constraints implied also by other products for a geolevel."""
        return self.root / "tied" / f"level={geolevel}"

    def counts(self, geolevel: str) -> Place:
        """Return the dataset of protected counts of a geolevel."""
        return self.root / "counts" / f"level={geolevel}"

    def tables(self, geolevel: str) -> Place:
        """Return the dataset of tables of a geolevel."""
        return self.root / "tables" / f"level={geolevel}"

    @property
    def microdata(self) -> Place:
        """Return the folder of the microdata."""
        return self.root / "microdata"

    @property
    def joined(self) -> Place:
        """Return the folder of the joined microdata."""
        return self.root / "joined"

    @property
    def ledger(self) -> Place:
        """Return the ledger of the product."""
        return self.root / "ledger.jsonl"

    @property
    def planned(self) -> Place:
        """Return the file of the planned strategies, written when the run begins."""
        return self.root / "planned.json"

    @property
    def solves(self) -> Place:
        """Return the journal of settings with which counts were made, oldest first."""
        return self.shared / "solves.jsonl"

    @property
    def account(self) -> Place:
        """Return the document of all budgets granted for the same people at measuring time."""
        return self.shared / "account.json"

    @property
    def configuration(self) -> Place:
        """Return the folder of the public configuration of all products."""
        return self.shared / "configuration"

    @property
    def schemas(self) -> Place:
        """Return the folder of the JSON Schemas of the documents."""
        return self.shared / "schemas"

    @property
    def readme(self) -> Place:
        """Return the README file."""
        return self.root / "README.md"

    @property
    def codebook(self) -> Place:
        """Return the codebook, the meaning of names, codes and labels, as JSON."""
        return self.root / "codebook.json"

    @property
    def codebook_page(self) -> Place:
        """Return the codebook as a readable page."""
        return self.root / "codebook.md"

    @property
    def manifest(self) -> Place:
        """Return the manifest."""
        return self.root / "manifest.json"

    @property
    def report(self) -> Place:
        """Return the public report."""
        return self.root / "report.html"

    @property
    def notice(self) -> Place:
        """Return the notice that exists only if the noise was seeded."""
        return self.root / "NOT_FOR_RELEASE.txt"

    @property
    def documents(self) -> tuple[Place, ...]:
        """Return the files outside datasets, except configuration, schemas and manifest."""
        of_run = (self.solves, self.account, self.whole.readme)
        return (*of_run, self.ledger, self.planned, self.readme, self.codebook, self.codebook_page)

    @property
    def written_later(self) -> set[Place]:
        """Files that the manifest cannot name: itself, and what is made of it later."""
        of_product = {self.report, IntervalLayout.of(self).document} if self.is_product else set()
        return {self.manifest, self.notice, *of_product}


@dataclass(frozen=True)
class Roots:
    """The two roots of a run.

    Attributes:
      out: The run folder, with everything publishable.
      confidential: The folder of confidential files.
    """

    out: Place
    confidential: Place

    @classmethod
    def of(cls, out: Place, confidential: Place | None = None) -> Roots:
        """Return the roots of a run folder; by default it contains the confidential root."""
        return cls(out, _within(out) if confidential is None else confidential)

    @property
    def are_apart(self) -> bool:
        """Return whether the confidential root lies outside of the run folder."""
        return self.confidential != _within(self.out)


def _within(out: Place) -> Place:
    return out / "confidential"


@dataclass(frozen=True)
class ConfidentialLayout:
    """Places of one product under OUT/confidential, unknown to the stages after measuring.

    Attributes:
      root: Folder of the product.
      solution: Name of the solution that is compared with the truth, if not the release.
    """

    root: Place
    solution: str | None = None

    @property
    def compared(self) -> Place:
        """Return the folder of the comparison of a solution with the truth."""
        return self.root if self.solution is None else self.root / "solutions" / self.solution

    def histograms(self, geolevel: str) -> Place:
        """Return the dataset of true histograms of a geolevel."""
        return self.root / "histograms" / f"level={geolevel}"

    @property
    def keys(self) -> Place:
        """Return the folder of one share of the noise key while a geolevel is measured."""
        return self.root / "keys"

    @property
    def evaluation(self) -> Place:
        """Return the document of errors against the truth."""
        return self.compared / "evaluation.json"

    @property
    def report(self) -> Place:
        """Return the internal report."""
        return self.compared / "report.html"


def is_publishable(place: Place, out: Place) -> bool:
    """Return whether a place, existing or not, lies in a release or solution of a run folder."""
    public = (release_folder(out), out / "solutions")
    return any(lies_in(place.resolve(), folder.resolve()) for folder in public)


def is_release(place: Place) -> bool:
    """Return whether a place is the folder of a finished release or solution."""
    return bool(ReleaseLayout(place).manifest.is_file())


def is_of_older_version(release: Place) -> bool:
    """Return whether a version before 0.2.0 began the release of a census.

    Its last product then lies in this folder itself, with the ledger. Every other product lies in a
    folder of its name.
    """
    return is_begun(ReleaseLayout(release).ledger) and not products_folder(release).exists()


def census_release(root: Place, names: Sequence[str]) -> ReleaseLayout:
    """Return the layout of the release of a census.

    Args:
      root: Folder of the release.
      names: Names of its products, in the order of work.
    """
    folders = {name: f"{_PRODUCTS}/{name}" for name in names}
    if is_of_older_version(root):
        folders = {**{name: name for name in names}, names[-1]: ""}
    return ReleaseLayout(root, folders=folders)


def products_folder(release: Place) -> Place:
    """Return the folder that holds the folders of the products of a release."""
    return release / _PRODUCTS


def release_folder(out: Place, solution: str | None = None) -> Place:
    """Return the folder of the release of a run, or of a further solution."""
    return out / "release" if solution is None else out / "solutions" / solution


def confidential_layout(
    roots: Roots, solution: str | None = None, folder: str = ""
) -> ConfidentialLayout:
    """Return the confidential layout of a run, or of a product by its folder in the release."""
    return ConfidentialLayout(roots.confidential / folder, solution)


def solutions_of(out: Place) -> list[str]:
    """List the names of further solutions in a run folder."""
    return sorted(path.name for path in (out / "solutions").glob("*") if path.is_dir())


@dataclass(frozen=True)
class EstimateLayout:
    """Places of the datasets of the estimate stage."""

    root: Place

    @classmethod
    def of(cls, release: ReleaseLayout) -> EstimateLayout:
        """Return the layout within a release."""
        return cls(release.root / "estimates")

    def subtree(self, geolevel: str) -> Place:
        """Return the dataset of messages up the tree: estimates from the subtree."""
        return self.root / "subtree" / f"level={geolevel}"

    def whole(self, geolevel: str) -> Place:
        """Return the dataset of estimates from all answers of the tree."""
        return self.root / "whole" / f"level={geolevel}"

    def tables(self, geolevel: str) -> Place:
        """Return the dataset of tables of estimates."""
        return self.root / "tables" / f"level={geolevel}"


@dataclass(frozen=True)
class ReplicateLayout(ReleaseLayout):
    """Places of a replicate: noisy answers and counts; exact files are those of the release.

    Attributes:
      exact: The release, whose geounits, invariants and given counts the replicate keeps.
      made: Folders of the replicates of all products of the same replication, by product name.
    """

    exact: ReleaseLayout = field(kw_only=True)
    made: Mapping[str, Place] = field(kw_only=True)

    def product(self, name: str) -> ReleaseLayout:
        """Return the layout of another product of the same replication."""
        return ReplicateLayout(self.made[name], exact=self.exact.product(name), made=self.made)

    def geography(self, geolevel: str) -> Place:
        """Return the dataset of geounits of a geolevel."""
        return self.exact.geography(geolevel)

    def invariants(self, geolevel: str) -> Place:
        """Return the dataset of exact answers of a geolevel."""
        return self.exact.invariants(geolevel)

    def given(self, geolevel: str) -> Place:
        """Return the dataset of given public counts of a geolevel."""
        return self.exact.given(geolevel)

    def implied(self, geolevel: str) -> Place:
        """Return the dataset of constraints implied by given counts of a geolevel."""
        return self.exact.implied(geolevel)

    def tied(self, geolevel: str) -> Place:
        """Return the dataset of constraints implied also by other products for a geolevel."""
        return self.exact.tied(geolevel)


@dataclass(frozen=True)
class ReleasedTruth(ConfidentialLayout):
    """A release or replicate whose counts take the place of the truth; not confidential.

    Attributes:
      released: The release with these counts; `root` is the working folder of its replicate.
    """

    released: ReleaseLayout = field(kw_only=True)

    def histograms(self, geolevel: str) -> Place:
        """Return the dataset of histograms of a geolevel."""
        return self.released.counts(geolevel)


@dataclass(frozen=True)
class IntervalLayout:
    """Places of the intervals from replicates of a release."""

    root: Place

    @classmethod
    def of(cls, release: ReleaseLayout) -> IntervalLayout:
        """Return the layout within a release."""
        return cls(release.root / _INTERVALS)

    @property
    def document(self) -> Place:
        """Return the document of errors and intervals by size class."""
        return self.root / "intervals.json"

    def tables(self, geolevel: str) -> Place:
        """Return the dataset of intervals of the tables of a geolevel."""
        return self.root / f"level={geolevel}"


def replicates_folder(out: Place, solution: str | None) -> Place:
    """Return the working folder of replicates of a release or solution."""
    return out / "replicates" / (solution or "release")


# --- releases that others made --------------------------------------------------------------------


_COPY = "copy the release with `cp -rL`, if you trust whoever made it"


def received_release(root: Place) -> ReleaseLayout:
    """Return the layout of a release folder after checking that only plain files lie in it.

    The folder itself can be a link, since the user chose it. No file is opened. The check does not
    protect from a process that changes the folder while it is read.

    Args:
      root: The folder, a path or an address; a store has neither links nor devices. A folder
        without manifest is no release, and is returned unchecked for the caller to refuse.

    Raises:
      OutputError: The folder contains a link, pipe, socket or device, or cannot be listed.
    """
    release = ReleaseLayout(root)
    if isinstance(root, Path) and release.manifest.is_file():
        for path in _strange(root):
            raise OutputError(
                path, "is a link, pipe or device", want="plain files and folders", remedy=_COPY
            )
    return release


def _strange(root: Path) -> Iterator[str]:
    """Yield everything below a folder that is neither file nor folder; links are not followed."""
    waiting = [str(root)]
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    kind = entry.stat(follow_symlinks=False).st_mode
                    if stat.S_ISDIR(kind):
                        waiting.append(entry.path)
                    elif not stat.S_ISREG(kind):
                        yield entry.path
        except OSError as error:
            raise OutputError(folder, "cannot be read", got=error.strerror) from None
