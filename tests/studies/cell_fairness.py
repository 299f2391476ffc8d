"""How an objective spreads accuracy over small and large marginals: the figure of the documentation.

python -m tests.studies.cell_fairness docs/images/cell-fairness.svg
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes

from das.arrays import FloatArray, IntArray
from das.workload.residual.total_variance import plan_oblique
from das.workload.workload import AttributeWorkload, Weighting, Workload
from jobs.report.svg import new_figure

# Levels of the attributes of the Adult data, plain counts.
SIZES = (100, 100, 100, 99, 85, 42, 16, 15, 9, 7, 6, 5, 2, 2)

_TITLES = {
    Weighting.EQUAL: "equal weights",
    Weighting.SQUARE_ROOT: "square root of the number of cells",
    Weighting.CELL_SIZE: "number of cells: the sum of all variances",
}
_COLORS = ("#1b1b1b", "#0072b2", "#d55e00", "#009e73")
_MARKS = ("s", "o", "^", ".")
_STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "fairness",
    "font.size": 9.0,
    "axes.titlesize": 9.5,
}


@dataclass(frozen=True, eq=False)
class CellVariances:
    """One entry per marginal, by order and then lexicographic.

    Attributes:
      orders: int64[m], the number of attributes.
      sizes: float64[m], the number of answers.
      variances: float64[m], the mean variance of its answers.
    """

    orders: IntArray
    sizes: FloatArray
    variances: FloatArray


def explore_cell_variances(
    attributes: Sequence[AttributeWorkload],
    order: int,
    weighting: Weighting,
    privacy_cost: float = 1.0,
) -> CellVariances:
    """Plan all marginals on up to `order` attributes and return the variance each one gets.

    Args:
      attributes: With their base matrices.
      order: The most attributes of a marginal.
      weighting: How much each marginal counts in the weighted sum of variances.
      privacy_cost: c > 0.

    References:
      He, Xiao, Toksoz, Ding, Zhang & Kifer, ResidualPlanner+, Section 6.2.

    >>> pair = [AttributeWorkload.identity("sex", 2), AttributeWorkload.identity("age", 100)]
    >>> found = explore_cell_variances(pair, 1, Weighting.CELL_SIZE)
    >>> found.orders.tolist(), bool(found.variances[1] > found.variances[2])
    ([0, 1, 1], True)
    """
    workload = Workload.up_to_k_way(attributes, order, weighting)
    plan = plan_oblique(workload, privacy_cost)
    counts = [len(members) for members in workload.marginals.by_order]
    return CellVariances(
        np.repeat(np.arange(len(counts)), counts), workload.sizes, plan.average_variances()
    )


def explore(order: int = 3) -> dict[Weighting, CellVariances]:
    """Return the variances of all marginals on up to `order` attributes, per weighting."""
    attributes = [AttributeWorkload.identity(f"a{i}", size) for i, size in enumerate(SIZES)]
    return {
        weighting: explore_cell_variances(attributes, order, weighting) for weighting in _TITLES
    }


def draw(found: dict[Weighting, CellVariances], path: Path) -> None:
    """Write the panels, on shared logarithmic axes, as an SVG file."""
    with matplotlib.rc_context(_STYLE):  # type: ignore[arg-type]
        figure = new_figure(3.6)
        shared: Axes | None = None
        for place, (weighting, variances) in enumerate(found.items(), start=1):
            axes = figure.add_subplot(1, len(found), place, sharex=shared, sharey=shared)
            shared = shared or axes
            for order in sorted(set(variances.orders.tolist())):
                chosen = variances.orders == order
                axes.loglog(
                    variances.sizes[chosen],
                    variances.variances[chosen],
                    _MARKS[order % len(_MARKS)],
                    color=_COLORS[order % len(_COLORS)],
                    markersize=4,
                    label=f"{order}-way",
                )
            axes.set_title(_TITLES[weighting])
            axes.set_xlabel("cells of the marginal")
            axes.grid(visible=True, linewidth=0.3)
            axes.label_outer()
            if place == 1:
                axes.set_ylabel("variance of a cell at privacy cost 1")
                axes.legend(loc="upper right")
        figure.tight_layout()
        figure.savefig(path, format="svg", metadata={"Date": None})


def main() -> None:
    """Draw the figure of the documentation."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("path", type=Path)
    draw(explore(), parser.parse_args().path)


if __name__ == "__main__":
    main()
