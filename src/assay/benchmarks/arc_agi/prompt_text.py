"""The words an agent is given: how to play, through both ways in, and nothing about the game."""

from assay.benchmarks.arc_agi.log.records import Limits

TASK = """\
You play one game. It shows a picture of 64x64 pixels in 16 colours, and you act on it. Nobody \
tells you the rules: find out what the actions do, what completes a level, and what loses it. \
The same rules hold in all levels of the game.

Goal: complete every level with as few actions as you can. {limits} A reset of a level costs one \
action; two resets in a row start the whole game again from level 1. A refused command costs \
nothing. Stop when the game says WIN, or when nothing you can still do would help."""

MCP = """\
With tools: the MCP server `arc` has the tools look, act, click, reset and status. look shows the \
whole picture, act does ACTION1..ACTION5 or ACTION7, click does ACTION6 at a pixel."""

SHELL = """\
With a shell: the command `arc-play` is on your PATH and does the same (should your shell not \
find it, its full path is in $ARC_PLAY).
  arc-play look                      the whole picture, one hex digit per block of equal pixels
  arc-play act ACTION1 [ACTION2 ..]  do actions in order
  arc-play click X Y                 do ACTION6 at a pixel; X from the left, Y from the top, 0..63
  arc-play reset                     restart the level
  arc-play status                    state, level, what is used and which actions there are"""

END = """\
Each answer says what changed. Look first, then act; think about what each answer shows. The game \
keeps its own record: what you say about the result counts for nothing, only what you did. Do not \
look for the game's files or source; play it."""


def player_prompt(limits: Limits, *, mcp: bool = True) -> str:
    """Write the prompt for any game; it says nothing of which one."""
    most = [
        f"{n} {what}"
        for n, what in ((limits.max_steps, "actions"), (limits.max_resets, "resets"))
        if n is not None
    ]
    bound = f"You have at most {' and '.join(most)}." if most else "There is no limit on actions."
    ways = [MCP, SHELL] if mcp else [SHELL]
    return "\n\n".join([TASK.format(limits=bound), *ways, END])
