// A server of the first TypeScript SDK, on stdio, with a tool that has to be called as a task:
// node typescript_tasks.mjs MODULES.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(pathToFileURL(process.argv[2] + "/"));
const load = name => import(pathToFileURL(require.resolve(name)).href.replace("/dist/cjs/", "/dist/esm/"));

const { McpServer } = await load("@modelcontextprotocol/sdk/server/mcp.js");
const { StdioServerTransport } = await load("@modelcontextprotocol/sdk/server/stdio.js");
const { InMemoryTaskStore } = await load("@modelcontextprotocol/sdk/experimental/tasks");

const tasks = { requests: { tools: { call: {} } } };
const server = new McpServer(
    { name: "tasks", version: "1" },
    { capabilities: { tools: {}, tasks }, taskStore: new InMemoryTaskStore() },
);
server.experimental.tasks.registerToolTask("report", { execution: { taskSupport: "required" } }, {
    createTask: async ({ taskStore }) => {
        const task = await taskStore.createTask({ ttl: 60_000, pollInterval: 20 });
        await taskStore.storeTaskResult(task.taskId, "completed", { content: [{ type: "text", text: "Reported." }] });
        return { task };
    },
    getTask: async ({ taskStore, taskId }) => taskStore.getTask(taskId),
    getTaskResult: async ({ taskStore, taskId }) => taskStore.getTaskResult(taskId),
});
server.registerTool("fail", {}, async () => {
    throw new Error("MCP error -32601: no such page");
});
await server.connect(new StdioServerTransport());
