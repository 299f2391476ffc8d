"""What the stages work on, an opened run, and what a stage is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from jobs.pipeline.config.product import Product, Resolved
from jobs.pipeline.storage.layout import ReleaseLayout
from jobs.pipeline.storage.place import Place
from jobs.pipeline.tasks.executor import Tasks
from jobs.pipeline.tasks.progress import Line, Recorder, Reporter


@dataclass(frozen=True, eq=False)
class Job:
    """An opened run: its configuration and identity, what runs its tasks, and who watches it.

    `moved` says that its folder is the one that goes on, wherever else it lies. `refuse_overtaken`
    raises OutputError once another driver took over the folder.
    """

    resolved: Resolved
    identity: str
    tasks: Tasks
    reporter: Reporter
    recorder: Recorder
    refuse_overtaken: Callable[[], None]
    moved: bool = False

    @property
    def out(self) -> Place:
        """Folder of the run."""
        return self.resolved.config.output.directory

    @property
    def release(self) -> ReleaseLayout:
        """The release, or the solution beside it that is worked on: what all products share."""
        return self.resolved.release

    @property
    def products(self) -> tuple[Product, ...]:
        """The products, in the order of work."""
        return tuple(self.resolved.products.values())

    def stage(
        self, name: str, what: str, geolevel: str | None = None
    ) -> AbstractContextManager[Line]:
        """Show progress of a stage, or of part of it, and record what it costs.

        Raises:
          OutputError: Another driver took over.
        """
        self.refuse_overtaken()
        return self.recorder.stage(name, what, geolevel)


@dataclass(frozen=True)
class Stage:
    """A step of the pipeline, done once for every product.

    Attributes:
      name: As progress lines, `das run OUT`, summary.json and the documentation call it.
      sees_truth: Whether it reads confidential data. Its function then stands in
        `jobs.pipeline.confidential`, and else in a room that cannot import it.
      outputs: Folders of the datasets, and files, that complete it for a product.
      function: Does what is not complete, for all products.
    """

    name: str
    sees_truth: bool
    outputs: Callable[[Product], Sequence[Place]]
    function: Callable[[Job], None]
