"""Checkpoints of a training run: one file, replaced as a whole or not at all, and loaded without executing anything.

torch and NumPy only, nothing else of this package: the file works when copied alone.
"""

import io
import os
import random
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

__all__ = [
    "load_checkpoint",
    "load_optimizer",
    "random_state",
    "save_atomically",
    "save_checkpoint",
    "set_generator_state",
    "set_random_state",
]

FORMAT = "rapid checkpoint 1"
_ARRAY = "numpy array"  # key under which an array stands as a tensor, the form that `weights_only` loads


def save_checkpoint(path: str | os.PathLike, state: dict[str, Any]) -> None:
    """Write ``state`` to ``path``; whatever happens, a file of that name is the old one or the new one, complete.

    Args:
        path: The file, which one process at a time may write.
        state: Nested dictionaries, lists and tuples of tensors, arrays, numbers, strings and None.

    Raises:
        TypeError: If something else is in ``state``.
        OSError: If the file cannot be written, for want of space or of permission. The old one is still there.
    """
    if not isinstance(state, dict):
        raise TypeError(f"expected `state` to be a dictionary, got {type(state).__name__}")
    save_atomically(path, {"format": FORMAT, "state": state})


def save_atomically(path: str | os.PathLike, value: Any) -> None:
    """``torch.save`` to a file ``<path>.tmp`` that takes the name once it is on the disk.

    Args:
        path: Of the file.
        value: What :func:`save_checkpoint` takes as an entry. Tensors are saved as ones of the CPU, so that what a GPU
            has trained loads where there is none.

    Raises:
        TypeError: If ``value`` holds something else.
        OSError: If the file cannot be written; ``<path>.tmp`` is removed, and ``path`` as it was.
    """
    path = Path(path)
    content = io.BytesIO()  # in memory first, so that errors of the disk come as what they are
    torch.save(_to_tensors(value), content)
    temporary = path.with_name(f"{path.name}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(content.getbuffer())
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        if temporary.is_file():
            temporary.unlink()
        raise
    if os.name == "posix":
        with suppress(OSError):  # so that the name survives a loss of power, where the file system can do that
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)


def load_checkpoint(path: str | os.PathLike) -> dict[str, Any]:
    """What :func:`save_checkpoint` wrote, with tensors on the CPU. Nothing in the file is executed.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If it is not a whole checkpoint of this format.
    """
    try:
        content = io.BytesIO(Path(path).read_bytes())
    except FileNotFoundError as error:
        raise FileNotFoundError(f"no checkpoint at {path}; a run writes its first after a while") from error
    try:
        with warnings.catch_warnings(action="ignore"):  # of a pickle that is no checkpoint, which is said below
            loaded = _to_arrays(torch.load(content, map_location="cpu", weights_only=True))
    except Exception as error:  # torch raises many kinds, for files cut short, changed, or with code in them
        kind = type(error).__name__  # its text may advise to load the file nevertheless
        raise ValueError(f"expected {path} to be a checkpoint, whole and without code, got {kind}") from error
    found = loaded.get("format") if isinstance(loaded, dict) else None
    if not isinstance(found, str) or found != FORMAT or not isinstance(loaded.get("state"), dict):
        raise ValueError(f"expected {path} to have the format {FORMAT!r}, got {found!r:.100}")
    state: dict[str, Any] = loaded["state"]
    return state


def load_optimizer(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Give an optimizer the moments and steps of a ``state_dict``; learning rate and other options stay its own.

    Raises:
        ValueError: If ``state`` does not fit the optimizer's parameters (torch does not look); nothing changes then.
    """
    own = optimizer.state_dict()
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    try:
        for index, entries in state["state"].items():
            if entries.keys() != next(iter(state["state"].values())).keys() or not entries.get("step", 0) >= 0:
                raise ValueError(
                    f"expected the same entries for each parameter, and steps from 0, got {entries!r:.200}"
                )
            for name, value in entries.items():
                expected = () if name == "step" else parameters[index].shape
                if not isinstance(value, torch.Tensor) or value.shape != expected or not value.is_floating_point():
                    raise ValueError(f"expected {name!r} to be floats of shape {tuple(expected)}, got {value!r:.100}")
        optimizer.load_state_dict({"state": state["state"], "param_groups": own["param_groups"]})
        for parameter, entries in optimizer.state.items():
            for name, value in entries.items():
                if name != "step":  # fused Adam takes for granted that they lie in memory as the parameter does
                    entries[name] = torch.empty_like(parameter, dtype=value.dtype).copy_(value)
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"expected the state of an optimizer of these parameters: {error}") from error


def random_state() -> dict[str, Any]:
    """States of the global generators: Python's, NumPy's, torch's on the CPU and on each CUDA device."""
    return {
        "python": random.getstate(),
        "numpy": np.random.get_state(),  # noqa: NPY002
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all(),
    }


def set_random_state(state: dict[str, Any]) -> None:
    """Set the global generators to a :func:`random_state`; CUDA's only on as many devices as there are.

    Raises:
        ValueError: If ``state`` is not of that form.
    """
    try:
        # Neither looks at the place in its 624 words, and both would read on behind them.
        if not 0 <= state["numpy"][2] <= 624:
            raise ValueError("a place outside NumPy's words")
        left, _, place, _ = np.frombuffer(state["torch"].numpy().tobytes()[8:24], "<i4").tolist()
        if (left, place) != (1, 0) and not (1 <= left <= 624 and left + place == 625):
            raise ValueError("a place outside torch's words")
        random.setstate(state["python"])
        np.random.set_state(state["numpy"])  # noqa: NPY002
        torch.set_rng_state(state["torch"])
        for device, value in enumerate(state["cuda"][: torch.cuda.device_count()]):
            torch.cuda.set_rng_state(value, device)
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"expected states of Python's, NumPy's and torch's generators, got {error}") from error


def set_generator_state(generator: np.random.Generator, state: dict[str, Any]) -> None:
    """Set a generator to a ``bit_generator.state``.

    Raises:
        ValueError: If it is none of a generator of that kind.
    """
    fresh = type(generator.bit_generator)()
    try:
        fresh.state = state
        if fresh.state["state"].get("inc", 1) % 2 == 0:
            raise ValueError("an even increment")  # PCG64 would repeat one number for ever
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ValueError(f"expected the state of a {type(fresh).__name__}, got {error}") from error
    generator.bit_generator.state = fresh.state


def _to_tensors(value: Any) -> Any:
    if isinstance(value, dict):
        return {_to_tensors(key): _to_tensors(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [*map(_to_tensors, value)] if isinstance(value, list) else tuple(map(_to_tensors, value))
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, np.ndarray):
        return {_ARRAY: torch.from_numpy(np.array(value))}
    if isinstance(value, torch.Tensor):
        return value.detach().cpu()
    if value is None or type(value) in (bool, int, float, str):
        return value
    raise TypeError(f"expected tensors, arrays, numbers, strings, None and containers of them, got {value!r:.100}")


def _to_arrays(value: Any) -> Any:
    if isinstance(value, dict):
        if set(value) == {_ARRAY}:
            return _to_arrays(value[_ARRAY]).numpy()
        return {key: _to_arrays(entry) for key, entry in value.items()}
    if isinstance(value, torch.Tensor):
        return value.contiguous()  # a file may say that few numbers are many: memory that compiled code runs out of
    return type(value)(map(_to_arrays, value)) if isinstance(value, list | tuple) else value
