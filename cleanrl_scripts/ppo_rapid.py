"""PPO with RAPID for discrete actions, in one file.

The lines of RAPID stand between `# RAPID` and `# end RAPID`; `--no-rapid` is plain PPO.
A boolean is switched on by `--NAME` and off by `--no-NAME` (`--no-cuda`, not `--cuda False`);
names may be written with hyphens or underscores. Ctrl-C saves and stops; `--resume` goes on.
"""

import math
import multiprocessing
import multiprocessing.util
import operator
import os
import random
import re
import shlex
import signal
import sys
import time
import warnings
from collections import deque
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Literal

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim
import tyro
from gymnasium.vector import AutoresetMode
from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm

import rapid_wrappers.envs  # noqa: F401  (registers rapid/MultiRoom-N7-S4-v0 and its like)
from rapid_wrappers import RankingBuffer, VectorEpisodeScoringWrapper, bc_step, finished_episodes
from rapid_wrappers.scores import episode_score
from rapid_wrappers.training.checkpoint import (
    StopSignal,
    load_checkpoint,
    load_optimizer,
    random_state,
    restore_arguments,
    save_atomically,
    save_checkpoint,
    set_generator_state,
    set_random_state,
)
from rapid_wrappers.training.evaluation import play
from rapid_wrappers.training.folder import claim_folder, describe_process, make_folder, remove_if_empty
from rapid_wrappers.training.one_hot import OneHotEncoder, OneHotLinear
from rapid_wrappers.training.pictures import draw_buffer


@dataclass
class Args:
    exp_name: str = os.path.basename(__file__)[: -len(".py")]
    """the name of this experiment; by default that of the file, ppo with --no-rapid, paper or paper_ppo with --paper"""
    seed: int = 1
    """seed of the experiment: environments, network, minibatches, buffer"""
    torch_deterministic: bool = True
    """whether cuDNN must be deterministic"""
    cuda: bool = True
    """whether to use CUDA where there is one"""
    torch_threads: int = 1
    """CPU threads of torch; for networks of this size one is fastest"""
    track: bool = False
    """whether to track this experiment with Weights and Biases"""
    wandb_project_name: str = "rapid"
    """the project in Weights and Biases"""
    wandb_entity: str | None = None
    """the entity (team) in Weights and Biases"""
    capture_video: bool = False
    """whether to record videos of the first environment under `videos/`; not with the native engine"""
    save_model: bool = True
    """whether to save the network into the run's folder at the end"""
    save_every: int = 100_000
    """frames from one checkpoint of the run to the next; the end, Ctrl-C and SIGTERM save one too"""
    draw_buffer: bool = False
    """whether each checkpoint comes with a picture of what the ranking buffer holds, and its scores' histogram, in
    TensorBoard"""
    eval_every: int | None = None
    """frames from one evaluation to the next, in environments of its own, whose levels are the same each time; its
    metrics are eval/..."""
    eval_episodes: int = 20
    """episodes of an evaluation"""
    eval_greedy: bool = False
    """the likeliest action in evaluations, not one drawn as in training"""
    resume: str | None = None
    """go on from a run's folder (or a checkpoint in one), there and with its arguments, but for those given anew"""
    paper: bool = False
    """start from the paper's setting (20M frames, 1 environment, raw input, 1e-4, ...); other flags still override"""

    # PPO
    env_id: str = "rapid/MultiRoom-N7-S4-v0"
    """the environment: any with array observations and discrete actions, MiniGrid's own ids included"""
    engine: Literal["native", "sync", "async"] | None = None
    """what steps the environments: our compiled engine, or Gymnasium's in this process or in one process each; by
    default native for rapid/MultiRoom and rapid/KeyCorridor where Numba is installed, else sync"""
    total_timesteps: int = 1_000_000
    """frames to train, in whole rollouts of num_envs * num_steps"""
    one_hot: bool = True
    """one-hot code MiniGrid's view (type, colour, state of each cell) instead of feeding the raw numbers"""
    hidden_size: int = 128
    """units in each of the two hidden layers of policy and of value; the paper has 64"""
    learning_rate: float | None = None
    """learning rate of Adam, for PPO and imitation; by default 3e-4, or 1e-4 with --no-one-hot"""
    anneal_lr: bool = False
    """whether the learning rate falls linearly to 0"""
    num_envs: int = 16
    """number of parallel environments"""
    num_steps: int = 128
    """steps in each environment per rollout"""
    gamma: float = 0.99
    """discount factor"""
    gae_lambda: float = 0.95
    """lambda of generalized advantage estimation"""
    num_minibatches: int = 4
    """minibatches per epoch"""
    update_epochs: int = 4
    """epochs per rollout"""
    norm_adv: bool = True
    """whether advantages are normalized in each minibatch"""
    clip_coef: float = 0.2
    """clipping of the probability ratio, and of the value's change"""
    clip_vloss: bool = True
    """whether the value loss is clipped"""
    ent_coef: float = 0.01
    """coefficient of the entropy"""
    vf_coef: float = 0.5
    """coefficient of the value loss"""
    max_grad_norm: float = 0.5
    """maximum norm of PPO's gradient"""
    target_kl: float | None = None
    """stop a rollout's epochs above this KL divergence"""
    truncation_as_termination: bool = False
    """treat a time limit as death, as the authors do, instead of bootstrapping from the final observation"""

    # RAPID
    rapid: bool = True
    """whether to imitate the best episodes; --no-rapid is plain PPO"""
    w0: float = 1.0
    """weight of the extrinsic score"""
    w1: float = 0.1
    """weight of the local score"""
    w2: float = 0.001
    """weight of the global score; 0 also stops counting states"""
    buffer_size: int = 5_000
    """state-action pairs in the ranking buffer; the paper's 10 000 learn more slowly"""
    age_penalty: float = 0.05
    """score an episode loses for every 1000 episodes after it; 0 never forgets, as in the paper"""
    bc_steps: int = 5
    """imitation updates after each episode"""
    bc_batch_size: int = 256
    """state-action pairs per imitation update"""
    bc_target_loss: float = 0.3
    """no more imitation in a rollout once its loss is below this, or the agent learns the buffer by heart and explores
    no more; 0 never stops, as in the paper"""
    bc_anneal_until: int | None = None
    """anneal the frequency of imitation to 0 at this frame (Appendix J); by default it never ends"""
    whole_episodes: bool = False
    """never cut the last episode kept (Appendix H)"""
    rank: bool = True
    """--no-rank keeps the latest pairs instead of the best (ablation)"""
    score_as_reward: bool = False
    """the episode's score as its only reward, on its last step, without buffer and imitation (ablation)"""
    pure_exploration: bool = False
    """no extrinsic reward anywhere, neither for PPO nor in the ranking"""


# Table of Appendix A, and the authors' code where the paper is silent (time limits as terminations).
PAPER = Args(
    paper=True, exp_name="paper", total_timesteps=20_000_000, one_hot=False, hidden_size=64, learning_rate=1e-4,
    num_envs=1, buffer_size=10_000, age_penalty=0.0, bc_target_loss=0.0, truncation_as_termination=True,
)  # fmt: skip
PAPER_ANNEALING = {"KeyCorridorS3R2": 1_200_000, "KeyCorridorS3R3": 3_000_000}  # the authors' commands
CHECKPOINT = "checkpoint.pt"  # in a run's folder
EVAL_SEED = 1_000_000  # of the levels of evaluations, whatever the run's seed
# A checkpoint is of a run with these; others may change on the way.
FIXED = ("rapid", "paper", "exp_name", "seed", "env_id", "engine", "one_hot", "hidden_size", "num_envs", "num_steps")


def parse_args():
    """The arguments, and the checkpoint to go on from or None."""
    if {"True", "False"} & set(sys.argv):
        raise ValueError("expected switches without a value, such as `--no-cuda`, got True or False")
    args = tyro.cli(Args, description=__doc__, default=PAPER if "--paper" in sys.argv else Args())
    if args.resume is not None:
        return resume_args(args)
    until = [until for task, until in PAPER_ANNEALING.items() if task in args.env_id]
    paper = replace(PAPER, bc_anneal_until=until[0] if until else None)
    args = tyro.cli(Args, description=__doc__, default=paper if args.paper else Args())
    return check_args(args), None


def resume_args(args):
    path = os.path.join(args.resume, CHECKPOINT) if os.path.isdir(args.resume) else args.resume
    state = load_checkpoint(path)
    saved = replace(restore_arguments(Args, state.get("args")), resume=path)
    # what a file may not do by itself: import a module, send metrics to somebody
    tracking = {name: getattr(args, name) for name in ("track", "wandb_project_name", "wandb_entity")}
    if ":" in saved.env_id and args.env_id != saved.env_id:
        raise ValueError(f"expected `env_id` to be given beside `resume`, as it imports a module: {saved.env_id}")
    args = tyro.cli(Args, description=__doc__, default=replace(saved, **tracking))
    args = check_args(replace(args, resume=path))
    if (args.w2 == 0) != (saved.w2 == 0):
        raise ValueError(f"expected `w2` to be {'zero' if saved.w2 == 0 else 'not zero'} as before, got {args.w2}")
    changed = {name: (old, getattr(args, name)) for name, old in vars(saved).items() if old != getattr(args, name)}
    for name in [name for name in FIXED if name in changed]:
        raise ValueError(
            "expected `{}` to be {!r} as before, got {!r}: start a run of its own".format(name, *changed[name])
        )
    for name, (old, new) in changed.items():
        print(f"{name}: {new!r} from here on, {old!r} before")
    return args, state


def check_args(args):
    if not args.rapid:
        args.exp_name = {Args.exp_name: "ppo", PAPER.exp_name: "paper_ppo"}.get(args.exp_name, args.exp_name)
    if args.learning_rate is None:
        args.learning_rate = 3e-4 if args.one_hot else 1e-4

    def require(condition, what, *names):
        for name in names:
            value = getattr(args, name)
            if value is not None and not (math.isfinite(value) and condition(value)):
                raise ValueError(f"expected `{name}` to be {what}, got {value}")

    require(lambda x: x >= 1, "positive", "total_timesteps", "hidden_size", "num_envs", "num_steps", "num_minibatches")
    require(lambda x: x >= 1, "positive", "update_epochs", "torch_threads", "save_every")
    require(lambda x: x >= 1, "positive", "eval_every", "eval_episodes")
    require(lambda x: x >= 1, "positive", "buffer_size", "bc_steps", "bc_batch_size", "bc_anneal_until")
    require(lambda x: x > 0, "positive", "learning_rate", "clip_coef", "max_grad_norm", "target_kl")
    require(lambda x: 0 <= x <= 1, "in [0, 1]", "gamma", "gae_lambda")
    require(lambda x: x >= 0, "finite and non-negative", "ent_coef", "vf_coef", "age_penalty", "bc_target_loss")
    require(lambda x: True, "finite", "w0", "w1", "w2")
    if os.path.basename(args.exp_name) != args.exp_name or not args.exp_name:
        raise ValueError(f"expected `exp_name` to be a part of a file's name, got {args.exp_name!r}")
    require(lambda x: 0 <= x < 2**32, "in [0, 2**32)", "seed")
    batch_size = args.num_envs * args.num_steps
    if batch_size % args.num_minibatches or batch_size // args.num_minibatches < 2:
        raise ValueError(f"expected `num_minibatches` to divide num_envs * num_steps = {batch_size} into minibatches "
                         f"of at least 2, got {args.num_minibatches}")  # fmt: skip
    if args.total_timesteps < batch_size:
        raise ValueError(f"expected `total_timesteps` to be at least one batch, num_envs * num_steps = {batch_size}, "
                         f"got {args.total_timesteps}")  # fmt: skip
    if args.bc_anneal_until is not None and args.bc_anneal_until <= batch_size:
        raise ValueError(f"expected `bc_anneal_until` to be beyond the first batch of {batch_size} frames, "
                         f"got {args.bc_anneal_until}")  # fmt: skip
    if (not args.rapid) + args.score_as_reward + args.pure_exploration > 1:
        raise ValueError("expected at most one of `no_rapid`, `score_as_reward` and `pure_exploration`")
    return args


def is_minigrid(env):
    """Whether it is one of MiniGrid's, or derived from one."""
    return any(cls.__module__.split(".")[0] == "minigrid" for cls in type(env.unwrapped).__mro__)


def choose_engine(args):
    """The engine, and a word on it."""
    import_name, _, env_id = args.env_id.rpartition(":")
    has_native = not import_name and env_id.startswith(("rapid/MultiRoom-", "rapid/KeyCorridor"))
    if args.engine == "native" and not has_native:
        raise ValueError("expected `engine` to be sync or async: native has only rapid/MultiRoom and rapid/KeyCorridor")
    if args.engine == "native" and args.capture_video:
        raise ValueError("expected `engine` to be sync or async with `capture_video`")
    if args.engine in ("sync", "async") or not has_native or args.capture_video:
        return args.engine or "sync", ""
    try:
        import rapid_wrappers.envs.native  # noqa: F401
    except ImportError as error:
        if args.engine == "native":
            raise ValueError(error) from error
        return "sync", f" ({error}; it is many times as fast)"
    return "native", ""


def make_env(env_id, idx, capture_video, run_name, **kwargs):
    def thunk():
        import rapid_wrappers.envs  # noqa: F401, F811  (registers our ids, in a worker too)

        if multiprocessing.parent_process() is not None:  # in a worker, which a signal to all would end unsaved
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if env_id.startswith(("MiniGrid-", "BabyAI-")):
            import minigrid  # noqa: F401  (registers its ids)
        if capture_video and idx == 0:
            env = gym.make(env_id, render_mode="rgb_array")
            with warnings.catch_warnings():  # the async engine makes this environment twice
                warnings.filterwarnings("ignore", ".*Overwriting existing videos")
                env = gym.wrappers.RecordVideo(env, f"videos/{run_name}")
        else:
            env = gym.make(env_id, **kwargs)
        if is_minigrid(env) and isinstance(env.observation_space, gym.spaces.Dict):
            from minigrid.wrappers import ImgObsWrapper

            env = ImgObsWrapper(env)
        # some environments overwrite the observation they returned, or return their reward in an array
        env = gym.wrappers.TransformObservation(env, np.array, env.observation_space)
        return gym.wrappers.TransformReward(env, lambda reward: np.asarray(reward).item())

    return thunk


def make_envs(args, run_name):
    """Under SAME_STEP every row of a rollout is a step that was really taken."""
    if args.engine == "native":
        return gym.make_vec(args.env_id, args.num_envs, "vector_entry_point", autoreset_mode=AutoresetMode.SAME_STEP)
    vector_env = gym.vector.SyncVectorEnv if args.engine == "sync" else gym.vector.AsyncVectorEnv
    thunks = [make_env(args.env_id, i, args.capture_video, run_name) for i in range(args.num_envs)]
    return vector_env(thunks, autoreset_mode=AutoresetMode.SAME_STEP)


def make_eval_envs(args):
    """Environments for evaluations, in this process, where some would disturb each other: then there is but one."""
    num_envs = 1 if args.engine == "async" else min(args.num_envs, args.eval_episodes)
    engine = "sync" if args.engine == "async" else args.engine
    return make_envs(replace(args, num_envs=num_envs, engine=engine, capture_video=False), "")


def evaluate(args, agent, envs):
    """Mean return, mean length and success rate (a return above 0) of whole episodes, the same levels each time."""
    generator = None if args.eval_greedy else torch.Generator().manual_seed(args.seed)
    first_action = int(envs.single_action_space.start)
    returns, lengths = play(envs, lambda obs: agent.act(obs, generator) + first_action, args.eval_episodes, EVAL_SEED)
    return {"episodic_return": returns.mean(), "episodic_length": lengths.mean(), "success_rate": (returns > 0).mean()}


def layer_init(layer, std=np.sqrt(2), bias_const=0.0):
    torch.nn.init.orthogonal_(layer.weight, std)
    torch.nn.init.constant_(layer.bias, bias_const)
    return layer


class Agent(nn.Module):
    def __init__(self, envs, one_hot, hidden_size):
        super().__init__()
        shape = envs.single_observation_space.shape
        if one_hot:  # MiniGrid's cells: each a type, a colour and a state
            self.encode = OneHotEncoder(shape, sizes=(11, 6, 4))
            first_layer, num_inputs = OneHotLinear, self.encode.num_inputs
        else:
            self.encode = lambda x: x.reshape(len(x), -1).float()
            first_layer, num_inputs = nn.Linear, int(np.prod(shape))
        self.critic = nn.Sequential(
            layer_init(first_layer(num_inputs, hidden_size)),
            nn.Tanh(),
            layer_init(nn.Linear(hidden_size, hidden_size)),
            nn.Tanh(),
            layer_init(nn.Linear(hidden_size, 1), std=1.0),
        )
        self.actor = nn.Sequential(
            layer_init(first_layer(num_inputs, hidden_size)),
            nn.Tanh(),
            layer_init(nn.Linear(hidden_size, hidden_size)),
            nn.Tanh(),
            layer_init(nn.Linear(hidden_size, envs.single_action_space.n), std=0.01),
        )

    def get_logits(self, x):
        return self.actor(self.encode(x))

    def get_value(self, x):
        return self.critic(self.encode(x)).squeeze(-1)

    @torch.no_grad()
    def act(self, obs, generator=None):
        """Actions, counted from 0, for raw observations: drawn by the generator, or the likeliest without one."""
        obs = torch.as_tensor(obs if obs.dtype != np.float64 else obs.astype(np.float32))
        logits = self.get_logits(obs.to(self.actor[-1].weight.device)).cpu()
        if generator is not None:  # the largest of logits + Gumbel noise is a sample from their softmax
            logits = logits - torch.empty_like(logits).exponential_(generator=generator).log()
        return logits.argmax(dim=-1).numpy()

    def evaluate(self, x, action):
        encoded = self.encode(x)
        logprobs = self.actor(encoded).log_softmax(dim=-1)
        entropy = -(logprobs.exp() * logprobs).sum(dim=-1)
        return logprobs.gather(-1, action[:, None]).squeeze(-1), entropy, self.critic(encoded).squeeze(-1)


def compute_gae(rewards, values, next_values, terminations, dones, gamma, gae_lambda):
    """Advantages (num_steps, num_envs). `next_values[t]` is the value of the observation that action t led to: at a
    truncation that of the true final observation, not of the next episode's first."""
    advantages = rewards + gamma * next_values * (1 - terminations) - values
    discounts = gamma * gae_lambda * (1 - dones)
    for t in reversed(range(len(rewards) - 1)):
        advantages[t].addcmul_(discounts[t], advantages[t + 1])
    return advantages


def bc_gap(frames, until):
    """Updates until the next one with imitation, after `frames` frames: the authors' schedule (`rapid/agent.py`)."""
    return 1 if until is None else int(1 / (1 - frames / until))


if __name__ == "__main__":
    try:
        args, checkpoint = parse_args()
        args.engine, remark = choose_engine(args)
    except (OSError, TypeError, ValueError) as error:
        sys.exit(f"error: {error}")
    batch_size = args.num_envs * args.num_steps
    minibatch_size = batch_size // args.num_minibatches
    num_iterations = args.total_timesteps // batch_size
    if args.track:
        try:
            import wandb
        except ModuleNotFoundError:
            sys.exit("error: --track needs wandb: pip install 'rapid-wrappers[track]'")
    if args.draw_buffer and find_spec("matplotlib") is None:
        sys.exit("error: --draw-buffer needs matplotlib: pip install 'rapid-wrappers[report]'")
    if args.capture_video and find_spec("moviepy") is None:
        sys.exit("error: --capture-video needs moviepy: pip install 'rapid-wrappers[video]'")
    try:
        if args.resume:
            run_dir = os.path.dirname(args.resume) or "."
        else:
            name = f"{re.sub('[/:]', '-', args.env_id)}__{args.exp_name}__{args.seed}__{int(time.time())}"
            run_dir = make_folder(f"runs/{name}")
        claim = claim_folder(run_dir, CHECKPOINT)
    except OSError as error:
        sys.exit(f"error: {error}")
    run_name = os.path.basename(os.path.abspath(run_dir))
    if args.track:
        try:
            wandb.init(
                project=args.wandb_project_name,
                entity=args.wandb_entity,
                sync_tensorboard=True,
                config=vars(args),
                name=run_name,
                id=run_name.replace("~", "-"),
                resume="allow",
                monitor_gym=True,
                save_code=True,
            )
        except wandb.Error as error:
            sys.exit(f"error: {error}\nwithout network or login: WANDB_MODE=offline, and `wandb sync` later")

    # seeding
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    torch.backends.cudnn.deterministic = args.torch_deterministic
    torch.set_num_threads(args.torch_threads)
    shuffler = np.random.default_rng(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() and args.cuda else "cpu")

    # env setup
    try:
        single_env = make_env(args.env_id, 0, False, run_name)()
        # MiniGrid's view is a small image whose three channels are codes; its RGB wrappers make real images of it
        size = single_env.observation_space.shape or ()
        is_view = is_minigrid(single_env) and len(size) == 3 and max(size) < 32
        if not isinstance(single_env.action_space, gym.spaces.Discrete):
            raise TypeError("expected a Discrete action space (continuous actions: ppo_rapid_continuous_action.py), "
                            f"got {single_env.action_space}")  # fmt: skip
        single_env.close()
        print(f"{run_name}: {args.num_envs} environments, {args.engine} engine{remark}", flush=True)
        video_name = run_name if checkpoint is None else f"{run_name}-{int(time.time())}"  # or it would overwrite them
        envs = make_envs(args, video_name)
        eval_envs = make_eval_envs(args) if args.eval_every else None
        # before multiprocessing ends its workers by SIGTERM, for which these are deaf
        multiprocessing.util.Finalize(None, envs.close, exitpriority=1)
        # RAPID
        envs = VectorEpisodeScoringWrapper(envs, count=None if args.w2 and args.rapid else False)
        # end RAPID
    except (gym.error.Error, ImportError, TypeError, ValueError) as error:
        remove_if_empty(run_dir)
        sys.exit(f"error: {args.env_id}: {error}")
    first_action = int(envs.single_action_space.start)

    agent = Agent(envs, args.one_hot and is_view, args.hidden_size).to(device)
    optimizer = optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5, fused=True)

    # RAPID
    counter = envs.counter
    w0 = 0.0 if args.pure_exploration else args.w0
    buffer = RankingBuffer(
        args.buffer_size,
        w0,
        args.w1,
        args.w2,
        counter=counter if envs.count else None,
        age_penalty=args.age_penalty,
        whole_episodes=args.whole_episodes,
        rank=args.rank,
        seed=args.seed,
    )
    bc_next, bc_loss = 1, float("nan")
    # end RAPID

    # start, or go on from a checkpoint
    global_step = 0
    recent_returns = deque(maxlen=100)
    if checkpoint is None:
        print(f"resetting them, then {num_iterations * batch_size} frames on {device}", flush=True)
        next_obs, _ = envs.reset(seed=np.random.SeedSequence(args.seed).generate_state(args.num_envs).tolist())
    else:
        try:
            global_step = operator.index(checkpoint["global_step"])
            if global_step < 1 or global_step % batch_size:
                raise ValueError(f"expected whole rollouts of {batch_size} frames, got {global_step} frames")
            recent_returns.extend(map(float, checkpoint["recent_returns"]))
            agent.load_state_dict(checkpoint["agent"])
            load_optimizer(optimizer, checkpoint["optimizer"])
            set_generator_state(shuffler, checkpoint["shuffler"])
            # RAPID
            counter.load_state_dict(checkpoint["counter"])
            buffer.load_state_dict(checkpoint["buffer"])
            spaces = {"observations": envs.single_observation_space, "actions": envs.single_action_space}
            for name, space in spaces.items() if len(buffer) else ():
                kept = checkpoint["buffer"]["rows"][name]
                if (kept.shape[1:], kept.dtype) != (space.shape, space.dtype) or not np.isfinite(kept).all():
                    raise ValueError(f"expected kept {name} of {space}, got {kept.dtype} of shape {kept.shape[1:]}")
            bc_next, bc_loss = operator.index(checkpoint["bc_next"]), float(checkpoint["bc_loss"])
            if args.bc_anneal_until is None or global_step < args.bc_anneal_until:  # it may have been another
                bc_next = min(bc_next, global_step // batch_size + bc_gap(global_step, args.bc_anneal_until))
            # end RAPID
            if args.engine == "native":
                next_obs = envs.env.load_state_dict(checkpoint["envs"])
                envs.load_state_dict(checkpoint["episodes"])
                if next_obs is None or checkpoint["envs"]["ended"].any() or not checkpoint["episodes"]["started"]:
                    raise ValueError("expected an episode in flight in each environment")
            else:
                print(f"episodes in flight start anew: the {args.engine} engine's environments cannot be saved")
                seeds = np.random.SeedSequence(args.seed, spawn_key=(global_step,)).generate_state(args.num_envs)
                next_obs, _ = envs.reset(seed=seeds.tolist())
            set_random_state(checkpoint["random"])
        except Exception as error:  # whatever a file may hold
            sys.exit(f"error: {args.resume} does not fit this run: {error or type(error).__name__}")
    model_path = f"{run_dir}/{args.exp_name}.cleanrl_model"
    if global_step >= num_iterations * batch_size:
        if args.save_model and not os.path.exists(model_path):
            save_atomically(model_path, agent.state_dict())
        sys.exit(f"error: {args.resume} has {global_step} frames already: raise --total-timesteps")
    if global_step:
        print(f"going on at {global_step} of {num_iterations * batch_size} frames on {device}", flush=True)
    try:
        writer = SummaryWriter(run_dir, purge_step=global_step + 1 if global_step else None)
    except OSError as error:
        sys.exit(f"error: {error}")
    for tag, table in (("hyperparameters", vars(args)), ("process", describe_process())):
        rows = "\n".join([f"|{key}|{value}|" for key, value in table.items()])
        writer.add_text(tag, f"|param|value|\n|-|-|\n{rows}", global_step)

    # rollout storage
    shape = (args.num_steps, args.num_envs)
    next_obs = torch.as_tensor(next_obs if next_obs.dtype != np.float64 else next_obs.astype(np.float32)).to(device)
    obs = torch.zeros((*shape, *next_obs.shape[1:]), dtype=next_obs.dtype, device=device)
    actions = torch.zeros(shape, dtype=torch.int64, device=device)
    logits = torch.zeros((*shape, envs.single_action_space.n), device=device)
    rewards, terminations, dones = np.zeros((3, *shape), dtype=np.float32)

    start_step, start_time = global_step, time.time()
    stop = StopSignal(lambda name: print(f"\n{name}: saving at the end of this rollout", flush=True))
    bar = tqdm(
        total=num_iterations * batch_size, initial=start_step, unit=" frames", dynamic_ncols=True, mininterval=1.0
    )
    for iteration in range(start_step // batch_size + 1, num_iterations + 1):
        if args.anneal_lr:
            optimizer.param_groups[0]["lr"] = (1.0 - (iteration - 1.0) / num_iterations) * args.learning_rate

        # RAPID
        frames = iteration * batch_size  # the current rollout counts, as in the authors' code
        add = args.rapid and not args.score_as_reward and frames < (args.bc_anneal_until or frames + 1)
        imitate = add and iteration >= bc_next
        if imitate:
            bc_next += bc_gap(frames, args.bc_anneal_until)
        # end RAPID

        # the largest of logits + Gumbel noise is a sample from their softmax
        gumbel = -torch.empty_like(logits).exponential_().log()
        final_obs = {}  # (step, environment): the observation that the time limit cut an episode off at
        for step in range(args.num_steps):
            global_step += args.num_envs
            obs[step] = next_obs
            with torch.no_grad():
                logits[step] = agent.get_logits(next_obs)
                actions[step] = (logits[step] + gumbel[step]).argmax(dim=-1)

            next_obs, reward, terminated, truncated, infos = envs.step(actions[step].cpu().numpy() + first_action)
            next_obs = torch.as_tensor(next_obs).to(device, obs.dtype)
            if args.truncation_as_termination:
                terminated = terminated | truncated
            if args.pure_exploration or args.score_as_reward:
                reward = np.zeros_like(reward)
            for i in np.flatnonzero(truncated & ~terminated).tolist():
                final_obs[step, i] = infos["final_obs"][i]

            episodes = list(finished_episodes(infos))
            for _, episode in episodes:
                recent_returns.append(episode.scores.extrinsic)
                writer.add_scalar("charts/episodic_return", episode.scores.extrinsic, global_step)
                writer.add_scalar("charts/episodic_length", len(episode), global_step)

            # RAPID
            for i, episode in episodes:
                writer.add_scalar("rapid/extrinsic", episode.scores.extrinsic, global_step)
                writer.add_scalar("rapid/local", episode.scores.local, global_step)
                writer.add_scalar("rapid/global", episode.scores.global_, global_step)
                if args.score_as_reward:
                    reward[i] = episode_score(*episode.scores, args.w0, args.w1, args.w2)
                if add:
                    buffer.add(episode.observations, episode.actions, episode.scores, episode.state_ids)
                for _ in range(args.bc_steps if imitate else 0):
                    bc_obs, bc_actions = buffer.sample(args.bc_batch_size)
                    bc_loss = bc_step(agent.get_logits, optimizer, bc_obs, bc_actions - first_action)["loss"]
                    if bc_loss < args.bc_target_loss:
                        imitate = False  # until the next rollout, which looks again
                        break
            # end RAPID

            rewards[step], terminations[step], dones[step] = reward, terminated, terminated | truncated

        # advantages, from the value of the observation each action led to; nothing in the rollout moves the critic
        with torch.no_grad():
            values = agent.get_value(obs.flatten(0, 1)).view(shape)
            next_values = torch.cat([values[1:], agent.get_value(next_obs)[None]])
            if final_obs:
                cut = torch.tensor(list(final_obs), device=device).unbind(dim=1)
                next_values[cut] = agent.get_value(torch.as_tensor(np.stack(list(final_obs.values()))).to(obs))
            outcomes = torch.as_tensor(np.stack([rewards, terminations, dones])).to(device)
            advantages = compute_gae(outcomes[0], values, next_values, *outcomes[1:], args.gamma, args.gae_lambda)

            # flatten the batch: (num_steps, num_envs, ...) -> (batch_size, ...)
            b_obs, b_actions, b_values, b_advantages = (x.flatten(0, 1) for x in (obs, actions, values, advantages))
            b_logprobs = logits.log_softmax(dim=-1).flatten(0, 1).gather(-1, b_actions[:, None]).squeeze(-1)
            b_returns = b_advantages + b_values

        # optimize policy and value network
        clipfracs = []
        for _ in range(args.update_epochs):
            b_inds = torch.from_numpy(shuffler.permutation(batch_size)).to(device)
            batch = (b_obs, b_actions, b_logprobs, b_advantages, b_returns, b_values)
            for minibatch in zip(*(x[b_inds].split(minibatch_size) for x in batch), strict=True):
                mb_obs, mb_actions, mb_logprobs, mb_advantages, mb_returns, mb_values = minibatch
                newlogprob, entropy, newvalue = agent.evaluate(mb_obs, mb_actions)
                logratio = newlogprob - mb_logprobs
                ratio = logratio.exp()

                with torch.no_grad():
                    old_approx_kl = (-logratio).mean()
                    approx_kl = ((ratio - 1) - logratio).mean()
                    clipfracs.append(((ratio - 1.0).abs() > args.clip_coef).float().mean())

                if args.norm_adv:
                    mb_advantages = (mb_advantages - mb_advantages.mean()) / (mb_advantages.std() + 1e-8)

                pg_loss1 = -mb_advantages * ratio
                pg_loss2 = -mb_advantages * torch.clamp(ratio, 1 - args.clip_coef, 1 + args.clip_coef)
                pg_loss = torch.max(pg_loss1, pg_loss2).mean()

                v_loss = (newvalue - mb_returns) ** 2
                if args.clip_vloss:
                    v_clipped = mb_values + torch.clamp(newvalue - mb_values, -args.clip_coef, args.clip_coef)
                    v_loss = torch.max(v_loss, (v_clipped - mb_returns) ** 2)
                v_loss = 0.5 * v_loss.mean()

                entropy_loss = entropy.mean()
                loss = pg_loss - args.ent_coef * entropy_loss + args.vf_coef * v_loss

                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), args.max_grad_norm)
                optimizer.step()

            if args.target_kl is not None and approx_kl > args.target_kl:
                break

        var_y = b_returns.var()
        explained_var = 1 - (b_returns - b_values).var() / var_y if var_y > 0 else float("nan")

        mean_return = np.mean(recent_returns) if recent_returns else float("nan")
        sps = int((global_step - start_step) / (time.time() - start_time))
        if recent_returns:
            writer.add_scalar("charts/mean_episodic_return", mean_return, global_step)
        writer.add_scalar("charts/learning_rate", optimizer.param_groups[0]["lr"], global_step)
        writer.add_scalar("charts/SPS", sps, global_step)
        writer.add_scalar("losses/value_loss", v_loss.item(), global_step)
        writer.add_scalar("losses/policy_loss", pg_loss.item(), global_step)
        writer.add_scalar("losses/entropy", entropy_loss.item(), global_step)
        writer.add_scalar("losses/old_approx_kl", old_approx_kl.item(), global_step)
        writer.add_scalar("losses/approx_kl", approx_kl.item(), global_step)
        writer.add_scalar("losses/clipfrac", torch.stack(clipfracs).mean().item(), global_step)
        writer.add_scalar("losses/explained_variance", float(explained_var), global_step)
        status = {"return": f"{mean_return:.3f}", "SPS": sps}

        # RAPID
        writer.add_scalar("rapid/distinct_states", len(counter), global_step)
        if len(buffer):
            scores = buffer.scores
            writer.add_scalar("rapid/bc_loss", float(bc_loss), global_step)
            writer.add_scalar("rapid/buffer_size", len(buffer), global_step)
            writer.add_scalar("rapid/lowest_score", scores[-1], global_step)
            writer.add_scalar("rapid/mean_score", scores.mean(), global_step)
            status["buffer"] = f"{len(buffer)} pairs, scores {scores[-1]:.3f}-{scores[0]:.3f}"
            if args.draw_buffer and (global_step % args.save_every < batch_size or iteration == num_iterations):
                writer.add_histogram("rapid/scores", scores, global_step)
                writer.add_figure("rapid/buffer", draw_buffer(buffer), global_step)
        # end RAPID

        if args.eval_every and global_step % args.eval_every < batch_size:
            for name, value in evaluate(args, agent, eval_envs).items():
                writer.add_scalar(f"eval/{name}", value, global_step)

        bar.update(batch_size)
        bar.set_postfix(status)

        stopping = bool(stop) and iteration < num_iterations
        if stopping or iteration == num_iterations or global_step % args.save_every < batch_size:
            try:
                writer.flush()  # so that no point before the checkpoint is lost
                save_checkpoint(
                    os.path.join(run_dir, CHECKPOINT),
                    {
                        "args": vars(args),
                        "global_step": global_step,
                        "recent_returns": list(recent_returns),
                        "agent": agent.state_dict(),
                        "optimizer": optimizer.state_dict(),
                        "shuffler": shuffler.bit_generator.state,
                        # RAPID
                        "counter": counter.state_dict(),
                        "buffer": buffer.state_dict(),
                        "bc_next": bc_next,
                        "bc_loss": float(bc_loss),
                        # end RAPID
                        "envs": envs.env.state_dict() if args.engine == "native" else None,
                        "episodes": envs.state_dict() if args.engine == "native" else None,
                        "random": random_state(),
                    },
                )
            except OSError as error:
                sys.exit(f"error: no checkpoint at {global_step} frames, the one before is still there: {error}")
        if stopping:
            break

    bar.close()
    envs.close()
    if eval_envs is not None:
        eval_envs.close()
    writer.close()
    os.close(claim)
    print(f"{global_step - start_step} frames in {time.time() - start_time:.0f} s; "
          f"mean return of the last {len(recent_returns)} episodes: {mean_return:.3f}")  # fmt: skip
    if not recent_returns:
        print("no episode has ended yet: where none ever does, put a gymnasium.wrappers.TimeLimit around")
    if stopping:
        again = f" --env-id {args.env_id}" if ":" in args.env_id else ""
        print(f"go on:   python {shlex.quote(sys.argv[0])} --resume {shlex.quote(run_dir)}{again}")
        sys.exit(128 + stop.number)
    if args.save_model:
        try:
            save_atomically(model_path, agent.state_dict())
        except OSError as error:
            sys.exit(f"error: no network written: {error}; --resume {shlex.quote(run_dir)} tries again")
        print(f"network: {model_path}")
    print(f"curves:  tensorboard --logdir {run_dir}")
