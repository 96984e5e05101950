"""An agent for the tests, made with the official SDK of the Agent Client Protocol.

argv: TAG. Does what a prompt says behind `!do`, else answers with the prompt and its number.
Actions are parted by " ; "; the first word names the method below, the rest is its argument.
"""

import asyncio
import os
import sys

import acp
from acp import helpers as h
from acp import schema as s


class Scripted:
    """One session; counts its prompts."""

    n_prompts = 0
    stop = "end_turn"
    usage = None

    def on_connect(self, conn):
        self.client = conn

    async def initialize(self, protocol_version, client_capabilities=None, **more):
        self.capabilities = client_capabilities
        return s.InitializeResponse(
            protocol_version=1,
            agent_info=s.Implementation(name="scripted-acp", title="Scripted", version="2.5"),
        )

    async def new_session(self, cwd, mcp_servers=None, **more):
        self.cwd, self.mcp_servers = cwd, mcp_servers
        return s.NewSessionResponse(session_id="sdk-1")

    async def cancel(self, session_id, **more):
        pass

    async def prompt(self, session_id, prompt, **more):
        self.n_prompts += 1
        text = prompt[0].text
        _, do, script = text.rpartition("!do ")
        if not do:
            await self.say(f"{self.n_prompts}: {text}")
        else:
            for action in script.split(" ; "):
                name, _, argument = action.partition(" ")
                await getattr(self, name)(argument)
        return s.PromptResponse(stop_reason=self.stop, usage=self.usage)

    async def update(self, update):
        await self.client.session_update("sdk-1", update)

    async def say(self, text):
        await self.update(h.update_agent_message_text(text))

    async def think(self, text):
        await self.update(h.update_agent_thought_text(text))

    async def plan(self, text):
        await self.update(h.update_plan([h.plan_entry(entry) for entry in text.split(",")]))

    async def call(self, text):
        call_id, title = text.split(" ", 1)
        await self.update(
            h.start_tool_call(
                call_id, title, kind="read", status="pending", raw_input={"path": "a.txt"}
            )
        )

    async def done(self, text):
        call_id, output = text.split(" ", 1)
        content = [h.tool_content(h.text_block(output))]
        await self.update(h.update_tool_call(call_id, status="completed", content=content))

    async def diff(self, call_id):
        content = [h.tool_diff_content("b.txt", "new\n", "old\n")]
        await self.update(h.update_tool_call(call_id, status="completed", content=content))

    async def fail(self, text):
        call_id, output = text.split(" ", 1)
        raw = {"exitCode": 3, "stderr": output}
        await self.update(h.update_tool_call(call_id, status="failed", raw_output=raw))

    async def permit(self, call_id):
        kinds = ("reject_once", "allow_once", "allow_always")
        answer = await self.client.request_permission(
            "sdk-1",
            s.ToolCallUpdate(tool_call_id=call_id, title="Write b.txt"),
            [s.PermissionOption(option_id=f"o-{k}", name=k, kind=k) for k in kinds],
        )
        await self.say(f"permitted {answer.outcome.option_id}")

    async def files(self, _text):
        try:
            await self.client.read_text_file("sdk-1", "/etc/hostname")
        except acp.RequestError as error:
            await self.say(f"no files: {error.code}")

    async def facts(self, _text):
        fs = self.capabilities.fs
        offered = [fs.read_text_file, fs.write_text_file, self.capabilities.terminal]
        await self.say(f"{self.cwd} {self.mcp_servers} {offered}")

    async def count(self, _text):
        cost = s.Cost(amount=0.5, currency="USD")
        await self.update(
            s.UsageUpdate(session_update="usage_update", used=10, size=1000, cost=cost)
        )
        self.usage = s.Usage(input_tokens=100, output_tokens=20, thought_tokens=5, total_tokens=125)

    async def wait(self, text):
        await asyncio.sleep(float(text))

    async def end(self, text):
        self.stop = text

    async def error(self, text):
        code, message = text.split(" ", 1)
        raise acp.RequestError(int(code), message)

    async def exit(self, text):
        os._exit(int(text))

    async def line(self, text):
        os.write(1, text.encode() + b"\n")

    async def leave(self, _text):
        """Leave a child that has a session of its own."""
        if os.fork() == 0:
            os.setsid()
            os.closerange(0, 64)
            os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(300)", TAG])


TAG = sys.argv[1]
asyncio.run(acp.run_agent(Scripted()))
