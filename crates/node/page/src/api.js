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

/** Sends a request and returns the reply's JSON; `undefined` for an empty one. */
export async function ask(method, path, body) {
  let reply;
  try {
    reply = await fetch(path, {
      method,
      headers: body === undefined ? {} : { "Content-Type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
      cache: "no-cache",
      credentials: "same-origin",
      signal: AbortSignal.timeout(LONGEST),
    });
  } catch {
    throw new ApiError(0, "no_answer", GONE);
  }
  const text = await reply.text();
  if (reply.ok) return text ? JSON.parse(text) : undefined;
  if (reply.status === 401 || reply.status === 403) throw new ApiError(reply.status, "signed_out", REFUSED);
  let told = {};
  try {
    told = JSON.parse(text);
  } catch {
    // A reply without JSON comes from a proxy or an older node; the status alone is known.
  }
  const message = told.message ?? `The node answered ${reply.status} to ${method} ${path}; this node may be of another version than its page: reload it.`;
  throw new ApiError(reply.status, told.code ?? "unknown", message);
}

export const get = (path) => ask("GET", path);
