"""assay.run: trials as they end, in a file or not, broken off or not."""

import asyncio
import gc
import importlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from types import FunctionType, ModuleType

import pytest

import assay as library
from assay.errors import AssayError, InputError, PluginError, UsageError
from assay.run import background, fork

PROMPTS = [{"id": f"p{n}", "input": f"say {n}", "hint": str(n)} for n in range(6)]


def echo(text):
    return text


def slow(text):
    time.sleep(60)
    return text


def has_hint(trial):
    return trial.hint in trial.output


def alive_with(tag):
    """Processes whose command line or environment has the tag."""
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit() and int(path.name) != os.getpid():
            try:
                environment = (path / "environ").read_bytes() + (path / "cmdline").read_bytes()
            except OSError:
                continue
            if tag.encode() in environment:
                found.append(int(path.name))
    return found


def wait_until_none(tag, seconds=10):
    until = time.monotonic() + seconds
    while (left := alive_with(tag)) and time.monotonic() < until:
        time.sleep(0.05)
    return left


def sleeper(tag, seconds=60):
    """A command line whose process has a tag, and that of its child."""
    return {"shell": f'sh -c "sleep {seconds} # {tag}" ; echo "$PROMPT"'}


def test_trials_come_as_they_end():
    run = library.run(PROMPTS, agent=echo, graders=[has_hint, "contains"], jobs=3)
    trials = list(run)
    assert sorted(trial.id for trial in trials) == [f"p{n}" for n in range(6)]
    assert all(trial.passed for trial in trials)
    assert set(trials[0].grades) == {"has_hint", "contains"}
    assert trials[0].agent.adapter == "function"


def test_k_trials_of_each_prompt_have_numbers():
    trials = list(library.run(PROMPTS[:2], agent=echo, k=3, jobs=2))
    assert sorted((trial.id, trial.number) for trial in trials) == [
        (f"p{n}", number) for n in range(2) for number in (1, 2, 3)
    ]


def test_texts_are_prompts_and_get_numbers():
    trials = list(library.run(["one", "two"], agent=echo))
    assert [(trial.id, trial.output) for trial in trials] == [("1", "one"), ("2", "two")]


def test_a_prompt_file_and_an_adapter_by_name(tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_text("".join(json.dumps(prompt) + "\n" for prompt in PROMPTS))
    assert len(list(library.run(path, agent="demo", limit=2))) == 2
    assert len(list(library.run(str(path), agent="demo", filters=["p[345]"]))) == 3


@pytest.mark.parametrize(
    "agent", [{"simple": "echo {}"}, {"shell": 'echo "$PROMPT"'}, echo, lambda text: text]
)
def test_an_agent_may_be_given_in_many_ways(agent):
    (trial,) = library.run(["hello"], agent=agent)
    assert trial.output == "hello"


def test_an_agent_may_be_a_schema(schema):
    (trial,) = library.run(["say hello"], agent=schema)
    assert trial.failure is None


def test_nothing_is_left_on_disk_without_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    (tmp_path / "tmp").mkdir()
    run = library.run(PROMPTS, agent=echo, k=2)
    assert len(list(run)) == 12
    del run
    gc.collect()
    assert [path.name for path in tmp_path.rglob("*")] == ["tmp"]


def test_the_file_is_that_of_the_command(assay, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for k, name in ((None, "capture"), (2, "trials")):
        ours, theirs = tmp_path / f"{name}.jsonl", tmp_path / f"{name}-cli.jsonl"
        prompts = tmp_path / "prompts.jsonl"
        prompts.write_text("".join(json.dumps(prompt) + "\n" for prompt in PROMPTS))
        agent = {"simple": "echo {}"}
        trials = list(library.run(prompts, agent=agent, graders=["contains"], k=k).to(ours))
        more = ["-k", str(k)] if k else []
        done = assay(name, prompts, "--simple", "echo {}", "-g", "contains", *more, "-o", theirs)
        assert done.code == 0, done.stderr
        for mine, other in zip(lines(ours), lines(theirs), strict=True):
            assert list(mine) == list(other)
            assert mine["specHash"] == other["specHash"]
            assert mine["identity"] == other["identity"]
        again = list(library.read(ours))
        assert [(t.id, t.number, t.output, t.passed) for t in again] == [
            (t.id, t.number, t.output, t.passed) for t in trials
        ]
        assert [t.id for t in library.read(theirs)] == [t.id for t in again]
        assert assay("summarize", ours).code == 0
        # Each continues what the other wrote.
        assert (
            assay(
                name,
                prompts,
                "--simple",
                "echo {}",
                "-g",
                "contains",
                *more,
                "-o",
                ours,
                "--resume",
            ).code
            == 0
        )
        assert len(
            list(library.run(prompts, agent=agent, graders=["contains"], k=k).to(theirs))
        ) == len(trials)


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_break_ends_the_agents_and_keeps_what_has_finished(tmp_path, tag):
    output = tmp_path / "out.jsonl"
    agent = {"shell": f'case "$PROMPT" in *"say 0") echo 0;; *) sh -c "sleep 60 # {tag}";; esac'}
    run = library.run(PROMPTS, agent=agent, jobs=8).to(output)
    for trial in run:
        assert trial.id == "p0"
        break
    assert not alive_with(tag)
    assert [row["id"] for row in lines(output)] == ["p0"]


def test_after_a_break_the_rest_is_run(tmp_path):
    marks = tmp_path / "marks"
    agent = {"shell": f'echo "$PROMPT" | tee -a {marks}'}
    run = library.run(PROMPTS, agent=agent)
    for _ in run:
        break
    assert len(list(run)) == 6
    assert len(list(run)) == 6
    # One of them may have been broken off in the middle, and has then run twice.
    assert 6 <= len(marks.read_text().splitlines()) <= 7


def test_an_error_in_the_loop_ends_the_agents(tag):
    def divide():
        agent = {"shell": f'test "$PROMPT" = go || sh -c "sleep 60 # {tag}"'}
        for _ in library.run(["go", "a", "b", "c"], agent=agent, jobs=4):
            1 / 0  # noqa: B018

    with pytest.raises(ZeroDivisionError):
        divide()
    assert not alive_with(tag)


def test_an_error_in_the_callback_is_raised_and_ends_the_agents(tag):
    def progress(state):
        if state.trial is not None:
            raise ValueError("enough")

    agent = {"shell": f'test "$PROMPT" = go || sh -c "sleep 60 # {tag}"'}
    with pytest.raises(ValueError, match="enough"):
        list(library.run(["go", "a", "b"], agent=agent, jobs=3, progress=progress))
    assert not alive_with(tag)


def test_an_iterator_that_is_forgotten_ends_the_agents(tag):
    agent = {"shell": f'test "$PROMPT" = go || sh -c "sleep 60 # {tag}"'}
    trials = iter(library.run(["go", "a", "b"], agent=agent, jobs=3))
    next(trials)
    del trials
    gc.collect()
    assert not alive_with(tag)


def test_ctrl_c_ends_the_agents_and_keeps_what_has_finished(tmp_path, tag):
    output = tmp_path / "out.jsonl"
    program = f"""
import assay
agent = {{"shell": 'test "$PROMPT" = go || sh -c "sleep 60 # {tag}"'}}
for trial in assay.run(["go", "a", "b"], agent=agent, jobs=3).to({str(output)!r}):
    print(trial.id, flush=True)
"""
    done = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert done.stdout.readline() == b"1\n"
    done.send_signal(signal.SIGINT)
    _, stderr = done.communicate(timeout=30)
    assert b"KeyboardInterrupt" in stderr
    assert not wait_until_none(tag)
    assert len(lines(output)) == 1


def test_a_killed_program_takes_its_agents_along(tmp_path, tag):
    program = f"""
import assay
agent = {{"shell": 'test "$PROMPT" = go || sh -c "sleep 60 # {tag}"'}}
for trial in assay.run(["go", "a", "b"], agent=agent, jobs=3).to({str(tmp_path / "o.jsonl")!r}):
    print(trial.id, flush=True)
"""
    done = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert done.stdout.readline() == b"1\n"
    done.kill()
    done.wait()
    done.stdout.close()
    assert not wait_until_none(tag, 20)
    assert len(lines(tmp_path / "o.jsonl")) == 1


@pytest.mark.parametrize(
    ("agent", "words"),
    [
        (lambda text: time.sleep(60), "no result in time"),
        (lambda text: os._exit(0), "ended without its terminal event"),
        (lambda text: sys.exit(0), "SystemExit: 0"),
        (lambda text: 1 / 0, "ZeroDivisionError"),
        (lambda text: 7, "the agent returned int, and not a text"),
        (lambda text: os.kill(os.getpid(), 9), "died of SIGKILL"),
    ],
)
def test_a_function_that_does_harm_fails_its_trial(agent, words):
    (trial,) = library.run(["x"], agent=agent, timeout_s=1)
    assert words in trial.failure.message
    assert trial.failure.cause.measures_agent


def test_what_a_function_starts_is_ended_with_its_trial(tag):
    def forks(text):
        subprocess.Popen(["sh", "-c", f"sleep 60 # {tag}"], start_new_session=True)
        os.fork()
        return text

    (trial,) = library.run(["x"], agent=forks)
    assert trial.output == "x"
    assert not wait_until_none(tag)


@pytest.mark.parametrize(
    ("grader", "words"),
    [
        (lambda trial: time.sleep(60), "gave no answer in 1 s"),
        (lambda trial: os._exit(3), "exit"),
        (lambda trial: 1 / 0, "ZeroDivisionError"),
        (lambda trial: "good", "Invalid grader result"),
        (lambda trial: 7.5, "Invalid grader result"),
        (lambda trial, other: True, "that Assay does not provide"),
        (lambda: True, "takes no argument"),
    ],
)
def test_a_grader_that_fails_leaves_the_trial_without_a_grade(grader, words, tmp_path):
    output = tmp_path / "out.jsonl"
    run = library.run(["x"], agent=echo, graders=[grader], grader_timeout_s=1).to(output)
    with pytest.warns(library.AssayWarning, match="1 of 1 trial was not graded .*: lambda: ") as w:
        trials = run.collect()
    assert [warning.filename for warning in w] == [__file__]
    (trial,) = trials
    assert trial.passed is None
    (row,) = lines(output)
    assert words in row["graderFailures"]["lambda"]
    assert trial.grader_failures == row["graderFailures"]
    assert words in trials.frame()["grader_failures"][0]


@pytest.mark.parametrize(
    ("grader", "passed", "score"),
    [
        (lambda trial: True, True, 1.0),
        (lambda trial: 0.6, True, 0.6),
        (lambda trial: 0.4, False, 0.4),
        (lambda trial: 1, True, 1.0),
        (lambda trial: library.Grade(pass_=False, score=0.9), False, 0.9),
        (lambda trial: {"pass": True, "score": 0.1, "reasoning": "so"}, True, 0.1),
        (lambda output, hint=None: output == "x", True, 1.0),
        (lambda *, trial: trial.output == "x", True, 1.0),
    ],
)
def test_what_a_grader_may_return(grader, passed, score):
    (trial,) = library.run(["x"], agent=echo, graders=[grader])
    assert (trial.passed, trial.score) == (passed, score)


def test_an_async_grader_is_awaited():
    async def grader(trial):
        await asyncio.sleep(0)
        return trial.output == "x"

    (trial,) = library.run(["x"], agent=echo, graders=[grader])
    assert trial.passed


def test_progress_counts():
    seen = []
    run = library.run(PROMPTS[:3], agent=echo, graders=["contains"], progress=seen.append)
    list(run)
    assert [(p.n_done, p.n_total, p.n_passed) for p in seen] == [
        (0, 3, 0),
        (1, 3, 1),
        (2, 3, 2),
        (3, 3, 3),
    ]
    assert seen[0].trial is None
    assert seen[1].trial.id == "p0"


def test_the_budget_ends_a_run_with_a_warning(tmp_path):
    run = library.run(PROMPTS, agent="demo", max_cost=0.0).to(tmp_path / "out.jsonl")
    with pytest.warns(library.AssayWarning, match="stopped at max_cost 0: 6 trials were not run"):
        assert list(run) == []


def test_a_file_of_another_set_up_is_refused(tmp_path):
    output = tmp_path / "out.jsonl"
    library.run(["x"], agent=echo).to(output).collect()
    with pytest.raises(InputError) as caught:
        list(library.run(["y"], agent=echo).to(output))
    assert caught.value.hint
    (trial,) = library.run(["y"], agent=echo).to(output, overwrite=True)
    assert trial.output == "y"


def test_the_same_file_twice_at_once_is_refused(tmp_path):
    output = tmp_path / "out.jsonl"
    first = iter(library.run(["a", "b"], agent=lambda t: t if t == "a" else slow(t)).to(output))
    next(first)
    with pytest.raises(AssayError) as caught:
        list(library.run(["a", "b"], agent=lambda t: t if t == "a" else slow(t)).to(output))
    assert "out.jsonl" in caught.value.message


def test_two_runs_at_once_do_not_disturb_each_other():
    both = zip(
        library.run(PROMPTS, agent=echo), library.run(PROMPTS, agent=echo, jobs=2), strict=True
    )
    assert len(list(both)) == 6


def test_runs_in_threads():
    found = {}

    def work(number):
        found[number] = len(list(library.run(PROMPTS, agent=echo, graders=[has_hint], jobs=2)))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {0: 6, 1: 6, 2: 6}


def test_children_of_the_program_are_left_alone():
    own = subprocess.Popen(["sleep", "60"])
    ended = subprocess.Popen(["sh", "-c", "exit 3"])
    try:
        for _ in library.run(PROMPTS[:1], agent=echo):
            late = subprocess.Popen(["sh", "-c", "exit 4"])
        assert own.poll() is None
        assert (ended.wait(), late.wait()) == (3, 4)
    finally:
        own.kill()
        own.wait()


def test_it_works_inside_a_running_event_loop():
    async def main():
        return [trial.output for trial in library.run(["x", "y"], agent=echo)]

    assert asyncio.run(main()) == ["x", "y"]


def test_arun_leaves_the_event_loop_free(tmp_path):
    async def main():
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                await asyncio.sleep(0.01)
                ticks += 1

        ticking = asyncio.create_task(tick())
        agent = {"shell": 'sleep 0.3; echo "$PROMPT"'}
        run = library.arun(["a", "b"], agent=agent, jobs=2).to(tmp_path / "out.jsonl")
        trials = [trial async for trial in run]
        ticking.cancel()
        return ticks, trials

    ticks, trials = asyncio.run(main())
    assert sorted(trial.output for trial in trials) == ["a", "b"]
    assert ticks > 10
    assert len(lines(tmp_path / "out.jsonl")) == 2


def test_arun_collects():
    async def main():
        return await library.arun(PROMPTS, agent=echo, k=2).collect()

    assert len(list(asyncio.run(main()))) == 12


def test_a_task_that_is_cancelled_ends_the_agents(tag):
    async def main():
        async def consume():
            async for _ in library.arun(["a"], agent=sleeper(tag)):
                pass

        task = asyncio.create_task(consume())
        while not alive_with(tag):
            await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return alive_with(tag)

    assert asyncio.run(main()) == []


def test_a_break_of_async_for_ends_the_agents(tag):
    async def main():
        agent = {"shell": f'test "$PROMPT" = go || sh -c "sleep 60 # {tag}"'}
        async for _ in library.arun(["go", "a"], agent=agent, jobs=2):
            break
        return await asyncio.to_thread(wait_until_none, tag)

    assert asyncio.run(main()) == []


@pytest.mark.parametrize("how", ["aclose", "async with"])
def test_the_agents_have_ended_when_a_run_is_closed(tag, how):
    agent = {"shell": f'test "$PROMPT" = go || sh -c "sleep 60 # {tag}"'}

    async def main():
        run = library.arun(["go", "a"], agent=agent, jobs=2)
        if how == "aclose":
            async for _ in run:
                break
            await run.aclose()
        else:
            async with run:
                async for _ in run:
                    break
        return alive_with(tag)

    assert asyncio.run(main()) == []


def test_errors_of_arun_are_raised():
    async def main():
        async for _ in library.arun(["x"], agent="nobody"):
            pass

    with pytest.raises(PluginError, match="no agent called 'nobody'"):
        asyncio.run(main())


@pytest.mark.parametrize(
    ("prompts", "options", "kind", "words"),
    [
        ("absent.jsonl", {"agent": echo}, InputError, "absent.jsonl"),
        (["x"], {"agent": "nobody"}, PluginError, "no agent called 'nobody'"),
        (["x"], {"agent": "absent.json"}, InputError, "schema not found"),
        (["x"], {"agent": echo, "graders": ["absent.py"]}, InputError, "Grader not found"),
        ([{"input": ""}], {"agent": echo}, InputError, "prompts[0]"),
        ([{"id": "a"}], {"agent": echo}, InputError, "prompts[0]"),
        ([{"id": "a", "input": "x"}] * 2, {"agent": echo}, InputError, "was used before"),
        ([3], {"agent": echo}, InputError, "prompts[0] is of type int"),
        ([{"input": "x", "metadata": {"a": object()}}], {"agent": echo}, InputError, "JSON"),
        (["x"], {"agent": echo, "sandbox": "network"}, InputError, "no sandbox"),
        (["x"], {"agent": echo, "sandbox": "strong"}, UsageError, "sandbox is 'strong'"),
        (["x"], {"agent": {"simple": "a {}", "shell": "b"}}, UsageError, "one of simple"),
        (["x"], {"agent": echo, "graders": "contains"}, UsageError, "graders is a list"),
        (["x"], {"agent": echo, "graders": has_hint}, UsageError, "graders is a list"),
        (["x"], {"agent": echo, "filters": "p*"}, UsageError, "filters is a list"),
        (["x"], {"agent": echo, "k": 0}, UsageError, "k is 0"),
        (["x"], {"agent": echo, "jobs": 1.5}, UsageError, "jobs is 1.5"),
        (["x"], {"agent": echo, "timeout_s": 0}, UsageError, "timeout_s is 0"),
        (None, {"agent": echo}, UsageError, "either prompts or a benchmark"),
        (["x"], {"agent": echo, "timout_s": 3}, TypeError, "did you mean timeout_s"),
    ],
)
def test_what_is_wrong_is_said(prompts, options, kind, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(kind) as caught:
        list(library.run(prompts, **options))
    assert words in str(caught.value)


def test_to_after_the_beginning_is_refused():
    run = library.run(["x"], agent=echo)
    list(run)
    with pytest.raises(UsageError, match="the run has begun"):
        run.to("out.jsonl")


def test_a_run_that_is_never_started_says_so(tmp_path):
    with pytest.warns(RuntimeWarning, match="was never started"):
        library.run(["x"], agent=echo).to(tmp_path / "out.jsonl")


def test_a_grader_file_that_changed_is_read_again(tmp_path):
    grader = tmp_path / "grader.py"
    grader.write_text("def grade(output):\n    return True\n")
    (first,) = library.run(["x"], agent=echo, graders=[grader])
    grader.write_text("def grade(output):\n    return False\n")
    (second,) = library.run(["x"], agent=echo, graders=[grader])
    assert (first.passed, second.passed) == (True, False)


def test_no_warning_comes_from_forking_beside_threads(monkeypatch):
    monkeypatch.setattr(background, "has_threads", lambda: True)
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert len(list(library.run(PROMPTS[:1], agent=echo, graders=[has_hint]))) == 1
    finally:
        stop.set()
        thread.join()


def test_the_traceback_of_an_error_shows_its_hint():
    with pytest.raises(InputError) as caught:
        library.run("nosuch.jsonl", agent=echo).collect()
    assert caught.value.hint
    assert caught.value.__notes__ == [f"  {caught.value.hint}"]


MODULE = """
def echo(text):
    return text

def has_hint(trial):
    return trial.hint in trial.output
"""


@pytest.fixture
def with_ray(tmp_path, monkeypatch):
    """Be a program that has loaded Ray and must not be forked; give a module of its own."""
    (tmp_path / "program_functions.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "ray._raylet", ModuleType("ray._raylet"))
    monkeypatch.delitem(sys.modules, "ray.cloudpickle", raising=False)

    def refuse():
        pytest.fail("forked")

    monkeypatch.setattr(fork, "fork_process", refuse)
    yield importlib.import_module("program_functions")
    del sys.modules["program_functions"]


def quick_or_slow(tag):
    return {"shell": f'test "$PROMPT" = quick || sh -c "sleep 60 # {tag}"; echo "$PROMPT"'}


def test_a_program_with_ray_is_not_forked(with_ray, tmp_path, tag):
    functions = with_ray
    run = library.run(PROMPTS[:2], agent=functions.echo, graders=[functions.has_hint, "contains"])
    assert [trial.passed for trial in run.to(tmp_path / "out.jsonl")] == [True, True]
    graded = library.grade(tmp_path / "out.jsonl", [functions.has_hint])
    assert [trial.passed for trial in graded] == [True, True]
    for trial in library.run(["quick", "slow"], agent=quick_or_slow(tag), jobs=2):
        assert trial.output == "quick"
        break
    assert wait_until_none(tag) == []
    options = {"graders": ["contains"], "k": 1, "output": tmp_path / "experiments"}
    verdict = library.ab(PROMPTS[:2], agent=functions.echo, treatment={"agent": "demo"}, **options)
    assert verdict.sentence


LOCKED = """
import os, sys, threading
import assay

lock, is_held = threading.Lock(), threading.Event()

def hold():
    with lock:
        is_held.set()
        threading.Event().wait()

threading.Thread(target=hold, daemon=True).start()
is_held.wait()
os.register_at_fork(after_in_child=lock.acquire)  # as libraries with threads do
prompts = [{"input": "say 1", "hint": "1"}]
for trial in assay.run(prompts, agent={"simple": "echo {}"}, graders=["contains"]):
    print(trial.passed)
print(len(assay.grade([trial], ["contains"])))
"""


def test_a_program_whose_thread_holds_a_lock_is_not_forked(tmp_path):
    program = [sys.executable, "-c", LOCKED]
    done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("True\n1\n", "")


class OwnPath(os.PathLike):
    def __fspath__(self):
        return "workspaces"

    def __reduce__(self):
        raise TypeError


def test_what_cannot_be_sent_to_a_new_process_is_run_in_a_copy(tmp_path, monkeypatch):
    monkeypatch.setattr(background, "has_threads", lambda: True)
    monkeypatch.chdir(tmp_path)
    (trial,) = library.run(["x"], agent={"simple": "echo {}"}, workspace_dir=OwnPath())
    assert trial.output == "x"
    assert Path("workspaces").is_dir()


def test_functions_that_a_new_process_would_not_find_are_refused(with_ray, monkeypatch):
    ours = with_ray.echo
    of_main = FunctionType(ours.__code__, {"__name__": "__main__"}, "of_main")
    monkeypatch.setattr(sys.modules["__main__"], "of_main", of_main, raising=False)
    for function in (lambda text: text, of_main):
        with pytest.raises(PluginError, match="has loaded Ray") as caught:
            list(library.run(["a"], agent=function))
        assert "module that can be imported" in caught.value.hint
        with pytest.raises(PluginError, match="has loaded Ray"):
            library.grade(library.run(["a"], agent="demo"), [function])
    monkeypatch.setattr(ours, "__module__", "gone_from_here")
    monkeypatch.setitem(sys.modules, "gone_from_here", with_ray)
    with pytest.raises(PluginError, match="No module named 'gone_from_here'"):
        list(library.run(["a"], agent=ours))
