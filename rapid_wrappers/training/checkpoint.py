"""Checkpoints of a training run: one file, replaced atomically and loaded without executing anything.

It imports torch and NumPy, but nothing of this package, so the file works when copied alone.
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
    "load_part",
    "part_state",
    "random_state",
    "save_atomically",
    "save_checkpoint",
    "set_generator_state",
    "set_random_state",
]

FORMAT = "rapid checkpoint 2"
_ARRAY = "numpy array"  # key under which an array stands as a tensor, the form that `weights_only` loads


def save_checkpoint(path: str | os.PathLike, state: dict[str, Any]) -> None:
    """Write ``state`` to ``path``. After a crash the file is the complete old one or the complete new one.

    Args:
        path: The file. Only one process at a time may write it.
        state: Nested dictionaries, lists and tuples of tensors, arrays, numbers, strings and None.

    Raises:
        TypeError: If ``state`` holds anything else.
        OSError: If the file cannot be written (disk full, no permission). The old file stays.
    """
    if not isinstance(state, dict):
        raise TypeError(f"expected `state` to be a dictionary, got {type(state).__name__}")
    save_atomically(path, {"format": FORMAT, "state": state})


def save_atomically(path: str | os.PathLike, value: Any) -> None:
    """Write ``value`` to ``<path>.tmp`` by ``torch.save``, and rename the file once it is on the disk.

    Args:
        path: The file.
        value: Anything that :func:`save_checkpoint` takes as an entry. Tensors are moved to the CPU, so that a network
            trained on a GPU loads on a machine without one.

    Raises:
        TypeError: If ``value`` holds anything else.
        OSError: If the file cannot be written. ``<path>.tmp`` is removed, and ``path`` stays as it was.
    """
    path = Path(path)
    content = io.BytesIO()  # torch would hide the errors of the disk
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
        with suppress(OSError):  # the new name should survive a power cut; not every file system can do that
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)


def load_checkpoint(path: str | os.PathLike) -> dict[str, Any]:
    """Read what :func:`save_checkpoint` wrote, with tensors on the CPU. Nothing in the file is executed.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If it is not a complete checkpoint of this format.
    """
    try:
        content = io.BytesIO(Path(path).read_bytes())
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"no checkpoint at {path}: a run writes its first one after --save-every frames"
        ) from error
    try:
        with warnings.catch_warnings(action="ignore"):  # about a pickle that is no checkpoint; the error below says it
            loaded = _to_arrays(torch.load(content, map_location="cpu", weights_only=True))
    except Exception as error:  # torch raises many types for files that are cut short, changed, or contain code
        kind = type(error).__name__  # its text may advise the user to load the file anyway
        raise ValueError(f"expected {path} to be a complete checkpoint without code, got {kind}") from error
    found = loaded.get("format") if isinstance(loaded, dict) else None
    if not isinstance(found, str) or found != FORMAT or not isinstance(loaded.get("state"), dict):
        raise ValueError(f"expected {path} to have the format {FORMAT!r}, got {found!r:.100}: another version of this "
                         "package wrote it")  # fmt: skip
    state: dict[str, Any] = loaded["state"]
    return state


def load_optimizer(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Load moments and steps from a ``state_dict``. The learning rate and other options stay the optimizer's own.

    Raises:
        ValueError: If ``state`` does not fit the optimizer's parameters, which torch does not check. Nothing changes.
    """
    options = optimizer.state_dict()["param_groups"]
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    try:
        for index, entries in state["state"].items():
            for name, value in entries.items():
                expected = () if name == "step" else parameters[index].shape
                if value.shape != expected or not value.is_floating_point():
                    raise ValueError(f"expected {name!r} to be floats of shape {tuple(expected)}, got {value!r:.100}")
        optimizer.load_state_dict({"state": state["state"], "param_groups": options})
        for parameter, entries in optimizer.state.items():
            for name, value in entries.items():
                if name != "step":  # fused Adam assumes that they have the memory layout of the parameter
                    entries[name] = torch.empty_like(parameter, dtype=value.dtype).copy_(value)
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"expected the state of an optimizer of these parameters: {error}") from error


def part_state(part: Any) -> Any:
    """Return the state of a part of a run: a NumPy generator, or anything with a ``state_dict``."""
    return part.bit_generator.state if isinstance(part, np.random.Generator) else part.state_dict()


def load_part(part: Any, state: Any) -> None:
    """Load a :func:`part_state`.

    Raises:
        ValueError: Or what the part itself raises, if the state does not fit.
    """
    if isinstance(part, np.random.Generator):
        set_generator_state(part, state)
    elif isinstance(part, torch.optim.Optimizer):
        load_optimizer(part, state)
    else:
        part.load_state_dict(state)


def random_state() -> dict[str, Any]:
    """Return the states of the global generators: Python's, NumPy's, torch's on the CPU and on each CUDA device."""
    return {
        "python": random.getstate(),
        "numpy": np.random.get_state(),  # noqa: NPY002
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all(),
    }


def set_random_state(state: dict[str, Any]) -> None:
    """Set the global generators to a :func:`random_state`, CUDA's only on as many devices as there are.

    Raises:
        ValueError: If ``state`` does not have that form.
    """
    try:
        random.setstate(state["python"])
        np.random.set_state(state["numpy"])  # noqa: NPY002
        torch.set_rng_state(state["torch"])
        for device, value in enumerate(state["cuda"][: torch.cuda.device_count()]):
            torch.cuda.set_rng_state(value, device)
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"expected states of Python's, NumPy's and torch's generators: {error}") from error


def set_generator_state(generator: np.random.Generator, state: dict[str, Any]) -> None:
    """Set a generator to the ``bit_generator.state`` of another one of its kind.

    Raises:
        ValueError: If ``state`` does not have that form.
    """
    try:
        generator.bit_generator.state = state
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        kind = type(generator.bit_generator).__name__
        raise ValueError(f"expected the state of a {kind} generator: {error}") from error


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
        return value.contiguous()  # a file can expand few numbers to many by strides; compiled code needs real memory
    return type(value)(map(_to_arrays, value)) if isinstance(value, list | tuple) else value
