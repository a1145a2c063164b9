import os
import subprocess
import sys

import pytest

from rapid_wrappers.training.folder import claim_folder, describe_process, make_folder, remove_if_empty


def run(code, cwd):
    return subprocess.run([sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True)


def test_folders_of_one_name_get_a_number_each(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = [make_folder("runs/a__b__1__2") for _ in range(3)]
    assert made == ["runs/a__b__1__2", "runs/a__b__1__2~2", "runs/a__b__1__2~3"]
    assert all(map(os.path.isdir, made))


def test_a_folder_is_claimed_by_one_process_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    claim = claim_folder(str(tmp_path), "c.pt")
    with pytest.raises(OSError, match="another process writes to"):
        claim_folder(str(tmp_path), "c.pt")
    os.close(claim)
    os.close(claim_folder(str(tmp_path), "c.pt"))


def test_only_an_empty_folder_is_removed(tmp_path):
    for name, files in (("empty", []), ("locked", [".lock"]), ("used", [".lock", "events"])):
        (tmp_path / name).mkdir()
        for file in files:
            (tmp_path / name / file).touch()
        remove_if_empty(str(tmp_path / name))
    remove_if_empty(str(tmp_path / "nowhere"))
    assert os.listdir(tmp_path) == ["used"]


CLAIM = (
    "from rapid_wrappers.training.folder import *; import errno, os; os.makedirs('a b'); claim_folder('a b', 'c.pt')\n"
)


def test_a_process_that_ends_before_anything_was_written_leaves_no_folder(tmp_path):
    assert run(CLAIM + "raise KeyboardInterrupt", tmp_path).stderr == "interrupted before there was anything to save\n"
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("error", "traceback"), [("OSError(errno.ENOSPC, 'No space left')", False), ("ValueError('a fault')", True)]
)
def test_the_last_words_of_a_process_are_the_error_and_how_to_resume(tmp_path, error, traceback):
    ended = run(f"{CLAIM}open('a b/c.pt', 'w').close(); raise {error}", tmp_path)
    assert ended.returncode == 1
    assert ("Traceback" in ended.stderr) == traceback
    assert ended.stderr.endswith("resume from the last checkpoint: --resume 'a b'\n")


def test_a_process_is_described_by_command_commit_and_machine(tmp_path, monkeypatch):
    script = tmp_path / "script.py"
    script.touch()
    monkeypatch.setattr(sys, "argv", [str(script), "--note", "two words"])
    outside = describe_process()
    assert outside["command"] == "python script.py --note 'two words'"
    assert outside["commit"] == "" and outside["machine"]
    git = ["git", "-C", str(tmp_path), "-c", "user.name=A", "-c", "user.email=a@b.c"]
    for arguments in (["init"], ["add", "."], ["commit", "-m", "first"]):
        subprocess.run([*git, *arguments], check=True, capture_output=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout
    commit = describe_process()["commit"]
    assert len(commit) >= 7 and head.startswith(commit)
    script.write_text("changed")
    assert describe_process()["commit"] == f"{commit}-dirty"
    monkeypatch.setenv("PATH", "")
    assert describe_process()["commit"] == ""
