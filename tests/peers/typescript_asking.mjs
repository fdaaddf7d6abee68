// A server of the official TypeScript SDK that asks: node typescript_asking.mjs MODULES PORT, or "stdio".
// It returns `inputRequired`, as its documentation says, which it turns into requests of its own for clients
// of 2025-11-25. How its tools end is written in tests/interop/asking.py.
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { Readable } from "node:stream";
import { pathToFileURL } from "node:url";

const [modules, how] = process.argv.slice(2);
const require = createRequire(pathToFileURL(modules + "/"));
const load = name => import(pathToFileURL(require.resolve(name)));

const {
    McpServer, WebStandardStreamableHTTPServerTransport, createMcpHandler, createRequestStateCodec, inputRequired,
    isLegacyRequest,
} = await load("@modelcontextprotocol/server");
const { serveStdio } = await load("@modelcontextprotocol/server/stdio");

const codec = createRequestStateCodec({ key: "a secret of these tests, and of nothing else at all" });
const string = { type: "string" };
const named = { type: "object", properties: { name: string }, required: ["name"] };
const ordered = {
    type: "object",
    properties: {
        size: { type: "string", enum: ["small", "large"] },
        count: { type: "integer", minimum: 1, maximum: 9 },
        price: { type: "number" },
        gift: { type: "boolean", default: false },
        note: { type: "string", default: "none" },
    },
    required: ["size", "count", "price"],
};

const say = (text, isError = false) => ({ content: [{ type: "text", text }], isError });
const ask = (message, requestedSchema = named) => inputRequired.elicit({ message, requestedSchema });
const asked = inputRequests => inputRequired({ inputRequests });

const tools = {
    one_round: ({ name }) => (name ? say(`Hello, ${name.content.name}!`) : asked({ name: ask("Name?") })),
    two_rounds: async ({ name, surname }, ctx) => {
        if (surname) return say(`Hello, ${ctx.mcpReq.requestState().first} ${surname.content.name}!`);
        if (!name) return asked({ name: ask("Name?") });
        const requestState = await codec.mint({ first: name.content.name });
        return inputRequired({ inputRequests: { surname: ask("Surname?") }, requestState });
    },
    at_once: ({ name, surname }) =>
        name ? say(`Hello, ${name.content.name} ${surname.content.name}!`)
            : asked({ name: ask("Name?"), surname: ask("Surname?") }),
    form: ({ order }) => {
        if (!order) return asked({ order: ask("Order?", ordered) });
        const { count, size, price, gift, note } = order.content;
        return say(`${count} ${size}, ${price} each, gift: ${gift ? "True" : "False"}, note: ${note}`);
    },
    persuade: ({ q }) => (q ? say(`so be it: ${q.action}`) : asked({ q: ask("Please?") })),
    give_up: ({ q }) => (q ? say(`so be it: ${q.action}`) : asked({ q: ask("Sure?") })),
    insist: ({ q }) => (q ? say(`This was answered with ${q.action}.`, true) : asked({ q: ask("Please?") })),
    log_in: ({ login }) =>
        login ? say(login.action === "accept" ? "logged in" : "not logged in")
            : asked({ login: inputRequired.elicitUrl({ message: "Log in", url: "https://example.com/login" }) }),
    think: ({ said }) => {
        if (said) return say(`I think: ${said.content.text}`);
        const messages = [{ role: "user", content: { type: "text", text: "Say something" } }];
        return asked({ said: inputRequired.createMessage({ messages, maxTokens: 50 }) });
    },
    folders: ({ roots }) =>
        roots ? say(roots.roots.map(root => root.uri).join(" ")) : asked({ roots: inputRequired.listRoots() }),
};

const make = () => {
    const server = new McpServer(
        { name: "peer", version: "1.2.3" },
        { capabilities: { tools: {}, prompts: {}, resources: {} }, requestState: { verify: codec.verify } },
    );
    for (const [name, run] of Object.entries(tools))
        server.registerTool(name, { description: name }, ctx => run(ctx.mcpReq.inputResponses ?? {}, ctx));
    server.registerPrompt("story", {}, ctx => {
        const { name } = ctx.mcpReq.inputResponses ?? {};
        if (!name) return asked({ name: ask("Name?") });
        return { messages: [{ role: "user", content: { type: "text", text: `Tell of ${name.content.name}.` } }] };
    });
    server.registerResource("told", "story://London", {}, (uri, ctx) => {
        const { name } = ctx.mcpReq.inputResponses ?? {};
        if (!name) return asked({ name: ask("Name?") });
        return { contents: [{ uri: uri.href, text: `${name.content.name} in London` }] };
    });
    return server;
};

// Clients of 2025-11-25 are served in sessions, beside the handler for 2026-07-28.
const sessions = new Map();
const modern = createMcpHandler(make, { legacy: "reject" });
const answer = async request => {
    if (!(await isLegacyRequest(request))) return modern.fetch(request);
    const known = sessions.get(request.headers.get("mcp-session-id"));
    if (known) return known.handleRequest(request);
    const transport = new WebStandardStreamableHTTPServerTransport({
        sessionIdGenerator: randomUUID,
        onsessioninitialized: id => sessions.set(id, transport),
        onsessionclosed: id => sessions.delete(id),
    });
    await make().connect(transport);
    return transport.handleRequest(request);
};

const listen = port =>
    createServer(async (incoming, outgoing) => {
        const hasBody = incoming.method === "POST";
        const body = hasBody ? { body: Readable.toWeb(incoming), duplex: "half" } : {};
        const gone = new AbortController();
        outgoing.on("close", () => gone.abort());
        const url = `http://${incoming.headers.host}${incoming.url}`;
        const { method, headers } = incoming;
        const response = await answer(new Request(url, { method, headers, signal: gone.signal, ...body }));
        outgoing.writeHead(response.status, Object.fromEntries(response.headers)).flushHeaders();
        if (response.body) Readable.fromWeb(response.body).on("error", () => outgoing.destroy()).pipe(outgoing);
        else outgoing.end();
    }).listen(port, "127.0.0.1");

if (how === "stdio") serveStdio(make);
else listen(Number(how));
