"""Import: every forged result is refused with its reason and leaves nothing; the rest is scored."""

import copy
import json
import re
from pathlib import Path

import msgspec
import pytest

from assay.errors import OutputError
from assay.run.host import LocalHost
from assay_arc import ArcProblem
from assay_arc.cards import derive_played
from assay_arc.catalog import BUILT_IN
from assay_arc.generated import collect_results
from assay_arc.importing import ImportSource, KnownGame, check_result, import_results
from assay_arc.scoring import score_game
from assay_arc.store import Store

LEVELS = {"gd01": 4, "ky01": 5, "mx01": 4, "od01": 5, "so01": 4, "tg01": 5}


@pytest.fixture
def known(games) -> dict[str, KnownGame]:
    by_id = {
        game_id: KnownGame(**msgspec.structs.asdict(info), level_count=LEVELS[info.base_id])
        for game_id, info in games.items()
    }
    return by_id | {game_id.split("-")[0]: game for game_id, game in by_id.items()}


class Desk:
    """A result folder, its session logs and a store to import into."""

    def __init__(self, folder: Path, known) -> None:
        self.folder, self.known = folder, known
        self.sessions = folder / "sessions"
        self.sessions.mkdir(parents=True)
        self.store = Store(folder / "store")

    def collect(self) -> dict:
        args = collect_results.read_arguments(
            ["--sessions-dir", str(self.sessions), "--harness", "codex", "--model", "m-1"]
        )
        return collect_results.collect(args)

    def take(self, result, *, sessions=True, harness="codex"):
        path = self.folder / "result.json"
        path.write_text(result if isinstance(result, str) else json.dumps(result))
        source = ImportSource(
            harness=harness,
            result=path,
            sessions=self.sessions if sessions else None,
            games_dir=BUILT_IN,
            games=self.known,
        )
        return import_results([source], self.store, LocalHost())

    def refused(self, result, **options) -> str:
        """Import what must not be imported; give why, and check that nothing is left behind."""
        with pytest.raises(ArcProblem) as caught:
            self.take(result, **options)
        left = [path for path in self.store.root.rglob("*") if path.is_file()]
        assert left == []
        assert list(self.store.root.rglob(".import-*")) == []
        return caught.value.message


@pytest.fixture
def desk(quick_folder, known):
    return Desk(quick_folder / "desk", known)


@pytest.fixture
def won(desk, table, solutions):
    """A desk with the log of a game that was won, with a reset and a refused action in between."""
    game = table("ky01-v1")
    game.do("act", action="ACTION2")
    game.do("reset")
    game.do("act", action="ACTION5")
    for way in solutions["ky01-v1"]:
        for step in way:
            game.step(step)
    game.session.end("player_quit")
    game.log.close()
    hide_baselines(game.path, desk.sessions / "ky01-v1.jsonl")
    return desk


def hide_baselines(source: Path, target: Path) -> None:
    """Write a log as the generated driver does: it is told no baselines."""
    head, _, rest = source.read_bytes().partition(b"\n")
    header = json.loads(head) | {"baselines": None}
    target.write_bytes(json.dumps(header).encode() + b"\n" + rest)


def edit_log(desk: Desk, change) -> dict:
    """Change the records of the log and collect the result from it, as a forger would."""
    path = desk.sessions / "ky01-v1.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()]
    change(records)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return desk.collect()


def test_a_true_result_is_verified_and_scored_from_its_log(won, table):
    done = won.take(won.collect())
    meta = done.run.meta
    assert (meta.verified, meta.status, meta.game_set) == ("replayed", "completed", "imported")
    assert meta.harness_config.model == "m-1"
    [game] = done.card.games
    [trial] = game.trials
    assert (trial.won, trial.actions, trial.resets) == (True, 77, 1)
    expected = score_game(derive_played(done.run.folder, meta)[0][0].result).score_percent
    assert done.card.percent == pytest.approx(expected)
    assert 0 < expected < 100
    files = {path.name for path in done.run.folder.iterdir()}
    assert {"run-meta.json", "scorecard.json", "environment-scores.json", "logs"} <= files
    scores = json.loads((done.run.folder / "environment-scores.json").read_text())
    [environment] = scores["environments"]
    assert environment["score"] == pytest.approx(game.score * 100)
    assert [level["actions_taken"] for level in environment["levels"]] == [12, 7, 24, 15, 19]


def test_without_logs_a_result_is_unverified_but_kept(won):
    done = won.take(won.collect(), sessions=False)
    assert done.run.meta.verified == "unverified"
    assert "no session logs" in done.run.meta.verification
    assert done.card.games[0].trials[0].verified == "unverified"
    assert done.card.percent is not None


def test_a_bare_id_is_the_newest_version_with_its_baselines(won):
    result = won.collect()
    result["games"][0]["game_id"] = "ky01"
    done = won.take(result, sessions=False)
    assert done.card.games[0].id == "ky01-v1"
    assert done.card.games[0].baselines == [10, 7, 24, 15, 19]


def forge_answer(records, **changes):
    event = [r for r in records if r.get("outcome") == "executed"][-1]
    event["answer"] |= changes


FORGED_LOGS = {
    "more levels than played": (
        lambda r: [forge_answer(r[:20], levelsCompleted=3)],
        "does not replay|record|levels",
    ),
    "fewer actions": (lambda r: r.__delitem__(slice(5, 8)), "a line is missing or moved"),
    "fewer actions, renumbered": (
        lambda r: (r.__delitem__(slice(5, 8)), [x.update(seq=i) for i, x in enumerate(r[1:])]),
        "does not replay",
    ),
    "reordered": (lambda r: r.__setitem__(slice(6, 8), [r[7], r[6]]), "missing or moved"),
    "another version of the game": (
        lambda r: r[0].update(sourceSha256="0" * 64),
        "sha256 of the game's source",
    ),
    "baselines edited": (lambda r: r[0].update(baselines=[999] * 5), "baselines"),
    "another game": (lambda r: r[0].update(gameId="od01-v1"), "od01-v1.jsonl is missing"),
    "another seed": (lambda r: r[0].update(seed=99), "seed"),
    "levels invented": (lambda r: r[0].update(levelCount=3), "total_levels"),
    "no header": (lambda r: r.pop(0), "not a session log|header"),
    "frames painted": (lambda r: forge_answer(r, frameSha256="0" * 64), "frame_sha256"),
}


@pytest.mark.parametrize("name", FORGED_LOGS)
def test_forged_logs_are_refused_with_the_first_difference(won, name):
    change, words = FORGED_LOGS[name]
    honest = won.collect()
    try:
        result = edit_log(won, change)
    except collect_results.CollectError:
        result = honest
        result["games"][0].pop("session")
    said = won.refused(result)
    assert re.search(words, said), said


def test_a_result_that_says_more_than_its_log_is_refused(won):
    honest = won.collect()
    path = won.sessions / "ky01-v1.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:30]))
    assert "sha256 differs" in won.refused(honest)
    honest["games"][0].pop("session")
    assert re.search("state|levels_completed", won.refused(honest))
    for field, value, words in [
        ("total_actions", 500, "total_actions"),
        ("total_resets", 9, "total_resets"),
    ]:
        forged = copy.deepcopy(won.collect())
        forged["games"][0][field] = value
        assert words in won.refused(forged)
    forged = won.collect()
    forged["games"][0]["levels"][0]["actions_taken"] -= 1
    assert "level 1 actions" in won.refused(forged)


def test_symbolic_links_are_refused(won, tmp_path):
    result = won.collect()
    log = won.sessions / "ky01-v1.jsonl"
    moved = tmp_path / "elsewhere.jsonl"
    moved.write_bytes(log.read_bytes())
    log.unlink()
    log.symlink_to(moved)
    assert "symbolic link" in won.refused(result)
    (won.folder / "real.json").write_text(json.dumps(result))
    (won.folder / "result.json").unlink()
    (won.folder / "result.json").symlink_to(won.folder / "real.json")
    source = ImportSource(
        harness="codex",
        result=won.folder / "result.json",
        sessions=None,
        games_dir=BUILT_IN,
        games=won.known,
    )
    with pytest.raises(ArcProblem, match="symbolic link"):
        import_results([source], won.store, LocalHost())


def level(index=1, done=True, taken=10, baseline=None) -> dict:
    return {
        "level_index": index,
        "completed": done,
        "actions_taken": taken,
        "baseline_actions": baseline,
    }


def game_row(**changes) -> dict:
    row = {
        "game_id": "ky01-v1",
        "state": "NOT_FINISHED",
        "levels_completed": 1,
        "total_levels": 5,
        "total_actions": 12,
        "total_resets": 0,
        "levels": [level(), level(2, False, 2)],
    }
    return row | changes


def result_of(*rows, **changes) -> dict:
    result = {
        "schema_version": "1.0.0",
        "harness": "codex",
        "timestamp": "2026-01-01T00:00:00+00:00",
        "seed": 0,
        "games": list(rows) or [game_row()],
        "metadata": {"model": "m"},
    }
    return result | changes


WRONG = [
    (result_of(game_row(levels=[level(baseline=999999)])), "says 10"),
    (result_of(game_row(levels=[level(baseline=-50)])), "baseline_actions must be a whole number"),
    (result_of(game_row(total_actions=-5)), "total_actions must be a whole number"),
    (result_of(game_row(total_actions="5")), "total_actions must be a whole number"),
    (result_of(game_row(total_actions=True)), "total_actions must be a whole number"),
    (result_of(game_row(total_actions=12.0)), "total_actions must be a whole number"),
    (result_of(game_row(state="BANANA")), "state must be one of"),
    (result_of(game_row(levels_completed=3, total_levels=1)), "has 5 levels"),
    (result_of(game_row(levels_completed=6)), "6 of 5 levels"),
    (result_of(game_row(total_levels=10**8)), "has 5 levels"),
    (result_of(game_row(levels=[level()] * 100_000)), "more than any game has"),
    (result_of(game_row(levels=[level(3), level(1, False)])), "level_index must be 1"),
    (result_of(game_row(), game_row(game_id="ky01")), "ky01-v1 appears twice"),
    (result_of(games=[]), "must not be empty"),
    (result_of(games={}), "must be an array"),
    (result_of("ky01-v1"), "games[0] must be an object"),
    (result_of(game_row(levels=["x"])), "levels[0] must be an object"),
    (result_of(game_row(game_id="../../../etc/passwd")), "unknown game"),
    (result_of(game_row(game_id="nope-v1")), "unknown game"),
    (result_of(game_row(game_id=7)), "unknown game"),
    (result_of(game_row(state="WIN")), "state is WIN with 1 of 5"),
    (result_of(game_row(levels_completed=2)), "first 2 must be completed"),
    (result_of(game_row(levels_completed=0)), "more are completed"),
    (result_of(game_row(total_actions=3)), "took 12 actions, but only 3"),
    (result_of(game_row(levels=[level(taken=0)])), "completed without any action"),
    (result_of(game_row(state="NOT_PLAYED")), "NOT_PLAYED, but something was played"),
    (result_of(timestamp="yesterday"), "ISO 8601"),
    (result_of(seed=1.5), "seed must be a whole number"),
    (result_of(metadata=[]), "metadata must be an object"),
    ([], "must be an object"),
]


@pytest.mark.parametrize(("result", "words"), WRONG, ids=[words for _, words in WRONG])
def test_17_18_impossible_values_are_refused(desk, result, words):
    assert words in desk.refused(result, sessions=False)


def test_every_missing_field_is_listed_as_the_seed_does(known):
    result = result_of({"game_id": "ky01-v1", "levels": [{"completed": True}]})
    del result["seed"]
    _, errors, _ = check_result(result, "codex", known)
    for name in ("seed", "games[0].levels_completed", "games[0].levels[0].baseline_actions"):
        assert f"Missing required field: {name}" in errors


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity"])
def test_18_not_a_number_is_not_json(desk, text):
    broken = json.dumps(result_of()).replace("12", text)
    assert "NaN and Infinity are not JSON" in desk.refused(broken, sessions=False)


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, '{"a": "\\ud800"}'])
def test_broken_files_are_refused(desk, text):
    desk.refused(text, sessions=False)


def test_mismatch_of_harness_and_version_only_warn(desk):
    result = result_of(harness="gemini", schema_version="1.1.0", scoring_formula_version="9")
    warnings = desk.take(result, sessions=False).warnings
    assert len(warnings) == 3
    assert any('("gemini") does not match argument ("codex")' in text for text in warnings)


def test_19_duplicates_are_known_by_content_and_not_by_time(desk):
    first = desk.take(result_of(), sessions=False).run.meta.run_id
    spaced = json.dumps(result_of(), indent=7)
    with pytest.raises(ArcProblem, match=f"Duplicate import detected.*{first}"):
        desk.take(spaced, sessions=False)
    other = result_of(game_row(total_actions=13))
    desk.take(other, sessions=False)
    desk.take(result_of(), sessions=False, harness="gemini")
    assert len(desk.store.completed()) == 3


def test_20_an_import_that_breaks_leaves_nothing_and_can_be_repeated(desk, monkeypatch):
    from assay_arc import importing as take_over

    real = take_over.write_card

    def full_disk(*args, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(take_over, "write_card", full_disk)
    with pytest.raises(OutputError, match="No space left"):
        desk.take(result_of(), sessions=False)
    assert desk.store.imported() == []
    assert list(desk.store.root.rglob("*.json")) == []
    monkeypatch.setattr(take_over, "write_card", real)
    desk.take(result_of(), sessions=False)
    assert len(desk.store.imported()) == 1


def test_20_what_a_killed_import_left_is_no_run_and_is_cleared(desk):
    left = desk.store.import_dir("codex") / ".import-0000"
    left.mkdir(parents=True)
    (left / "run-meta.json").write_text('{"run_id": ".import-0000", "status": "completed"}')
    assert desk.store.completed() == []
    desk.take(result_of(), sessions=False)
    assert not left.exists()


def test_games_that_were_not_played_are_zero(desk):
    unplayed = game_row(
        state="NOT_PLAYED", levels_completed=0, total_levels=0, total_actions=0, levels=[]
    )
    unplayed["game_id"] = "od01-v1"
    done = desk.take(result_of(game_row(), unplayed), sessions=False)
    by_id = {game.id: game for game in done.card.games}
    assert by_id["od01-v1"].percent == 0
    assert by_id["od01-v1"].score_reason == "not played"
    assert done.card.games_scored == 2


def test_a_log_larger_than_allowed_is_refused(won, monkeypatch):
    monkeypatch.setattr("assay_arc.importing.MAX_LOG_BYTES", 1000)
    assert "larger than" in won.refused(won.collect())
    monkeypatch.setattr("assay_arc.importing.MAX_RESULT_BYTES", 100)
    assert "larger than" in won.refused(won.collect())


def test_files_of_a_run_are_strict_json(won):
    folder = won.take(won.collect()).run.folder
    for path in folder.glob("*.json"):
        json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(name))
    assert (folder / "scorecard.json").stat().st_mode & 0o777 == 0o644
    card = msgspec.json.decode((folder / "scorecard.json").read_bytes())
    assert 0 <= card["score"] <= 1
    assert card["score_percent"] > 1
