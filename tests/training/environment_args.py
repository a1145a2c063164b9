"""Arguments of a script, as far as they are about environments."""

from types import SimpleNamespace

from rapid_wrappers.training.args import EnvironmentArgs


def arguments(env_id="Env-v0", **more):
    """The defaults of a script, and ``more``."""
    args = SimpleNamespace(**vars(EnvironmentArgs(env_id, num_envs=2)), seed=1, capture_video=False, one_hot=True)
    vars(args).update(more)
    return args
