// The official TypeScript client against a server of ours: node client.mjs '{"modules": …, "url": …}'.
// Prints one JSON object with everything that it was given.
import { writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const options = JSON.parse(process.argv[2]);
const require = createRequire(pathToFileURL(options.modules + "/"));
const load = name => import(pathToFileURL(require.resolve(name)));

const { Client, StreamableHTTPClientTransport } = await load("@modelcontextprotocol/client");
const { StdioClientTransport } = await load("@modelcontextprotocol/client/stdio");

const transport = options.url
    ? new StreamableHTTPClientTransport(new URL(options.url))
    : new StdioClientTransport({ ...options.process, stderr: "ignore" });
const client = new Client(
    { name: "typescript", version: "1.0.0" },
    { versionNegotiation: { mode: options.mode } },
);
await client.connect(transport);

const all = async (method, key) => {
    const found = [];
    let cursor;
    do {
        const page = await client[method](cursor ? { cursor } : {});
        found.push(...page[key]);
        cursor = page.nextCursor;
    } while (cursor);
    return found;
};

const progress = [];
const hear = each => {
    // The client drops what it has not handed on when the result comes.
    if (progress.push(each) === 3) writeFileSync(options.heard, "");
};
const call = (name, args, more) => client.callTool({ name, arguments: args }, more);

const told = {
    version: client.getNegotiatedProtocolVersion?.() ?? client.getProtocolEra?.(),
    server: client.getServerVersion(),
    tools: await all("listTools", "tools"),
    add: await call("add", { a: 2, b: 3 }),
    weather: await call("weather", { city: "Oslo", place: { latitude: 59.9 } }),
    primes: await call("primes", { below: 10 }),
    picture: await call("picture", {}),
    region: await call("region", { where: "Malmö" }),
    fail: await call("fail", {}),
    count: await call("count", { to: 3, heard: options.heard }, { onprogress: hear }),
    progress,
    resources: await all("listResources", "resources"),
    templates: await all("listResourceTemplates", "resourceTemplates"),
    first: await client.readResource({ uri: "note://first" }),
    raw: await client.readResource({ uri: "note://raw" }),
    page: await client.readResource({ uri: "note://diary/7" }),
    missing: await client.readResource({ uri: "note://" }).then(() => null, error => ({ code: error.code })),
    prompts: await all("listPrompts", "prompts"),
    greet: await client.getPrompt({ name: "greet", arguments: { name: "Ada", tone: "wry" } }),
    names: await client.complete({ ref: { type: "ref/prompt", name: "greet" }, argument: { name: "name", value: "A" } }),
};
await client.close();
console.log(JSON.stringify(told));
