// The entry of the page and of its worker. The import is lazy, so that the worker evaluates nothing that needs a
// document.

import { serve } from "./worker.js";

if (typeof document === "undefined") serve();
else import("./main.js").then(({ start }) => start());
