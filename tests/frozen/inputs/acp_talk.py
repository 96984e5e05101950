# ruff: noqa: PTH109
"""Hold a conversation with an agent of the Agent Client Protocol: python acp_talk.py COMMAND..."""

import json
import os
import subprocess
import sys

agent = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def ask(number, method, **params):
    said = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    agent.stdin.write(json.dumps(said) + "\n")
    agent.stdin.flush()
    while line := agent.stdout.readline():
        print(line, end="", flush=True)
        if (answer := json.loads(line)).get("id") == number:
            return answer.get("result") or {}
    return {}


ask(1, "initialize", protocolVersion=1, clientCapabilities={})
session = ask(2, "session/new", cwd=os.getcwd(), mcpServers=[]).get("sessionId")
for number, text in ((3, "What time is it?"), (4, "And now?")):
    ask(number, "session/prompt", sessionId=session, prompt=[{"type": "text", "text": text}])
ask(5, "session/prompt", sessionId="nobody", prompt=[{"type": "text", "text": "?"}])
ask(6, "no/such", x=1)
agent.stdin.write("not JSON\n")
agent.stdin.close()
print(agent.stdout.read(), end="")
print("exit", agent.wait(30))
