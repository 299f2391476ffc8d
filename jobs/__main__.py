"""Entry point of `python -m jobs`, `python jobs/__main__.py` and spark-submit; see `jobs.cli.main`.

Run as a script, Python puts this folder first on the path, where a module such as `inspect` would
take the place of the standard one. So nothing but `os` and `sys`, which every Python has loaded
before, is imported until the path is right.
"""

import os
import sys


def _as_a_package() -> None:
    """Replace this folder on the path by the one it is in, after what spark-submit has given.

    Packages of --py-files come first, since workers have no others; those beside this file come
    before installed ones.
    """
    folder = os.path.dirname(os.path.realpath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.realpath(path) != folder]
    if os.path.exists(os.path.join(folder, "__init__.py")):
        standard = os.path.dirname(os.__file__)  # follows what PYTHONPATH and spark-submit give
        end = sys.path.index(standard) + 1 if standard in sys.path else len(sys.path)
        sys.path.insert(end, os.path.dirname(folder))


if not __package__:
    _as_a_package()

from jobs.cli.main import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
