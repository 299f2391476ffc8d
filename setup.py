"""What pyproject.toml cannot say: a wheel holds the folder conf, and the commit of its source."""

import shutil
from pathlib import Path
from runpy import run_path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist


def record_revision(folder: Path) -> None:
    """Write `jobs/REVISION`, the commit of a checkout; one that is there stays without git."""
    if not Path(".git").exists():
        return
    found = run_path(str(Path("jobs", "pipeline", "revision.py")))["revision"]()
    if found:
        (folder / "jobs").mkdir(parents=True, exist_ok=True)
        (folder / "jobs" / "REVISION").write_text(f"{found}\n", encoding="utf-8")


class PackagesAndConf(build_py):
    """Builds the packages, and copies conf, which lies beside them, into `jobs`."""

    def run(self) -> None:
        """Build; an editable installation reads conf where it is."""
        super().run()
        if not self.editable_mode:
            target = Path(self.build_lib) / "jobs" / "conf"
            shutil.rmtree(target, ignore_errors=True)  # of an earlier build
            shutil.copytree("conf", target)
            record_revision(Path(self.build_lib))


class SourcesWithRevision(sdist):
    """Packs the sources, and the commit that they are of, which git does not tell there."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        """Gather what is packed."""
        super().make_release_tree(base_dir, files)
        record_revision(Path(base_dir))


setup(cmdclass={"build_py": PackagesAndConf, "sdist": SourcesWithRevision})
