"""Sphinx: `make docs` builds the pages into docs/_build."""

import ast
import inspect
import textwrap
from importlib import metadata

project = html_title = "RAPID for Gymnasium"
release = metadata.version("rapid-wrappers")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
html_theme = "furo"
myst_heading_anchors = 3
add_module_names = False
napoleon_numpy_docstring = False
autodoc_default_options = {"members": True, "special-members": "__len__, __bool__"}
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # NumPy's take several lines each; `as_written` shows the source's instead
nitpicky = True  # a reference to a missing name of ours is an error
nitpick_ignore_regex = [
    ("py:exc", ".*"),  # Python's and Gymnasium's
    ("py:class", r"(gym|np|os|spaces|torch)\..*|\w+Type|ArrayLike|AutoresetMode|Counts|Distribution|DomainParams"
                 "|Figure|FrameBuffer|ImgObsWrapper|NDArray|Parts|Task|VectorEnv|WrapEnv"),
]  # fmt: skip


def as_written(app, what, name, obj, options, signature, returns):
    """Show arguments and result with the types as the source names them."""
    if what not in ("class", "function", "method"):
        return None
    try:
        source = inspect.getsource(obj.__init__ if inspect.isclass(obj) else obj)
    except (OSError, TypeError):  # methods that dataclasses and named tuples generate have no source
        return None
    node = next(n for n in ast.walk(ast.parse(textwrap.dedent(source))) if isinstance(n, ast.FunctionDef))
    if node.args.args and node.args.args[0].arg == "self":
        del node.args.args[0]
    returns = "" if inspect.isclass(obj) or node.returns is None else ast.unparse(node.returns)
    return f"({ast.unparse(node.args)})", returns.replace("'", "")


def keep_colons(app, what, name, obj, options, lines):
    """Put an empty comment before the docstrings of attributes; Napoleon takes words before a colon for their type."""
    if what in ("attribute", "data", "property"):
        lines[:0] = ["..", ""]


def setup(app):
    """Register both; Sphinx calls this."""
    app.connect("autodoc-process-signature", as_written)
    app.connect("autodoc-process-docstring", keep_colons, priority=400)  # before Napoleon's 500
