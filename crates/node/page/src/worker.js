// The worker: fetches the paths of the mesh and returns typed arrays. It is the same file as the page (app.js), so that
// the node serves one script.

import { bytesUnless } from "./api.js";
import { MatrixStore } from "./matrix-data.js";

let store = new MatrixStore();
/** The relays for which detours were computed last. */
let relaysBefore;

/** Answers `{ relays }` with `{ matrix, rest, validFor }`, with `{}` if nothing has changed, or with `{ error }`. */
export function serve() {
  self.onmessage = async ({ data }) => {
    try {
      const relays = data.relays?.join();
      // After a change of the roster the detours are computed again, even if no rate has changed.
      const known = relays === relaysBefore ? store.version : null;
      const buffer = await bytesUnless(known, `/v1/paths/matrix${store.version ? `?since=${store.version}` : ""}`);
      if (!buffer) return self.postMessage({});
      const { rest, validFor, changed } = store.take(buffer);
      const matrix = rest.paths ? store.matrix(data.relays, changed) : null;
      relaysBefore = relays;
      const buffers = matrix ? matrix.arrays().map((array) => array.buffer) : [];
      if (matrix) delete matrix.arrays;
      self.postMessage({ matrix, rest, validFor }, buffers);
    } catch (error) {
      // Whatever was not understood is fetched whole the next time.
      store = new MatrixStore();
      self.postMessage({ error: { status: error.status ?? 0, code: error.code ?? "bad_document", message: error.message } });
    }
  };
}
