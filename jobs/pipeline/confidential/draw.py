"""Draw the noise of a part once; only this module makes noise keys and publishes noisy answers."""

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
    """Draw the noisy answers of a part once, or verify them if they are published.

    The noise key is made for this part and this start of the driver; it is dropped when the call
    returns. The account records the attempt before the key is drawn, and the digest of the answers
    before they become readable. The ledger records them last.

    Args:
      spending: What the run spends; its budget is reserved and its ledger started.
      part: The part to draw.
      draw: Draws the noisy answers under a key and writes their part files.
      cost: Privacy loss of the published noise; None if the plan states it.
      moved: Whether the user confirmed that this moved or copied folder continues the run.

    Raises:
      LedgerError: Published answers are gone, or a copy of this folder drew them.
      SpentError: Measuring failed after noise was drawn.
      OutputError: A file cannot be written.
    """

    def draw_and_write(attempt: str | None) -> None:
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
        draw_and_write,
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
