"""assay ab with trials of another day: they count only as long as they still hold."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.compare.ledger import read_looks, standing
from assay.pipeline.arms import EarlierTrials, begin_of
from assay.records.experiment import Arm, EditLook
from assay.records.signatures import Signatures

N_PROMPTS, K = 12, 3


class Team:
    """Somebody who edits a template again and again, beside a provider that may change."""

    def __init__(self, folder: Path, assay: Callable[..., Any]) -> None:
        self.folder, self._assay = folder, assay
        rows = [{"id": f"p{i}", "input": f"Task {i}", "hint": "good"} for i in range(N_PROMPTS)]
        (folder / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        # A provider is nothing that identity can see, and so is a name with a question mark.
        (folder / "agent.sh").write_text(
            f"if [ -f version ]; then echo treated; else echo control; fi >> {folder}/log\n"
            f"if grep -q helps version 2>/dev/null; then echo good; else cat {folder}/answe?; fi\n"
        )
        self.provider("bad")

    def provider(self, answer: str) -> None:
        (self.folder / "answer").write_text(answer)

    def edit(self, text: str) -> None:
        (self.folder / "tpl").mkdir(exist_ok=True)
        (self.folder / "tpl" / "version").write_text(text)

    def ab(self, *args: str) -> Any:
        """Run the experiment; return what it printed, with the number of trials of each arm."""
        (self.folder / "log").write_text("")
        agent = f"sh {self.folder}/agent.sh"
        done = self._assay(
            "ab", "prompts.jsonl", "--shell", agent,
            *(() if "--with" in args else ("--with", "template=tpl")),
            "-g", "contains", "-k", str(K), "-j", "2", *args,
            cwd=self.folder,
        )  # fmt: skip
        log = (self.folder / "log").read_text().split()
        self.n_control, self.n_treated = log.count("control"), log.count("treated")
        return done

    def command(self, *args: str) -> Any:
        return self._assay(*args, cwd=self.folder)

    def rows(self, name: str, arm: str) -> list[dict[str, Any]]:
        """The rows of the newest run of an experiment."""
        runs = (self.folder / "experiments" / name).glob("*/verdict.json")
        newest = max(runs, key=lambda path: _read(path)["ended"]).parent
        return [json.loads(line) for line in (newest / f"{arm}.jsonl").read_text().splitlines()]

    @property
    def verdict(self) -> dict[str, Any]:
        runs = list((self.folder / "experiments").glob("*/*/verdict.json"))
        newest: dict[str, Any] = max(map(_read, runs), key=lambda one: one["ended"])
        return newest


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


@pytest.fixture(scope="session")
def team_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("team")


@pytest.fixture
def team(team_folder: Path, assay: Callable[..., Any]) -> Team:
    """A team that has measured a useless template.

    72 trials for each test would take most of its time. So they are run once, and every test gets
    a copy in the same place, because paths are a part of what was measured.
    """
    folder, kept = team_folder / "now", team_folder / "measured"
    shutil.rmtree(folder, ignore_errors=True)
    if not kept.exists():
        folder.mkdir()
        team = Team(folder, assay)
        team.edit("1")
        assert team.ab().code == 0
        assert (team.n_control, team.n_treated) == (N_PROMPTS * K, N_PROMPTS * K)
        folder.rename(kept)
    shutil.copytree(kept, folder, symlinks=True)
    team = Team(folder, assay)
    team.edit("2")
    return team


def test_a_control_that_still_holds_is_run_again_in_eight_places(team: Team) -> None:
    done = team.ab()
    assert (team.n_control, team.n_treated) == (8, N_PROMPTS * K), done.stderr
    found = team.verdict["reuse"]["control"]
    assert (found["nReused"], found["nTrials"]) == (28, 36)
    assert found["check"]["agrees"] is True
    assert found["check"]["nAgain"] == 8
    assert "control: 28 of 36 trials reused, up to 1 hour old; 8 trials run again agree" in (
        " ".join(done.stdout.split())
    )
    # The same command again finds all of it, and asks nothing.
    assert team.ab().code == 0
    assert (team.n_control, team.n_treated) == (0, 0)
    assert team.verdict["reuse"]["control"]["check"] == found["check"]


def test_a_provider_that_has_changed_is_no_effect(team: Team) -> None:
    team.provider("good")
    done = team.ab()
    assert (team.n_control, team.n_treated) == (N_PROMPTS * K, N_PROMPTS * K)
    assert team.verdict["verdicts"] != {"tpl": "better"}
    assert "\ntpl helps" not in done.stdout
    found = team.verdict["reuse"]["control"]
    assert (found["nReused"], found["check"]["agrees"]) == (0, False)
    said = " ".join(done.stdout.split())
    assert "earlier trials are not used, because 8 trials run again did not confirm them" in said
    assert "(0 % before, 100 % now" in said
    assert any("did not confirm them" in words for words in team.verdict["proof"]["words"])
    shown = [path.read_text() for path in (team.folder / "experiments").glob("*/*/verdict.md")]
    assert any("did not confirm them" in text for text in shown)


def test_what_is_shown_holds_against_trials_of_today(team: Team) -> None:
    team.edit("this one helps")
    team.ab()
    # Two rounds of the control are of today before anything is said.
    assert (team.n_control, team.n_treated) == (2 * N_PROMPTS, N_PROMPTS * K)
    found = team.verdict["reuse"]["control"]
    assert (found["nReused"], found["claim"]) == (N_PROMPTS, "held")
    team.ab()
    assert (team.n_control, team.n_treated) == (0, 0)


def test_an_early_end_rests_on_trials_of_today_alone(team: Team) -> None:
    team.edit("this one helps")
    team.ab("--until", "decided")
    found = team.verdict["reuse"]["control"]
    assert (found["nReused"], found["claim"]) == (0, "held")
    assert 8 <= team.n_control < N_PROMPTS * K


@pytest.mark.parametrize(("mode", "n_control"), [("all", 0), ("none", N_PROMPTS * K)])
def test_reuse_can_be_chosen(team: Team, mode: str, n_control: int) -> None:
    done = team.ab("--reuse", mode)
    assert team.n_control == n_control
    if mode == "all":
        assert "36 of 36 trials reused, up to 1 hour old; they were not checked" in (
            " ".join(done.stdout.split())
        )


def test_arms_of_one_run_need_no_check(team: Team) -> None:
    """Trials of both arms that were made side by side are compared with each other only."""
    team.edit("1")
    team.ab("-k", str(K + 1))
    assert (team.n_control, team.n_treated) == (N_PROMPTS, N_PROMPTS)
    assert team.verdict["reuse"] == {}


def test_a_later_edit_is_promising_until_it_is_confirmed(team: Team) -> None:
    team.edit("this one helps")
    done = team.ab()
    assert team.verdict["verdicts"] == {"tpl": "promising"}
    told = "tpl is promising, and not confirmed (edit 2 against this control): 0 % → 100 %"
    assert told in done.stdout
    assert "edit 2 against this control" in done.stdout
    assert team.verdict["edits"]["tpl"]["edit"] == 2
    assert [look["code"] for look in team.verdict["edits"]["tpl"]["looks"]] == ["not-enough-data"]
    assert team.ab("--confirm").code == 0
    assert (team.n_control, team.n_treated) == (N_PROMPTS * K, N_PROMPTS * K)
    assert team.verdict["verdicts"] == {"tpl": "confirmed"}
    # The same confirmation is not drawn again, and the edit keeps it.
    done = team.ab("--confirm")
    assert (team.n_control, team.n_treated) == (0, 0)
    assert (
        "tpl helps, which is confirmed (both arms were run anew to confirm it): 0 % →"
        in done.stdout
    )
    status = team.command("ab", "status")
    assert "tpl: 3 verdicts against this control" in status.stdout
    drawn = [line for line in status.stdout.splitlines() if "o--" in line or "-o" in line]
    assert [line.split()[-1] for line in drawn] == ["not-enough-data", "promising", "confirmation"]
    assert all(len(line) <= 80 for line in drawn)


def test_the_same_edit_drawn_anew_is_another_look(team: Team) -> None:
    """Who runs one version again and again until it helps has looked as often."""
    team.edit("1")
    team.provider("bad")
    team.ab("--fresh")
    assert team.verdict["edits"]["tpl"]["nTries"] == 1
    # So has who makes the plan longer after its end; only the sequential rule may look again.
    team.ab("-k", str(K + 1))
    assert team.verdict["edits"]["tpl"]["nTries"] == 2


def test_a_version_in_a_folder_of_its_own_is_another_look(team: Team) -> None:
    """The same control and prompts, but an experiment of another name: nothing begins anew."""
    team.edit("this one helps")
    shutil.copytree(team.folder / "tpl", team.folder / "other")
    team.ab("--with", "template=other")
    assert team.verdict["name"] == "other"
    assert team.verdict["verdicts"] == {"other": "promising"}
    assert team.verdict["edits"]["other"]["edit"] == 2


def test_prompts_held_back_are_for_confirmations_alone(team: Team) -> None:
    top = (
        f'prompts = "prompts.jsonl"\ngraders = ["contains"]\nshell = "sh {team.folder}/agent.sh"\n'
    )
    arms = '[arms.control]\n[arms.tpl]\ntemplate = "tpl"\n'
    (team.folder / "held.toml").write_text(f"{top}k = 1\nholdout = 0.4\n{arms}")
    team.edit("helps")
    assert team.command("ab", "held.toml").code == 0
    asked = {row["id"] for row in team.rows("held", "control")}
    assert team.command("ab", "held.toml", "--confirm").code == 0
    confirmed = {row["id"] for row in team.rows("held", "control")}
    assert asked
    assert confirmed
    assert not asked & confirmed
    assert len(asked | confirmed) == N_PROMPTS


def test_holdout_and_a_file_of_prompts_exclude_each_other(team: Team) -> None:
    top = 'prompts = "prompts.jsonl"\ngraders = ["contains"]\nshell = "cat"\nholdout = 0.5\n'
    arms = 'confirm-prompts = "prompts.jsonl"\n[arms.control]\n[arms.tpl]\ntemplate = "tpl"\n'
    (team.folder / "both.toml").write_text(f"{top}{arms}")
    done = team.command("ab", "both.toml")
    assert done.code == 1
    assert "holdout and confirm-prompts cannot be used together" in done.stderr


def test_another_question_put_to_the_same_trials_is_another_look(team: Team) -> None:
    """Who leaves out the prompts that did not pass has looked before."""
    team.edit("1")
    team.ab("--filter", "p1,p2,p3,p4,p5,p6,p7,p8")
    assert team.verdict["edits"]["tpl"]["nTries"] == 1
    team.ab("-g", "regex:.*")
    assert team.verdict["edits"]["tpl"]["nTries"] == 2


def test_a_confirmation_that_failed_is_not_drawn_again() -> None:
    looks = [EditLook(run="1", ended="1", edit="e", code="not-enough-data", is_confirmation=True)]
    again = standing(looks, "e", run="2", is_confirmation=True)
    assert again.code("better") == "promising"
    assert again.words == "1 earlier confirmation did not confirm it"
    assert standing([], "e", run="2", is_confirmation=True).code("better") == "confirmed"


def test_a_version_is_confirmed_only_after_a_run_that_showed_it_to_help(team: Team) -> None:
    """Who confirms each of twenty versions at once has looked at twenty."""
    team.edit("this one helps")
    done = team.ab("--confirm")
    assert team.verdict["verdicts"] == {"tpl": "promising"}
    told = " ".join(done.stdout.split())
    assert "is promising, and not confirmed (no earlier run showed it; --confirm --fresh" in told
    team.ab("--confirm", "--fresh")
    assert team.verdict["verdicts"] == {"tpl": "confirmed"}


def test_confirmations_of_other_versions_that_failed_are_counted() -> None:
    looks = [
        EditLook(run="1", ended="1", edit="a", code="not-enough-data", is_confirmation=True),
        EditLook(run="2", ended="2", edit="e", code="promising"),
    ]
    found = standing(looks, "e", run="3", is_confirmation=True)
    assert found.code("better") == "confirmed"
    assert found.words.endswith("to confirm it; 1 other version could not be confirmed")


def test_another_limit_or_another_name_of_the_arm_begins_no_new_ledger(team: Team) -> None:
    top = (
        f'prompts = "prompts.jsonl"\ngraders = ["contains"]\nshell = "sh {team.folder}/agent.sh"\n'
    )
    for n, (name, more) in enumerate([("one", ""), ("one", "timeout = 50000\n"), ("two", "")]):
        team.edit(str(n))
        arms = f'[arms.control]\n[arms.{name}]\ntemplate = "tpl"\n'
        (team.folder / "named.toml").write_text(f"{top}k = 1\n{more}{arms}")
        assert team.command("ab", "named.toml").code == 0
        # The first look is that of the team, in an experiment of another name.
        assert team.verdict["edits"][name]["nTries"] == n + 1


def plant(team: Team, where: str, *, change: bool = True, with_signatures: bool = True) -> Path:
    """Do as an agent that copies the control's trials, each with the other verdict."""
    (source,) = (team.folder / "experiments").glob("*/*/control.jsonl")
    folder = team.folder / "experiments" / where
    folder.mkdir(parents=True, exist_ok=True)
    text = source.read_text()
    assert '"pass":false' in text
    if change:
        text = text.replace('"pass":false', '"pass":true').replace('"score":0', '"score":1')
    (folder / "control.jsonl").write_text(text)
    for name in ("resolved.json", "signatures") if with_signatures else ():
        shutil.copy(source.with_name(name), folder / name)
    return folder


@pytest.mark.parametrize("with_signatures", [False, True])
def test_planted_rows_are_no_candidates(team: Team, with_signatures: bool) -> None:
    plant(team, "aaa/9999-01-01-0", with_signatures=with_signatures)
    done = team.ab("--reuse", "all")
    assert "aaa/9999-01-01-0" not in team.verdict["reused"]
    assert "12 rows of aaa/9999-01-01-0/control.jsonl not used: Assay did not sign" in done.stdout
    assert {trial["pass"] for row in team.rows("tpl", "control") for trial in row["trials"]} == {
        False
    }


def test_rows_of_a_run_that_goes_on_must_be_signed(team: Team) -> None:
    """An agent that outlives the run changes its rows; the same command would believe them."""
    team.edit("1")
    (source,) = (team.folder / "experiments").glob("*/*/control.jsonl")
    plant(team, str(source.parent.relative_to(team.folder / "experiments")), with_signatures=False)
    done = team.ab()
    assert (done.code, team.n_control) == (1, 0)
    assert "12 rows that Assay did not sign here" in done.stderr
    assert "--fresh" in done.stderr
    assert team.ab("--fresh").code == 0


def test_a_clock_that_was_set_back_brings_no_old_trials_back(team: Team) -> None:
    """The first run began in the future; a fresh one begins a line after it all the same."""
    team.edit("1")
    (folder,) = (team.folder / "experiments").glob("*/*")
    signatures = Signatures.begin(folder, '{"began":"2099-01-01T00:00:00+00:00","fresh":false}')
    assert signatures is not None
    for name in ("control.jsonl", "tpl.jsonl"):
        for line in (folder / name).read_bytes().splitlines():
            signatures.sign(line)
    assert team.ab("--fresh").code == 0
    assert team.n_control == N_PROMPTS * K
    team.edit("2")
    assert team.ab("--reuse", "all").code == 0
    assert team.verdict["reused"] == {f"tpl/{folder.name}-2": N_PROMPTS * K}


def test_a_run_without_the_key_of_this_user_gives_no_trials(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(team.folder / "another"))
    team.ab()
    assert team.n_control == N_PROMPTS * K
    assert team.verdict["reused"] == {}


def test_a_decision_that_somebody_wrote_is_made_again(team: Team) -> None:
    team.edit("1")
    (path,) = (team.folder / "experiments").glob("*/*/verdict.json")
    before = _read(path)
    changed = before | {"verdicts": {"tpl": "better"}, "sentences": ["tpl helps: +1.00"]}
    path.write_text(json.dumps(changed))
    status = team.command("ab", "status", "--check")
    assert status.code == 4
    assert "+1.00" not in status.stdout
    assert "verdict.json is not as assay ab wrote it" in status.stdout
    done = team.ab()
    assert "tpl helps: +1.00" not in done.stdout
    assert _read(path)["verdicts"] == before["verdicts"]


@pytest.mark.parametrize("name", ["control.jsonl", "verdict.json", "resolved.json", "signatures"])
@pytest.mark.parametrize("kind", ["FIFO", "10 TiB", "folder", "link to itself"])
def test_nothing_that_is_planted_among_experiments_holds_a_run_up(
    tmp_path: Path, name: str, kind: str
) -> None:
    folder = tmp_path / "aaa" / "9999-01-01-0"
    folder.mkdir(parents=True)
    (folder / "control.jsonl").write_text('{"id": "p"}\n')
    (path := folder / name).unlink(missing_ok=True)
    if kind == "FIFO":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "link to itself":
        path.symlink_to(path)
    else:
        path.touch()
        os.truncate(path, 10 << 40)
    earlier = EarlierTrials(tmp_path, tmp_path / "mine" / "0")
    assert earlier.find([]) == {}
    assert read_looks(tmp_path / "aaa", Arm(), "x") == []
    assert begin_of(folder).began == "9999-01-01"
    signatures = Signatures.begin(folder, "{}")  # takes the place of whatever is there
    assert signatures is not None
    signatures.sign(b"row")
    found = Signatures.read(folder)
    assert found is not None
    assert found.holds(b"row")


def test_a_planted_confirmation_confirms_nothing(team: Team) -> None:
    team.edit("helps")
    assert team.ab().code == 0
    run = max((team.folder / "experiments/tpl").iterdir(), key=lambda one: one.stat().st_mtime_ns)
    planted = run.with_name("2026-01-01-00000000")
    shutil.copytree(run, planted)
    verdict = _read(planted / "verdict.json") | {"confirm": True, "ended": "2026-01-01T00:00:00"}
    (planted / "verdict.json").write_text(json.dumps(verdict))
    control = Arm(shell=f"sh {team.folder}/agent.sh")
    looks = read_looks(run.parent, control, "tpl")
    assert planted.name in {look.run for look in looks}
    assert not any(look.is_confirmation for look in looks)


def test_a_check_draws_among_the_trials_that_need_one(team: Team) -> None:
    """The eight places that the run before ran again need none: all are of that run there."""
    assert team.ab().code == 0
    done = team.ab("-g", "regex:nothing")
    assert done.code == 0, done.stderr
    found = team.verdict["reuse"]["control"]
    assert (found["check"]["nAgain"], found["check"]["agrees"]) == (8, True)
    assert (team.n_control, team.n_treated) == (8, 8)


@pytest.mark.parametrize("how", ["filter", "edit"])
def test_prompts_that_were_chosen_by_their_results_are_run_again(
    assay: Callable[..., Any], tmp_path: Path, how: str
) -> None:
    """Those that got better by chance are kept, and those that got worse left out, or edited."""
    team = Team(tmp_path, assay)
    (tmp_path / "agent.sh").write_text(
        f"[ -f version ] && arm=treated || arm=control; echo $arm >> {tmp_path}/log\n"
        f'grep -qx "$arm $PROMPT" {tmp_path}/chanc? && echo good || echo bad\n'
    )
    team.edit("1")
    luck = [f"{'treated' if i < 8 else 'control'} Task {i}\n" for i in range(N_PROMPTS)]
    (tmp_path / "chance").write_text("".join(luck))
    assert team.ab("-k", "1").code == 0
    (tmp_path / "chance").write_text("")
    if how == "filter":
        done = team.ab("-k", "1", "--filter", ",".join(f"p{i}" for i in range(8)))
    else:
        text = (tmp_path / "prompts.jsonl").read_text()
        for i in range(8, N_PROMPTS):
            text = text.replace(f'"Task {i}"', f'"Task {i} "')
        (tmp_path / "prompts.jsonl").write_text(text)
        done = team.ab("-k", "1")
    assert done.code == 0, done.stderr
    assert "helps: " not in done.stdout.replace("whether tpl helps", "")
    assert team.verdict["verdicts"] != {"tpl": "better"}
    n_left = 0 if how == "filter" else 4
    assert (team.n_control, team.n_treated) == (8 + n_left, 8 + n_left)
    assert team.verdict["reuse"]["tpl"]["check"]["agrees"] is False


def test_prompts_that_tell_no_arms_apart_can_be_left_out(team: Team) -> None:
    team.edit("1")
    done = team.ab("--filter", "!p0,!p1")
    assert done.code == 0, done.stderr
    assert (team.n_control, team.n_treated) == (0, 0)
