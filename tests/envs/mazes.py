"""What the tests of the maze share."""

import numpy as np

MAZE = "rapid/MazeS5-v0"
LEFT, RIGHT, FORWARD = range(3)
DISPLAY_VARIABLES = ("DISPLAY", "PYGLET_HEADLESS", "LP_NUM_THREADS")


def walk(env, steps, seed, choices=(LEFT, RIGHT, FORWARD, FORWARD, FORWARD)):
    """Reset, walk at random, and return the observations."""
    rng = np.random.default_rng(seed)
    observations = [env.reset(seed=seed)[0]]
    observations += [env.step(int(rng.choice(choices)))[0] for _ in range(steps)]
    return np.array(observations)
