"""assay tape: what is on a tape, how two differ, and smaller tapes made of one."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.records.tape import Exchange, Lane, Tape, TapeWriter, Tokens

Assay = Callable[..., Any]


def event(text: str) -> str:
    value = {"choices": [{"delta": {"content": text}}]}
    return f"data: {json.dumps(value)}\n\n"


def call(name: str) -> str:
    made = {"index": 0, "id": "call_1", "function": {"name": name, "arguments": "{}"}}
    return f"data: {json.dumps({'choices': [{'delta': {'tool_calls': [made]}}]})}\n\n"


def filled(
    path: Path, *prompts: str, said: str = "Hello ACME-42", result: str = "of ACME-7"
) -> Path:
    """Write a tape with a trial of two requests for each prompt; the second has a tool's result."""
    with TapeWriter(path) as writer:
        for number, prompt in enumerate(prompts):
            again = prompts[:number].count(prompt)
            about = {"prompt": {"id": prompt, "input": f"Do {prompt}."}}
            lane = writer.add_lane(
                Lane(lane=0, prompt=prompt, trial=again + 1, agent="codex", version="1.2",
                     asked=[f"Do {prompt}."], about=about)
            ).lane  # fmt: skip
            asked = [{"role": "user", "content": f"Do {prompt}."}]
            common = {"lane": lane, "method": "POST", "path": "/v1/chat/completions"}
            common |= {"status": 200, "model": "gpt-5.5", "turn": 1}
            writer.add(Exchange(number=1, request={"model": "gpt-5.5", "messages": asked},
                                answer=[(10, event(said[:8])), (20, event(said[8:])),
                                        (30, call("bash"))],
                                tokens=Tokens(input=1000, output=10), **common))  # fmt: skip
            asked = [
                *asked,
                {"role": "assistant", "content": said},
                {"role": "tool", "content": "<assay:result 1>"},
            ]
            writer.add(Exchange(number=2, request={"model": "gpt-5.5", "messages": asked},
                                results=[result], answer=[(1500, event("Done."))],
                                **common))  # fmt: skip
    return path


def test_show_lists_lanes_and_turns_with_models_and_tokens(assay: Assay, tmp_path: Path) -> None:
    tape = filled(tmp_path / "a.tape", "sum", "sum")
    done = assay("tape", "show", tape)
    assert done.code == 0, done
    assert "Lane 2: prompt sum, trial 2 (codex 1.2)" in done.stdout
    assert "Hello ACME-42; calls bash" in done.stdout
    (lane,) = map(
        json.loads, assay("tape", "show", tape, "--lane", 1, "--json").stdout.splitlines()
    )
    first, second = lane["turns"]
    assert (first["model"], first["inputTokens"], first["turn"]) == ("gpt-5.5", 1000, 1)
    assert (second["text"], second["inputTokens"], second["ms"]) == ("Done.", None, 1500)
    whole = json.loads(assay("tape", "show", tape, "--lane", 2, "--request", 2).stdout)
    assert whole["request"]["messages"][0]["content"] == "Do sum."
    assert whole["results"] == ["of ACME-7"]
    prompts = assay("tape", "show", tape, "--prompts").stdout
    assert json.loads(prompts) == {"id": "sum", "input": "Do sum."}


def test_stats_tell_cost_and_time_that_a_replay_saves(assay: Assay, tmp_path: Path) -> None:
    tape = filled(tmp_path / "a.tape", "sum", "list")
    found = json.loads(assay("tape", "stats", tape, "--json").stdout)
    assert (found["trials"], found["requests"], found["seconds"]) == (2, 4, pytest.approx(3.06))
    assert found["models"]["gpt-5.5"]["inputTokens"] == 2000
    assert found["costUsd"] > 0
    assert "A replay saves $0.0" in assay("tape", "stats", tape).stdout


def test_diff_names_what_differs_first(assay: Assay, tmp_path: Path) -> None:
    old = filled(tmp_path / "a.tape", "sum", "list")
    same = filled(tmp_path / "b.tape", "sum", "list")
    assert "do not differ" in assay("tape", "diff", old, same).stdout
    new = filled(tmp_path / "c.tape", "sum", "more", said="Hello you", result="other")
    lines = assay("tape", "diff", old, new).stdout
    assert "prompt list, trial 1: only on " in lines
    said = "request 1: the answer differs at text: 'Hello ACME-42' and 'Hello you'"
    assert said in " ".join(lines.split())
    assert "request 2: the request differs at messages[1].content" in " ".join(lines.split())


def test_cut_gives_one_trial_that_any_machine_replays(assay: Assay, tmp_path: Path) -> None:
    tape, bug = filled(tmp_path / "a.tape", "sum", "list", "sum"), tmp_path / "bug.tape"
    done = assay("tape", "cut", tape, "--trial", "sum", "-o", bug)
    assert done.code == 1
    assert "has several trials of 'sum': 1, 2" in done.stderr
    done = assay("tape", "cut", tape, "--trial", "sum:2", "-o", bug)
    assert done.code == 0, done
    assert "codex 1.2" in done.stderr
    with Tape(bug) as cut:
        (lane,) = cut.lanes
        assert (lane.prompt, lane.trial, lane.of) == ("sum", 1, "prompt sum, trial 2")
        assert cut.about(lane)["prompt"]["input"] == "Do sum."
        assert len(cut.spots(1)) == 2
    assert assay("tape", "cut", tape, "--trial", "sum:2", "-o", bug).code == 1  # it exists
    assert "its prompts: list, sum" in assay("tape", "cut", tape, "--trial", "x", "-o", "x").stderr


def test_prune_removes_lanes_that_were_recorded_again(assay: Assay, tmp_path: Path) -> None:
    tape = filled(tmp_path / "a.tape", "sum", "list")
    with TapeWriter(tape) as writer:
        lane = writer.add_lane(Lane(lane=0, prompt="sum")).lane
        writer.add(Exchange(lane=lane, number=1, method="POST", path="/", request={}))
    done = assay("tape", "prune", tape)
    assert "1 lane with 2 requests removed" in done.stderr
    with Tape(tape) as pruned:
        assert [lane.words for lane in pruned.lanes] == [
            "prompt list, trial 1",
            "prompt sum, trial 1",
        ]
        assert len([*pruned.exchanges()]) == 3
    (tmp_path / "p.jsonl").write_text('{"id": "list", "input": "x"}\n')
    assay("tape", "prune", tape, "--prompts", tmp_path / "p.jsonl", "-o", tmp_path / "b.tape")
    with Tape(tmp_path / "b.tape") as pruned:
        assert [lane.prompt for lane in pruned.lanes] == ["list"]
    with Tape(tape) as left:
        assert len(left.lanes) == 2


def test_scrub_removes_texts_and_says_what_can_be_replayed(assay: Assay, tmp_path: Path) -> None:
    tape, clean = filled(tmp_path / "a.tape", "sum"), tmp_path / "clean.tape"
    done = assay("tape", "scrub", tape, "--pattern", "ACME-[0-9]+", "-o", clean)
    assert done.code == 0, done
    assert "prompt sum, trial 1: 2 of 2 requests can still be replayed" in done.stderr
    with Tape(clean) as opened:
        first, second = opened.exchanges()
        assert "ACME" not in str([first, second])
        # A text that came in pieces is one, in the answer and in the history that repeats it.
        assert "".join(json.loads(text[5:])["choices"][0]["delta"]["content"]
                       for _, text in first.answer[:2]) == "Hello [removed]"  # fmt: skip
        assert second.request["messages"][1]["content"] == "Hello [removed]"
        assert second.results == ["of [removed]"]
    done = assay("tape", "scrub", tape, "--pattern", "Do sum")
    assert "0 of 2 requests can still be replayed; request 1 at message 1" in done.stderr
    with Tape(tape) as opened:
        assert opened.lanes[0].asked == ["[removed]."]
        assert opened.about(opened.lanes[0])["prompt"]["input"] == "[removed]."
    assert assay("tape", "scrub", tape, "--pattern", "(").code == 2


def test_a_tape_that_is_being_recorded_is_not_changed(assay: Assay, tmp_path: Path) -> None:
    tape = filled(tmp_path / "a.tape", "sum")
    with TapeWriter(tape):
        done = assay("tape", "prune", tape)
        assert done.code == 1
        assert "is being written by another assay process" in done.stderr
