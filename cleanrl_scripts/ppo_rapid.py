"""PPO with RAPID for discrete actions, in one file. It takes any observations but images.

The lines of RAPID stand between `# RAPID` and `# end RAPID`; `--no-rapid` is plain PPO. Ctrl-C saves and stops.
`--NAME` switches a boolean on and `--no-NAME` off (`--no-cuda`, not `--cuda False`); names take hyphens or underscores.
"""

import math
import os
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim

import rapid_wrappers.envs  # noqa: F401  (registers rapid/MultiRoom-N7-S4-v0 and others)
from rapid_wrappers import RankingBuffer, StateCounter, VectorEpisodeScoringWrapper, bc_step, finished_episodes
from rapid_wrappers.scores import episode_score, returns_differ
from rapid_wrappers.training.args import EnvironmentArgs, RunArgs, read_args
from rapid_wrappers.training.categoricals import Categoricals, most_likely
from rapid_wrappers.training.one_hot import OneHotEncoder, OneHotLinear
from rapid_wrappers.training.pictures import draw_buffer
from rapid_wrappers.training.run import Run, exit_on_error
from rapid_wrappers.training.spaces import action_sizes, code_sizes, discrete_actions, flat_observations, scored_info


@dataclass
class PPOArgs:
    total_timesteps: int = 1_000_000
    """frames to train, rounded down to whole rollouts of num_envs * num_steps"""
    one_hot: bool = True
    """feed MiniGrid's view as one-hot codes (type, colour and state of each cell) instead of raw numbers"""
    direction: bool = False
    """show the agent MiniGrid's direction, too"""
    mission: bool = False
    """show the agent the words of MiniGrid's mission, too, for tasks in which it changes (BabyAI)"""
    hidden_size: int = 128
    """units in each of the two hidden layers of policy and of value; the paper has 64"""
    learning_rate: float | None = None
    """learning rate of Adam for PPO and imitation (None: 3e-4, or 1e-4 with --no-one-hot)"""
    anneal_lr: bool = False
    """decrease the learning rate linearly to 0"""
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
    """normalize the advantages of each minibatch"""
    clip_coef: float = 0.2
    """clipping of the probability ratio and of the value's change"""
    clip_vloss: bool = True
    """clip the value loss"""
    ent_coef: float = 0.01
    """coefficient of the entropy"""
    vf_coef: float = 0.5
    """coefficient of the value loss"""
    max_grad_norm: float = 0.5
    """maximum norm of PPO's gradient"""
    target_kl: float | None = None
    """stop a rollout's epochs above this KL divergence"""
    truncation_as_termination: bool = False
    """treat a time limit as termination, as the authors do, instead of bootstrapping from the final observation"""


@dataclass
class RAPIDArgs:
    rapid: bool = True
    """imitate the best episodes; --no-rapid is plain PPO"""
    paper: bool = False
    """start from the paper's setting (20M frames, 1 environment, raw input, 1e-4, ...); other flags override it"""
    w0: float = 1.0
    """weight of the extrinsic score"""
    w1: float = 0.1
    """weight of the local score"""
    local_of_longest: bool = True
    """count distinct states as a share of the longest episode so far; --no-local-of-longest: of the episode itself
    (Eq. 1, paper), by which the shortest lives score best"""
    w2: float = 0.001
    """weight of the global score; 0 also stops counting states"""
    buffer_size: int = 5_000
    """state-action pairs in the ranking buffer; the paper's 10 000 learn more slowly"""
    age_penalty: float | None = None
    """score that an episode loses for every 1000 later ones, as a share of the range of returns so far (at least 1); 0
    never forgets, as in the paper (None: 1 if the first returns differ, so that good ones may be luck, else 0.05)"""
    bc_steps: int = 5
    """imitation updates after each episode"""
    bc_frames_per_step: int = 16
    """frames for each imitation update at least, so that short episodes do not make it outweigh PPO; 0: no bound
    (paper)"""
    bc_batch_size: int = 256
    """state-action pairs per imitation update"""
    bc_target_loss: float = 0.3
    """pause imitation until the next rollout once its loss is below this, as an agent that knows the buffer by heart
    stops exploring; 0: never (paper)"""
    bc_anneal_until: int | None = None
    """anneal the frequency of imitation to 0 at this frame (Appendix J); None: never"""
    whole_episodes: bool = False
    """never cut the last episode kept (Appendix H)"""
    rank: bool = True
    """keep the best pairs; --no-rank keeps the latest (ablation)"""
    score_as_reward: bool = False
    """pay the episode's score as its only reward, on its last step, without buffer and imitation (ablation)"""
    pure_exploration: bool = False
    """use no extrinsic reward, neither for PPO nor in the ranking"""
    draw_buffer: bool = False
    """add a picture of the ranking buffer and a histogram of its scores to TensorBoard at each checkpoint"""


@dataclass
class Args(RAPIDArgs, PPOArgs, EnvironmentArgs, RunArgs):
    exp_name: str = os.path.basename(__file__)[: -len(".py")]
    env_id: str = "rapid/MultiRoom-N7-S4-v0"


# Table of Appendix A; the authors' code and commands where it is silent (time limits as terminations, for one).
PAPER = Args(
    paper=True, exp_name="paper", total_timesteps=20_000_000, one_hot=False, hidden_size=64, learning_rate=1e-4,
    num_envs=1, buffer_size=10_000, age_penalty=0.0, bc_target_loss=0.0, bc_frames_per_step=0,
    local_of_longest=False, truncation_as_termination=True,
)  # fmt: skip
PAPER_ANNEALING = {"KeyCorridorS3R2": 1_200_000, "KeyCorridorS3R3": 3_000_000}  # the authors' commands
UNCHANGEABLE = ("rapid", "paper", "one_hot", "direction", "mission", "hidden_size")  # by --resume


def paper_args(args):
    """The defaults under --paper."""
    until = [until for task, until in PAPER_ANNEALING.items() if task in args.env_id]
    return replace(PAPER, bc_anneal_until=until[0] if until else None)


def parse_args(argv=None):
    """The arguments, and the checkpoint to resume from or None."""
    args, checkpoint = read_args(Args, argv, __file__, __doc__, paper_args, UNCHANGEABLE)
    if args.learning_rate is None:
        args.learning_rate = 3e-4 if args.one_hot else 1e-4
    return args, checkpoint


def wrap_env(env, args):
    return discrete_actions(flat_observations(env, args, codes=True))


def layer_init(layer, std=np.sqrt(2), bias_const=0.0):
    torch.nn.init.orthogonal_(layer.weight, std)
    torch.nn.init.constant_(layer.bias, bias_const)
    return layer


def mlp(first_layer, hidden_size, num_outputs, std):
    return nn.Sequential(
        layer_init(first_layer), nn.Tanh(), layer_init(nn.Linear(hidden_size, hidden_size)), nn.Tanh(),
        layer_init(nn.Linear(hidden_size, num_outputs), std),
    )  # fmt: skip


class Agent(nn.Module):
    def __init__(self, envs, code_sizes, hidden_size):
        super().__init__()
        observations, actions = envs.single_observation_space, envs.single_action_space
        self.action_sizes, self.action_shape = action_sizes(actions), actions.shape
        if code_sizes:
            self.encode = OneHotEncoder(code_sizes)
            first_layer, num_inputs = OneHotLinear, self.encode.num_inputs
        else:
            self.encode = lambda x: x.reshape(len(x), -1).float()
            first_layer, num_inputs = nn.Linear, int(np.prod(observations.shape))
        self.inputs = f"{num_inputs} {'one-hot inputs' if code_sizes else 'numbers'}"
        self.critic = mlp(first_layer(num_inputs, hidden_size), hidden_size, 1, std=1.0)
        self.actor = mlp(first_layer(num_inputs, hidden_size), hidden_size, sum(self.action_sizes), std=0.01)

    def get_logits(self, x):
        return self.actor(self.encode(x))

    def get_distribution(self, x):
        return Categoricals(self.get_logits(x), self.action_sizes)

    def get_value(self, x):
        return self.critic(self.encode(x)).squeeze(-1)

    @torch.no_grad()
    def act(self, obs, generator=None):
        """Actions for raw observations: drawn by the generator, or the most likely ones without it."""
        obs = torch.as_tensor(obs if obs.dtype != np.float64 else obs.astype(np.float32))
        logits = self.get_logits(obs.to(self.actor[-1].weight.device)).cpu()
        if generator is not None:  # the largest of logits + Gumbel noise is a sample from their softmax
            logits = logits - torch.empty_like(logits).exponential_(generator=generator).log()
        return most_likely(logits, self.action_sizes).numpy().reshape(-1, *self.action_shape)

    def evaluate(self, x, action):
        encoded = self.encode(x)
        distribution = Categoricals(self.actor(encoded), self.action_sizes)
        entropy = distribution.entropy()
        return distribution.log_prob(action), entropy, self.critic(encoded).squeeze(-1)


def make_agent(envs, args):
    return Agent(envs, code_sizes(envs.single_observation_space, args), args.hidden_size)


def compute_gae(rewards, values, next_values, terminations, dones, gamma, gae_lambda):
    """Advantages (num_steps, num_envs); `next_values[t]` is the value of the true observation that action t led to."""
    advantages = rewards + gamma * next_values * (1 - terminations) - values
    discounts = gamma * gae_lambda * (1 - dones)
    for t in reversed(range(len(rewards) - 1)):
        advantages[t].addcmul_(discounts[t], advantages[t + 1])
    return advantages


def bc_interval(frames, until):
    """Updates from one imitation to the next after `frames` frames: the authors' schedule (`rapid/agent.py`)."""
    return 1 if until is None else int(1 / (1 - frames / until))


if __name__ == "__main__":
    with exit_on_error():
        args, checkpoint = parse_args()
        run = Run(args, checkpoint, __file__)
        envs = run.make_envs(wrap_env)
        agent = make_agent(envs, args).to(run.device)
        # RAPID
        counter, count = StateCounter(), None if args.w2 and args.rapid else False
        envs = VectorEpisodeScoringWrapper(envs, counter=counter, count=count, state=scored_info(args))
        # end RAPID
    batch_size = args.num_envs * args.num_steps
    minibatch_size = batch_size // args.num_minibatches
    optimizer = optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5, fused=True)
    shuffler = np.random.default_rng(args.seed)
    parts = {"agent": agent, "optimizer": optimizer, "shuffler": shuffler}

    # RAPID
    buffer = RankingBuffer(
        args.buffer_size, 0.0 if args.pure_exploration else args.w0, args.w1, args.w2,
        counter=counter if envs.count else None, age_penalty=0.05 if args.age_penalty is None else args.age_penalty,
        whole_episodes=args.whole_episodes, rank=args.rank, seed=args.seed,
    )  # fmt: skip
    parts |= {"counter": counter, "statistics": envs.statistics, "buffer": buffer}
    # end RAPID

    next_obs, global_step, numbers = run.start(envs, parts, bc_next=1, bc_loss=math.nan, longest=1, age_penalty=0.0)

    # RAPID
    bc_next, bc_loss, longest, age_penalty = numbers.values()
    if args.bc_anneal_until is None or global_step < args.bc_anneal_until:  # a resumed run may have a new one
        bc_next = min(bc_next, global_step // batch_size + bc_interval(global_step, args.bc_anneal_until))
    bc_policy = agent.get_logits if len(agent.action_sizes) == 1 else agent.get_distribution  # logits are faster
    # end RAPID

    # rollout storage
    shape = (args.num_steps, args.num_envs)
    next_obs = torch.as_tensor(next_obs if next_obs.dtype != np.float64 else next_obs.astype(np.float32)).to(run.device)
    obs = torch.zeros((*shape, *next_obs.shape[1:]), dtype=next_obs.dtype, device=run.device)
    actions = torch.zeros((*shape, len(agent.action_sizes)), dtype=torch.int64, device=run.device)
    logits = torch.zeros((*shape, sum(agent.action_sizes)), device=run.device)
    rewards, terminations, dones = np.zeros((3, *shape), dtype=np.float32)

    for iteration in run.iterations():
        if args.anneal_lr:
            optimizer.param_groups[0]["lr"] = (1.0 - (iteration - 1.0) / run.num_iterations) * args.learning_rate

        # RAPID
        frames = iteration * batch_size  # the current rollout counts, as in the authors' code
        if args.age_penalty is None and len(run.log.returns) == 100:  # decided once
            buffer.age_penalty = age_penalty = age_penalty or (1.0 if returns_differ(run.log.returns) else 0.05)
        add = args.rapid and not args.score_as_reward and frames < (args.bc_anneal_until or frames + 1)
        imitate = add and iteration >= bc_next
        if imitate:
            bc_next += bc_interval(frames, args.bc_anneal_until)
        bc_left = batch_size // args.bc_frames_per_step if args.bc_frames_per_step else math.inf
        # end RAPID

        # the largest of logits + Gumbel noise is a sample from their softmax
        gumbel = -torch.empty_like(logits).exponential_().log()
        final_obs = {}  # (step, environment): the observation at which the time limit cut an episode off
        for step in range(args.num_steps):
            global_step += args.num_envs
            obs[step] = next_obs
            with torch.no_grad():
                logits[step] = agent.get_logits(next_obs)
                actions[step] = most_likely(logits[step] + gumbel[step], agent.action_sizes)

            action = actions[step].cpu().numpy().reshape(envs.action_space.shape)
            next_obs, reward, terminated, truncated, infos = envs.step(action)
            next_obs = torch.as_tensor(next_obs).to(run.device, obs.dtype)
            if args.truncation_as_termination:
                terminated = terminated | truncated
            if args.pure_exploration or args.score_as_reward:
                reward = np.zeros_like(reward)
            for i in np.flatnonzero(truncated & ~terminated).tolist():
                final_obs[step, i] = infos["final_obs"][i]
            episodes = list(finished_episodes(infos))
            run.log.episodes(global_step, episodes)

            # RAPID
            for i, episode in episodes:
                scores, longest = episode.scores, max(longest, len(episode))
                if args.local_of_longest and envs.local == "distinct":
                    scores = scores._replace(local=scores.local * len(episode) / longest)
                if args.score_as_reward:
                    reward[i] = episode_score(*scores, args.w0, args.w1, args.w2)
                if add:
                    buffer.add(episode.observations, episode.actions, scores, episode.state_ids)
                for _ in range(min(args.bc_steps, bc_left) if imitate else 0):
                    bc_left -= 1
                    bc_obs, bc_actions = buffer.sample(args.bc_batch_size)
                    bc_actions = bc_actions.reshape(len(bc_actions), -1)
                    bc_loss = bc_step(bc_policy, optimizer, bc_obs, bc_actions)["loss"]
                    if bc_loss < args.bc_target_loss:
                        imitate = False  # until the next rollout
                        break
            # end RAPID

            rewards[step], terminations[step], dones[step] = reward, terminated, terminated | truncated

        # advantages, from the value of the observation each action led to; nothing in the rollout moves the critic
        with torch.no_grad():
            values = agent.get_value(obs.flatten(0, 1)).view(shape)
            next_values = torch.cat([values[1:], agent.get_value(next_obs)[None]])
            if final_obs:
                cut = torch.tensor(list(final_obs), device=run.device).unbind(dim=1)
                next_values[cut] = agent.get_value(torch.as_tensor(np.stack(list(final_obs.values()))).to(obs))
            outcomes = torch.as_tensor(np.stack([rewards, terminations, dones])).to(run.device)
            advantages = compute_gae(outcomes[0], values, next_values, *outcomes[1:], args.gamma, args.gae_lambda)

            # flatten the batch: (num_steps, num_envs, ...) -> (batch_size, ...)
            b_obs, b_actions, b_values, b_advantages = (x.flatten(0, 1) for x in (obs, actions, values, advantages))
            b_logprobs = Categoricals(logits.flatten(0, 1), agent.action_sizes).log_prob(b_actions)
            b_returns = b_advantages + b_values

        # optimize policy and value network
        var_y = b_returns.var()
        explained_var = 1 - (b_returns - b_values).var() / var_y if var_y > 0 else float("nan")
        clipfracs, losses = [], {}
        for _ in range(args.update_epochs):
            b_inds = torch.from_numpy(shuffler.permutation(batch_size)).to(run.device)
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

            losses = {
                "losses/value_loss": v_loss, "losses/policy_loss": pg_loss, "losses/entropy": entropy_loss,
                "losses/old_approx_kl": old_approx_kl, "losses/approx_kl": approx_kl,
                "losses/clipfrac": torch.stack(clipfracs).mean(), "losses/explained_variance": explained_var,
            }  # fmt: skip
            if args.target_kl is not None and approx_kl > args.target_kl:
                break

        scalars, shown = losses | {"charts/learning_rate": optimizer.param_groups[0]["lr"]}, {}

        # RAPID
        scalars["rapid/distinct_states"] = len(counter)
        if len(buffer):
            scores = buffer.scores
            scalars["rapid/bc_loss"], scalars["rapid/buffer_size"] = bc_loss, len(buffer)
            scalars["rapid/lowest_score"], scalars["rapid/mean_score"] = scores[-1], scores.mean()
            shown["buffer"] = f"{len(buffer)} pairs, scores {scores[-1]:.3g} to {scores[0]:.3g}"
            if args.draw_buffer and run.saves(global_step):
                run.log.writer.add_histogram("rapid/scores", scores, global_step)
                run.log.writer.add_figure("rapid/buffer", draw_buffer(buffer), global_step)
        # end RAPID

        run.log.rollout(global_step, scalars, shown)
        run.evaluate(global_step, agent)
        run.save(global_step, bc_next=bc_next, bc_loss=bc_loss, longest=longest, age_penalty=age_penalty)

    run.finish(agent)
