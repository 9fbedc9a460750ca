// The requests of the page to its own node.

/** A refused or failed request; the message says what to try. */
export class ApiError extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

const GONE = "The node does not answer. Start it with `thalweg node`; then run `thalweg page` if this page stays empty.";
const REFUSED = "This page is not signed in any more. Run `thalweg page` in a terminal on this host and open the new link.";

/** The longest that a reply may take; `/v1/status` and `/v1/paths` wait up to 5 s for the oracle. */
const LONGEST = 30_000;

/** Sends a request; a refusal becomes an error. */
async function send(method, path, headers, body) {
  let reply;
  try {
    reply = await fetch(path, { method, headers, body, cache: "no-cache", credentials: "same-origin", signal: AbortSignal.timeout(LONGEST) });
  } catch {
    throw new ApiError(0, "no_answer", GONE);
  }
  if (reply.ok || reply.status === 304) return reply;
  if (reply.status === 401 || reply.status === 403) throw new ApiError(reply.status, "signed_out", REFUSED);
  let told = {};
  try {
    told = JSON.parse(await reply.text());
  } catch {
    // A reply without JSON comes from a proxy or an older node; the status alone is known.
  }
  const message = told.message ?? `The node answered ${reply.status} to ${method} ${path}; this node may be of another version than its page: reload it.`;
  throw new ApiError(reply.status, told.code ?? "unknown", message);
}

/** Sends a request and returns the reply's JSON; `undefined` for an empty one. */
export async function ask(method, path, body) {
  const hasBody = body !== undefined;
  const reply = await send(method, path, hasBody ? { "Content-Type": "application/json" } : {}, hasBody ? JSON.stringify(body) : undefined);
  const text = await reply.text();
  return text ? JSON.parse(text) : undefined;
}

/** The bytes of a reply; `null` if this version of it is known. */
export async function bytesUnless(version, path) {
  const reply = await send("GET", path, version ? { "If-None-Match": `"${version}"` } : {});
  return reply.status === 304 ? null : reply.arrayBuffer();
}

export const get = (path) => ask("GET", path);
