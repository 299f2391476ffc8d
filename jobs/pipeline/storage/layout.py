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
  learned.yaml                           regressions that the run learned from its own noisy answers
  codebook.json, codebook.md             what names, codes and labels stand for
  manifest.json, report.html
  NOT_FOR_RELEASE.txt                    only if the noise was seeded
  intervals.json                         errors and intervals of counts by size class
  intervals/intervals.json               the same from `das replicate`
OUT/replicates/release/                  errors of each replicate, and replicates at work
OUT/replicating/                         replicates of the run at work
OUT/learning/                            releases from which a run learns, at work
OUT/solutions/NAME/                      another solution of the same measurements, like release
OUT/confidential/input.json              size and time of change of the input files
OUT/confidential/solutions/NAME/         what another solution cost
OUT/confidential/products/NAME/          a product:
  histograms/level=<L>/                  the truth
  histograms/runs/                       sorted pieces of the input, while it is read
  keys/                                  half of the noise key at work, while tasks draw
  evaluation.json, report.html
  solutions/NAME/                        the same two of another solution

A survey is one product at the roots themselves.

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
from functools import partialmethod
from pathlib import Path

from das.errors import OutputError
from jobs.pipeline.storage.files import naming_file
from jobs.pipeline.storage.place import Place, lies_in

MICRODATA = ("parquet", "csv")
"""Formats of the microdata, each in a folder of its name."""
_INTERVALS = "intervals"
_PRODUCTS = "products"
_EXACT = ("geography", "invariants", "given", "implied", "tied")  # not made again by replicates


@dataclass(frozen=True)
class _Under:
    """A file or folder of a layout, as an attribute of the layout.

    Attributes:
      folder: Attribute of the layout with the containing folder.
      name: Name in that folder.
    """

    folder: str
    name: str

    def __get__(self, layout: object, kind: type) -> Place:
        folder: Place = getattr(layout, self.folder)
        return folder / self.name


@dataclass(frozen=True)
class ReleaseLayout:
    """Places of one product under OUT/release, the only paths of the stages after measuring.

    Methods that take a geolevel return the dataset of that geolevel.

    Attributes:
      root: Folder of the product.
      public: Folder of what all products share, if not the same.
      folders: Folder of each product below that one, by the name of the product.
      geography: Geounits.
      measurements: Noisy answers.
      lazy_measurements: Drawn on-demand answers.
      support: Root counts by the last query of the support.
      invariants: Exact answers.
      given: Given public counts.
      implied: Constraints implied by given counts.
      tied: Constraints implied also by other products.
      counts: Protected counts.
      tables: Tables.
      microdata: Folder of the microdata.
      joined: Folder of the joined microdata.
      ledger: Ledger of the product.
      planned: File of the planned strategies, written when the run begins.
      learned: File of regressions that the run learned from its own noisy answers.
      readme: README file.
      codebook: Codebook, the meaning of names, codes and labels, as JSON.
      codebook_page: Codebook as a readable page.
      manifest: Manifest.
      report: Public report.
      notice: Notice that exists only if the noise was seeded.
      intervals: Errors and intervals of counts by size class, of the run.
      replicated: The same of `das replicate`.
      solves: Journal of settings with which counts were made, oldest first.
      account: Document of all budgets granted for the same people at measuring time.
      configuration: Folder of the public configuration of all products.
      schemas: Folder of the JSON Schemas of the documents.
    """

    root: Place
    public: Place | None = None
    folders: Mapping[str, str] = field(default_factory=dict)

    microdata = _Under("root", "microdata")
    joined = _Under("root", "joined")
    ledger = _Under("root", "ledger.jsonl")
    planned = _Under("root", "planned.json")
    learned = _Under("root", "learned.yaml")
    readme = _Under("root", "README.md")
    codebook = _Under("root", "codebook.json")
    codebook_page = _Under("root", "codebook.md")
    manifest = _Under("root", "manifest.json")
    report = _Under("root", "report.html")
    notice = _Under("root", "NOT_FOR_RELEASE.txt")
    intervals = _Under("root", "intervals.json")
    solves = _Under("shared", "solves.jsonl")
    account = _Under("shared", "account.json")
    configuration = _Under("shared", "configuration")
    schemas = _Under("shared", "schemas")

    @property
    def replicated(self) -> Place:
        """Return the document that `das replicate` adds to a finalized release."""
        return self.root / _INTERVALS / "intervals.json"

    def folder(self, kind: str) -> Place:
        """Return the folder with the datasets of all geolevels of a kind, such as "counts"."""
        return (self.shared if kind == "geography" else self.root) / kind

    def _dataset(self, kind: str, geolevel: str) -> Place:
        return self.folder(kind) / f"level={geolevel}"

    geography = partialmethod(_dataset, "geography")
    measurements = partialmethod(_dataset, "measurements")
    lazy_measurements = partialmethod(_dataset, "lazy_measurements")
    support = partialmethod(_dataset, "support")
    invariants = partialmethod(_dataset, "invariants")
    given = partialmethod(_dataset, "given")
    implied = partialmethod(_dataset, "implied")
    tied = partialmethod(_dataset, "tied")
    counts = partialmethod(_dataset, "counts")
    tables = partialmethod(_dataset, "tables")

    @property
    def shared(self) -> Place:
        """Return the folder that all products share."""
        return self.public or self.root

    @property
    def whole(self) -> ReleaseLayout:
        """Return the layout of the shared folder."""
        return ReleaseLayout(self.shared, folders=self.folders)

    def product(self, name: str) -> ReleaseLayout:
        """Return the layout of a product of the same release."""
        return ReleaseLayout(self.shared / self.folders[name], self.shared, self.folders)

    @property
    def is_product(self) -> bool:
        """Return whether the folder itself holds a product, as for a survey."""
        return not self.folders or self.root != self.shared

    def is_own(self, path: Place) -> bool:
        """Return whether a path in this folder lies outside of the products within it."""
        products = (self.shared / folder for folder in self.folders.values())
        return self.is_product or not any(lies_in(path, product) for product in products)

    def measured_part(self, part: str) -> Place:
        """Return the dataset of noisy measurements of a part of a survey."""
        return self.root / "measurements" / f"part={part}"

    @property
    def documents(self) -> tuple[Place, ...]:
        """Return the files outside datasets, except configuration, schemas and manifest."""
        of_run = (self.solves, self.account, self.whole.readme)
        about = (self.readme, self.codebook, self.codebook_page, self.intervals)
        return (*of_run, self.ledger, self.planned, self.learned, *about)

    @property
    def written_later(self) -> set[Place]:
        """Return the files that the manifest cannot name: itself, and files made from it later."""
        of_product = {self.report, self.replicated} if self.is_product else set()
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
      keys: Folder of one share of the noise key while a geolevel is measured.
      evaluation: Document of errors against the truth.
      report: Internal report.
    """

    root: Place
    solution: str | None = None

    keys = _Under("root", "keys")
    evaluation = _Under("compared", "evaluation.json")
    report = _Under("compared", "report.html")

    @property
    def compared(self) -> Place:
        """Return the folder of the comparison of a solution with the truth."""
        return self.root if self.solution is None else self.root / "solutions" / self.solution

    def histograms(self, geolevel: str) -> Place:
        """Return the dataset of true histograms of a geolevel."""
        return self.root / "histograms" / f"level={geolevel}"


def is_publishable(place: Place, out: Place) -> bool:
    """Return whether a place, existing or not, lies in a release or solution of a run folder."""
    public = (release_folder(out), out / "solutions")
    return any(lies_in(place.resolve(), folder.resolve()) for folder in public)


def is_release(place: Place) -> bool:
    """Return whether a place is the folder of a finished release or solution."""
    return bool(ReleaseLayout(place).manifest.is_file())


def census_release(root: Place, names: Sequence[str]) -> ReleaseLayout:
    """Return the layout of the release of a census.

    Args:
      root: Folder of the release.
      names: Names of its products, in the order of work.
    """
    return ReleaseLayout(root, folders={name: f"{_PRODUCTS}/{name}" for name in names})


def products_folder(release: Place) -> Place:
    """Return the folder that holds the folders of the products of a release."""
    return release / _PRODUCTS


def release_folder(out: Place, solution: str | None = None) -> Place:
    """Return the folder of the release of a run, or of a further solution."""
    return out / "release" if solution is None else out / "solutions" / solution


def confidential_layout(
    roots: Roots, solution: str | None = None, folder: str = ""
) -> ConfidentialLayout:
    """Return the confidential layout of a run or of one of its products.

    Args:
      roots: Roots of the run.
      solution: Name of a solution; None for the release.
      folder: Folder of the product in the release; empty for the layout of the run.
    """
    return ConfidentialLayout(roots.confidential / folder, solution)


def solutions_of(out: Place) -> list[str]:
    """List the names of further solutions in a run folder."""
    return sorted(path.name for path in (out / "solutions").glob("*") if path.is_dir())


@dataclass(frozen=True)
class EstimateLayout:
    """Places of the datasets of the estimate stage.

    Methods that take a geolevel return the dataset of that geolevel.

    Attributes:
      root: Folder of the estimates.
      subtree: Messages up the tree: estimates from the subtree.
      whole: Estimates from all answers of the tree.
      tables: Tables of estimates.
    """

    root: Place

    @classmethod
    def of(cls, release: ReleaseLayout) -> EstimateLayout:
        """Return the layout within a release."""
        return cls(release.root / "estimates")

    def _dataset(self, kind: str, geolevel: str) -> Place:
        return self.root / kind / f"level={geolevel}"

    subtree = partialmethod(_dataset, "subtree")
    whole = partialmethod(_dataset, "whole")
    tables = partialmethod(_dataset, "tables")


@dataclass(frozen=True)
class ReplicateLayout(ReleaseLayout):
    """Places of a replicate: noisy answers and counts; exact files are those of the release.

    Attributes:
      exact: The release, whose geounits, invariants and given counts the replicate keeps.
      made: Folders of the replicates of all products of the same replication, by product name.
      share: Share of the families of the last geolevel that are solved and compared.
    """

    exact: ReleaseLayout = field(kw_only=True)
    made: Mapping[str, Place] = field(kw_only=True)
    share: float = field(default=1.0, kw_only=True)

    def product(self, name: str) -> ReleaseLayout:
        """Return the replicate of another product; its release if it is not replicated."""
        if name not in self.made:
            return self.exact.product(name)
        return ReplicateLayout(self.made[name], exact=self.exact.product(name), made=self.made)

    def folder(self, kind: str) -> Place:
        """Return the folder with the datasets of all geolevels of a kind."""
        return self.exact.folder(kind) if kind in _EXACT else ReleaseLayout.folder(self, kind)


@dataclass(frozen=True)
class SolvedAside(ReleaseLayout):
    """Places of a release whose counts lie in another folder, so that it stays unsolved.

    Attributes:
      aside: The other folder.
    """

    aside: Place = field(kw_only=True)

    def folder(self, kind: str) -> Place:
        """Return the folder with the datasets of all geolevels of a kind."""
        return self.aside / kind if kind == "counts" else ReleaseLayout.folder(self, kind)


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
        with naming_file(Path(folder), "cannot be read"), os.scandir(folder) as entries:
            for entry in entries:
                kind = entry.stat(follow_symlinks=False).st_mode
                if stat.S_ISDIR(kind):
                    waiting.append(entry.path)
                elif not stat.S_ISREG(kind):
                    yield entry.path
