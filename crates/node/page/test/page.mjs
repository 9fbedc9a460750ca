// Tries the page of a running node in Chromium: `node page.mjs LINK DIRECTORY [URL]`.
//
// LINK is what `thalweg page` prints; it is opened once. DIRECTORY gets the pictures. URL is a file that a job may
// download: with it the actions are tried (start, pause, resume, priority, cancel, forget). In each of four windows
// (1440 and 390 px, light and dark) every view is visited, checked by axe, and photographed. Prints a line for each
// check and a last line with their number; exits with 1 if one failed.

import { readFileSync, mkdirSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { chromium } from "playwright-core";

const [link, directory, url] = process.argv.slice(2);
if (!link || !directory) {
  console.error("usage: node page.mjs LINK DIRECTORY [URL]");
  process.exit(2);
}
mkdirSync(directory, { recursive: true });
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

const VIEWS = ["overview", "jobs", "paths", "interfaces", "streams", "members"];
const WINDOWS = [
  { name: "1440-light", width: 1440, height: 900, colorScheme: "light" },
  { name: "1440-dark", width: 1440, height: 900, colorScheme: "dark" },
  { name: "390-light", width: 390, height: 844, colorScheme: "light" },
  { name: "390-dark", width: 390, height: 844, colorScheme: "dark" },
];
/** The time, ms, in which a view must show its content: `/v1/status` may wait 5 s for the oracle. */
const PATIENCE = 20_000;
/** Time for charts to get samples, ms. */
const SETTLE = 2500;

let [passed, failed] = [0, 0];
function check(isGood, what, detail = "") {
  if (isGood) passed += 1;
  else failed += 1;
  console.log(`${isGood ? "ok" : "FAILED"} ${what}${isGood || !detail ? "" : `: ${detail}`}`);
}

async function attempt(what, work) {
  try {
    await work();
    check(true, what);
  } catch (error) {
    check(false, what, String(error.message).split("\n").slice(0, 3).join(" | "));
  }
}

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox"] });

/** Notes everything that must not happen: errors, refused content, requests to other hosts. */
function watch(page, origin, notes) {
  page.on("pageerror", (error) => notes.push(`error: ${error.message}`));
  page.on("console", (message) => message.type() === "error" && notes.push(`console: ${message.text()}`));
  page.on("request", (request) => {
    const target = new URL(request.url());
    if (target.origin !== origin && target.protocol.startsWith("http")) notes.push(`request to ${target.host}`);
  });
}

async function axeViolations(page) {
  await page.evaluate(axe);
  const found = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
  return found.violations.map((one) => `${one.id} (${one.nodes.length}): ${one.nodes[0].target.join(" ")}: ${one.nodes[0].failureSummary.split("\n").slice(1, 2).join("").trim()}`);
}

async function goTo(page, origin, hash) {
  if (new URL(page.url()).hash !== hash) await page.goto(`${origin}/${hash}`);
  await page.waitForSelector("h1", { timeout: PATIENCE });
}

/** Checks what is on the screen, and takes its picture. */
async function inspect(page, window, name) {
  await page.waitForFunction(() => !document.querySelector("main > .waiting"), null, { timeout: PATIENCE }).catch(() => {});
  await page.waitForTimeout(300);
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  check(wide <= 0, `${window.name} ${name}: no sideways scrolling`, `${wide} px too wide`);
  const violations = await axeViolations(page);
  check(violations.length === 0, `${window.name} ${name}: axe`, violations.join(" || "));
  await picture(page, window, name);
}

/** The whole view in one picture: the window is made as high as the view, so that bars stay at its edges. */
async function picture(page, window, name) {
  const height = await page.evaluate(() => document.documentElement.scrollHeight);
  const isDialog = await page.locator("dialog[open]").count();
  if (!isDialog) await page.setViewportSize({ width: window.width, height: Math.min(4000, Math.max(window.height, height)) });
  await page.waitForTimeout(250);
  await page.screenshot({ path: join(directory, `${name}-${window.name}.png`) });
  await page.setViewportSize({ width: window.width, height: window.height });
}

const first = await browser.newContext();
const entrance = await first.newPage();
await entrance.goto(link);
const origin = new URL(entrance.url()).origin;
await entrance.waitForSelector("h1", { timeout: PATIENCE });
const state = await first.storageState();
const documents = {};
/** Processes with several interfaces, as `thalweg-bench load page --bond` starts them. */
const withChoice = () => (documents.interfaces.processes ?? []).filter((one) => one.interfaces?.length > 1);
for (const name of ["jobs", "roster", "interfaces"]) documents[name] = await entrance.evaluate(async (path) => (await fetch(path)).json(), `/v1/${name}`);
await first.close();

for (const window of WINDOWS) {
  const context = await browser.newContext({ storageState: state, viewport: { width: window.width, height: window.height }, colorScheme: window.colorScheme, reducedMotion: "reduce" });
  const page = await context.newPage();
  const notes = [];
  watch(page, origin, notes);
  await page.goto(`${origin}/`);
  for (const view of VIEWS) {
    await attempt(`${window.name} ${view}: opens`, async () => {
      await goTo(page, origin, `#/${view}`);
      await page.waitForTimeout(SETTLE);
    });
    await updates(page, window, view);
    await inspect(page, window, view);
    if (view === "paths") await paths(page, window);
    if (view === "jobs") await startForm(page, window);
    if (view === "interfaces" && withChoice().length) await bond(page, window);
  }
  for (const verb of ["get", "gather", "cast"]) {
    const all = documents.jobs.jobs.filter((one) => one.verb === verb);
    const job = all.find((one) => one.verdict) && verb === "get" ? all.find((one) => one.verdict) : all[0];
    if (!job) continue;
    await goTo(page, origin, `#/jobs/${job.id}`);
    await page.waitForTimeout(SETTLE);
    await inspect(page, window, `job-${verb}`);
  }
  check(notes.length === 0, `${window.name}: no error, nothing from elsewhere`, [...new Set(notes)].slice(0, 5).join(" | "));
  await context.close();
}

/** The scripting time of updates while a view is open. */
async function updates(page, window, view) {
  await page.evaluate(() => {
    window.thalwegUpdates.all = [];
  });
  await page.waitForTimeout(5000);
  const all = await page.evaluate(() => [...window.thalwegUpdates.all].sort((a, b) => a - b));
  const told = all.length ? `scripting ${all[all.length >> 1].toFixed(2)} ms in the median, ${all[all.length - 1].toFixed(2)} ms at most` : "none";
  console.log(`# ${window.name} ${view}: ${all.length} updates in 5 s, ${told}`);
}

/** The forms of the paths, the keyboard of the matrix, and one path. */
async function paths(page, window) {
  if (!(await page.locator(".matrix-view").count())) return;
  await attempt(`${window.name} paths: the matrix speaks its cells`, async () => {
    await page.locator(".matrix-view").focus();
    for (const key of ["ArrowDown", "ArrowDown", "Home"]) await page.keyboard.press(key);
    await page.waitForFunction(() => / to |not measured|node itself/.test(document.querySelector(".spoken").textContent), null, { timeout: 3000 });
    await page.keyboard.press("Enter");
    await page.waitForSelector("#path", { timeout: 3000 });
  });
  await inspect(page, window, "path");
  for (const form of ["Graph", "Table"]) {
    await page.getByRole("button", { name: form, exact: true }).click();
    await page.waitForTimeout(SETTLE);
    await inspect(page, window, `paths-${form.toLowerCase()}`);
  }
  await attempt(`${window.name} paths: the table sorts`, async () => {
    const head = page.getByRole("columnheader", { name: /^Age/ }).first();
    await head.getByRole("button").click();
    await page.waitForFunction(() => document.querySelector('th[aria-sort]')?.textContent.startsWith("Age"), null, { timeout: 3000 });
  });
  await page.getByRole("button", { name: "Matrix", exact: true }).click();
}

/** The bond view with processes that use several interfaces: what they carry, which programs, and the links of a bond. */
async function bond(page, window) {
  const seen = { carries: false, program: false, link: false };
  const processes = page.getByRole("group", { name: "Process" }).getByRole("button");
  const count = Math.max(1, await processes.count());
  for (let index = 0; index < count; index += 1) {
    if (count > 1) await processes.nth(index).click();
    await page.waitForTimeout(SETTLE);
    const text = await page.locator("main").innerText();
    seen.carries ||= /Carries now\s+[\d.]+ [kM]?bit\/s/.test(text);
    seen.program ||= /\bcurl\b/.test(text);
    seen.link ||= /\balive\b/.test(text);
    await inspect(page, window, `interfaces-${index + 1}`);
  }
  for (const [what, isSeen] of Object.entries({ "an interface carries something": seen.carries, "a program is named": seen.program, "a bond has a link": seen.link })) check(isSeen, `${window.name} interfaces: ${what}`);
}

async function startForm(page, window) {
  await page.getByRole("button", { name: "Start a job" }).click();
  await page.waitForSelector("dialog[open]");
  await page.locator("[name=urls]").fill("https://example.org/big.iso");
  await inspect(page, window, "start");
  await page.keyboard.press("Escape");
  await page.waitForSelector("dialog[open]", { state: "detached" });
}

if (url) await actions();

/** Every action on a job, each checked by what the node says afterwards. */
async function actions() {
  const context = await browser.newContext({ storageState: state, viewport: { width: 1440, height: 900 } });
  const page = await context.newPage();
  await page.goto(`${origin}/#/jobs`);
  await page.waitForSelector("h1");
  let id = 0;
  const now = async () => page.evaluate(async (job) => (await fetch(`/v1/jobs/${job}`)).json(), id);
  const becomes = async (test, what) => {
    for (let tries = 0; tries < 60; tries += 1) {
      if (test(await now())) return;
      await page.waitForTimeout(250);
    }
    throw new Error(`${what}; it is ${JSON.stringify(await now()).slice(0, 200)}`);
  };
  const press = async (name) => page.getByRole("button", { name, exact: true }).first().click();
  await attempt("action: start", async () => {
    await press("Start a job");
    await page.locator("[name=urls]").fill(url);
    await page.locator("[name=directory]").fill("/tmp");
    await page.getByRole("button", { name: "Start", exact: true }).click();
    await page.waitForURL(/#\/jobs\/\d+$/, { timeout: 5000 });
    id = Number(page.url().match(/\d+$/)[0]);
    await becomes((job) => ["running", "finished"].includes(job.state), "it does not start");
  });
  await attempt("action: priority", async () => {
    await page.getByRole("combobox", { name: `Priority of job ${id}` }).selectOption("low");
    await becomes((job) => job.priority === "low", "the priority stays");
  });
  await attempt("action: pause", async () => {
    await press(`Pause job ${id}`);
    await becomes((job) => job.state === "paused", "it does not pause");
  });
  await attempt("action: resume", async () => {
    await press(`Resume job ${id}`);
    await becomes((job) => ["queued", "running", "finished"].includes(job.state), "it does not continue");
  });
  await attempt("action: cancel", async () => {
    await press(`Cancel job ${id}`);
    await press("Cancel it?");
    await becomes((job) => job.state === "cancelled", "it is not cancelled");
  });
  await attempt("action: forget", async () => {
    await press(`Forget job ${id}`);
    await press("Forget it?");
    await becomes((job) => job.code === "no_job", "it is still known");
  });
  await page.goto(`${origin}/#/jobs`);
  await attempt("action: a refused job tells why", async () => {
    await press("Start a job");
    await page.getByRole("button", { name: "Start", exact: true }).click();
    await page.waitForSelector("dialog .fault", { timeout: 3000 });
    await page.keyboard.press("Escape");
  });
  if (withChoice().length) await policies(page);
  await attempt("action: theme", async () => {
    await page.getByRole("button", { name: /^Theme/ }).click();
    await page.waitForFunction(() => document.documentElement.dataset.theme === "light", null, { timeout: 2000 });
  });
  await context.close();
}

/** Every switch of the bond view, each checked by what the processes say afterwards. */
async function policies(page) {
  await page.goto(`${origin}/#/interfaces`);
  await page.waitForSelector(".if-rates", { timeout: PATIENCE });
  const { name } = withChoice()[0].interfaces[0];
  const all = async () => {
    const found = await page.evaluate(async () => (await fetch("/v1/interfaces")).json());
    return found.processes.filter((one) => !one.error);
  };
  const becomes = async (test, what) => {
    for (let tries = 0; tries < 40; tries += 1) {
      if ((await all()).every(test)) return;
      await page.waitForTimeout(250);
    }
    throw new Error(what);
  };
  const of = (process) => [...(process.interfaces ?? []), ...(process.unused ?? [])].find((one) => one.name === name) ?? {};
  for (const tier of ["backup", "primary"]) {
    await attempt(`action: ${name} is ${tier}`, async () => {
      await page.getByRole("combobox", { name: `Tier of ${name}` }).selectOption(tier);
      await becomes((process) => (of(process).tier ?? tier) === tier, `the tier is not ${tier} everywhere`);
    });
  }
  await attempt("action: a rate limit, and none", async () => {
    const card = page.locator(".card", { has: page.getByRole("combobox", { name: `Tier of ${name}` }) });
    await card.getByText("Change how").click();
    for (const [limit, bps] of [["15 Mbit/s", 15_000_000], ["none", null]]) {
      await card.locator("[name=rate_limit]").fill(limit);
      await card.getByRole("button", { name: "Apply" }).click();
      await becomes((process) => (of(process).rate_limit_bps ?? null) === (of(process).name ? bps : null), `the limit is not ${limit}`);
    }
    await card.locator("[name=cap]").fill("much");
    await card.getByRole("button", { name: "Apply" }).click();
    await page.locator(".toast.bad", { hasText: "cap" }).waitFor({ timeout: 3000 });
  });
  await attempt("action: a rule, and none", async () => {
    const before = (await all())[0].rules?.length ?? 0;
    await page.getByText("Add a rule").click();
    const form = page.getByRole("form", { name: "A rule" });
    await form.locator("[name=process]").fill("zoom*");
    await form.locator("[name=interface]").selectOption(name);
    await form.getByRole("button", { name: "Add the rule" }).click();
    await becomes((process) => process.rules?.length === before + 1, "the rule is not there");
    await page.getByRole("button", { name: `Remove rule ${before + 1}` }).click();
    await becomes((process) => (process.rules?.length ?? 0) === before, "the rule stays");
  });
  const schedule = withChoice()[0].schedule;
  for (const next of ["round-robin", schedule]) {
    await attempt(`action: the schedule ${next}`, async () => {
      await page.locator("[name=schedule]").selectOption(next);
      await becomes((process) => process.schedule === next, `the schedule is not ${next}`);
    });
  }
}

await browser.close();
console.log(`${passed} passed, ${failed} failed`);
process.exit(failed ? 1 : 0);
