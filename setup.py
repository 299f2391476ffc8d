"""What pyproject.toml cannot say: a wheel holds the folder conf as `jobs/conf`."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class PackagesAndConf(build_py):
    """Builds the packages, and copies conf, which lies beside them, into `jobs`."""

    def run(self) -> None:
        """Build; an editable installation reads conf where it is."""
        super().run()
        if not self.editable_mode:
            target = Path(self.build_lib) / "jobs" / "conf"
            shutil.rmtree(target, ignore_errors=True)  # of an earlier build
            shutil.copytree("conf", target)


setup(cmdclass={"build_py": PackagesAndConf})
