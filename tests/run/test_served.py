"""Serving processes of one thread: the ones used last are kept, and no more than a few."""

from assay.graders.answer import Regex
from assay.plugin import Trial
from assay.run import served
from assay.run.host import LocalHost
from assay.run.served import close_served


def test_a_thread_keeps_only_the_processes_that_it_used_last() -> None:
    close_served()
    machine = LocalHost()
    try:
        for number in range(served._MOST_SERVED + 5):
            grader = Regex(pattern=f"^x{number}$")
            trial = Trial(input="?", output=f"x{number}")
            (answer,) = grader._judge_in_child([trial], machine)
            assert answer.pass_
            assert len(served._served) == min(number + 1, served._MOST_SERVED)
        kept = [key[1][1] for key in served._served]
        assert '"^x0$"' not in str(kept)
        assert str(served._MOST_SERVED + 4) in kept[-1]
    finally:
        close_served()
