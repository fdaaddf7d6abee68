// The official TypeScript client, and a person who answers as told: node asking.mjs '{"modules": …, "url": …}'.
// Calls each tool in turn. Prints one JSON object: what each gave, and what was asked on the way.
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
    { versionNegotiation: { mode: options.mode }, capabilities: options.capabilities },
);

let asked = [];
if (options.capabilities.elicitation) {
    client.setRequestHandler("elicitation/create", async ({ params }) => {
        asked.push(params.message);
        const answer = options.answers[params.message];
        if (typeof answer === "string") return { action: answer };
        if (params.mode === "url") return { action: params.url === options.login ? "accept" : "cancel" };
        return { action: "accept", content: answer };
    });
    client.setRequestHandler("sampling/createMessage", async ({ params }) => {
        asked.push("sampling");
        return { role: "assistant", content: params.messages[0].content, model: "parrot" };
    });
    client.setRequestHandler("roots/list", async () => {
        asked.push("roots");
        return { roots: [{ uri: options.root }] };
    });
}

const attempt = async work => {
    asked = [];
    const given = await work().catch(error => ({ code: error.code, message: error.message }));
    return { given, asked: [...asked] };
};

await client.connect(transport);
const told = { version: client.getNegotiatedProtocolVersion(), calls: {} };
for (const name of options.tools)
    told.calls[name] = await attempt(() => client.callTool({ name, arguments: {} }));
told.prompt = await attempt(() => client.getPrompt({ name: "story", arguments: {} }));
told.read = await attempt(() => client.readResource({ uri: "story://London" }));
told.many = await Promise.all(
    ["one_round", "two_rounds", "at_once", "form", "one_round"].map(name => client.callTool({ name, arguments: {} })
        .then(result => result.content[0].text, error => error.message)),
);
await client.close();
console.log(JSON.stringify(told));
