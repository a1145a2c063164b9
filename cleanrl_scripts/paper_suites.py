"""The paper's experiments by name, for `benchmark.py`: which script runs on which environments with which flags.

A suite is a list of (script, environment, flags). All flags begin with `--paper` and give each experiment a name.
An experiment has one name in all suites, so that they share its runs.
"""

GRID, MAZE, MUJOCO = "ppo_rapid.py", "ppo_rapid_cnn.py", "ppo_rapid_continuous_action.py"
EIGHT = [
    *(f"rapid/MultiRoom-{size}-v0" for size in ("N7-S4", "N10-S4", "N7-S8", "N10-S10", "N12-S10")),
    *(f"rapid/KeyCorridor{size}-v0" for size in ("S3R2", "S3R3", "S4R3")),
]
N7_S8, N12_S10, S3R2, MAZE_S5 = EIGHT[2], EIGHT[4], EIGHT[5], "rapid/MazeS5-v0"
ROOMS = [*(f"rapid/MultiRoom-N{n}-S4-v0" for n in range(4, 29, 4)),
         *(f"rapid/MultiRoom-N4-S{size}-v0" for size in range(8, 37, 4))]  # fmt: skip
SPARSE = [f"rapid/Sparse{task}-v0" for task in ("Walker2d", "Hopper", "InvertedPendulum", "Swimmer")]
SWIMMERS = [f"rapid/{task}-v0" for task in ("SparseSwimmer", "DensitySwimmer", "ViscositySwimmer")]

RAPID = {"rapid": ""}
BOTH = RAPID | {"ppo": "--no-rapid"}
NO_SCORE = {"no_local": "--w1 0", "no_reward": "--w0 0", "no_buffer": "--score-as-reward"}
# The text has 5 steps and 10 000 pairs. The other values of the figures are not in it; these are ours.
ANALYSIS = (
    RAPID
    | {f"steps_{steps}": f"--bc-steps {steps}" for steps in (1, 10, 20)}
    | {f"buffer_{size}": f"--buffer-size {size}" for size in (1_000, 5_000, 50_000)}
    | {"pure_exploration": "--pure-exploration"}
)
WEIGHTS = [f"1e{exponent}" for exponent in range(-4, 5)]
SENSITIVITY = {f"w1_{w1}_w2_{w2}": f"--total-timesteps 3000000 --w1 {w1} --w2 {w2}" for w1 in WEIGHTS for w2 in WEIGHTS}


def experiments(script, env_ids, settings):
    """Each environment with each setting."""
    return [
        (script, env_id, f"--paper --exp-name paper_{name} {flags}".rstrip())
        for env_id in env_ids
        for name, flags in settings.items()
    ]


SUITES = {
    "fig3": experiments(GRID, EIGHT, BOTH),
    "table1": experiments(GRID, EIGHT, RAPID | NO_SCORE | {"no_global": "--w2 0", "no_ranking": "--no-rank"}),
    "fig5": experiments(GRID, [N12_S10], ANALYSIS),
    "appendix_d": experiments(GRID, EIGHT, ANALYSIS),
    "fig6": experiments(GRID, ROOMS, RAPID) + experiments(MAZE, [MAZE_S5], BOTH),
    "fig7": experiments(MUJOCO, SPARSE, BOTH),
    "swimmer": experiments(MUJOCO, SWIMMERS, BOTH),
    "annealing": experiments(GRID, [S3R2], RAPID | {"not_annealed": "--bc-anneal-until None"})
    + experiments(GRID, [N12_S10], RAPID | {"annealed": "--bc-anneal-until 20000000"}),
    "sensitivity": experiments(GRID, [N7_S8], SENSITIVITY),
    "whole_episodes": experiments(GRID, [N7_S8], RAPID | {"whole_episodes": "--whole-episodes"}),
    "maze_analysis": experiments(MAZE, [MAZE_S5], ANALYSIS | NO_SCORE),
}
PAPER_SEEDS = 5
