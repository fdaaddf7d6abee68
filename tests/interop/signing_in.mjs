// The official TypeScript client signs in to a server of ours: node signing_in.mjs '{"modules": …, "url": …, "mode": …}'.
// Prints each page that a person has to visit, and reads the address that the page leads back to. At the end it prints
// what the tools have said.
import { createRequire } from "node:module";
import { createInterface } from "node:readline/promises";
import { pathToFileURL } from "node:url";

const options = JSON.parse(process.argv[2]);
const require = createRequire(pathToFileURL(options.modules + "/"));
const { Client, StreamableHTTPClientTransport, UnauthorizedError } = await import(
    pathToFileURL(require.resolve("@modelcontextprotocol/client"))
);

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const tell = value => console.log(JSON.stringify(value));
const kept = { client: options.client };
const provider = {
    redirectUrl: options.callback,
    clientMetadata: {
        client_name: "typescript",
        redirect_uris: [options.callback],
        grant_types: ["authorization_code", "refresh_token"],
        token_endpoint_auth_method: "none",
        application_type: "native",
    },
    clientInformation: () => kept.client,
    saveClientInformation: client => void (kept.client = client),
    tokens: () => kept.tokens,
    saveTokens: tokens => void (kept.tokens = tokens),
    codeVerifier: () => kept.verifier,
    saveCodeVerifier: verifier => void (kept.verifier = verifier),
    discoveryState: () => kept.discovery,
    saveDiscoveryState: discovery => void (kept.discovery = discovery),
    redirectToAuthorization: url => tell({ visit: String(url) }),
};

const connected = async () => {
    const transport = new StreamableHTTPClientTransport(new URL(options.url), { authProvider: provider });
    const client = new Client(
        { name: "typescript", version: "1.0.0" },
        { versionNegotiation: { mode: options.mode } },
    );
    return { client, transport, ready: client.connect(transport) };
};

// Runs `work`, and again after the person has signed in.
const signedIn = async (work, transport) => {
    try {
        return await work();
    } catch (error) {
        if (!(error instanceof UnauthorizedError)) throw error;
        const cameBack = (await lines.next()).value;
        await transport.finishAuth(new URL(cameBack).searchParams);
        return undefined;
    }
};

let session = await connected();
if ((await signedIn(() => session.ready.then(() => true), session.transport)) === undefined) {
    session = await connected();
    await session.ready;
}
const call = name => session.client.callTool({ name, arguments: {} });
const said = { version: session.client.getNegotiatedProtocolVersion?.() };
for (const name of options.tools) {
    said[name] = (await signedIn(() => call(name), session.transport)) ?? (await call(name));
}
said.registered = kept.client.client_id;
await session.client.close();
tell({ said });
process.exit(0);
