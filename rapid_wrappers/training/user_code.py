"""What users name on the command line: arguments of environments, wrappers, and the errors of third parties."""

import ast
import importlib
import os
import re
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import gymnasium as gym

import rapid_wrappers

__all__ = ["explain", "load_wrapper", "parse_keywords"]

_OURS = os.path.dirname(os.path.abspath(rapid_wrappers.__file__))
_PLAIN = (gym.error.Error, ImportError, OSError, TypeError, ValueError)  # whose text says enough without their name


def parse_keywords(words: Sequence[str]) -> dict[str, Any]:
    """Read ``KEY=VALUE`` words. A value that is no Python literal is a string.

    Raises:
        ValueError: If a word has another form, or a key comes twice.

    >>> parse_keywords(["size=8", "goals=[[0, 1]]", "kind=four rooms"])
    {'size': 8, 'goals': [[0, 1]], 'kind': 'four rooms'}
    """
    found: dict[str, Any] = {}
    for word in words:
        key, separator, value = word.partition("=")
        if not separator or not key.isidentifier() or key in found:
            raise ValueError(f"expected `env_kwargs` as KEY=VALUE, each key once, got {word!r}")
        try:
            found[key] = ast.literal_eval(value)
        except (SyntaxError, ValueError):
            found[key] = value
    return found


def load_wrapper(text: str) -> Callable[[Any], Any]:
    """Import the class or function that ``MODULE:NAME`` or ``MODULE:NAME(ARGUMENTS)`` names, with these arguments.

    Raises:
        ImportError: If there is no such module, or nothing of this name in it.
        ValueError: If ``text`` has another form, or an argument is no literal.

    >>> load_wrapper("gymnasium.wrappers:TimeLimit(max_episode_steps=5)").keywords
    {'max_episode_steps': 5}
    """
    found = re.fullmatch(r"([\w.]+):(\w+)(\(.*\))?", text.strip())
    if not found:
        raise ValueError(f"expected `wrapper` as MODULE:CLASS or 'MODULE:CLASS(KEY=VALUE)', got {text!r}")
    module, name, arguments = found.groups()
    wrapper = getattr(importlib.import_module(module), name, None)
    if not callable(wrapper):
        raise ImportError(f"expected `wrapper` to name a class or a function, but {module} has no {name}")
    try:
        call = ast.parse(f"wrapper{arguments or '()'}", mode="eval").body
        assert isinstance(call, ast.Call)
        values = [ast.literal_eval(value) for value in call.args]
        named = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords if keyword.arg}
    except (SyntaxError, ValueError) as error:
        raise ValueError(f"expected the arguments of `wrapper` to be literals, got {text!r}") from error
    if not values:
        return partial(wrapper, **named)
    return lambda env: wrapper(env, *values, **named)


def explain(error: Exception, env_id: str) -> str:
    """An error in one line: of making or resetting the environment, or of reading its observations.

    Args:
        error: What was raised. Of a third party's text only the last line is shown.
        env_id: Id of the environment.
    """
    lines = str(error).strip().splitlines() or [""]
    if isinstance(error, gym.error.UnregisteredEnv):
        return f"{env_id}: {lines[-1]} {_how_to_register(env_id)}"
    text = lines[-1] if isinstance(error, _PLAIN) and lines[-1] else f"{type(error).__name__}: {lines[-1]}"
    plain = isinstance(error, gym.error.Error) or _raised_here(error)
    return f"{env_id}: {text}" + ("" if plain else " (--traceback shows where)")


def _how_to_register(env_id: str) -> str:
    module, _, name = env_id.rpartition(":")
    if name in _old_gym_ids():
        return (
            "The old `gym` has it, which Gymnasium does not read. Shimmy wraps it (pip install 'shimmy[gym-v26]'): "
            f"--env-id shimmy:GymV26Environment-v0 --env-kwargs env_id={name}"
        )
    if module:
        return f"Importing {module} did not register it with Gymnasium."
    return "If a package registers it, name the package, too: PACKAGE:ID, such as ale_py:ALE/Pong-v5."


def _old_gym_ids() -> Sequence[str]:
    """Ids of the package ``gym``, if something has imported it."""
    registry = getattr(getattr(sys.modules.get("gym"), "envs", None), "registry", {})
    return list(getattr(registry, "env_specs", registry))


def _raised_here(error: BaseException) -> bool:
    """Whether this package itself raised the error."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is None or trace.tb_frame.f_code.co_filename.startswith(_OURS)
