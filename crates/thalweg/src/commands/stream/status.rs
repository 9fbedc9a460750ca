//! `thalweg stream list` and `status`: what this host's node knows of its streams.

use super::{publish::told, socket};
use crate::commands::{
    here::{self, Place},
    text::{aligned, plain, say},
};
use serde_json::Value;
use std::{fmt::Write as _, io::IsTerminal as _, process::ExitCode, time::Duration};
use thalweg_stream::local;
use thalweg_wire::mesh::Name;
use tokio::time::sleep;

/// Arguments of `thalweg stream list`.
#[derive(clap::Args)]
pub struct ListArgs {
    /// Print one JSON array
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: Place,
}

/// Arguments of `thalweg stream status`.
#[derive(clap::Args)]
pub struct Args {
    /// Only this stream
    #[arg(value_name = "NAME")]
    name: Option<Name>,
    /// Show it anew each second, with a line of time for each leg
    #[arg(long)]
    watch: bool,
    /// Print one JSON object, with --watch one a second
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: Place,
}

/// Lists the streams.
///
/// # Errors
/// When the state directory cannot be used, or the output not written.
pub fn list(args: &ListArgs) -> anyhow::Result<ExitCode> {
    let socket = socket(&args.place)?;
    let report = match here::block_on(async { Ok(local::status(&socket).await) })? {
        Ok(report) => report,
        Err(why) => return Ok(told(&why).into()),
    };
    let streams = &report["streams"];
    match args.json {
        true => say(&(serde_json::to_string_pretty(streams)? + "\n"))?,
        false => say(&listed(streams))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn listed(streams: &Value) -> String {
    let row = |stream: &Value| {
        let source = match (stream["published_by"].as_str(), stream["parent"].as_str()) {
            (Some(who), _) => format!("published by {who}"),
            (_, Some(parent)) => format!("from {parent}"),
            _ => "nobody brings it now".to_owned(),
        };
        let legs = stream["legs"].as_array().map_or(0, Vec::len);
        [
            text(&stream["name"]),
            text(&stream["origin"]),
            plain(&source),
            mbps(rate(stream)),
            legs.to_string(),
        ]
    };
    let rows: Vec<_> = stream_list(streams).iter().map(row).collect();
    aligned(["STREAM", "AT", "SOURCE", "MBIT/S", "LEGS"], &rows)
}

fn stream_list(streams: &Value) -> &[Value] {
    streams.as_array().map_or(&[], Vec::as_slice)
}

/// Text of others, as a terminal may show it.
fn text(value: &Value) -> String {
    plain(value.as_str().unwrap_or("-"))
}

/// Bit/s of all tracks.
fn rate(stream: &Value) -> f64 {
    let tracks = stream["rates"].as_array().into_iter().flatten();
    tracks.flat_map(|track| track.as_array().into_iter().flatten()).filter_map(Value::as_f64).sum()
}

fn mbps(bps: f64) -> String {
    format!("{:.2}", bps / 1e6)
}

/// Shows the state.
///
/// # Errors
/// As [`list`].
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let socket = socket(&args.place)?;
    here::block_on(async {
        let mut history = History::default();
        loop {
            let mut report = match local::status(&socket).await {
                Ok(report) => report,
                Err(why) => return Ok(told(&why).into()),
            };
            if let (Some(name), Some(streams)) = (&args.name, report["streams"].as_array_mut()) {
                streams.retain(|stream| stream["name"] == name.as_str());
            }
            history.note(&report);
            match (args.json, args.watch) {
                (true, true) => say(&format!("{report}\n"))?,
                (true, false) => say(&(serde_json::to_string_pretty(&report)? + "\n"))?,
                (false, true) => say(&redrawn(&shown(&report, Some(&history))))?,
                (false, false) => say(&shown(&report, None))?,
            }
            if !args.watch {
                return Ok(ExitCode::SUCCESS);
            }
            sleep(Duration::from_secs(1)).await;
        }
    })
}

/// In place of what was there, on a terminal that has colours; below it elsewhere.
fn redrawn(text: &str) -> String {
    let is_plain = std::env::var_os("NO_COLOR").is_some() || !std::io::stdout().is_terminal();
    if is_plain { format!("{text}\n") } else { format!("\x1b[H\x1b[2J{text}") }
}

/// Names of classes, as rates and counts have them.
const CLASSES: [&str; 5] = ["tables", "audio", "key", "reference", "disposable"];

fn shown(report: &Value, history: Option<&History>) -> String {
    let mut out = String::new();
    for stream in stream_list(&report["streams"]) {
        let age = stream["age_us"].as_f64().unwrap_or(0.0) / 1e3;
        // Writing to a string cannot fail.
        _ = writeln!(
            out,
            "{}  at {}, {} Mbit/s, frames {age:.0} ms old here",
            text(&stream["name"]),
            text(&stream["origin"]),
            mbps(rate(stream)),
        );
        for leg in stream_list(&stream["legs"]) {
            out += &leg_lines(leg);
            if let Some(history) = history {
                out += &history.line(&key(stream, leg));
            }
        }
    }
    if out.is_empty() { "no streams\n".to_owned() } else { out }
}

fn leg_lines(leg: &Value) -> String {
    let number = |key: &str| leg[key].as_f64().unwrap_or(0.0);
    let mut out = format!(
        "  → {:<16} {} of {} Mbit/s, {}; waits {:.0} ms, {:.0} ms old there\n",
        text(&leg["to"]),
        mbps(number("sent_bps")),
        mbps(number("wanted_bps")),
        text(&leg["gets"]["level"]),
        number("queue_us") / 1e3,
        number("child_age_us") / 1e3,
    );
    let why = text(&leg["why"]);
    if !why.is_empty() && why != "-" {
        let age = leg["estimate"][1].as_f64();
        let age = age.map(|age| format!(", {age:.0} s ago")).unwrap_or_default();
        _ = writeln!(out, "    as {why}{age}");
    }
    let dropped = leg["dropped"].as_object().into_iter().flatten();
    for (why, classes) in dropped {
        let counts = CLASSES.iter().zip(stream_list(classes));
        let counts = counts.filter(|(_, count)| count.as_u64() != Some(0));
        let counts: Vec<String> = counts.map(|(class, count)| format!("{count} {class}")).collect();
        if !counts.is_empty() {
            _ = writeln!(out, "    left out ({}): {}", plain(why), counts.join(", "));
        }
    }
    out
}

/// So many seconds are in a line of time.
const WIDTH: usize = 60;

/// A leg's share of what was wanted, second by second.
#[derive(Default)]
struct History(std::collections::BTreeMap<String, Vec<f64>>);

/// Which leg.
fn key(stream: &Value, leg: &Value) -> String {
    format!("{} {}", text(&stream["name"]), text(&leg["to"]))
}

impl History {
    fn note(&mut self, report: &Value) {
        for stream in stream_list(&report["streams"]) {
            let whole = rate(stream).max(1.0);
            for leg in stream_list(&stream["legs"]) {
                let share = leg["sent_bps"].as_f64().unwrap_or(0.0) / whole;
                let line = self.0.entry(key(stream, leg)).or_default();
                line.push(share.clamp(0.0, 1.0));
                if line.len() > WIDTH {
                    line.remove(0);
                }
            }
        }
    }

    /// The last minute as bars.
    fn line(&self, key: &str) -> String {
        const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
        let bar = |share: &f64| BARS[((share * 8.0) as usize).min(7)];
        let line: String = self.0.get(key).into_iter().flatten().map(bar).collect();
        format!("    {line}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn report() -> Value {
        json!({ "streams": [{
            "name": "stage", "origin": "studio", "published_by": "a program of this host", "parent": null,
            "rates": [[0, 0, 216_000, 488_000, 456_000]], "age_us": 21_000,
            "legs": [{
                "to": "fra", "sent_bps": 704_000, "wanted_bps": 704_000, "gets": { "level": "no-disposable" },
                "queue_us": 3000, "child_age_us": 45_000, "why": "trains found 2.00 Mbit/s for all streams to it",
                "estimate": [2e6, 4.2], "dropped": { "level": [0, 0, 0, 0, 31], "late": [0, 0, 0, 0, 0] },
            }],
        }] })
    }

    #[test]
    fn a_status_says_what_goes_and_why() {
        let mut history = History::default();
        history.note(&report());
        let said = shown(&report(), Some(&history));
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(lines[0], "stage  at studio, 1.16 Mbit/s, frames 21 ms old here");
        assert!(
            lines[1].contains("fra") && lines[1].contains("0.70 of 0.70 Mbit/s, no-disposable")
        );
        assert_eq!(lines[2], "    as trains found 2.00 Mbit/s for all streams to it, 4 s ago");
        assert_eq!(lines[3], "    left out (level): 31 disposable");
        assert_eq!(lines[4], "    ▅");
        assert!(listed(&report()["streams"]).contains("published by a program of this host"));
        assert_eq!(shown(&json!({}), None), "no streams\n");
    }
}
