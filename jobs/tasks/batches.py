"""How much work a task gets: one table for all steps."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TaskSize:
    """The work of one task of a step, in a unit that the field of `Sizing` names.

    Attributes:
      least: Less is not worth a task of its own: starting one costs tens of milliseconds.
      most: More is cut: memory of a task, time until a retry has caught up, steps of progress.
    """

    least: int
    most: int


@dataclass(frozen=True)
class Sizing:
    """How every step is cut into tasks; changes no result, only how long it takes.

    A step with work enough has `batches_per_slot` tasks for each slot, each within its bounds.

    Attributes:
      batches_per_slot: Wanted tasks for each that runs at the same time.
      merge_leaves: Leaf geounits whose sorted runs are merged.
      truth_children: Geounits whose histograms are added up to those of the geolevel above.
      check_geounits: Geounits whose true histograms are compared with the invariants.
      invariants_geounits: Geounits whose exact answers are written.
      implied_geounits: Geounits whose limits are added up to those of the geolevel above.
      measure_numbers: Noisy answers drawn.
      estimate_numbers: Answers and coordinates read.
      solve_numbers: Noisy answers read.
      solve_variables: Cells of nodes solved.
      write_geounits: Geounits whose persons and tables are written.
      evaluate_geounits: Geounits whose histograms are compared.
    """

    batches_per_slot: int
    merge_leaves: TaskSize = TaskSize(1, 50_000)
    truth_children: TaskSize = TaskSize(2_000, 50_000)
    check_geounits: TaskSize = TaskSize(1, 20_000)
    invariants_geounits: TaskSize = TaskSize(10_000, 100_000)
    implied_geounits: TaskSize = TaskSize(1, 50_000)
    measure_numbers: TaskSize = TaskSize(1_000_000, 40_000_000)
    estimate_numbers: TaskSize = TaskSize(1_000_000, 20_000_000)
    solve_numbers: TaskSize = TaskSize(1, 20_000_000)
    solve_variables: TaskSize = TaskSize(50_000, 3_000_000)
    write_geounits: TaskSize = TaskSize(1_000, 50_000)
    evaluate_geounits: TaskSize = TaskSize(2_048, 65_536)
