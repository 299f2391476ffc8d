"""Draw a part once: the only place where noise keys are made and noisy answers are given out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from das.mechanisms.entropy import NoiseKey
from jobs.pipeline.folder.draws import measure_once
from jobs.pipeline.folder.spending import Part, Spending
from jobs.pipeline.storage.dataset import PartFile, dataset_digest, propose, publish
from jobs.pipeline.storage.ledger import is_recorded, record_measured

Drawn = tuple[Sequence[PartFile], Mapping[str, Any]]
"""Part files of noisy answers, and facts about them."""


def draw_part(
    spending: Spending,
    part: Part,
    draw: Callable[[NoiseKey], Drawn],
    *,
    cost: Callable[[], Fraction] | None = None,
    moved: bool = False,
) -> None:
    """Have a part measured: drawn now, once, or confirmed if its answers are published.

    The key is made here, for this part and this start of the driver, and lives as long as this
    call. The account learns of the attempt before the key is drawn, and of the answers before
    anybody can read them; then the ledger does.

    Args:
      spending: What the run spends; its grant is claimed and its ledger begun.
      part: One of its parts.
      draw: Draws the noisy answers under a key and writes their part files.
      cost: What the published noise costs; None if the plan says it.
      moved: Whether the folder is known to be the one that goes on.

    Raises:
      LedgerError: Answers that were published are gone, or a copy of this folder drew them.
      SpentError: Measuring failed after noise was drawn.
      OutputError: Something cannot be written.
    """

    def give_out(attempt: str | None) -> None:
        seed = spending.seed
        key = NoiseKey.draw() if seed is None else NoiseKey.for_testing(seed, part.position)
        files, facts = draw(key)
        if attempt is None:
            publish(part.dataset, files, facts)
        else:
            propose(part.dataset, attempt, files, facts)

    ledger = spending.release.ledger
    measure_once(
        part.dataset,
        spending.draws,
        part.account_name,
        give_out,
        is_recorded=lambda: is_recorded(ledger, part.name, is_on_demand=part.is_on_demand),
        moved=moved,
    )
    record_measured(
        ledger,
        part.name,
        dataset_digest(part.dataset),
        is_on_demand=part.is_on_demand,
        cost=None if cost is None else cost(),
    )
