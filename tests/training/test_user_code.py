"""What users name on the command line, and how the errors of third parties read."""

import sys
from types import SimpleNamespace

import gymnasium as gym
import pytest

from rapid_wrappers.training.user_code import explain, load_wrapper, parse_keywords
from rapid_wrappers.wrappers.recorded_spaces import RecordedSpaces


def caught(function):
    try:
        function()
    except Exception as error:
        return error


@pytest.mark.parametrize(
    ("word", "value"),
    [("a=1", 1), ("a=-0.5", -0.5), ("a=True", True), ("a=None", None), ("a=[1, 2]", [1, 2]), ("a=red", "red"),
     ("a='1'", "1"), ("a=", ""), ("a=x=y", "x=y"), ("a=__import__('os')", "__import__('os')")],
)  # fmt: skip
def test_a_value_is_read_as_a_literal_or_is_a_string(word, value):
    assert parse_keywords([word]) == {"a": value}


@pytest.mark.parametrize("words", [["a"], ["=1"], ["a b=1"], ["a=1", "a=2"], ["1=2"]])
def test_words_of_another_form_are_refused(words):
    with pytest.raises(ValueError, match="expected `env_kwargs` as KEY=VALUE, each key once"):
        parse_keywords(words)


def test_a_wrapper_is_imported_with_its_arguments():
    env = gym.make("CartPole-v1")
    for text, limit in (
        ("gymnasium.wrappers:TimeLimit(7)", 7),
        ("gymnasium.wrappers:TimeLimit(max_episode_steps=3)", 3),
    ):
        assert load_wrapper(text)(env)._max_episode_steps == limit
    assert isinstance(load_wrapper("gymnasium.wrappers:FlattenObservation")(env), gym.wrappers.FlattenObservation)


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("FlattenObservation", ValueError, "expected `wrapper` as MODULE:CLASS"),
        ("gymnasium.wrappers.FlattenObservation", ValueError, "expected `wrapper` as MODULE:CLASS"),
        ("gymnasium.wrappers:TimeLimit(os.getcwd())", ValueError, "expected the arguments of `wrapper` to be literals"),
        ("gymnasium.wrappers:TimeLimit(1", ValueError, "expected `wrapper` as MODULE:CLASS"),
        ("gymnasium.wrappers:TimeLimit)(", ValueError, "expected `wrapper` as MODULE:CLASS"),
        ("gymnasium.wrappers:Nothing", ImportError, "gymnasium.wrappers has no Nothing"),
        ("no_such_module:Nothing", ImportError, "no_such_module"),
    ],
)
def test_a_wrapper_that_cannot_be_imported_is_refused(text, error, message):
    with pytest.raises(error, match=message):
        load_wrapper(text)


def test_an_id_that_is_not_registered_is_told_to_name_its_package():
    text = explain(caught(lambda: gym.make("ALE/Pong-v5")), "ALE/Pong-v5")
    assert text.startswith("ALE/Pong-v5: ") and text.endswith("PACKAGE:ID, such as ale_py:ALE/Pong-v5.")
    text = explain(caught(lambda: gym.make("json:Pong-v5")), "json:Pong-v5")
    assert text.endswith("Importing json did not register it with Gymnasium.")


@pytest.mark.parametrize("registry", [{"Old-v0": 1}, SimpleNamespace(env_specs={"Old-v0": 1})])
def test_an_id_of_the_old_gym_is_told_so(registry, monkeypatch):
    monkeypatch.setitem(sys.modules, "gym", SimpleNamespace(envs=SimpleNamespace(registry=registry)))
    text = explain(caught(lambda: gym.make("Old-v0")), "json:Old-v0")
    assert "old `gym`" in text and text.endswith("--env-id shimmy:GymV26Environment-v0 --env-kwargs env_id=Old-v0")


def raise_error(error):
    raise error


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (KeyError("size"), "E: KeyError: 'size' (--traceback shows where)"),
        (RuntimeError("first\n  second\nlast\n"), "E: RuntimeError: last (--traceback shows where)"),
        (AssertionError(), "E: AssertionError:  (--traceback shows where)"),
        (ValueError("wrong size"), "E: wrong size (--traceback shows where)"),
        (gym.error.DeprecatedEnv("use v4"), "E: use v4"),
    ],
)
def test_the_error_of_a_third_party_is_one_line_with_its_last_line(error, text):
    assert explain(caught(lambda: raise_error(error)), "E") == text


def test_our_own_errors_say_all_there_is_to_say():
    error = caught(lambda: RecordedSpaces(gym.spaces.Text(3), None))
    assert explain(error, "E") == f"E: {error}"
