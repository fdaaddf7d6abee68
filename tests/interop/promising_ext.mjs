// The official client of the tasks extension, on version 2 of the TypeScript SDK, and a person who answers as told.
// It speaks of tasks as 2025-11-25 does as well.
import { pathToFileURL } from "node:url";

const options = JSON.parse(process.argv[2]);
const packages = pathToFileURL(`${options.modules}/node_modules/@modelcontextprotocol/`);
const load = name => import(new URL(name, packages));

const { Client, StreamableHTTPClientTransport } = await load("client/dist/index.mjs");
const { StdioClientTransport } = await load("client/dist/stdio.mjs");
const { createApplicationInputHandler, createTaskSessionFromClient } = await load("ext-tasks/dist/client/index.js");

const clientInfo = { name: "typescript", version: "1.0.0" };
const clientCapabilities = { elicitation: { form: {}, url: {} }, sampling: {}, roots: {} };
const legacy = options.mode === "legacy";
const pause = milliseconds => new Promise(resolve => setTimeout(resolve, milliseconds));

const asked = {};
const note = ({ taskId }, what) => (asked[taskId] ??= []).push(what);

const onInputRequest = createApplicationInputHandler({
    elicitation: async ({ params: { message, mode, url } }, context) => {
        note(context, message);
        const answer = options.answers[message];
        if (typeof answer === "string") return { action: answer };
        if (mode === "url") return { action: url === options.login ? "accept" : "cancel" };
        return { action: "accept", content: answer };
    },
    sampling: async ({ params }, context) => {
        note(context, "sampling");
        return { role: "assistant", content: params.messages[0].content, model: "parrot" };
    },
    roots: async (request, context) => {
        note(context, "roots");
        return { roots: [{ uri: options.root }] };
    },
});

// The package leaves it to its host how the extension's requests are sent: here on the client's own transport,
// under ids that the client does not use.
const dispatching = transport => {
    const waiting = new Map();
    const { onmessage } = transport;
    transport.onmessage = (message, extra) => {
        const settle = waiting.get(message.id);
        if (!settle) return onmessage(message, extra);
        waiting.delete(message.id);
        const { error, result } = message;
        settle(error ? { kind: "error", error } : { kind: "result", result });
    };
    return request => new Promise((resolve, reject) => {
        const id = `task-${crypto.randomUUID()}`;
        waiting.set(id, resolve);
        transport.send({ jsonrpc: "2.0", id, ...request }).catch(reject);
    });
};

const transport = options.url
    ? new StreamableHTTPClientTransport(new URL(options.url))
    : new StdioClientTransport({ ...options.process, stderr: "ignore" });
const client = new Client(clientInfo, {
    versionNegotiation: { mode: legacy ? "legacy" : "auto" },
    capabilities: clientCapabilities,
});
await client.connect(transport);
const version = client.getNegotiatedProtocolVersion();
const session = createTaskSessionFromClient(client, {
    endpointId: "antiphon",
    onInputRequest,
    ...(legacy ? {} : {
        rawDispatch: dispatching(transport),
        v2RequestFraming: { protocolVersion: version, clientInfo, clientCapabilities },
    }),
});

// On 2025-11-25 the questions come while a task is redeemed, and the package redeems only what has ended.
const anything = { "~standard": { version: 1, vendor: "tests", validate: value => ({ value }) } };
const redeem = taskId => client.request({ method: "tasks/result", params: { taskId } }, anything);

const call = name => session.callTool(name, {}, { task: { preference: "require" } });

const finish = async execution => {
    const id = execution.handle.taskId;
    const statuses = [];
    let redeemed;
    const { outcome } = await execution.settle({
        onEvent: ({ task }) => {
            if (task) statuses.push(task.status);
            if (legacy && task?.status === "input_required") redeemed ??= redeem(id);
        },
    });
    return { id, statuses, given: outcome.result ?? await redeemed, asked: asked[id] ?? [] };
};

const begin = async name => {
    const execution = await call(name);
    await execution.detach();
    return execution.handle.taskId;
};

const resume = taskId => session.resumeTask({
    endpointId: "antiphon", generation: legacy ? "v1" : "v2", taskId, originalOperation: "tools/call",
});

const asks = async id => {
    while ((await session.task(id).snapshot()).status === "working") await pause(20);
};

const cancel = async id => {
    await asks(id);
    await session.cancelTask(id);
    return { status: (await session.task(id).snapshot()).status, asked: asked[id] ?? [] };
};

const told = { version, calls: {}, many: [] };
for (const name of options.tools ?? []) told.calls[name] = await finish(await call(name));
const many = [];
for (const name of options.many ?? []) many.push(await call(name));
told.many = await Promise.all(many.map(finish));
if (options.cancel) told.cancelled = await cancel(await begin(options.cancel));
if (options.begin) {
    told.begun = await begin(options.begin);
    await asks(told.begun);
}
if (options.finish) told.finished = await finish(await resume(options.finish));
await session.close();
await client.close();
console.log(JSON.stringify(told));
