//! `thalweg stream list` and `status`: the streams at this host's node.

use super::{publish::report_error, socket};
use crate::commands::{
    host::{self, StateDir},
    text::{aligned, plain, say},
};
use serde_json::Value;
use std::{fmt::Write as _, process::ExitCode, time::Duration};
use thalweg_stream::local;
use thalweg_units::parse_duration;
use thalweg_wire::mesh::Name;
use tokio::time::sleep;

/// Arguments of `thalweg stream list`.
#[derive(clap::Args)]
pub struct ListArgs {
    /// Print a JSON array
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: StateDir,
}

/// Arguments of `thalweg stream status`.
#[derive(clap::Args)]
pub struct Args {
    /// Only this stream
    #[arg(value_name = "NAME")]
    name: Option<Name>,
    /// Refresh each second, with a history of each leg
    #[arg(long)]
    watch: bool,
    /// Print a JSON object, with --watch one each second
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: StateDir,
}

/// Lists the streams.
///
/// # Errors
/// When the state directory cannot be used, or the output not written.
pub fn list(args: &ListArgs) -> anyhow::Result<ExitCode> {
    let socket = socket(&args.place)?;
    let report = match host::block_on(async { Ok(local::status(&socket).await) })? {
        Ok(report) => report,
        Err(why) => return Ok(report_error(&why).into()),
    };
    let streams = &report["streams"];
    match args.json {
        true => say(&(serde_json::to_string_pretty(streams)? + "\n"))?,
        false => say(&list_table(streams))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn list_table(streams: &Value) -> String {
    let row = |stream: &Value| {
        let source = match (stream["published_by"].as_str(), stream["parent"].as_str()) {
            (Some(who), _) => format!("published by {who}"),
            (_, Some(parent)) => format!("from {parent}"),
            _ => "no source at present".to_owned(),
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

/// Text from the report, made safe for a terminal.
fn text(value: &Value) -> String {
    plain(value.as_str().unwrap_or("-"))
}

/// The rate of all tracks, bit/s.
fn rate(stream: &Value) -> f64 {
    let tracks = stream["rates"].as_array().into_iter().flatten();
    tracks.flat_map(|track| track.as_array().into_iter().flatten()).filter_map(Value::as_f64).sum()
}

fn mbps(bps: f64) -> String {
    format!("{:.2}", bps / 1e6)
}

/// Shows the status.
///
/// # Errors
/// As [`list`].
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let socket = socket(&args.place)?;
    host::block_on(async {
        let mut history = History::default();
        loop {
            let mut report = match local::status(&socket).await {
                Ok(report) => report,
                Err(why) => return Ok(report_error(&why).into()),
            };
            if let (Some(name), Some(streams)) = (&args.name, report["streams"].as_array_mut()) {
                streams.retain(|stream| stream["name"] == name.as_str());
            }
            history.record(&report);
            match (args.json, args.watch) {
                (true, true) => say(&format!("{report}\n"))?,
                (true, false) => say(&(serde_json::to_string_pretty(&report)? + "\n"))?,
                (false, true) => thalweg_console::say_afresh(&render(&report, Some(&history)))?,
                (false, false) => say(&render(&report, None))?,
            }
            if !args.watch {
                return Ok(ExitCode::SUCCESS);
            }
            sleep(Duration::from_secs(1)).await;
        }
    })
}

/// The names of the classes, in the order of rates and counts.
const CLASSES: [&str; 5] = ["tables", "audio", "key", "reference", "disposable"];

fn render(report: &Value, history: Option<&History>) -> String {
    let mut out = String::new();
    for stream in stream_list(&report["streams"]) {
        let age = stream["age_us"].as_f64().unwrap_or(0.0) / 1e3;
        // Writing to a string cannot fail.
        _ = writeln!(
            out,
            "{}  at {}, {} Mbit/s, age here {age:.0} ms",
            text(&stream["name"]),
            text(&stream["origin"]),
            mbps(rate(stream)),
        );
        out += &planned_lines(&report["oracle"], &stream["name"]);
        for leg in stream_list(&stream["legs"]) {
            out += &leg_lines(leg);
            if let Some(history) = history {
                out += &history.line(&key(stream, leg));
            }
        }
    }
    if out.is_empty() {
        out += "no streams\n";
    }
    out + &oracle_lines(&report["oracle"])
}

/// The oracle's plan for this host's programs.
fn planned_lines(oracle: &Value, name: &Value) -> String {
    let mut out = String::new();
    let plan_age = oracle["plan_age_s"].as_f64().unwrap_or(0.0).clamp(0.0, 1e9);
    let planned = stream_list(&oracle["plan"]["streams"]).iter().find(|one| one["stream"] == *name);
    for given in stream_list(planned.map_or(&Value::Null, |planned| &planned["subscriptions"])) {
        let why = &given["why"];
        let from = planned.and_then(|planned| planned["parent"].as_str());
        let from = from.map(|parent| format!(" from {}", plain(parent))).unwrap_or_default();
        let age = |key: &Value| parse_duration(key.as_str().unwrap_or_default()).ok();
        let since = age(&why["since"]).unwrap_or_default() + Duration::from_secs_f64(plan_age);
        // Writing to a string cannot fail.
        _ = write!(out, "  plan:{from}, {} {:.0} s ago", text(&why["reason"]), since.as_secs_f64());
        if let [from, to] = stream_list(&why["leg"]) {
            _ = write!(out, "; the leg {} → {}", text(from), text(to));
        }
        let estimate = &why["estimate"];
        if let Some(bps) = estimate["bps"].as_f64() {
            let how = match estimate["is_measured"].as_bool() {
                Some(true) => "measured by probe trains at",
                _ => "carried",
            };
            let age = age(&estimate["age"]).unwrap_or_default().as_secs_f64();
            _ = write!(out, " {how} {} Mbit/s, {age:.0} s before", mbps(bps));
        }
        out.push('\n');
    }
    out
}

/// Why no oracle answers, and the parts of the last report that the oracle refused.
fn oracle_lines(oracle: &Value) -> String {
    let mut out = String::new();
    if oracle["standing"] == "down" {
        _ = writeln!(
            out,
            "no oracle answers, so the last plan stays in force: {}",
            text(&oracle["why"])
        );
    }
    for why in stream_list(&oracle["refused"]) {
        _ = writeln!(out, "refused by the oracle: {}", text(why));
    }
    out
}

fn leg_lines(leg: &Value) -> String {
    let number = |key: &str| leg[key].as_f64().unwrap_or(0.0);
    let mut out = format!(
        "  → {:<16} {} of {} Mbit/s, {}; queue {:.0} ms, age there {:.0} ms\n",
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
        let age = age.map(|age| format!(", {age:.0} s before")).unwrap_or_default();
        let is_limited = leg["gets"] != leg["wants"];
        let why = thalweg_console::field(&why);
        _ = writeln!(out, "    {}: {why}{age}", if is_limited { "limited" } else { "plan" });
    }
    let dropped = leg["dropped"].as_object().into_iter().flatten();
    for (why, classes) in dropped {
        let counts = CLASSES.iter().zip(stream_list(classes));
        let counts = counts.filter(|(_, count)| count.as_u64() != Some(0));
        let counts: Vec<String> = counts.map(|(class, count)| format!("{count} {class}")).collect();
        if !counts.is_empty() {
            _ = writeln!(out, "    dropped ({}): {}", plain(why), counts.join(", "));
        }
    }
    out
}

/// The seconds in a leg's history.
const WIDTH: usize = 60;

/// The sent share of the stream's rate for each leg, by second.
#[derive(Default)]
struct History(std::collections::BTreeMap<String, Vec<f64>>);

/// The key of a leg's history.
fn key(stream: &Value, leg: &Value) -> String {
    format!("{} {}", text(&stream["name"]), text(&leg["to"]))
}

impl History {
    fn record(&mut self, report: &Value) {
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

    /// A leg's last minute as bars.
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
                "to": "fra", "sent_bps": 704_000, "wanted_bps": 704_000,
                "gets": { "track": null, "level": "no-disposable" },
                "wants": { "track": null, "level": "all" },
                "queue_us": 3000, "child_age_us": 45_000,
                "why": "probe trains measured 2.00 Mbit/s for all streams to it",
                "estimate": [2e6, 4.2], "dropped": { "level": [0, 0, 0, 0, 31], "late": [0, 0, 0, 0, 0] },
            }],
        }] })
    }

    #[test]
    fn a_status_shows_rates_levels_and_reasons() {
        let mut history = History::default();
        history.record(&report());
        let output = render(&report(), Some(&history));
        let lines: Vec<&str> = output.lines().collect();
        assert_eq!(lines[0], "stage  at studio, 1.16 Mbit/s, age here 21 ms");
        assert!(
            lines[1].contains("fra") && lines[1].contains("0.70 of 0.70 Mbit/s, no-disposable")
        );
        assert_eq!(
            lines[2],
            "    limited: probe trains measured 2.00 Mbit/s for all streams to it, 4 s before"
        );
        assert_eq!(lines[3], "    dropped (level): 31 disposable");
        assert_eq!(lines[4], "    ▅");
        assert!(list_table(&report()["streams"]).contains("published by a program of this host"));
        assert_eq!(render(&json!({}), None), "no streams\n");
    }

    #[test]
    fn a_status_shows_the_plan_and_what_it_is_based_on() {
        let mut report = report();
        report["oracle"] = json!({
            "standing": "down", "why": "no oracle could be reached", "refused": ["`hall` is published at fra already"],
            "plan_age_s": 3.2,
            "plan": { "version": 7, "streams": [{
                "stream": "stage", "origin": "studio", "parent": "fra",
                "subscriptions": [{ "id": 1, "preference": 0, "why": {
                    "reason": "rerouted", "leg": ["studio", "nyc"], "since": "2 s",
                    "estimate": { "bps": 600_000, "is_measured": false, "age": "1 s" },
                } }],
            }] },
        });
        let output = render(&report, None);
        let lines: Vec<&str> = output.lines().collect();
        assert_eq!(
            lines[1],
            "  plan: from fra, rerouted 5 s ago; the leg studio → nyc carried 0.60 Mbit/s, 1 s before"
        );
        assert_eq!(
            lines[lines.len() - 2..],
            [
                "no oracle answers, so the last plan stays in force: no oracle could be reached",
                "refused by the oracle: `hall` is published at fra already"
            ]
        );
    }
}
