"""Write docs/agents/scenarios.md: which scenario is proven with which real agent, by which test.

The tests named here run the real programs against the scripted model in CI; a row can only stand
here while they exist (tests/docs/test_agent_table.py) and pass.
"""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "agents" / "scenarios.md"
AGENTS = ("claude", "opencode", "codex", "gemini")
LIVE, OTHER = "test_agents_live", "test_codex_and_gemini"
SCENARIOS = {
    "answer, tokens, unicode": ("test_answer_and_tokens", "test_answer_only"),
    "thinking": ("test_thinking", "test_thinking"),
    "a tool writes a file, a grader sees it": (
        "test_tool_writes_a_file",
        "test_a_tool_writes_a_file_and_a_grader_sees_it",
    ),
    "a failing tool call": ("test_failing_tool", "test_a_failing_tool"),
    "parallel tool calls": ("test_parallel_tools", "test_parallel_tools"),
    "two turns by resume, tokens not doubled": (
        "test_two_turns_by_resume",
        "test_two_turns_by_resume",
    ),
    "an MCP tool from --mcp, a broken server named": ("test_mcp_tool", "test_mcp_tools"),
    "401 is cause auth": ("test_unauthorised", "test_unauthorised"),
    "429, then success": (
        "test_too_many_requests_then_success",
        "test_too_many_requests_then_success",
    ),
    "500 until it gives up is cause provider": (
        "test_provider_that_fails_for_good",
        "test_server_errors_until_it_gives_up",
    ),
    "a model that hangs: timeout, nothing left alive": (
        "test_model_that_hangs",
        "test_a_model_that_hangs",
    ),
    "a kill in the middle of a tool call": (
        "test_killed_in_mid_tool_call",
        "test_a_kill_in_the_middle_of_a_tool_call",
    ),
    "400 KB of tool output": ("test_much_tool_output", "test_much_tool_output_is_complete"),
    "a printed secret appears nowhere": (
        "test_secret_appears_nowhere",
        "test_a_printed_secret_appears_nowhere",
    ),
    "12 prompts, 4 at once, share nothing": (
        "test_many_at_once_share_nothing",
        "test_twelve_prompts_four_at_once_share_nothing",
    ),
}
NOTES = """
OpenCode cuts long tool output itself and keeps the whole in a file of its own: the row has what it
shows and what its metadata holds. Codex, Claude and Gemini give all of it. OpenCode also retries a
failing provider in silence and without end: that scenario ends at our clock, and the cause comes
from its log. Sub-agents, limits of turns, plans and the like are proven agent by agent in
`tests/real/`.
"""


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")


def page() -> str:
    """Give the page."""
    lines = [
        "# The same scenarios with all four real agents",
        "",
        "Each cell is a test that starts the real program (pinned version) through",
        "`assay capture` against the scripted model, in CI. Written by `scripts/agent_table.py`.",
        "",
        f"| scenario | {' | '.join(AGENTS)} |",
        f"|---{'|---' * len(AGENTS)}|",
    ]
    for scenario, (live, other) in SCENARIOS.items():
        lines.append(f"| {scenario} | {' | '.join([f'[{live}]'] * 2 + [f'[{other}]'] * 2)} |")
    return "\n".join(lines).replace("[", "`").replace("]", "`") + "\n" + NOTES


def missing() -> list[str]:
    """Name tests of the table that do not exist."""
    found = {name: _functions(ROOT / "tests" / "real" / f"{name}.py") for name in (LIVE, OTHER)}
    pairs = [(LIVE, live) for live, _ in SCENARIOS.values()]
    pairs += [(OTHER, other) for _, other in SCENARIOS.values()]
    return [f"{file}::{test}" for file, test in pairs if test not in found[file]]


def _functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


if __name__ == "__main__":
    main()
