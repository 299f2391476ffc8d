"""The package for programs, and the installed command `das`, which `main` is.

    from topdown_das import open_release

opens a release; docs/api.md has all that it offers, docs/inference.md what fits models to its noisy
answers. The command sees that what it starts is its own
and starts `jobs.cli.main`.

The packages das, geography, invariants, solvers and jobs have plain names. Another distribution
with a package of such a name shares its folder in one environment: what is installed last
overwrites files of the other, and what is removed takes them along. This module has a name of its
own and needs only the standard library, so it can say so when nothing else can be imported:
`python -m topdown_das` where the command itself was overwritten. All else is imported when asked
for.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from das.errors import DasError
    from das.inference.conditional import LinearInvariants, draw_conditional
    from das.inference.expectation_maximization import maximize_likelihood
    from das.inference.models import (
        CountRegression,
        NormalRegression,
        PoissonCounts,
        PoissonRegression,
    )
    from das.inference.regions import ellipse
    from das.inference.rejection import draw_posterior
    from jobs.analysis.opened import Release, open_release

__all__ = [
    "CountRegression",
    "DasError",
    "LinearInvariants",
    "NormalRegression",
    "PoissonCounts",
    "PoissonRegression",
    "Release",
    "draw_conditional",
    "draw_posterior",
    "ellipse",
    "maximize_likelihood",
    "open_release",
]

_OFFERED = {
    "CountRegression": "das.inference.models",
    "DasError": "das.errors",
    "LinearInvariants": "das.inference.conditional",
    "NormalRegression": "das.inference.models",
    "PoissonCounts": "das.inference.models",
    "PoissonRegression": "das.inference.models",
    "Release": "jobs.analysis.opened",
    "draw_conditional": "das.inference.conditional",
    "draw_posterior": "das.inference.rejection",
    "ellipse": "das.inference.regions",
    "maximize_likelihood": "das.inference.expectation_maximization",
    "open_release": "jobs.analysis.opened",
}
DISTRIBUTION = "topdown-das"
PACKAGES = ("das", "geography", "invariants", "solvers", "jobs")
_HERE = Path(__file__).resolve().parent
_LACKS_SOMETHING = 7  # exit code, as of RuntimeSetupError
_REMEDY = f"install {DISTRIBUTION} into an environment of its own"
# A list of all that is installed takes a tenth of a second, and is worth it before these.
_LOOK_AROUND = {
    *("demo", "prepare", "validate", "run", "resume", "measure", "solve", "evaluate"),
    *("means", "tables", "synthesize"),
}


def __getattr__(name: str) -> object:
    """What is offered to programs, imported when it is asked for.

    Raises:
      ImportError: Packages of others stand in the place of ours.
      AttributeError: Nothing is offered under this name.
    """
    if name not in _OFFERED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    for what in strangers([]):
        raise ImportError(f"{what}; {_REMEDY}")
    return getattr(import_module(_OFFERED[name]), name)


@dataclass(frozen=True)
class Neighbor:
    """Another distribution in this environment with a package of our names.

    Attributes:
      name: Its name and version.
      packages: Which of our names it has.
      files: What it has installed, relative to its folder.
    """

    name: str
    packages: tuple[str, ...]
    files: frozenset[str]


def neighbors() -> list[Neighbor]:
    """Other installed distributions with a package of our names, in the order of their names."""
    from importlib.metadata import distributions

    found = {}
    for other in distributions():
        record = "\n" + (other.read_text("RECORD") or "")
        named = (other.read_text("top_level.txt") or "").split()
        held = [p for p in PACKAGES if p in named or f"\n{p}/" in record or f"\n{p}.py," in record]
        name = str(other.metadata["Name"]) if held else ""
        if held and name.lower().replace("_", "-") != DISTRIBUTION:
            files = frozenset(line.split(",", 1)[0] for line in record.splitlines())
            shown = _printable(f"{name} {other.version}")
            found[shown] = Neighbor(shown, tuple(held), files)
    return [found[name] for name in sorted(found)]


def strangers(found: list[Neighbor]) -> Iterator[str]:
    """What stands in the place of files of ours, each as a text: none of it may be run.

    Args:
      found: Distributions with packages of our names.
    """
    for package in PACKAGES:
        ours = _HERE / package / "__init__.py"
        spec = find_spec(package)
        origin = None if spec is None else spec.origin
        if origin is None or Path(origin).resolve() != ours:
            yield f"package {package}: is {_printable(origin or 'gone')}; expected {ours}"
    if found:
        own = _hashes()
        for other in found:
            for name in sorted(own.keys() & other.files):
                if _hash(_HERE / name) != own[name]:
                    yield f"{(_HERE / name).resolve()}: is not the file of {DISTRIBUTION}"


def _hashes() -> dict[str, str]:
    """Hashes of the files that were installed with this one, by their names; none in a checkout."""
    import re
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        record = distribution(DISTRIBUTION).read_text("RECORD") or ""
    except PackageNotFoundError:
        return {}
    rows = dict(re.findall(r"^([^,\n]+),sha256=([\w-]+),", record, re.MULTILINE))
    return rows if Path(__file__).name in rows else {}


def _hash(path: Path) -> str | None:
    """As lists of installed files have it."""
    import base64
    import hashlib

    try:
        digest = hashlib.sha256(path.read_bytes()).digest()
    except OSError:
        return None
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)


def _refuse(what: str, found: list[Neighbor]) -> int:
    names = f"; {', '.join(one.name for one in found)} has packages of these names" if found else ""
    sys.stderr.write(f"das: RuntimeSetupError {what}{names}; {_REMEDY}\n")
    return _LACKS_SOMETHING


def main() -> int:
    """Run the command line, unless packages of others would be run in the place of ours."""
    found = neighbors() if _LOOK_AROUND & {*sys.argv[1:2]} else []
    for what in strangers(found):
        return _refuse(what, found or neighbors())
    for other in found:
        sys.stderr.write(
            f"das: {other.name}, in the same environment, has packages {', '.join(other.packages)} "
            f"too: installing or removing it breaks this program; {_REMEDY}\n"
        )
    try:
        from jobs.cli.main import main as das
    except Exception:
        found = neighbors()
        for what in strangers(found):
            return _refuse(what, found)
        raise
    return das()


if __name__ == "__main__":
    sys.exit(main())
