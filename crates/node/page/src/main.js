// The page's frame: the rail, the hash routes, and the view in the middle.

import { signal } from "@preact/signals";
import { options, render } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { activeJobs, connect, connection, faults, me, status, timed, updateCost } from "./store.js";
import { Icon, Messages, readColours, setTheme, theme, useDocuments } from "./parts/basics.js";
import { Interfaces } from "./views/interfaces.js";
import { JobDetail } from "./views/job.js";
import { Jobs } from "./views/jobs.js";
import { Members } from "./views/members.js";
import { Overview } from "./views/overview.js";
import { Paths } from "./views/paths.js";
import { Streams } from "./views/streams.js";

const VIEWS = [
  ["overview", "Overview", Overview],
  ["jobs", "Jobs", Jobs],
  ["paths", "Paths", Paths],
  ["interfaces", "Interfaces", Interfaces],
  ["streams", "Streams", Streams],
  ["members", "Members", Members],
];

const readRoute = () => {
  const [name, ...rest] = location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
  return VIEWS.some(([key]) => key === name) ? { name, rest } : { name: "overview", rest: [] };
};
const route = signal(readRoute());
addEventListener("hashchange", () => {
  route.value = readRoute();
});

function App() {
  useDocuments("status", "roster");
  const { name, rest } = route.value;
  const [, title, View] = VIEWS.find(([key]) => key === name);
  const isJob = name === "jobs" && /^\d+$/.test(rest[0] ?? "");
  const main = useRef(null);
  const isFirst = useRef(true);
  const heading = isJob ? `Job ${rest[0]}` : title;
  const active = activeJobs.value;
  useEffect(() => {
    document.title = `${heading} · ${me.value} · Thalweg`;
  }, [heading, me.value]);
  useEffect(() => {
    // After a change of the view the keyboard goes on at its heading; not at the first one.
    if (!isFirst.current) {
      window.scrollTo(0, 0);
      main.current.querySelector("h1")?.focus({ preventScroll: true });
    }
    isFirst.current = false;
  }, [name, rest[0]]);
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => {
        event.preventDefault();
        main.current.focus();
      }}>Skip to the content</a>
      <header class="rail">
        <a class="brand" href="#/overview"><img src="favicon.svg" alt="" width="28" height="28" /><span>Thalweg<small>{me.value}</small></span></a>
        <nav aria-label="Views">
          {VIEWS.map(([key, label]) => (
            <a key={key} href={`#/${key}`} aria-current={key === name ? "page" : undefined}>
              <Icon name={key} size={20} /><span>{label}</span>
              {key === "jobs" && active > 0 && <b class="bubble" aria-label={`${active} running`}>{active}</b>}
            </a>
          ))}
        </nav>
        <div class="rail-foot">
          <Connection />
          <ThemeSwitch />
        </div>
      </header>
      <main id="main" ref={main} tabIndex={-1}>
        <SignedOut />
        {isJob ? <JobDetail key={rest[0]} id={Number(rest[0])} /> : <View rest={rest} />}
      </main>
      <Messages />
    </>
  );
}

function Connection() {
  const kind = connection.value;
  const words = { connecting: "Connecting", live: "Live", lost: "No connection" }[kind];
  return <p class={`connection ${kind}`} role="status"><i aria-hidden="true" />{words}</p>;
}

function ThemeSwitch() {
  const next = { auto: "light", light: "dark", dark: "auto" }[theme.value];
  const words = { auto: "Auto", light: "Light", dark: "Dark" };
  return (
    <button type="button" class="theme" onClick={() => setTheme(next)} aria-label={`Theme: ${words[theme.value]}. Switch to ${words[next]}.`} title={`Theme: ${words[theme.value]}`}>
      <Icon name="theme" /><span>{words[theme.value]}</span>
    </button>
  );
}

/** What to do when the node refuses the page or does not answer at all. */
function SignedOut() {
  const error = Object.values(faults.value).find((one) => one.code === "signed_out" || one.code === "no_answer");
  if (!error) return null;
  return (
    <div class="signed-out" role="alert">
      <Icon name="warn" size={22} />
      <div>
        <h2>{error.code === "signed_out" ? "Signed out" : "No answer from the node"}</h2>
        <p>{error.message.split("`").map((part, index) => (index % 2 ? <code key={index}>{part}</code> : part))}</p>
        {status.value && <p class="muted">What is shown below is the last that was known.</p>}
      </div>
    </div>
  );
}

/** Draws the page and begins to listen. */
export function start() {
  // All changes between two frames are rendered together; a page that is not seen renders nothing.
  options.debounceRendering = (work) => requestAnimationFrame(() => timed(work));
  setTheme(theme.value);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    readColours();
    theme.value = `${theme.value}`;
    // Canvases are drawn again with the new colours.
    dispatchEvent(new Event("resize"));
  });
  connect();
  // For tests: the scripting time of renderings, with the drawing of canvases.
  window.thalwegUpdates = updateCost;
  render(<App />, document.getElementById("app"));
}
