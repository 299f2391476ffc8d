"""Where everything of a run lies. Two roots: what may be published, and what may not.

The second is OUT/confidential, unless the run file names another place for it: then all that stands
under OUT/confidential here lies there, beside OWNER.json, which says whose it is.

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
  implied/level=<L>/                     what they imply for every geounit
  tied/level=<L>/                        the same where counts of other products imply something
  counts/level=<L>/                      protected counts
  microdata/{parquet,csv}/               one row per person
  joined/{parquet,csv}/                  one row per person, with the unit it lives in
  tables/level=<L>/                      a file for each table and format
  ledger.jsonl                           what was granted, what every query costs, what is measured
  planned.json                           planned strategies, once they are measured
  README.md                              what this is and how to read it
  codebook.json, codebook.md             what names, codes and labels stand for
  manifest.json, report.html
  NOT_FOR_RELEASE.txt                    only if the noise was seeded
  intervals/level=<L>/                   intervals of released counts, from replicates
  intervals/intervals.json               what replicates say of errors, by size class
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

A survey is one product, which lies at the roots themselves. So did the last product of a census in
versions before 0.2.0, and each of the others in a folder of its name there: a folder that such a
version began stays as it is.

The folder of a release that others may have made: what lies in it must be plain files.

A release is copied from hand to hand, so it is read as hostile input. A link in it could lead a
command to any file of the reader, to be read into a table or written over; a pipe or a device could
keep it waiting for ever. Both are refused before anything in the folder is opened. Names that
documents of the release give are checked where documents are read
(`jobs.pipeline.documents.document`, `jobs.pipeline.config.released`), so together nothing outside
of the folder is named or reached.
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
    """Places of one product under OUT/release. All that the stages after measuring are given.

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
        """Folder of what all products share."""
        return self.public or self.root

    @property
    def whole(self) -> ReleaseLayout:
        """Layout of what all products share; in releases of older versions, of the last one too."""
        return ReleaseLayout(self.shared, folders=self.folders)

    def product(self, name: str) -> ReleaseLayout:
        """Return the layout of a product of the same release."""
        return ReleaseLayout(self.shared / self.folders[name], self.shared, self.folders)

    @property
    def is_product(self) -> bool:
        """Whether a product lies in this folder itself; a survey is one."""
        return not self.folders or self.root in self._products

    @property
    def _products(self) -> list[Place]:
        return [self.shared / folder for folder in self.folders.values()]

    def is_own(self, path: Place) -> bool:
        """Return whether a path in this folder lies outside of the products within it."""
        within = [one for one in self._products if one != self.root and lies_in(one, self.root)]
        return not any(lies_in(path, one) for one in within)

    def is_of_replicates(self, dataset: Place) -> bool:
        """Return whether replicates of the product made a dataset of it, after it was finalized."""
        return self.is_product and lies_in(dataset, self.root / _INTERVALS)

    def geography(self, geolevel: str) -> Place:
        """Dataset of the geounits of a geolevel."""
        return self.shared / "geography" / f"level={geolevel}"

    def measurements(self, geolevel: str) -> Place:
        """Dataset of the noisy measurements of a geolevel."""
        return self.root / "measurements" / f"level={geolevel}"

    def lazy_measurements(self, geolevel: str) -> Place:
        """Dataset of the answers of on-demand queries that were drawn at a geolevel."""
        return self.root / "lazy_measurements" / f"level={geolevel}"

    def measured_part(self, part: str) -> Place:
        """Dataset of the noisy measurements of a part of a survey."""
        return self.root / "measurements" / f"part={part}"

    def support(self, geolevel: str) -> Place:
        """Dataset of the counts of the root by the last query of its support."""
        return self.root / "support" / f"level={geolevel}"

    def invariants(self, geolevel: str) -> Place:
        """Dataset of the exact answers at a geolevel."""
        return self.root / "invariants" / f"level={geolevel}"

    def given(self, geolevel: str) -> Place:
        """Dataset of public counts that were given for the geounits of a geolevel."""
        return self.root / "given" / f"level={geolevel}"

    def implied(self, geolevel: str) -> Place:
        """Dataset of what given counts imply for the geounits of a geolevel."""
        return self.root / "implied" / f"level={geolevel}"

    def tied(self, geolevel: str) -> Place:
        """Dataset of what is implied for a geolevel, where other products are part of it."""
        return self.root / "tied" / f"level={geolevel}"

    def counts(self, geolevel: str) -> Place:
        """Dataset of the protected counts of a geolevel."""
        return self.root / "counts" / f"level={geolevel}"

    def tables(self, geolevel: str) -> Place:
        """Dataset of the tables of a geolevel."""
        return self.root / "tables" / f"level={geolevel}"

    @property
    def microdata(self) -> Place:
        """Folder of the microdata."""
        return self.root / "microdata"

    @property
    def joined(self) -> Place:
        """Folder of the joined microdata."""
        return self.root / "joined"

    @property
    def ledger(self) -> Place:
        """The ledger of the run."""
        return self.root / "ledger.jsonl"

    @property
    def planned(self) -> Place:
        """The planned strategies, as they were when the run was begun."""
        return self.root / "planned.json"

    @property
    def solves(self) -> Place:
        """The settings with which counts were made, oldest first."""
        return self.shared / "solves.jsonl"

    @property
    def account(self) -> Place:
        """All budgets granted for the same people when the run measured them."""
        return self.shared / "account.json"

    @property
    def configuration(self) -> Place:
        """Folder of the public part of the configuration, of all products."""
        return self.shared / "configuration"

    @property
    def schemas(self) -> Place:
        """Folder of the JSON Schemas of the documents, of all products."""
        return self.shared / "schemas"

    @property
    def readme(self) -> Place:
        """What people read first."""
        return self.root / "README.md"

    @property
    def codebook(self) -> Place:
        """What names, codes and labels stand for."""
        return self.root / "codebook.json"

    @property
    def codebook_page(self) -> Place:
        """The same for people."""
        return self.root / "codebook.md"

    @property
    def manifest(self) -> Place:
        """The manifest."""
        return self.root / "manifest.json"

    @property
    def report(self) -> Place:
        """The public report."""
        return self.root / "report.html"

    @property
    def notice(self) -> Place:
        """What says that the noise was seeded, if it was."""
        return self.root / "NOT_FOR_RELEASE.txt"

    @property
    def documents(self) -> tuple[Place, ...]:
        """What a census may write beside datasets, but for configuration, schemas and manifest."""
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
      out: The run folder, with what may be published.
      confidential: What may not.
    """

    out: Place
    confidential: Place

    @classmethod
    def of(cls, out: Place, confidential: Place | None = None) -> Roots:
        """The roots of a run folder; by default the confidential one lies in it."""
        return cls(out, _within(out) if confidential is None else confidential)

    @property
    def are_apart(self) -> bool:
        """Whether the confidential root is a place of its own."""
        return self.confidential != _within(self.out)


def _within(out: Place) -> Place:
    return out / "confidential"


@dataclass(frozen=True)
class ConfidentialLayout:
    """Places of one product under OUT/confidential. Never given to the stages after measuring.

    Attributes:
      root: Folder of the product.
      solution: Name of the solution that is compared with the truth, if not the release.
    """

    root: Place
    solution: str | None = None

    @property
    def compared(self) -> Place:
        """Folder of what compares a solution with the truth."""
        return self.root if self.solution is None else self.root / "solutions" / self.solution

    def histograms(self, geolevel: str) -> Place:
        """Dataset of the true histograms of a geolevel."""
        return self.root / "histograms" / f"level={geolevel}"

    @property
    def keys(self) -> Place:
        """Where one share of the noise key lies while a geolevel is measured."""
        return self.root / "keys"

    @property
    def evaluation(self) -> Place:
        """Error metrics against the truth."""
        return self.compared / "evaluation.json"

    @property
    def report(self) -> Place:
        """The internal report."""
        return self.compared / "report.html"


def is_publishable(place: Place, out: Place) -> bool:
    """Whether a place lies, or would lie, in a release or solution of a run folder."""
    public = (release_folder(out), out / "solutions")
    return any(lies_in(place.resolve(), folder.resolve()) for folder in public)


def is_release(place: Place) -> bool:
    """Whether a place is itself the folder of a finished release, or of a solution beside one."""
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
    """Names of the solutions beside the release of a run folder."""
    return sorted(path.name for path in (out / "solutions").glob("*") if path.is_dir())


@dataclass(frozen=True)
class EstimateLayout:
    """Places of the datasets of the estimate stage."""

    root: Place

    @classmethod
    def of(cls, release: ReleaseLayout) -> EstimateLayout:
        """The layout inside a release."""
        return cls(release.root / "estimates")

    def subtree(self, geolevel: str) -> Place:
        """Messages up the tree: estimates from the subtree, or what lies below an only child."""
        return self.root / "subtree" / f"level={geolevel}"

    def whole(self, geolevel: str) -> Place:
        """Estimates from all answers of the tree."""
        return self.root / "whole" / f"level={geolevel}"

    def tables(self, geolevel: str) -> Place:
        """Tables of estimates."""
        return self.root / "tables" / f"level={geolevel}"


@dataclass(frozen=True)
class ReplicateLayout(ReleaseLayout):
    """Places of a replicate: its noisy answers and counts; what is exact is that of the release.

    Attributes:
      exact: The release; a replicate keeps its geounits, invariants and given counts.
      made: Where replicates of the products are that were made with this one, by their names.
    """

    exact: ReleaseLayout = field(kw_only=True)
    made: Mapping[str, Place] = field(kw_only=True)

    def product(self, name: str) -> ReleaseLayout:
        """The replicate of another product that was made with this one."""
        return ReplicateLayout(self.made[name], exact=self.exact.product(name), made=self.made)

    def geography(self, geolevel: str) -> Place:
        """Dataset of the geounits of a geolevel."""
        return self.exact.geography(geolevel)

    def invariants(self, geolevel: str) -> Place:
        """Dataset of the exact answers at a geolevel."""
        return self.exact.invariants(geolevel)

    def given(self, geolevel: str) -> Place:
        """Dataset of public counts that were given for the geounits of a geolevel."""
        return self.exact.given(geolevel)

    def implied(self, geolevel: str) -> Place:
        """Dataset of what given counts imply for the geounits of a geolevel."""
        return self.exact.implied(geolevel)

    def tied(self, geolevel: str) -> Place:
        """Dataset of what is implied for a geolevel, where other products are part of it."""
        return self.exact.tied(geolevel)


@dataclass(frozen=True)
class ReleasedTruth(ConfidentialLayout):
    """A release, or a replicate, taken for the truth. Nothing of it is confidential.

    Attributes:
      released: Whose counts are the truth; `root` is where a replicate of it is at work.
    """

    released: ReleaseLayout = field(kw_only=True)

    def histograms(self, geolevel: str) -> Place:
        """Dataset of the histograms of a geolevel."""
        return self.released.counts(geolevel)


@dataclass(frozen=True)
class IntervalLayout:
    """Places of what replicates of a release say."""

    root: Place

    @classmethod
    def of(cls, release: ReleaseLayout) -> IntervalLayout:
        """The layout inside a release."""
        return cls(release.root / _INTERVALS)

    @property
    def document(self) -> Place:
        """Errors and intervals by size class."""
        return self.root / "intervals.json"

    def tables(self, geolevel: str) -> Place:
        """Intervals of the tables of a geolevel."""
        return self.root / f"level={geolevel}"


def replicates_folder(out: Place, solution: str | None) -> Place:
    """Where replicates of a release, or of a solution of it, are at work."""
    return out / "replicates" / (solution or "release")


# --- releases that others made --------------------------------------------------------------------


_COPY = "copy the release with `cp -rL`, if you trust whoever made it"


def received_release(root: Place) -> ReleaseLayout:
    """Return the layout of a release folder after checking that only plain files lie in it.

    The folder itself may be reached by a link: whoever types the command chose it. Nothing is
    opened. The check is no protection from a process that changes the folder while it is read.

    Args:
      root: The folder, a path or an address; a store has neither links nor devices. What has no
        manifest is no release, which is for the caller to refuse.

    Raises:
      OutputError: A link, pipe, socket or device lies in it at any depth, or it cannot be listed.
    """
    release = ReleaseLayout(root)
    if isinstance(root, Path) and release.manifest.is_file():
        for path in _strange(root):
            raise OutputError(
                path, "is a link, pipe or device", want="plain files and folders", remedy=_COPY
            )
    return release


def _strange(root: Path) -> Iterator[str]:
    """All below a folder that is neither a file nor a folder; links are not followed."""
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
