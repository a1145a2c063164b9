"""PPO with RAPID for continuous actions, in one file. It takes any observations but images.

The lines of RAPID stand between `# RAPID` and `# end RAPID`; `--no-rapid` is plain PPO. Ctrl-C saves and stops.
`--NAME` switches a boolean on and `--no-NAME` off (`--no-cuda`, not `--cuda False`); names take hyphens or underscores.
"""

import math
import os
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim
from torch.distributions import Normal

import rapid_wrappers.envs  # noqa: F401  (registers rapid/SparseSwimmer-v0 and others)
from rapid_wrappers import RankingBuffer, StateCounter, VectorEpisodeScoringWrapper, bc_step, finished_episodes
from rapid_wrappers.scores import episode_score
from rapid_wrappers.training.args import EnvironmentArgs, RunArgs, read_args
from rapid_wrappers.training.normalize import ObservationNormalizer, RewardNormalizer, UpdateStatistics
from rapid_wrappers.training.pictures import draw_buffer
from rapid_wrappers.training.run import Run, exit_on_error
from rapid_wrappers.training.spaces import continuous_actions, flat_observations, scored_info


@dataclass
class PPOArgs:
    total_timesteps: int = 1_000_000
    """frames to train, rounded down to whole rollouts of num_envs * num_steps"""
    learning_rate: float = 5e-4
    """learning rate of Adam for PPO and imitation"""
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
    init_std: float = 1.0
    """deviation of the actions at the start, in the environment's units; --bc-loss mse without PPO keeps it"""
    normalize_reward: bool = True
    """divide PPO's rewards (not the ranking's) by the running deviation of discounted returns"""


@dataclass
class RAPIDArgs:
    rapid: bool = True
    """imitate the best episodes; --no-rapid is plain PPO"""
    paper: bool = False
    """start from the paper's setting (1 environment, 5M frames, no forgetting, ...); other flags override it"""
    ppo_loss: bool = False
    """add PPO's losses to imitation (off on the paper's tasks rapid/..., which pay at the end; on elsewhere)"""
    bc_loss: Literal["mse", "nll"] = "nll"
    """mse: squared distance of the mean, which keeps the deviation (the authors'); nll: negative log-likelihood"""
    local_score: Literal["std", "distance"] = "std"
    """std: Eq. 2; distance: mean distance to the episode's mean state, as in the authors' code"""
    score_normalized: bool = True
    """compute the local score in units of the running deviation; --no-score-normalized: of raw observations"""
    w0: float = 1.0
    """weight of the extrinsic score"""
    w1: float = 0.001
    """weight of the local score, for returns in the tens to hundreds; take 0.1 where returns are 0 or 1"""
    w2: float = 0.0
    """weight of the global score, useful only where states repeat; 0 also stops counting them"""
    buffer_size: int = 3_000
    """state-action pairs in the ranking buffer; the paper's 10 000 learn more slowly"""
    age_penalty: float = 1.0
    """score that an episode loses for every 1000 later ones, as a share of the range of returns so far (at least 1); 0
    never forgets, as in the paper"""
    bc_steps: int = 5
    """imitation updates after each episode"""
    bc_batch_size: int = 256
    """state-action pairs per imitation update"""
    bc_target_share: float = 0.9
    """pause imitation until the next rollout once its squared error is below this share of the policy's variance: what
    is left to learn is the noise of the best episodes; 0: never (paper)"""
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
    env_id: str = "rapid/SparseSwimmer-v0"


# Table of Appendix A; the authors' code and commands where it is silent (time limits as terminations, for one).
PAPER = Args(
    paper=True, exp_name="paper", total_timesteps=5_000_000, num_envs=1, ppo_loss=False, bc_loss="mse",
    local_score="distance", w1=0.001, buffer_size=10_000, age_penalty=0.0, bc_target_share=0.0,
    truncation_as_termination=True,
)  # fmt: skip
UNCHANGEABLE = ("rapid", "paper", "init_std", "local_score", "score_normalized")  # by --resume


def task_args(args):
    """The defaults that depend on the task."""
    return {"ppo_loss": not args.env_id.rpartition(":")[2].startswith("rapid/")}


def parse_args(argv=None):
    """The arguments, and the checkpoint to resume from or None."""
    args, checkpoint = read_args(Args, argv, __file__, __doc__, lambda args: PAPER, UNCHANGEABLE, task_args)
    if not args.rapid or args.score_as_reward:  # nothing else would learn
        args.ppo_loss = True
    if args.bc_anneal_until is not None and args.bc_anneal_until < args.total_timesteps and not args.ppo_loss:
        raise ValueError("expected `ppo_loss` where imitation ends before `total_timesteps`: nothing else would learn")
    return args, checkpoint


def wrap_env(env, args):
    return continuous_actions(flat_observations(env, args))


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
    def __init__(self, envs, init_std):
        super().__init__()
        num_inputs = int(np.prod(envs.single_observation_space.shape))
        num_actions = int(np.prod(envs.single_action_space.shape))
        self.inputs = f"{num_inputs} standardized numbers"
        self.normalize = ObservationNormalizer(envs.single_observation_space.shape)
        self.critic = mlp(nn.Linear(num_inputs, 64), 64, 1, std=1.0)
        self.actor_mean = mlp(nn.Linear(num_inputs, 64), 64, num_actions, std=0.01)
        self.actor_logstd = nn.Parameter(torch.full((num_actions,), math.log(init_std)))

    def get_distribution(self, x):
        return Normal(self.actor_mean(x), self.actor_logstd.exp())

    def get_value(self, x):
        return self.critic(x).squeeze(-1)

    @torch.no_grad()
    def act(self, obs, generator=None):
        """Actions (n, num_actions) for raw observations: drawn by the generator, or the means without it."""
        distribution = self.get_distribution(self.normalize(obs).to(self.actor_logstd.device))
        mean, stddev = distribution.mean.cpu(), distribution.stddev.cpu()
        noise = 0 if generator is None else torch.randn(mean.shape, generator=generator)
        return (mean + noise * stddev).numpy()

    def evaluate(self, x, action):
        distribution = self.get_distribution(x)
        return distribution.log_prob(action).sum(-1), distribution.entropy().sum(-1), self.get_value(x)


def make_agent(envs, args):
    return Agent(envs, args.init_std)


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


def bc_target(logstd, bc_loss, share):
    """Loss of imitation at which the squared distance of mean and actions is this share of the policy's variance."""
    if bc_loss == "mse":
        return share * (2 * logstd).exp().mean()
    return (Normal(0.0, logstd.exp()).entropy() - 0.5 * (1 - share)).sum()


if __name__ == "__main__":
    with exit_on_error():
        args, checkpoint = parse_args()
        run = Run(args, checkpoint, __file__)
        envs = run.make_envs(wrap_env)
        agent = make_agent(envs, args).to(run.device)
        envs = UpdateStatistics(envs, agent.normalize)
        # RAPID
        counter, normalize = StateCounter(), None if args.score_normalized else False
        envs = VectorEpisodeScoringWrapper(
            envs, local=args.local_score, counter=counter, count=bool(args.w2 and args.rapid), normalize=normalize,
            state=scored_info(args),
        )  # fmt: skip
        # end RAPID
    batch_size = args.num_envs * args.num_steps
    minibatch_size = batch_size // args.num_minibatches
    optimizer = optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5, fused=True)
    shuffler = np.random.default_rng(args.seed)
    normalize_reward = RewardNormalizer(args.num_envs, args.gamma)  # Gymnasium's would not see the ablations below
    parts = {"agent": agent, "optimizer": optimizer, "shuffler": shuffler, "reward_statistics": normalize_reward}

    # RAPID
    buffer = RankingBuffer(
        args.buffer_size, 0.0 if args.pure_exploration else args.w0, args.w1, args.w2,
        counter=counter if envs.count else None, age_penalty=args.age_penalty,
        whole_episodes=args.whole_episodes, rank=args.rank, seed=args.seed,
    )  # fmt: skip
    parts |= {"counter": counter, "statistics": envs.statistics, "buffer": buffer}
    # end RAPID

    next_obs, global_step, numbers = run.start(envs, parts, bc_next=1, bc_loss=math.nan)

    # RAPID
    bc_next, bc_loss = numbers.values()
    if args.bc_anneal_until is None or global_step < args.bc_anneal_until:  # a resumed run may have a new one
        bc_next = min(bc_next, global_step // batch_size + bc_interval(global_step, args.bc_anneal_until))
    # end RAPID

    # rollout storage
    shape = (args.num_steps, args.num_envs)
    next_obs = agent.normalize(next_obs).to(run.device)
    obs = torch.zeros((*shape, next_obs.shape[1]), device=run.device)
    actions = torch.zeros((*shape, len(agent.actor_logstd)), device=run.device)
    means, stds = torch.zeros((2, *actions.shape), device=run.device)
    rewards, terminations, dones = np.zeros((3, *shape), dtype=np.float32)

    for iteration in run.iterations():
        if args.anneal_lr:
            optimizer.param_groups[0]["lr"] = (1.0 - (iteration - 1.0) / run.num_iterations) * args.learning_rate

        # RAPID
        frames = iteration * batch_size  # the current rollout counts, as in the authors' code
        add = args.rapid and not args.score_as_reward and frames < (args.bc_anneal_until or frames + 1)
        imitate = add and iteration >= bc_next
        if imitate:
            bc_next += bc_interval(frames, args.bc_anneal_until)
        # end RAPID

        noise = torch.randn_like(actions)
        final_obs = {}  # (step, environment): the observation at which the time limit cut an episode off
        for step in range(args.num_steps):
            global_step += args.num_envs
            obs[step] = next_obs
            with torch.no_grad():
                means[step], stds[step] = agent.actor_mean(next_obs), agent.actor_logstd.exp()
                actions[step] = means[step] + stds[step] * noise[step]

            action = actions[step].cpu().numpy().reshape(envs.action_space.shape)
            next_obs, reward, terminated, truncated, infos = envs.step(action)
            next_obs = agent.normalize(next_obs).to(run.device)
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
                if args.score_as_reward:
                    reward[i] = episode_score(*episode.scores, args.w0, args.w1, args.w2)
                if add:
                    buffer.add(episode.observations, episode.actions, episode.scores, episode.state_ids)
                bc_losses = []
                for _ in range(args.bc_steps if imitate else 0):
                    bc_obs, bc_actions = buffer.sample(args.bc_batch_size)
                    bc_obs, bc_actions = agent.normalize(bc_obs), bc_actions.reshape(len(bc_actions), -1)
                    metrics = bc_step(agent.get_distribution, optimizer, bc_obs, bc_actions, loss=args.bc_loss)
                    bc_losses.append(metrics["loss"])
                if imitate:
                    bc_loss = torch.stack(bc_losses).mean()  # the loss of one batch is noisy
                    target = bc_target(agent.actor_logstd.detach(), args.bc_loss, args.bc_target_share)
                    imitate = bool(bc_loss >= target)  # else it rests until the next rollout
            # end RAPID

            if args.ppo_loss and args.normalize_reward:
                reward = normalize_reward(reward, terminated | truncated)
            rewards[step], terminations[step], dones[step] = reward, terminated, terminated | truncated

        # advantages, from the value of the observation each action led to; nothing in the rollout moves the critic
        with torch.no_grad():
            values = agent.get_value(obs.flatten(0, 1)).view(shape)
            next_values = torch.cat([values[1:], agent.get_value(next_obs)[None]])
            if final_obs:
                cut = torch.tensor(list(final_obs), device=run.device).unbind(dim=1)
                next_values[cut] = agent.get_value(agent.normalize(np.stack(list(final_obs.values()))).to(run.device))
            outcomes = torch.as_tensor(np.stack([rewards, terminations, dones])).to(run.device)
            advantages = compute_gae(outcomes[0], values, next_values, *outcomes[1:], args.gamma, args.gae_lambda)

            # flatten the batch: (num_steps, num_envs, ...) -> (batch_size, ...)
            b_obs, b_actions, b_values, b_advantages = (x.flatten(0, 1) for x in (obs, actions, values, advantages))
            b_logprobs = Normal(means, stds).log_prob(actions).sum(dim=-1).flatten(0, 1)
            b_returns = b_advantages + b_values

        # optimize policy and value network
        var_y = b_returns.var()
        explained_var = 1 - (b_returns - b_values).var() / var_y if var_y > 0 else float("nan")
        clipfracs, losses = [], {}
        for _ in range(args.update_epochs if args.ppo_loss else 0):
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
        scalars["charts/action_std"] = agent.actor_logstd.exp().mean()

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
        run.save(global_step, bc_next=bc_next, bc_loss=bc_loss)

    run.finish(agent)
