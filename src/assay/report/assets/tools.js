// Tools of different agents by what they do. The table is in records/tools.py, which the server uses too.
import toolTable from "./tools.json" with { type: "json" };

const KIND_OF_NAME = new Map(
  Object.entries(toolTable).flatMap(([kind, { names }]) => names.map((name) => [name, kind])),
);
const MCP_NAME = new RegExp(toolTable.mcp.pattern);

/** The kind of a tool by its name; one that is not in the table is "other". */
export function kindOfTool(name) {
  return MCP_NAME.test(name) ? "mcp" : (KIND_OF_NAME.get(name.toLowerCase()) ?? "other");
}

/** The kind that a word in a query means; none if it is only the name of a tool. */
export function askedKind(word) {
  const found = Object.entries(toolTable).find(([kind, { also }]) => [kind, also].includes(word));
  return found?.[0] ?? null;
}

export function kindWord(kind) {
  return toolTable[kind]?.title ?? "Tool";
}

/** Server and tool of a name that an agent gave to a tool of an MCP server. */
export function mcpNames(name) {
  const found = MCP_NAME.exec(name);
  return found && [found[1] ?? found[3], found[2] ?? found[4]];
}
