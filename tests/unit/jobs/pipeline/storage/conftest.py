"""Where files may lie: what is promised of them holds in every place."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from jobs.pipeline.storage.place import Place, StoredPlace


@pytest.fixture(params=["disk", "store"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """An empty folder on a disk or in a store."""
    if request.param == "disk":
        return tmp_path
    return StoredPlace(f"memory://{uuid.uuid4().hex}", "folder")
