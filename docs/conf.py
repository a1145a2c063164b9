"""Sphinx: `make docs` builds the pages into docs/_build."""

import ast
import inspect
import textwrap

project = html_title = "RAPID for Gymnasium"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
html_theme = "furo"
myst_heading_anchors = 3
add_module_names = False
napoleon_numpy_docstring = False
autodoc_default_options = {"members": True, "special-members": "__len__, __bool__"}
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # NumPy's, spelled out, take lines; `as_written` has the source's instead
nitpicky = True  # a reference to a name of ours that is not there is an error
nitpick_ignore_regex = [
    ("py:exc", ".*"),  # Python's and Gymnasium's
    ("py:class", r"(gym|np|os|spaces|torch)\..*|\w+Type|ArrayLike|AutoresetMode|Counts|Distribution|DomainParams"
                 "|Figure|FrameBuffer|ImgObsWrapper|NDArray|Task|VectorEnv"),
]  # fmt: skip


def as_written(app, what, name, obj, options, signature, returns):
    """Arguments and result with the types as the source names them."""
    if what not in ("class", "function", "method"):
        return None
    try:
        source = inspect.getsource(obj.__init__ if inspect.isclass(obj) else obj)
    except (OSError, TypeError):  # what dataclasses and named tuples have was never written
        return None
    node = next(n for n in ast.walk(ast.parse(textwrap.dedent(source))) if isinstance(n, ast.FunctionDef))
    if node.args.args and node.args.args[0].arg == "self":
        del node.args.args[0]
    returns = "" if inspect.isclass(obj) or node.returns is None else ast.unparse(node.returns)
    return f"({ast.unparse(node.args)})", returns.replace("'", "")


def setup(app):
    """Sphinx calls this."""
    app.connect("autodoc-process-signature", as_written)
