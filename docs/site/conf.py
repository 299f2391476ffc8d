"""Settings of Sphinx for `make docs`: the pages of the project as they are, as a site.

The project's root is the source folder, so links between pages and to files work on the site as
they do in a clone. What a page of the site has beyond its file is added when it is read: the
navigation, which comes from the lists of the pages (navigation.py), and the reference below
docs/api.md, which comes from the docstrings.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT)]

import navigation  # noqa: E402  (beside this file, which is no package)

_PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
_CONTENTS = navigation.contents(ROOT)

project = _PROJECT["name"]
release = version = _PROJECT["version"]
project_copyright = "the maintainers, Apache-2.0"
root_doc = navigation.INDEX
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
source_suffix = {".md": "markdown"}
exclude_patterns = [".*", "**/.*", "build", "dist", "*.egg-info", "docs/site"]

myst_heading_anchors = 6

html_theme = "furo"
html_title = f"{project} {version}"
html_additional_pages = {"index": "start.html"}
templates_path = ["templates"]
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
highlight_options = {"python": {"stripnl": True}}  # examples end in an empty line for doctest
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

default_role = "literal"  # what docstrings mean by backticks
python_maximum_signature_line_length = 80
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_class_signature = "separated"
python_use_unqualified_type_names = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False

_REFERENCE = """
## Reference

```{eval-rst}
.. autofunction:: topdown_das.open_release

.. autoclass:: topdown_das.Release
   :members:

.. autoexception:: topdown_das.DasError

.. autofunction:: topdown_das.draw_posterior

.. autofunction:: topdown_das.maximize_likelihood

.. autofunction:: topdown_das.draw_conditional

.. autofunction:: topdown_das.ellipse
```
"""


def _add(_app: object, page: str, source: list[str]) -> None:
    """Add to a page what only the site has of it."""
    if page in _CONTENTS:
        source[0] += f"\n\n{navigation.trees(_CONTENTS[page])}\n"
    if page == "docs/api":
        source[0] += _REFERENCE


def setup(app: object) -> None:
    """Called by Sphinx."""
    app.connect("source-read", _add)  # type: ignore[attr-defined]
