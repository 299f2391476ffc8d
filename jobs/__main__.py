"""Entry point of `python -m jobs` and of spark-submit. Defines nothing: see `jobs.cli`.

Under spark-submit this file runs as a script, so its folder, not the project's, is on the path;
the packages come from --py-files.
"""

import sys

from jobs.cli import main

if __name__ == "__main__":
    sys.exit(main())
