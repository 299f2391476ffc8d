"""An opened run, on which the stages work, and the definition of a stage."""

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
    """An opened run.

    Attributes:
      resolved: The configuration.
      identity: Name under which the account knows the run folder.
      tasks: Runs tasks on Spark or in this process.
      reporter: Receives progress messages.
      recorder: Records time and memory of each stage.
      refuse_overtaken: Raises OutputError once another driver has taken over the folder.
      moved: Whether the user confirmed that this moved or copied folder continues the run.
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
        """Return the run folder."""
        return self.resolved.config.output.directory

    @property
    def release(self) -> ReleaseLayout:
        """Return the paths that all products share: those of the release or of a named solution."""
        return self.resolved.release

    @property
    def products(self) -> tuple[Product, ...]:
        """Return the products, in the order in which stages process them."""
        return tuple(self.resolved.products.values())

    def stage(
        self, name: str, what: str, geolevel: str | None = None
    ) -> AbstractContextManager[Line]:
        """Show progress of a stage or a part of it, and record its time and memory.

        Args:
          name: Name of the stage.
          what: Name of the part of the stage.
          geolevel: Geolevel of the part; None if it has none.

        Raises:
          OutputError: Another driver has taken over the run folder.
        """
        self.refuse_overtaken()
        return self.recorder.stage(name, what, geolevel)


@dataclass(frozen=True)
class Stage:
    """A step of the pipeline, done once for each product.

    Attributes:
      name: Name in progress lines, `das run OUT`, summary.json and the documentation.
      sees_truth: Whether the stage reads confidential data. Only functions of
        `jobs.pipeline.confidential` may; other packages cannot import them.
      outputs: Lists the dataset folders and files that the stage writes for a product.
      function: Produces the missing outputs of all products.
    """

    name: str
    sees_truth: bool
    outputs: Callable[[Product], Sequence[Place]]
    function: Callable[[Job], None]
