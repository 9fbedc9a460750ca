// The worker: fetches the paths of the mesh and returns typed arrays. It is the same file as the page (app.js), so that
// the node serves one script.

import { ask } from "./api.js";
import { matrixOf } from "./matrix-data.js";

/** Answers `{ relays }` with `{ matrix, rest, took }` or `{ error }`. */
export function serve() {
  self.onmessage = async ({ data }) => {
    try {
      const began = performance.now();
      const document = await ask("GET", "/v1/paths");
      const { paths, ...rest } = document;
      const since = rest.oracle?.paths_age_seconds ?? 0;
      const matrix = paths ? matrixOf(paths, since, data.relays) : null;
      if (paths) {
        const { legs: _, nodes: __, ...more } = paths;
        rest.paths = more;
      }
      const buffers = matrix ? Object.values(matrix).filter(ArrayBuffer.isView).map((view) => view.buffer) : [];
      self.postMessage({ matrix, rest, took: performance.now() - began }, buffers);
    } catch (error) {
      self.postMessage({ error: { status: error.status ?? 0, code: error.code ?? "bad_document", message: error.message } });
    }
  };
}
