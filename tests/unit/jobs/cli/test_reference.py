"""docs/configuration.md says what the models say, and its examples load."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import yaml

from jobs.cli import reference
from jobs.cli.pages import escaped
from jobs.pipeline.config.load import load_run
from jobs.pipeline.config.models.data import InputFormat
from jobs.pipeline.config.models.groups import GroupsFile
from jobs.pipeline.config.models.kinds.kind import CountedConfig, KindConfig
from jobs.pipeline.config.models.learned import ForestConfig, LearnedFile, PublicTable
from jobs.pipeline.config.models.products import BudgetConfig, ProductConfig, ProductOutputConfig
from jobs.pipeline.config.models.run import RunConfig, model_fields
from jobs.pipeline.config.models.values import Model
from jobs.pipeline.storage.layout import MICRODATA
from jobs.survey.models import ReleasedSurveyConfig, WithheldSurveyData
from tests.checkout import ROOT

PAGE = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")


def example(name: str) -> str:
    """An example on the page."""
    return PAGE.split(f"<!-- file: example/{name} -->\n```yaml\n", 1)[1].split("```", 1)[0]


def test_the_committed_page_is_up_to_date_tables_are_made_again_and_text_stays() -> None:
    stale = PAGE.replace("| `name` |", "| `title` |").replace("# Configuration", "# Keys", 1)
    assert stale.count("| `title` |") > PAGE.count("| `title` |")
    assert reference.reference(stale) == PAGE.replace("# Configuration", "# Keys", 1), (
        "run `make docs`"
    )


def test_every_model_and_key_is_on_the_page() -> None:
    page = PAGE
    every = {*Model.__subclasses__()}
    while not every >= (more := {one for model in every for one in model.__subclasses__()}):
        every |= more
    # Their keys are those of the models that inherit them.
    every -= {BudgetConfig, InputFormat, KindConfig, CountedConfig}
    every -= {ReleasedSurveyConfig, WithheldSurveyData}  # written by releases, not by people
    every -= {LearnedFile, PublicTable, ForestConfig}  # written by `das plan --learn`
    assert len(every) > 15
    for model in every:
        section = page.split(f"### {model.__name__}\n", 1)[1].split("\n### ", 1)[0]
        for key in model_fields(model):
            assert f"| `{key}` |" in section
            assert escaped(reference.meanings(model)[key]) in section


def test_links_on_the_page_have_a_heading() -> None:
    page = PAGE
    headings = {line[4:].lower() for line in page.splitlines() if line.startswith("### ")}
    targets = {part.split(")")[0] for part in page.split("](#")[1:]}
    assert targets
    assert targets <= headings


def test_the_examples_load_together(tmp_path: Path) -> None:
    (tmp_path / "schema.yaml").write_text(example("schema.yaml"))
    (tmp_path / "allocation.yaml").write_text(example("allocation.yaml"))
    (tmp_path / "run.yaml").write_text(example("run.yaml"))
    resolved = load_run(tmp_path / "run.yaml")
    assert resolved.plan.schema.size == 6
    assert [level.geolevel for level in resolved.plan.strategy.levels] == [
        "state",
        "county",
        "block",
    ]
    assert resolved.config.output.directory == tmp_path / "out"


def test_the_example_of_groups_loads() -> None:
    groups = GroupsFile.model_validate(yaml.safe_load(example("groups.yaml")))
    assert {*GroupsFile.model_fields} - {"limits", "targets", "floor", "tables"} == {
        *groups.model_fields_set
    }


def test_the_run_example_names_every_section() -> None:
    document = yaml.safe_load(example("run.yaml"))
    assert list(document) == list(model_fields(RunConfig))
    assert list(document["products"]) == ["units", "persons"]
    sections = [(RunConfig, document, name) for name in ("geography", "output", "runtime")]
    persons = document["products"]["persons"]
    sections += [(ProductConfig, persons, name) for name in ("solve", "output")]
    for model, written, name in sections:
        section = model_fields(model)[name].annotation
        assert list(written[name]) == list(model_fields(section))


def test_formats_of_microdata_are_the_folders_there_are():
    (kind,) = get_args(ProductOutputConfig.model_fields["microdata"].annotation)
    assert get_args(kind) == MICRODATA
