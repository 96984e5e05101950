"""Graders that are programs: started per row, or serving many rows."""

import os
import subprocess
import time

import pytest

from assay.errors import PluginError

SERVER = """import json, os, sys
for line in sys.stdin:
    row = json.loads(line)
    do = row["output"]
    if do == "die": sys.stderr.write("bye\\n"); os._exit(3)
    if do == "hang": import time; time.sleep(600)
    if do == "nonsense": print("I am not JSON", flush=True); continue
    if do == "twice": print('{"pass": true, "score": 1}')
    if do == "flood": sys.stdout.write("x" * (20 << 20)); sys.stdout.flush()
    if do == "child":
        import subprocess
        subprocess.Popen(["sleep", "600.4711"], start_new_session=True)
    if do == "mute": os.close(1); import time; time.sleep(600)
    keys = ",".join(row)
    print(json.dumps({"pass": True, "score": 1, "reasoning": f"{os.getpid()} {keys}"}), flush=True)
"""


def test_the_question_has_the_seeds_fields_that_are_known(ask, script) -> None:
    path = script(
        "import json, sys\nd = json.load(sys.stdin)\n"
        "print(json.dumps({'pass': True, 'score': 1, 'reasoning': ','.join(d)}))\n"
    )
    assert ask(path, "x").reasoning == "input,output,trajectory"
    full = ask(path, "x", hint="h", metadata={"c": 1}, cwd="/", reference="not shown")
    assert full.reasoning == "input,output,hint,trajectory,metadata,cwd"


def test_the_question_leaves_out_what_the_row_leaves_out(ask, script) -> None:
    path = script(
        "import json, sys\nd = json.load(sys.stdin)\n"
        "print(json.dumps({'pass': True, 'score': 1, 'reasoning': ','.join(d)}))\n"
    )
    assert ask(path, "x", row={"id": "a"}, metadata={}).reasoning == "input,output"
    captured = {"trajectory": [], "metadata": {"agent": "a"}}
    assert ask(path, "x", row=captured, metadata={}).reasoning == "input,output,trajectory"
    empty = ask(path, "x", row={"metadata": {}}, metadata={})
    assert empty.reasoning == "input,output,metadata"


@pytest.mark.parametrize(
    "said",
    [
        b'\xef\xbb\xbf{"pass": true, "score": 1}',
        b'{"pass": true, "score": 1, "reasoning": "\xff"}',
        b'{"pass": true, "score": 1, "version": 7, "more": []}',
    ],
)
def test_an_answer_may_have_a_mark_bad_letters_and_fields_of_its_own(ask, script, said) -> None:
    assert ask(script(f"import sys\nsys.stdout.buffer.write({said!r})\n"), "x").pass_


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("sys.stderr.write('blew up'); sys.exit(4)", "code 4: blew up"),
        ("pass", "no output"),
        ("print('hello')", "not valid JSON: hello"),
        ("print('true')", "Invalid grader result"),
        ("print(json.dumps({'pass': True, 'score': 1.5}))", "score"),
        ('print(\'{"pass": true, "score": NaN}\')', "not valid JSON"),
        ("os.kill(os.getpid(), 9)", "code 137"),
        ("time.sleep(600)", "no answer in 0.5 s"),
    ],
)
def test_a_broken_program_is_a_grader_failure(ask, script, body, said) -> None:
    path = script(f"import json, os, sys, time\n{body}\n")
    with pytest.raises(PluginError, match=said):
        ask(path, "x", timeout_s=0.5 if "sleep" in body else 20)


def test_a_served_program_is_started_once_for_a_thread(ask, ask_apart, script) -> None:
    path = f"serve:{script(SERVER)}"
    pids = {ask(path, str(n)).reasoning.split()[0] for n in range(1000)}
    assert len(pids) == 1
    assert ask_apart(path, "x").reasoning.split()[0] not in pids
    assert ask(path, "x", hint="h").reasoning.split()[1] == "input,output,hint,trajectory"


def test_a_served_program_that_went_away_is_started_again(ask, script) -> None:
    path = script(
        'import sys\nsys.stdin.readline()\nprint(\'{"pass": true, "score": 1}\', flush=True)\n'
    )
    for _ in range(3):
        assert ask(f"serve:{path}", "x").pass_
        time.sleep(0.3)


def test_a_long_question_gets_through(ask, script) -> None:
    grade = ask(f"serve:{script(SERVER)}", "x" * (3 << 20), timeout_s=30)
    assert grade.pass_


@pytest.mark.parametrize(
    ("do", "said"),
    [
        ("die", "exited with code 3 and gave no answer: bye"),
        ("hang", "no answer in 1 s"),
        ("nonsense", "not valid JSON"),
        ("flood", "more than"),
        ("mute", "closed its stdout"),
    ],
)
def test_a_served_program_that_breaks_is_ended_and_started_again(ask, script, do, said) -> None:
    path = f"serve:{script(SERVER)}"
    first = ask(path, "ok", timeout_s=20).reasoning.split()[0]
    with pytest.raises(PluginError, match=said):
        ask(path, do, timeout_s=1 if do == "hang" else 20)
    second = ask(path, "ok", timeout_s=20).reasoning.split()[0]
    assert (first == second) == (do == "nonsense")
    if first != second:
        with pytest.raises(ProcessLookupError):
            os.kill(int(first), 0)


def test_answers_out_of_turn_are_not_taken_for_the_next_row(ask, script) -> None:
    path = f"serve:{script(SERVER)}"
    assert ask(path, "twice").pass_
    time.sleep(0.2)
    with pytest.raises(PluginError, match="more than one line"):
        ask(path, "nonsense")
    assert ask(path, "ok").pass_


def test_a_served_programs_children_end_with_it(ask, script, eventually) -> None:
    from assay.run.served import close_served

    def sleeping() -> bool:
        listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
        return "600.4711" in listed.stdout

    assert ask(f"serve:{script(SERVER)}", "child").pass_
    assert eventually(sleeping, 5)
    close_served()
    assert not sleeping()


def test_a_chatty_program_does_not_fill_the_disk(ask, script) -> None:
    path = script(
        "import sys\nfor line in sys.stdin:\n    sys.stderr.write('e' * 3_000_000)\n"
        '    sys.stderr.flush()\n    print(\'{"pass": true, "score": 1}\', flush=True)\n'
    )
    from assay.run import served as serving

    for _ in range(5):
        assert ask(f"serve:{path}", "x").pass_
    (served,) = serving._served.values()
    assert os.fstat(served._printed.file.fileno()).st_size < 4_000_000


def test_json_escapes_survive(ask, script) -> None:
    path = script(
        "import json, sys\nfor line in sys.stdin:\n    d = json.loads(line)\n"
        "    print(json.dumps({'pass': d['output'] == 'a\\n\\u2028b', 'score': 1}), flush=True)\n"
    )
    assert ask(f"serve:{path}", "a\n\u2028b").pass_
