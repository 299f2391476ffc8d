"""The documents: links resolve, commands exist, numbers are right, nothing is left open."""

from __future__ import annotations

import math
import re
import shlex
import tomllib
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from pathlib import Path

import yaml
from typer.exceptions import TyperException

from das.privacy.accounting import epsilon_bun_steinke, epsilon_from_rho
from das.queries.factor import FUNCTIONS
from jobs.pipeline.config.load import load_run
from tests.builders.command_line import COMMANDS, SHOWN, command_of
from tests.checkout import ROOT

SKIPPED = {"build", "dist", "node_modules"}
PAGES = sorted(
    path
    for path in ROOT.rglob("*.md")
    if not any(
        part[0] == "." or part in SKIPPED or part.endswith(".egg-info")
        for part in path.relative_to(ROOT).parts
    )
)
FORBIDDEN = ("/home/", "/root/", "/Users/", "TODO", "to be measured")

TEXTS = {str(page.relative_to(ROOT)): page.read_text(encoding="utf-8") for page in PAGES}


def fences(text: str, *languages: str) -> Iterator[str]:
    for language, body in re.findall(r"^```(\w*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        if language in languages:
            yield body


def prose(text: str) -> str:
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


@cache
def anchors(page: Path) -> set[str]:
    """Anchors of the headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", prose(page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def rows(page: str, heading: str) -> list[list[str]]:
    """Cells of the first table whose heading row starts with this text."""
    lines = (ROOT / page).read_text(encoding="utf-8").splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(heading))
    out = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        out.append([cell.strip() for cell in line.strip("|").split("|")])
    return out


def invocations(text: str) -> Iterator[list[str]]:
    """Words after `das` in shell examples, and after the entry point in spark-submit lines."""
    for body in fences(text, "sh", "console", "bash"):
        for line in body.replace("\\\n", " ").splitlines():
            words = shlex.split(line.removeprefix("$ "), comments=True)
            if words[:1] == ["das"]:
                yield words[1:]
            elif "jobs/__main__.py" in words:
                yield words[words.index("jobs/__main__.py") + 1 :]


def rounded_up(value: float) -> str:
    return f"{math.ceil(value * 10_000) / 10_000:.4f}"


def test_there_are_pages() -> None:
    assert {"README.md", "docs/privacy.md", "das/README.md", "CHANGELOG.md"} <= {*TEXTS}


def leads_nowhere(page: Path, target: str) -> bool:
    """Whether a relative link of a page is to no file of the project, or to none of its headings."""
    name, _, anchor = target.partition("#")
    file = (page.parent / name).resolve() if name else page
    return not (
        file.exists() and file.is_relative_to(ROOT) and (not anchor or anchor in anchors(file))
    )


def test_relative_links_resolve() -> None:
    links = [
        (name, target)
        for name, text in TEXTS.items()
        for target in re.findall(r"\]\(([^)\s]+)\)", prose(text))
        if not re.match(r"[a-z]+:", target)
    ]
    assert [link for link in links if leads_nowhere(ROOT / link[0], link[1])] == []
    wrong = ("none.md", "../../x.md", "README.md#no-such-heading", "#no-such-heading")
    assert all(leads_nowhere(ROOT / "docs" / "README.md", target) for target in wrong)


def test_the_index_of_documents_has_all() -> None:
    text = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert {name for name in pages if f"]({name})" not in text} == set()


def test_nothing_is_left_open() -> None:
    found = [(name, word) for name, text in TEXTS.items() for word in FORBIDDEN if word in text]
    assert found == []


def unusable(words: list[str]) -> bool:
    """Whether words after `das` are no command that is shown, with options of its own."""
    try:
        command, rest = command_of(words)
        with command.make_context(words[0], rest) as context:
            return not context.params
    except (KeyError, TyperException):
        return True


def test_commands_and_options_exist() -> None:
    shown = [(name, words) for name, text in TEXTS.items() for words in invocations(text)]
    shown += [
        (str(path), shlex.split(line))
        for path in sorted((ROOT / "conf").rglob("*.yaml"))
        for line in re.findall(r"^#(?:.*:)? +das (.*)$", path.read_text(), re.MULTILINE)
    ]
    assert len(shown) > 100
    assert [at for at in shown if at[1] != ["--help"] and unusable(at[1])] == []
    assert unusable(["run", "run.yaml", "--no-such-option"])
    assert unusable(["no-such-command"])


def test_commands_named_in_prose_exist() -> None:
    former = set(COMMANDS) - set(SHOWN)
    named = [
        (name, command)
        for name, text in TEXTS.items()
        for command in re.findall(r"`das ([a-z][a-z-]*)", prose(text))
    ]
    unknown = [at for at in named if at[1] not in SHOWN]
    assert [at for at in unknown if at[0] != "CHANGELOG.md" or at[1] not in former] == []


def test_every_command_is_in_the_changelog_or_readme() -> None:
    text = (ROOT / "README.md").read_text() + (ROOT / "CHANGELOG.md").read_text()
    assert [one for one in COMMANDS if f"`{one}`" not in text and f"`das {one}`" not in text] == []


def test_conversions_in_the_privacy_page() -> None:
    table = rows("docs/privacy.md", "| rho | delta | epsilon")
    assert len(table) == 3
    for rho, delta, epsilon, simple in table:
        exact = Fraction(rho), Fraction(delta)
        assert epsilon == rounded_up(epsilon_from_rho(*exact))
        assert simple == rounded_up(epsilon_bun_steinke(*exact))


def test_noise_scales_in_the_privacy_page() -> None:
    plan = load_run(ROOT / "conf" / "run" / "us-pl94.yaml").plan
    table = rows("docs/privacy.md", "| geolevel | query | rho_q | sigma |")
    assert len(table) == 3
    for geolevel, query, rho, sigma in table:
        level = plan.spine.levels.index(geolevel)
        (noisy,) = (one for one in plan.noise(level, level) if one.query.name == query)
        assert rho == f"{float(noisy.cost):.6f}"
        assert sigma == f"{float(noisy.mechanism.sigma_sq) ** 0.5:.4f}"


def test_functions_of_queries_in_their_page() -> None:
    """All that query texts may apply, with the number of answers and a label that comes out."""
    levels = ("under_18", "18_to_64", "65_and_over")
    table = rows("docs/queries.md", "| Term | Answers for n levels |")
    told = {term.strip("`").partition("(")[0]: row for term, *row in table}
    assert set(told) - {"age"} == set(FUNCTIONS)
    for name, function in FUNCTIONS.items():
        answers, _, label = told[name]
        factor = function(levels)
        terms = answers.replace(" (", " * (").replace("n", str(len(levels)))
        assert Fraction(eval(terms)) == len(factor.labels)
        assert label.strip("`") in factor.labels


def test_exit_codes_in_the_page_on_stability() -> None:
    from das import errors

    codes = {
        one.exit_code
        for one in vars(errors).values()
        if isinstance(one, type) and issubclass(one, errors.DasError)
    }
    text = (ROOT / "docs" / "stability.md").read_text(encoding="utf-8")
    sentence = text.split("Exit codes:", 1)[1].split("defect", 1)[0]
    assert {int(code) for code in re.findall(r"\b\d\b", sentence)} == codes | {0}


def test_configured_limits_in_the_cluster_page() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    assert '"pyspark>=4.0,<4.4"' in text  # docs/cluster.md says so
    assert 'requires-python = ">=3.11"' in text  # README.md says so


def test_the_citation_is_of_this_version() -> None:
    """CITATION.cff 1.2.0: what its schema requires, and what pyproject.toml says too."""
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {"cff-version", "message", "title", "authors"} <= {*cited}
    assert (cited["cff-version"], cited["type"]) == ("1.2.0", "software")
    assert [cited["title"], str(cited["version"]), cited["license"]] == [
        project["name"], project["version"], project["license"]
    ]  # fmt: skip
