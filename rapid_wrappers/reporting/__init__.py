"""Reports of finished runs: read them, compute statistics, compare with the paper, draw curves, write pages.

The modules need the extra ``[report]``; nothing else in the package loads them.
"""

try:
    import matplotlib  # noqa: F401
    import pandas  # noqa: F401
    import rliable  # noqa: F401
    import tabulate  # noqa: F401  (pandas writes Markdown with it)
    import tensorboard  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"reports need {error.name}: pip install 'rapid-wrappers[report]'", name=error.name
    ) from error
