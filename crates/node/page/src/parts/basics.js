// Small parts that all views use.

import { signal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { announce, closeToast, faults, pollers, spoken, toasts } from "../store.js";
import { ago, dayAndTime, duration } from "../format.js";

/** Keeps these documents fresh while the view is open. */
export function useDocuments(...names) {
  useEffect(() => {
    const ends = names.map((name) => pollers[name].use());
    return () => ends.forEach((end) => end());
  }, []);
}

/** A line icon; the paths are drawn on 24 × 24. */
const ICONS = {
  overview: "M4 13h6V4H4zM14 20h6v-9h-6zM4 20h6v-3H4zM14 7h6V4h-6z",
  jobs: "M4 6h9M4 12h13M4 18h6M17 4v5M14.5 6.5 17 9l2.5-2.5",
  paths: "M5 19c0-7 14-7 14-14M5 19h.01M19 5h.01M5 5h5M5 5v5M19 19h-5M19 19v-5",
  interfaces: "M4 8h16v8H4zM8 16v4M16 16v4M8 4v4M12 4v4M16 4v4",
  streams: "M3 12c3 0 3-6 6-6s3 12 6 12 3-6 6-6",
  members: "M8 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM2.5 19c0-3 2.5-5 5.5-5s5.5 2 5.5 5M16 11a2.5 2.5 0 1 0 0-5M17 14c2.700.2 4.5 2 4.5 5",
  copy: "M9 9h10v11H9zM6 15H5V4h10v1",
  done: "M5 12.5l4.5 4.5L19 7",
  pause: "M8 5v14M16 5v14",
  resume: "M7 5l11 7-11 7z",
  cancel: "M6 6l12 12M18 6L6 18",
  forget: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13",
  plus: "M12 5v14M5 12h14",
  minus: "M5 12h14",
  fit: "M4 9V4h5M20 9V4h-5M4 15v5h5M20 15v5h-5",
  theme: "M12 3a9 9 0 1 0 9 9 7 7 0 0 1-9-9z",
  up: "M6 15l6-6 6 6",
  down: "M6 9l6 6 6-6",
  warn: "M12 4 2.5 20h19zM12 10v5M12 17.5v.2",
  external: "M9 5H5v14h14v-4M13 5h6v6M19 5l-9 9",
};

export function Icon({ name, size = 18 }) {
  return (
    <svg class="icon" width={size} height={size} viewBox="0 0 24 24" aria-hidden="true" focusable="false">
      <path d={ICONS[name]} />
    </svg>
  );
}

export function Button({ icon, label, hidesLabel, kind = "", onClick, disabled, type = "button", title }) {
  return (
    <button type={type} class={`button ${kind} ${hidesLabel ? "only-icon" : ""}`} onClick={onClick} disabled={disabled}
      aria-label={hidesLabel ? label : undefined} title={title ?? (hidesLabel ? label : undefined)}>
      {icon && <Icon name={icon} />}
      {!hidesLabel && label}
    </button>
  );
}

/** A button that asks before it acts. */
export function SureButton({ icon, label, sure, hidesLabel, onClick, disabled }) {
  const [asks, setAsks] = useState(false);
  useEffect(() => {
    if (!asks) return undefined;
    const timer = setTimeout(() => setAsks(false), 5000);
    return () => clearTimeout(timer);
  }, [asks]);
  const act = () => {
    if (asks) onClick();
    else announce(sure);
    setAsks(!asks);
  };
  return <Button icon={asks ? undefined : icon} label={asks ? sure : label} hidesLabel={hidesLabel && !asks} kind={asks ? "bad" : ""} onClick={act} disabled={disabled} />;
}

export function Card({ title, level = 2, aside, children, kind = "", id }) {
  const Heading = `h${level}`;
  return (
    <section class={`card ${kind}`} id={id}>
      {(title || aside) && (
        <header class="card-head">
          {title && <Heading>{title}</Heading>}
          {aside && <div class="aside">{aside}</div>}
        </header>
      )}
      {children}
    </section>
  );
}

export function Badge({ kind = "", children, title }) {
  return <span class={`badge ${kind}`} title={title}>{children}</span>;
}

/** A command line with a button that copies it. */
export function Command({ line, label = "Command line", isShort }) {
  const [isCopied, setCopied] = useState(false);
  const copy = async () => {
    const isDone = await copyText(line);
    setCopied(isDone);
    announce(isDone ? "Copied" : "Not copied: select the text and copy it by hand");
    setTimeout(() => setCopied(false), 2000);
  };
  if (isShort) return <Button icon={isCopied ? "done" : "copy"} label={isCopied ? "Copied" : "Copy the command"} title={line} kind="quiet" onClick={copy} />;
  return (
    <div class="command">
      <code tabIndex={0} role="region" aria-label={label}>{line}</code>
      <Button icon={isCopied ? "done" : "copy"} label={isCopied ? "Copied" : `Copy: ${label.toLowerCase()}`} hidesLabel onClick={copy} />
    </div>
  );
}

async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Without permission for the clipboard the old way still works after a click.
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    const isDone = document.execCommand("copy");
    area.remove();
    return isDone;
  }
}

/** What to do while there is nothing to show. */
export function Empty({ title, children, command, commandLabel }) {
  return (
    <div class="empty">
      <p class="empty-title">{title}</p>
      {children && <p>{[children].flat().map((part) => (typeof part === "string" ? <Prose key={part} text={part} /> : part))}</p>}
      {command && <Command line={command} label={commandLabel} />}
    </div>
  );
}

/** The error of a document, above what is still known of it. */
export function Fault({ name }) {
  const error = faults.value[name];
  return error ? <p class="fault" role="alert"><Icon name="warn" /> <span><Prose text={error.message} /></span></p> : null;
}

/** Text in which `words` are code. */
export function Prose({ text }) {
  return String(text ?? "").split("`").map((part, index) => (index % 2 ? <code key={index}>{part}</code> : part));
}

export function Progress({ done, total, label, kind = "" }) {
  const share = total > 0 ? Math.min(1, (done ?? 0) / total) : NaN;
  const isKnown = Number.isFinite(share);
  return (
    <div class={`progress ${kind} ${isKnown ? "" : "unknown"}`} role="progressbar" aria-label={label} aria-valuemin={0} aria-valuemax={100}
      aria-valuenow={isKnown ? Math.floor(share * 100) : undefined} aria-valuetext={isKnown ? `${Math.floor(share * 100)} percent` : "unknown"}>
      <span style={{ width: isKnown ? `${share * 100}%` : "0%" }} />
    </div>
  );
}

/** Pairs of a name and a value. */
export function Facts({ rows, kind = "" }) {
  return (
    <dl class={`facts ${kind}`}>
      {rows.filter(Boolean).map(([name, value, title]) => (
        <div key={name}><dt>{name}</dt><dd title={title}>{value}</dd></div>
      ))}
    </dl>
  );
}

export function Age({ seconds }) {
  return <span title={Number.isFinite(seconds) ? duration(seconds) : undefined}>{ago(seconds)}</span>;
}

export function Moment({ date }) {
  return <time datetime={date}>{dayAndTime(date)}</time>;
}

export function Segments({ label, options, value, onChange }) {
  return (
    <div class="segments" role="group" aria-label={label}>
      {options.map(([key, text]) => (
        <button key={key} type="button" aria-pressed={value === key ? "true" : "false"} onClick={() => onChange(key)}>{text}</button>
      ))}
    </div>
  );
}

/** A canvas with the size of its element, redrawn after each render and when the element or the theme changes. */
export function Canvas({ draw, class: name = "", onSize, ...rest }) {
  const canvas = useRef(null);
  const latest = useRef(draw);
  latest.current = draw;
  const paint = () => {
    const element = canvas.current;
    if (!element) return;
    const [width, height] = [element.clientWidth, element.clientHeight];
    const scale = window.devicePixelRatio || 1;
    if (element.width !== Math.round(width * scale) || element.height !== Math.round(height * scale)) {
      element.width = Math.round(width * scale);
      element.height = Math.round(height * scale);
    }
    const context = element.getContext("2d");
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, width, height);
    if (width && height) latest.current(context, width, height);
  };
  useEffect(() => {
    const observer = new ResizeObserver(() => {
      if (!canvas.current) return;
      onSize?.(canvas.current.clientWidth, canvas.current.clientHeight);
      paint();
    });
    observer.observe(canvas.current);
    const unsubscribe = theme.subscribe(() => requestAnimationFrame(paint));
    return () => {
      observer.disconnect();
      unsubscribe();
    };
  }, []);
  useLayoutEffect(paint);
  return <canvas ref={canvas} class={name} {...rest} />;
}

/** The theme: `auto`, `light` or `dark`. */
export const theme = signal(readTheme());

function readTheme() {
  try {
    return localStorage.getItem("theme") ?? "auto";
  } catch {
    return "auto";
  }
}

export function setTheme(next) {
  theme.value = next;
  document.documentElement.dataset.theme = next;
  readColours();
  try {
    localStorage.setItem("theme", next);
  } catch {
    // A browser without storage forgets the choice.
  }
}

/** The colours of the style sheet, for canvases. */
export const colours = {};

export function readColours() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["bg", "panel", "text", "muted", "line", "accent", "soft", "good", "warn", "bad", "s1", "s2", "s3", "s4", "s5", "s6", "low", "mid", "high"]) {
    colours[name] = resolved(style.getPropertyValue(`--${name}`));
  }
  colours.series = [1, 2, 3, 4, 5, 6].map((n) => colours[`s${n}`]);
}

let probe = null;
/** A computed colour: `light-dark()` in a custom property is text until an element uses it. */
function resolved(value) {
  if (!probe) {
    probe = document.createElement("span");
    probe.hidden = true;
    document.body.append(probe);
  }
  probe.style.color = value;
  return getComputedStyle(probe).color;
}

export const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";

/** A small line of recent values. The row beside it says the newest value in words. */
export function Sparkline({ history, name = "total", width = 96, height = 24 }) {
  const draw = (context, w, h) => {
    const list = history?.series.get(name);
    if (!list || list.length < 2) return;
    const from = Math.max(0, list.length - 120);
    const values = list.slice(from).map((v) => (Number.isFinite(v) ? v : 0));
    const most = Math.max(...values, 1);
    const step = w / Math.max(1, values.length - 1);
    context.beginPath();
    values.forEach((value, index) => context.lineTo(index * step, h - 1.5 - (value / most) * (h - 3)));
    context.strokeStyle = colours.accent;
    context.lineWidth = 1.5;
    context.lineJoin = "round";
    context.stroke();
    context.lineTo(w, h);
    context.lineTo(0, h);
    context.globalAlpha = 0.14;
    context.fillStyle = colours.accent;
    context.fill();
    context.globalAlpha = 1;
  };
  return <span class="spark" style={{ width: typeof width === "number" ? `${width}px` : width, height: `${height}px` }} aria-hidden="true"><Canvas draw={draw} /></span>;
}

/** The region that screen readers speak, and the messages. */
export function Messages() {
  return (
    <>
      <p class="spoken" aria-live="polite" aria-atomic="true">{spoken.value.text}{spoken.value.n % 2 ? " " : ""}</p>
      <div class="toasts">
        {toasts.value.map((one) => (
          <div key={one.id} class={`toast ${one.kind}`}>
            <span><Prose text={one.text} /></span>
            <Button icon="cancel" label="Close this message" hidesLabel onClick={() => closeToast(one.id)} />
          </div>
        ))}
      </div>
    </>
  );
}

/** Whether a media query holds, as a hook. */
export function useMedia(query) {
  const [holds, setHolds] = useState(() => matchMedia(query).matches);
  useEffect(() => {
    const list = matchMedia(query);
    const change = () => setHolds(list.matches);
    list.addEventListener("change", change);
    return () => list.removeEventListener("change", change);
  }, [query]);
  return holds;
}
