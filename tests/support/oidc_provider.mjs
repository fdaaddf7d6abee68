// A real authorization server for the tests: oidc-provider, which prints one line once it listens.
//
// Its argument is JSON: `modules` is the folder with node_modules, `port` the loopback port. A resource whose URL ends
// with /opaque gets opaque tokens; all others get JWTs. Everybody can sign in, under any name.
import { pathToFileURL } from "node:url";
import path from "node:path";

const { modules, port } = JSON.parse(process.argv[2]);
const entry = path.join(modules, "node_modules", "oidc-provider", "lib", "index.js");
const { default: Provider } = await import(pathToFileURL(entry).href);
const issuer = `http://127.0.0.1:${port}`;

// The metadata document of a client, which stands on no web server.
const described = {
  client_id: "https://agent.example.com/client.json",
  client_name: "An agent",
  application_type: "native",
  token_endpoint_auth_method: "none",
  grant_types: ["authorization_code", "refresh_token"],
  redirect_uris: ["http://127.0.0.1/callback"],
  response_types: ["code"],
};

const provider = new Provider(issuer, {
  fetch: async (url, options) =>
    String(url) === described.client_id ? Response.json(described) : globalThis.fetch(url, options),
  clients: [
    {
      client_id: "robot",
      client_secret: "robot-secret",
      grant_types: ["client_credentials"],
      redirect_uris: [],
      response_types: [],
    },
    {
      // The resource server itself, which introspects tokens.
      client_id: "notes",
      client_secret: "notes-secret",
      grant_types: [],
      redirect_uris: [],
      response_types: [],
    },
    {
      client_id: "desktop",
      application_type: "native",
      token_endpoint_auth_method: "none",
      grant_types: ["authorization_code", "refresh_token", "urn:ietf:params:oauth:grant-type:device_code"],
      redirect_uris: ["http://127.0.0.1/callback"],
      response_types: ["code"],
    },
  ],
  scopes: ["openid", "offline_access", "notes:read", "notes:write", "admin"],
  pkce: { required: () => true },
  rotateRefreshToken: true,
  // A native client gets a refresh token without asking for offline_access.
  issueRefreshToken: async (ctx, client) => client.grantTypeAllowed("refresh_token"),
  findAccount: async (ctx, id) => ({ accountId: id, claims: async () => ({ sub: id }) }),
  ttl: { AccessToken: 600, ClientCredentials: 600, RefreshToken: 3600, Session: 3600, Grant: 3600, Interaction: 600 },
  features: {
    devInteractions: { enabled: true },
    clientCredentials: { enabled: true },
    deviceFlow: { enabled: true },
    registration: { enabled: true, initialAccessToken: false },
    revocation: { enabled: true },
    dPoP: { enabled: true },
    introspection: { enabled: true, allowedPolicy: async (ctx, client) => client.clientId === "notes" },
    clientIdMetadataDocument: { enabled: true, ack: "draft-02" },
    resourceIndicators: {
      enabled: true,
      useGrantedResource: async () => true,
      getResourceServerInfo: async (ctx, resource) => ({
        scope: "notes:read notes:write admin",
        audience: resource,
        accessTokenTTL: 600,
        accessTokenFormat: resource.endsWith("/opaque") ? "opaque" : "jwt",
        jwt: { sign: { alg: "RS256" } },
      }),
    },
  },
});

// Tests count in the log how often tokens were issued.
provider.on("grant.success", ctx => console.log(`granted ${ctx.oidc.params.grant_type}`));
provider.listen(port, "127.0.0.1", () => console.log(`listening at ${issuer}`));
