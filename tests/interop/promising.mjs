// The official TypeScript client of 2025-11-25 with tasks, version 1 of the SDK, and a person who answers as told.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const options = JSON.parse(process.argv[2]);
const require = createRequire(pathToFileURL(options.modules + "/"));
const load = name => import(pathToFileURL(require.resolve(`@modelcontextprotocol/sdk/${name}`)));

const { Client } = await load("client/index.js");
const { StreamableHTTPClientTransport } = await load("client/streamableHttp.js");
const { StdioClientTransport } = await load("client/stdio.js");
const { CallToolResultSchema, CreateMessageRequestSchema, ElicitRequestSchema, ListRootsRequestSchema } =
    await load("types.js");

const client = new Client(
    { name: "typescript", version: "1.0.0" },
    { capabilities: { elicitation: { form: {}, url: {} }, sampling: {}, roots: {} } },
);
const tasks = client.experimental.tasks;

const asked = {};
const note = ({ params }, what) =>
    (asked[params?._meta?.["io.modelcontextprotocol/related-task"]?.taskId] ??= []).push(what);

client.setRequestHandler(ElicitRequestSchema, async request => {
    const { message, mode, url } = request.params;
    note(request, message);
    const answer = options.answers[message];
    if (typeof answer === "string") return { action: answer };
    if (mode === "url") return { action: url === options.login ? "accept" : "cancel" };
    return { action: "accept", content: answer };
});
client.setRequestHandler(CreateMessageRequestSchema, async request => {
    note(request, "sampling");
    return { role: "assistant", content: request.params.messages[0].content, model: "parrot" };
});
client.setRequestHandler(ListRootsRequestSchema, async request => {
    note(request, "roots");
    return { roots: [{ uri: options.root }] };
});

// The client knows from the list which tools give tasks, and redeems a task as soon as it asks.
const call = async name => {
    const told = { statuses: [] };
    for await (const message of tasks.callToolStream({ name, arguments: {} })) {
        if (message.type === "taskCreated") told.id = message.task.taskId;
        if (message.type === "taskStatus") told.statuses.push(message.task.status);
        if (message.type === "result") told.given = message.result;
        if (message.type === "error") throw message.error;
    }
    told.statuses.push((await tasks.getTask(told.id)).status);
    return { ...told, asked: asked[told.id] ?? [] };
};

const begin = async name => {
    for await (const message of tasks.callToolStream({ name, arguments: {} })) return message.task.taskId;
};

const asks = async id => {
    for (;;) {
        const { status, pollInterval } = await tasks.getTask(id);
        if (status !== "working") return status;
        await new Promise(resolve => setTimeout(resolve, pollInterval));
    }
};

const finish = async id => {
    const statuses = [await asks(id)];
    const given = await tasks.getTaskResult(id, CallToolResultSchema);
    statuses.push((await tasks.getTask(id)).status);
    return { id, statuses, given, asked: asked[id] ?? [] };
};

const cancel = async id => {
    await asks(id);
    await tasks.cancelTask(id);
    return { status: (await tasks.getTask(id)).status, asked: asked[id] ?? [] };
};

const transport = options.url
    ? new StreamableHTTPClientTransport(new URL(options.url))
    : new StdioClientTransport({ ...options.process, stderr: "ignore" });
const told = { calls: {} };
const { setProtocolVersion } = transport;
transport.setProtocolVersion = version => {
    told.version = version;
    setProtocolVersion?.call(transport, version);
};
await client.connect(transport);
await client.listTools();

for (const name of options.tools ?? []) told.calls[name] = await call(name);
told.many = await Promise.all((options.many ?? []).map(call));
if (options.cancel) {
    told.cancelled = await cancel(await begin(options.cancel));
}
if (options.list) {
    told.listed = Object.fromEntries((await tasks.listTasks()).tasks.map(task => [task.taskId, task.status]));
}
if (options.begin) {
    told.begun = await begin(options.begin);
    await asks(told.begun);
}
if (options.finish) told.finished = await finish(options.finish);
await client.close();
console.log(JSON.stringify(told));
