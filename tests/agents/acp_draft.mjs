// An agent made with the SDK's experimental version 2; the prompt says what it does.
import { Readable, Writable } from "node:stream";
import * as v1 from "@agentclientprotocol/sdk";
import * as acp from "@agentclientprotocol/sdk/experimental/v2";

const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
let nMessages = 0;
let n = 0;
const app = acp.agent({ name: "draft" });
app.onRequest(acp.methods.agent.initialize, () => ({
  protocolVersion: 2,
  info: { name: "draft", version: "2.4" },
  capabilities: { session: { prompt: {}, mcp: { stdio: {} } } },
  authMethods: [{ type: "agent", methodId: "api-key", name: "Key" }],
}));
let signedIn = !process.argv.includes("--login");
app.onRequest(acp.methods.agent.auth.login, ({ params }) => { signedIn = params.methodId === "api-key"; return {}; });
app.onRequest(acp.methods.agent.auth.logout, () => ({}));
let model = "small";
const options = () => [{ configId: "m", category: "model", name: "Model", type: "select", currentValue: model, options: [{ value: "small", name: "S" }, { value: "large", name: "L" }] }];
app.onRequest(acp.methods.agent.session.new, ({ params, client }) => {
  if (!signedIn) throw new acp.RequestError(-32000, "Authentication required");
  acp.assertSupportedMcpServers(params.mcpServers, { stdio: {} });
  setTimeout(() => client.notify("session/update", { sessionId: "s2", update: { sessionUpdate: "state_update", state: "idle" } }), 0);
  return { sessionId: "s2", configOptions: options() };
});
app.onRequest(acp.methods.agent.session.setConfigOption, ({ params }) => { model = params.value; return { configOptions: options() }; });
app.onRequest(acp.methods.agent.session.prompt, ({ params, client }) => {
  const text = params.prompt[0].text;
  const update = (fields) => client.notify("session/update", { sessionId: params.sessionId, update: fields });
  const say = (content) => ({ type: "text", text: content });
  const id = `u${++nMessages}`;
  (async () => {
    await sleep(20);
    await update({ sessionUpdate: "state_update", state: "idle", stopReason: "end_turn" }); // of before: repeated
    await update({ sessionUpdate: "user_message", messageId: id, content: params.prompt });
    await update({ sessionUpdate: "state_update", state: "running" });
    if (text === "fail") return update({ sessionUpdate: "state_update", state: "idle", stopReason: "error", error: { code: -32603, message: "API Error: 529 overloaded" } });
    if (text === "refuse") return update({ sessionUpdate: "state_update", state: "idle", stopReason: "refusal" });
    await update({ sessionUpdate: "agent_thought_chunk", messageId: `t${id}`, content: say("hm") });
    await update({ sessionUpdate: "agent_message_chunk", messageId: `a${id}`, content: say("Draft") });
    await update({ sessionUpdate: "terminal_update", terminalId: "x", command: "make", cwd: "/" });
    await update({ sessionUpdate: "tool_call_update", toolCallId: `c${id}`, name: "shell", title: "Make it", kind: "execute", status: "in_progress", rawInput: { command: "make" }, content: [{ type: "terminal", terminalId: "x" }] });
    await update({ sessionUpdate: "state_update", state: "requires_action" });
    const allowed = await client.request("session/request_permission", { sessionId: params.sessionId, title: "May I?", subject: { type: "tool_call", toolCall: { toolCallId: `c${id}` } }, options: [{ optionId: "no", name: "No", kind: "reject_once" }, { optionId: "yes", name: "Yes", kind: "allow_once" }] });
    await update({ sessionUpdate: "state_update", state: "running" });
    for (const part of ["ü1\n", "2\n"]) await update({ sessionUpdate: "terminal_output_chunk", terminalId: "x", data: Buffer.from(part).toString("base64") });
    await update({ sessionUpdate: "terminal_update", terminalId: "x", exitStatus: { exitCode: 3 } });
    await update({ sessionUpdate: "tool_call_update", toolCallId: `c${id}`, status: "failed" });
    await update({ sessionUpdate: "tool_call_update", toolCallId: `d${id}`, name: "read", title: "Read", status: "in_progress" });
    for (const part of ["one", "two"]) await update({ sessionUpdate: "tool_call_content_chunk", toolCallId: `d${id}`, content: { type: "content", content: say(part) } });
    await update({ sessionUpdate: "tool_call_update", toolCallId: `d${id}`, status: "completed" });
    await update({ sessionUpdate: "agent_message", messageId: `a${id}`, content: [say(`${allowed.outcome.optionId} ${text} ${model} ${++n}`)] });
    await update({ sessionUpdate: "agent_message_chunk", messageId: `a${id}`, content: say("!") });
    await update({ sessionUpdate: "plan_update", plan: { type: "items", planId: "p", entries: [{ content: "a", priority: "low", status: "pending" }] } });
    await update({ sessionUpdate: "notice", severity: "info", title: "told" });
    await update({ sessionUpdate: "usage_update", used: 5, size: 9, cost: { amount: 0.5, currency: "USD" } });
    await update({ sessionUpdate: "state_update", state: "idle", stopReason: "end_turn" });
  })();
  return { messageId: id };
});
const old = v1.agent({ name: "old" });
old.onRequest(v1.methods.agent.initialize, () => ({ protocolVersion: 1, agentCapabilities: {}, agentInfo: { name: "old", version: "1.0" } }));
old.onRequest(v1.methods.agent.session.new, () => ({ sessionId: "s1" }));
old.onRequest(v1.methods.agent.session.prompt, async ({ params, client }) => {
  await client.notify("session/update", { sessionId: params.sessionId, update: { sessionUpdate: "agent_message_chunk", content: { type: "text", text: `old ${params.prompt[0].text}` } } });
  return { stopReason: "end_turn" };
});
const router = acp.agentProtocolRouter();
if (!process.argv.includes("--only-draft")) router.withV1(old);
if (!process.argv.includes("--only-old")) router.withV2(app);
router.connect(acp.ndJsonStream(Writable.toWeb(process.stdout), Readable.toWeb(process.stdin)));
