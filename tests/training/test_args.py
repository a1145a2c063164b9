"""Arguments: their ranges, their restoration from a checkpoint, and what a resumed run may change."""

import sys
from dataclasses import dataclass, replace
from typing import Literal

import pytest

from rapid_wrappers.training.args import check_args, restore_args
from rapid_wrappers.training.checkpoint import save_checkpoint
from tests.conftest import import_script

SCRIPTS = ("ppo_rapid.py", "ppo_rapid_cnn.py", "ppo_rapid_continuous_action.py")
discrete, images, continuous = map(import_script, SCRIPTS)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        (
            "total_timesteps hidden_size num_envs num_steps num_minibatches update_epochs torch_threads save_every "
            "eval_every eval_episodes buffer_size bc_steps bc_batch_size bc_anneal_until",
            [0, -5],
        ),
        ("learning_rate clip_coef max_grad_norm target_kl init_std", [0, -1.0, float("nan"), float("inf")]),
        ("gamma gae_lambda", [-0.1, 1.1, float("nan")]),
        ("ent_coef vf_coef age_penalty bc_target_loss bc_target_share", [-1, float("inf")]),
        ("w0 w1 w2", [float("nan"), float("inf")]),
        ("hash_bits", [0, 40]),
        ("seed", [-1, 2**32]),
        ("exp_name", ["../../escaped", "a/b", ""]),
    ],
)
@pytest.mark.parametrize("script", [discrete, images, continuous])
def test_a_value_out_of_its_range_is_refused_by_its_name(script, name, values):
    args = script.Args()
    for each in name.split():
        for value in values:
            if hasattr(args, each):
                with pytest.raises(ValueError, match=f"^expected `{each}` to be .*, got"):
                    check_args(replace(args, **{each: value}))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"num_steps": 1}, "expected `num_minibatches` to divide num_envs . num_steps = 1 "),
        ({"num_minibatches": 7}, "expected `num_minibatches` to divide .* = 128 "),
        ({"num_minibatches": 128}, "at least 2, got 128"),
        ({"total_timesteps": 127}, "expected `total_timesteps` to be at least one batch"),
        ({"bc_anneal_until": 128}, "expected `bc_anneal_until` to be beyond the first batch"),
        ({"score_as_reward": True, "pure_exploration": True}, "expected at most one of"),
        ({"rapid": False, "score_as_reward": True}, "expected at most one of"),
        ({"rapid": False, "pure_exploration": True}, "expected at most one of"),
    ],
)
@pytest.mark.parametrize("script", [discrete, images, continuous])
def test_values_that_do_not_go_together_are_refused(script, given, message):
    args = script.Args(num_envs=1, num_steps=128)
    check_args(args)
    with pytest.raises(ValueError, match=message):
        check_args(replace(args, **given))


def test_hash_bits_are_for_counting():
    for given in ({"w2": 0.1}, {"local_score": "distinct"}):
        check_args(images.Args(hash_bits=8, **given))
    with pytest.raises(ValueError, match="expected `hash_bits` only with"):
        check_args(images.Args(hash_bits=8))


@dataclass
class Arguments:
    kind: Literal["a", "b"] = "a"
    maybe: Literal["a", 3] | None = None
    number: int | None = None


@pytest.mark.parametrize("values", [("b", None, 1), ("a", 3, None), ("a", "a", 0)])
def test_arguments_are_restored_as_they_were_saved(values):
    arguments = Arguments(*values)
    assert restore_args(Arguments, vars(arguments)) == arguments


@pytest.mark.parametrize(
    "values", [("c", None, 1), (None, None, 1), ("a", "b", 1), ("a", None, 1.0), ("a", None, True)]
)
def test_arguments_of_another_type_are_refused(values):
    with pytest.raises(ValueError, match=r"expected `.*` to be of"):
        restore_args(Arguments, vars(Arguments(*values)))


@pytest.mark.parametrize("values", [None, {"kind": "a"}, vars(Arguments()) | {"other": 1}])
def test_missing_and_unknown_arguments_are_refused(values):
    with pytest.raises(ValueError, match=r"are missing, .* are unknown"):
        restore_args(Arguments, values)


def save(folder, script="ppo_rapid.py", **changes):
    args = vars(discrete.Args(learning_rate=3e-4, engine="native")) | changes
    save_checkpoint(folder / "checkpoint.pt", {"script": script, "args": args})
    return ["--resume", str(folder)]


def test_a_run_resumes_with_its_own_arguments_from_its_folder_or_its_file(tmp_path):
    argv = save(tmp_path, gamma=0.5, num_envs=4, paper=True)
    args, state = discrete.parse_args(argv)
    path = str(tmp_path / "checkpoint.pt")
    assert args == discrete.Args(
        learning_rate=3e-4, engine="native", gamma=0.5, num_envs=4, paper=True, resume=path
    )  # fmt: skip
    assert state["script"] == "ppo_rapid.py"
    assert discrete.parse_args(["--resume", path])[0] == args


def test_arguments_given_to_a_resumed_run_override_the_saved_ones_and_are_named(tmp_path, capsys):
    argv = save(tmp_path)
    args, _ = discrete.parse_args([*argv, "--learning-rate", "1e-3", "--total-timesteps", "2000000"])
    assert (args.learning_rate, args.total_timesteps) == (1e-3, 2_000_000)
    out = capsys.readouterr().out
    assert "learning_rate: 0.001 from here on, 0.0003 before" in out
    assert "total_timesteps: 2000000 from here on, 1000000 before" in out


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--seed 2", "expected `seed` to be 1 as before, got 2"),
        ("--env-id CartPole-v1", "expected `env_id` to be 'rapid/MultiRoom-N7-S4-v0' as before"),
        ("--num-envs 8", "expected `num_envs` to be 16 as before"),
        ("--engine sync", "expected `engine` to be 'native' as before"),
        ("--no-one-hot", "expected `one_hot` to be True as before, got False"),
        ("--hidden-size 64", "expected `hidden_size` to be 128 as before, got 64"),
        ("--w2 0", "expected `w2` to be not zero as before, got 0"),
        ("--gamma 2", r"expected `gamma` to be in \[0, 1\]"),
    ],
)
def test_arguments_that_make_another_run_are_refused(tmp_path, flags, message):
    argv = save(tmp_path)
    with pytest.raises(ValueError, match=message):
        discrete.parse_args([*argv, *flags.split()])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"unknown": 1}, r"\['unknown'\] are unknown"),
        ({"gamma": "much"}, "expected `gamma` to be of"),
        ({"num_steps": 32.0}, "expected `num_steps` to be of"),
        ({"seed": None}, "expected `seed` to be of"),
        ({"engine": "other"}, "expected `engine` to be of"),
        ({"exp_name": "../../escaped"}, "expected `exp_name` to be part of a file's name"),
        ({"script": "other.py"}, "expected a checkpoint of ppo_rapid.py, got one of 'other.py'"),
    ],
)
def test_a_checkpoint_with_other_arguments_is_refused(tmp_path, changes, message):
    argv = save(tmp_path, **changes)
    with pytest.raises(ValueError, match=message):
        discrete.parse_args(argv)


def test_what_is_no_checkpoint_is_refused(tmp_path):
    (tmp_path / "other").write_bytes(b"something else")
    for path, kind, message in (
        (tmp_path / "other", ValueError, "to be a complete checkpoint"),
        (tmp_path, OSError, "no checkpoint at"),
        (tmp_path / "nowhere", OSError, "no checkpoint at"),
    ):
        with pytest.raises(kind, match=message):
            discrete.parse_args(["--resume", str(path)])


def test_a_module_named_by_a_checkpoint_is_imported_only_if_the_user_names_it_too(tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "this", raising=False)
    argv = save(tmp_path, env_id="this:rapid/MultiRoom-N2-S4-v0", engine="sync")
    with pytest.raises(ValueError, match="expected `env_id` beside `resume`, because it imports a module: this:rapid"):
        discrete.parse_args(argv)
    assert "this" not in sys.modules
    args, _ = discrete.parse_args([*argv, "--env-id", "this:rapid/MultiRoom-N2-S4-v0"])
    assert args.env_id == "this:rapid/MultiRoom-N2-S4-v0"


def test_a_checkpoint_alone_tracks_nothing(tmp_path):
    argv = save(tmp_path, track=True, wandb_entity="somebody")
    assert (discrete.parse_args(argv)[0].track, discrete.parse_args([*argv, "--track"])[0].track) == (False, True)


@pytest.mark.parametrize("script", [discrete, continuous])
def test_a_value_behind_a_switch_is_refused(script):
    with pytest.raises(ValueError, match="expected switches without a value, such as `--no-cuda`"):
        script.parse_args(["--cuda", "False"])


def test_the_experiments_name_tells_plain_ppo_and_the_papers_setting_apart():
    flags = ([], ["--no-rapid"], ["--paper"], ["--paper", "--no-rapid"], ["--no-rapid", "--exp-name", "mine"])
    names = [discrete.parse_args(argv)[0].exp_name for argv in flags]
    assert names == ["ppo_rapid", "ppo", "paper", "paper_ppo", "mine"]
