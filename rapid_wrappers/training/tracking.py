"""Weights and Biases, for runs with ``--track``."""

from typing import Any

__all__ = ["start_tracking"]


def start_tracking(args: Any, name: str) -> None:
    """Send what the run writes to TensorBoard to Weights and Biases, too; a resumed run continues its own page.

    Args:
        args: The script's arguments, an instance of ``RunArgs``.
        name: The run's name.

    Raises:
        ImportError: If wandb is not installed.
        ValueError: If it does not start because there is no network or no login.
    """
    import wandb  # type: ignore[import-not-found]

    try:
        wandb.init(
            project=args.wandb_project_name, entity=args.wandb_entity, sync_tensorboard=True, config=vars(args),
            name=name, id=name.replace("~", "-"), resume="allow", monitor_gym=True, save_code=True,
        )  # fmt: skip
    except wandb.Error as error:
        raise ValueError(f"{error}\nwithout network or login: WANDB_MODE=offline, and `wandb sync` later") from error
