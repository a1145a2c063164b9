"""What imitation of the best episodes teaches about other mazes, without PPO.

RUN=runs/... pytest tests/benchmarks/bench_maze_imitation.py -s -o python_files='bench_*.py'
-o python_functions='bench_*'

Ranks episodes of random actions by return and distinct square metres; with ``RUN``, a run of ppo_rapid_cnn.py, episodes
of its policy too. A fresh network imitates the best of them. After each number of updates, prints the mean
log-probability (nats) of the actions that the network imitates, and of the actions in as many next best episodes, which
it does not imitate. A network without imitation has -1.099 on both: ln 1/3. Also prints the network's success rate in
new mazes and its distinct square metres a step there, with standard errors.
"""

import os
from pathlib import Path

import gymnasium as gym
import numpy as np
import torch

import rapid_wrappers.envs  # noqa: F401
from rapid_wrappers import RankingBuffer, VectorEpisodeScoringWrapper, bc_step, finished_episodes
from rapid_wrappers.training.checkpoint import load_checkpoint
from tests.conftest import import_script

EPISODES, PLAYED, UPDATES = 120, 32, (120, 480)


def make_envs():
    mode = {"autoreset_mode": gym.vector.AutoresetMode.SAME_STEP}
    envs = gym.make_vec("rapid/MazeS5-v0", 8, "sync", vector_kwargs=mode)
    return VectorEpisodeScoringWrapper(envs, local="distinct", count=False, state=lambda _, infos: infos["cell"])


def play(act, episodes, seed):
    """Play the same number of whole episodes in each environment, so that short ones are not more frequent."""
    envs = make_envs()
    found = [[] for _ in range(envs.num_envs)]
    observations, _ = envs.reset(seed=seed)
    while min(map(len, found)) < episodes // envs.num_envs:
        observations, *_, infos = envs.step(act(observations))
        for i, episode in finished_episodes(infos):
            found[i].append(episode)
    envs.close()
    return [episode for own in found for episode in own[: episodes // envs.num_envs]]


def log_probability(agent, episodes):
    with torch.no_grad():
        return np.mean(
            [
                agent.get_logits(torch.as_tensor(e.observations)).log_softmax(-1)[range(len(e)), e.actions].mean()
                for e in episodes
            ]
        )


def report(name, pairs, episodes, make_agent):
    ranked = sorted(episodes, key=lambda e: -e.scores.extrinsic - e.scores.local)
    kept = int(np.searchsorted(np.cumsum([len(e) for e in ranked]), pairs))
    best, next_best = ranked[:kept], ranked[kept : 2 * kept]
    buffer = RankingBuffer(pairs, w1=1.0, seed=0)
    for e in best:
        buffer.add(e.observations, e.actions, e.scores)
    agent = make_agent()
    optimizer = torch.optim.Adam(agent.parameters(), lr=3e-4, eps=1e-5)
    for update in range(1, max(UPDATES) + 1):
        bc_step(agent.get_logits, optimizer, *buffer.sample(256))
        if update in UPDATES:
            generator = torch.Generator().manual_seed(0)
            own = play(lambda obs, g=generator: agent.act(obs, g), PLAYED, seed=1_000_000)
            wins, local = np.array([(e.scores.extrinsic > 0, e.scores.local) for e in own]).T
            print(f"{name}, best {kept} of {len(episodes)}, {update} updates: ", end="")
            print(
                f"imitated {log_probability(agent, best):.3f}, others {log_probability(agent, next_best):.3f}; ", end=""
            )
            print(f"success {wins.mean():.2f} +- {error(wins):.2f}, distinct {local.mean():.3f} +- {error(local):.3f}")


def error(values):
    return values.std() / len(values) ** 0.5


def bench_what_imitation_teaches_about_other_mazes():
    torch.set_num_threads(1)
    script = import_script("ppo_rapid_cnn.py")
    envs = make_envs()

    def make_agent():
        torch.manual_seed(0)
        return script.make_agent(envs, script.Args(bf16=True))

    rng = np.random.default_rng(0)
    players = {"random": lambda _: rng.integers(3, size=8)}
    if "RUN" in os.environ:
        trained, generator = make_agent(), torch.Generator().manual_seed(1)
        trained.load_state_dict(load_checkpoint(Path(os.environ["RUN"]) / "checkpoint.pt")["parts"]["agent"])
        players["trained"] = lambda obs: trained.act(obs, generator)
    for name, act in players.items():
        episodes = play(act, EPISODES, seed=2_000_000)
        wins = np.mean([e.scores.extrinsic > 0 for e in episodes])
        local = np.mean([e.scores.local for e in episodes])
        print(f"{name}: {EPISODES} episodes, success {wins:.3f}, distinct {local:.3f}", flush=True)
        for pairs in (5_000, 20_000):
            report(name, pairs, episodes, make_agent)
