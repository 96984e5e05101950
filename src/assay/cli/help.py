"""What help pages are made of: commands, examples and variables; click is not needed."""

import os

from assay import __path__

COMMANDS = {
    "ab": "Run an experiment and say whether a change helps.",
    "capture": "Run prompts against an agent and record full trajectories.",
    "trials": "Run every prompt several times, to measure pass@k.",
    "run": "Run prompts and write the agent's raw output.",
    "extract": "Turn raw output into trajectories.",
    "raw": "Print what the agent of a trial wrote, as it came.",
    "grade": "Grade the results of an agent.",
    "summarize": "Write a short row or section for each result.",
    "format": "Convert results to JSONL, Markdown or CSV.",
    "calibrate": "Check a grader: sample failures, compare it with human labels.",
    "validate-refs": "Check that reference solutions pass their graders.",
    "balance": "Show how the prompts are distributed over categories.",
    "import": "Bring in your agents' own sessions and logs of other harnesses.",
    "evidence": "Bundle a result with its proof, and verify such bundles.",
    "export": "Export results as training data or as a table.",
    "query": "Ask questions of result files in SQL.",
    "fixtures": "Write a test that asserts the verdicts on recorded trials.",
    "compare": "Compare runs, with confidence intervals and tests.",
    "explain": "Say why trials failed, with the steps that show it.",
    "identity": "Show what runs and arms are made of, and how they differ.",
    "report": "Report on runs as one HTML file, Markdown or JUnit.",
    "view": "Show runs in a browser, live while they are written.",
    "trigger": "Measure whether an agent uses a skill when it should.",
    "baseline": "Pool the builds of main, to compare branches with.",
    "plan": "Compute how many prompts and trials a comparison needs.",
    "agents": "List the known agents: installed or not, and what is captured.",
    "clean": "Remove workspaces and caches that earlier runs have left.",
    "doctor": "Start an agent with a trivial prompt and report what is wrong.",
    "headless": "Serve any agent over the Agent Client Protocol on stdio.",
    "mcp": "Let agents ask about results, over the Model Context Protocol.",
    "mock-model": "Serve a scripted model, to test agents without a real one.",
    "tape": "Show, compare and cut recorded answers of models.",
    "schemas": "List or export the JSON Schema of every file format.",
    "skills": "Install skills that teach agents to use Assay.",
    "completion": "Print what makes a shell complete command lines.",
    "init": "Write prompts, a grader and an experiment to start from.",
    "demo": "Run the whole flow with agents that ship with Assay.",
}
"""Name and one line of help, so that the help page needs no command's code, not even click."""
SHIPPED = {"arc": ("assay_arc", "Play, verify and compare ARC-AGI-3 games.")}
"""Commands of plugins in the same wheel, with their package. Others are found by entry point, which
takes longer than this whole page."""

FIRST = ("demo", "init", "ab", "view", "doctor")
"""What a newcomer needs."""
HEADINGS = {
    "Measure a change": ("ab", "trigger", "plan"),
    "Run an agent": ("capture", "trials", "run", "extract", "arc"),
    "Grade and compare": (
        *("grade", "compare", "baseline", "calibrate", "validate-refs", "balance", "identity"),
    ),
    "Look": ("view", "report", "explain", "raw", "query", "summarize", "mcp"),
    "Share and prove": (
        *("evidence", "import", "export", "format", "fixtures", "tape", "schemas"),
    ),
    "Set up": (
        *("init", "demo", "doctor", "agents", "skills", "headless", "mock-model", "clean"),
        "completion",
    ),
}
"""The commands as people look for them; one that is not named here comes last."""

COLOUR = ("NO_COLOR", "Any value: print without colours.")
CACHE = ("XDG_CACHE_HOME", "Cache folder, an absolute path. Default: ~/.cache.")
EDITOR = (
    "ASSAY_EDITOR_URL",
    "How links of a page open a file in an editor; empty: no links. Default:",
    "vscode://file{path}:{line}.",
)
PRICES = (
    "ASSAY_PRICES",
    "A file with prices to estimate costs from, instead of the built-in table.",
)


def variables(*lines: str) -> str:
    """A part of a command's help: names of environment variables, and below them what they do."""
    shown = [f"  {line}" if line.partition(",")[0].isupper() else f"      {line}" for line in lines]
    return "\n".join(["\b", "Environment variables:", *shown, "", ""])


def examples(*lines: str) -> str:
    """The end of a command's help: command lines that work as they are."""
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])


def first_page() -> str:
    """What `assay` alone prints: what a newcomer needs, and the names of the others."""
    width = max(map(len, FIRST)) + 2
    shipped = {name for name, (package, _) in SHIPPED.items() if _ships(package)}
    others = sorted((COMMANDS.keys() | shipped) - set(FIRST))
    column = max(map(len, others)) + 1
    rows = [others[at : at + _COLUMNS] for at in range(0, len(others), _COLUMNS)]
    return "\n".join(
        [
            "Evaluate any command-line agent: capture, grade, repeat, compare.",
            "",
            *(f"  assay {name.ljust(width)}{COMMANDS[name]}" for name in FIRST),
            "",
            "Others (assay --help says what they do, assay COMMAND --help what one can do):",
            *("".join(f"  {name.ljust(column)}" for name in row).rstrip() for row in rows),
        ]
    )


_COLUMNS = 5


def help_page() -> str:
    """What `assay --help` prints: all commands, under headings."""
    commands = COMMANDS | {
        name: text for name, (package, text) in SHIPPED.items() if _ships(package)
    }
    width = max(map(len, commands)) + 2
    named = {name for names in HEADINGS.values() for name in names}
    lines = []
    for heading, names in (HEADINGS | {"Other": tuple(commands.keys() - named)}).items():
        found = [f"  {name.ljust(width)}{commands[name]}" for name in names if name in commands]
        lines += [f"{heading}:", *found, ""] if found else []
    return "\n".join(
        [
            "Usage: assay COMMAND [OPTIONS]",
            "",
            "Evaluate any command-line agent: capture, grade, repeat, compare.",
            f"Start with {', '.join(FIRST)}: assay alone says what they do.",
            "",
            *lines,
            "Options:",
            "  -h, --help     Show this page; after a command, the help of that command.",
            "  -v, --version  Show the version.",
        ]
    )


def _ships(package: str) -> bool:
    # Packages of one wheel lie side by side; a look-up by import machinery would take 1 ms of 13.
    return os.path.isdir(f"{__path__[0]}/../{package}")  # noqa: PTH112
