//! Events in words.

use crate::commands::text::{aligned, counted, rough};
use std::time::Duration;
use thalweg_gather::{
    Event, FileListed, Forecast, Outcome, PlannedPath, PricePoint, Progress, SourceProgress, Totals,
};
use thalweg_units::{ByteSize, Rate};
use thalweg_wire::mesh::Name;

/// The most ways that are listed on a screen without being asked for.
const WAYS: usize = 12;

/// Sources that are named as the last ones.
const LATE: usize = 3;

/// A size for people.
pub fn size(bytes: u64) -> String {
    ByteSize::from_bytes(short(bytes)).to_string()
}

/// A rate for people.
pub fn rate(bps: u64) -> String {
    Rate::from_bps(short(bps)).to_string()
}

/// Its first three digits, rounded: nobody reads more while they change.
fn short(value: u64) -> u64 {
    let scale = 10_u64.pow(value.max(1).ilog10().saturating_sub(2));
    value.saturating_add(scale / 2) / scale * scale
}

/// A time for people: tenths below ten seconds.
pub fn time(seconds: f64) -> String {
    match seconds {
        s if s < 0.0 => "0 s".to_owned(),
        s if s < 9.95 => format!("{s:.1} s"),
        s => rough(Duration::try_from_secs_f64(s.round()).unwrap_or(Duration::MAX)),
    }
}

/// The hosts between, or `direct`.
pub fn way(via: &[Name]) -> String {
    match via {
        [] => "direct".to_owned(),
        via => via.iter().map(Name::as_str).collect::<Vec<_>>().join("+"),
    }
}

/// What is told of an event; much of it only if it was asked for.
pub fn told(event: &Event, verbose: bool) -> Vec<String> {
    match event {
        Event::Listed { source, files, bytes, seconds } if verbose => {
            let files = counted(*files, "file");
            vec![format!("{source}: {files}, {}, listed in {}", size(*bytes), time(*seconds))]
        }
        Event::SourceFailed { source, why } => vec![format!("{source} is left out: {why}")],
        Event::Started { into, files, bytes, present_files, present_bytes, .. } => {
            let here = match (present_files, present_bytes) {
                (0, 0) => String::new(),
                (n, b) => format!("; {}, {}, here already", counted(*n, "file"), size(*b)),
            };
            vec![format!("{}, {}, to {into}{here}", counted(*files, "file"), size(*bytes))]
        }
        Event::Planned(forecast) if forecast.bytes > 0 => {
            let mut lines = vec![plan(forecast)];
            if verbose {
                lines.extend(table(forecast, WAYS).lines().map(str::to_owned));
            }
            lines
        }
        Event::WayOpened { source, via } if verbose => vec![format!("{source}: + {}", way(via))],
        Event::WayClosed { source, via, why, failed } if verbose || *failed => {
            let sign = if *failed { "failed" } else { "-" };
            vec![format!("{source}: {sign} {}: {why}", way(via))]
        }
        Event::Replanned { why, makespan_seconds } if verbose => {
            let then = makespan_seconds.map(|s| format!(": {} in all", time(s)));
            vec![format!("planned anew: {why}{}", then.unwrap_or_default())]
        }
        Event::FileFailed { source, file, why } => {
            let why = why.strip_prefix(&format!("{file}: ")).unwrap_or(why);
            vec![format!("{source}: {file}: {why}")]
        }
        Event::Progress(far) => vec![progress(far) + &behind(far).unwrap_or_default()],
        Event::Note { text } => vec![text.clone()],
        Event::Ended(totals) => vec![ended(totals)],
        _ => Vec::new(),
    }
}

/// Files that are to be fetched, a line each: size, and where.
pub fn files(source: &Name, files: &[FileListed]) -> String {
    let line = |file: &FileListed| format!("{:>9}  {source}:{}\n", size(file.bytes), file.path);
    files.iter().map(line).collect()
}

/// Who is last, for logs: by the time left, those of whom nobody knows it first.
fn behind(progress: &Progress) -> Option<String> {
    let left = |s: &SourceProgress| s.total_bytes.saturating_sub(s.done_bytes);
    let mut late: Vec<&SourceProgress> =
        progress.sources.iter().filter(|source| left(source) > 0).collect();
    if late.is_empty() || progress.sources.len() == 1 {
        return None;
    }
    let time_left = |s: &SourceProgress| s.left_seconds.unwrap_or(f64::INFINITY);
    late.sort_by(|a, b| time_left(b).total_cmp(&time_left(a)));
    let named = late.iter().take(LATE);
    let named: Vec<String> =
        named.map(|s| format!("{} ({} to come)", s.source, size(left(s)))).collect();
    Some(format!("; last: {}", named.join(", ")))
}

/// The plan in a line.
pub fn plan(forecast: &Forecast) -> String {
    let Forecast { method, makespan_seconds, bound_seconds, unmeasured, .. } = forecast;
    let relayed = forecast.paths.iter().filter(|path| !path.via.is_empty()).count() as u64;
    let ways = match relayed {
        0 => "all of it directly".to_owned(),
        n => format!("{} through other nodes", counted(n, "way")),
    };
    let price = forecast.price.map(|price| format!("; cost {price:.4}")).unwrap_or_default();
    match (makespan_seconds, bound_seconds) {
        (Some(all), bound) if forecast.at_least => {
            let least = bound.map(|b| format!(", at least {}", time(b))).unwrap_or_default();
            let why = "some rates are lower bounds";
            format!("plan ({method}): {} or less ({why}){least}; {ways}{price}", time(*all))
        }
        (Some(all), Some(bound)) => {
            format!("plan ({method}): {}, at least {}; {ways}{price}", time(*all), time(*bound))
        }
        (Some(all), None) => format!("plan ({method}): {}; {ways}{price}", time(*all)),
        (None, _) => {
            let names: Vec<&str> = unmeasured.iter().map(Name::as_str).collect();
            let names = names.join(", ");
            let least =
                bound_seconds.map(|b| format!("; at least {}", time(b))).unwrap_or_default();
            format!("plan ({method}): unknown how long: no measured way from {names}{least}")
        }
    }
}

/// The plan's ways, at most so many, those that carry most first.
pub fn table(forecast: &Forecast, most: usize) -> String {
    let mut paths: Vec<&PlannedPath> = forecast.paths.iter().collect();
    paths.sort_by(|a, b| (&a.source, b.bytes).cmp(&(&b.source, a.bytes)));
    let row = |path: &&PlannedPath| {
        [
            path.source.to_string(),
            way(&path.via),
            size(path.bytes),
            path.rate_bps.map_or("-".to_owned(), rate),
            path.transfers.map_or("-".to_owned(), |n| n.to_string()),
        ]
    };
    let rows: Vec<_> = paths.iter().take(most).map(row).collect();
    let mut text = aligned(["SOURCE", "VIA", "BYTES", "RATE", "TRANSFERS"], &rows);
    if let Some(more) = paths.len().checked_sub(most).filter(|more| *more > 0) {
        text += &format!("… and {more} more: --json\n");
    }
    text
}

/// What other makespans would cost, if there are prices.
pub fn curve(forecast: &Forecast) -> String {
    let row = |point: &PricePoint| [time(point.seconds), format!("{:.4}", point.price)];
    let rows: Vec<_> = forecast.curve.iter().map(row).collect();
    if rows.is_empty() {
        String::new()
    } else {
        "\n".to_owned() + &aligned(["WITHIN", "COSTS (currency of --prices)"], &rows)
    }
}

/// How far it is, in a line.
pub fn progress(progress: &Progress) -> String {
    let Progress { done_bytes, total_bytes, rate_bps, left_seconds, .. } = progress;
    let left = left_seconds.map(|left| format!(", {} left", time(left))).unwrap_or_default();
    let planned = progress.plan_left_seconds.map(|left| format!(" (plan: {})", time(left)));
    format!(
        "{} of {}, {}/{} files, {}{left}{}",
        size(*done_bytes),
        size(*total_bytes),
        progress.done_files,
        progress.total_files,
        rate(*rate_bps),
        planned.unwrap_or_default()
    )
}

fn ended(totals: &Totals) -> String {
    let Totals { files, bytes, seconds, rate_bps, present_files, .. } = totals;
    let came = format!(
        "{}, {}, in {} ({})",
        counted(*files, "file"),
        size(*bytes),
        time(*seconds),
        rate(*rate_bps)
    );
    match totals.outcome {
        Outcome::Planned => format!("nothing was fetched (--dry-run){}", late(totals)),
        Outcome::Complete if *files == 0 => {
            format!("all is here already: {}", counted(*present_files, "file"))
        }
        Outcome::Complete => format!("all is here: {came}{}", late(totals)),
        Outcome::Partial => format!("not all is here: {}; {came}", missing(totals)),
        Outcome::Interrupted => format!(
            "interrupted: {came}; {} of unfinished files are kept; the same command goes on from \
             there",
            size(totals.kept_bytes)
        ),
        Outcome::Failed => format!(
            "failed: {}; {came}; the same command goes on from there",
            totals.why.as_deref().unwrap_or("nothing came")
        ),
    }
}

fn late(totals: &Totals) -> &'static str {
    match (totals.late, totals.outcome) {
        (false, _) => "",
        (true, Outcome::Planned) => "; the deadline cannot be held",
        (true, _) => "; later than the deadline",
    }
}

fn missing(totals: &Totals) -> String {
    let parts = [
        (totals.failed_sources, "source", " left out"),
        (totals.failed_files, "file", " failed"),
        (totals.unfinished_files, "file", " unfinished"),
    ];
    let told = parts.iter().filter(|(n, ..)| *n > 0);
    let told: Vec<String> = told.map(|(n, what, how)| counted(*n, what) + how).collect();
    told.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plan_is_told_in_a_line_and_a_table() {
        let path = |via: &[&str], bytes, rate_bps| PlannedPath {
            source: "fra".parse().unwrap(),
            via: via.iter().map(|n| n.parse().unwrap()).collect(),
            bytes,
            rate_bps,
            transfers: None,
        };
        let forecast = Forecast {
            method: "fluid".into(),
            makespan_seconds: Some(75.0),
            bound_seconds: Some(70.25),
            bytes: 3_000,
            paths: vec![path(&["nyc", "ber"], 1_000, Some(12_345_678)), path(&[], 2_000, None)],
            ..Forecast::default()
        };
        let line = plan(&forecast);
        assert_eq!(
            line,
            "plan (fluid): 1 min 15 s, at least 1 min 10 s; 1 way through other nodes"
        );
        let text = "SOURCE  VIA      BYTES  RATE         TRANSFERS\n\
                    fra     direct   2 kB   -            -\n\
                    fra     nyc+ber  1 kB   12.3 Mbit/s  -\n";
        assert_eq!(table(&forecast, 9), text);
        assert!(table(&forecast, 1).ends_with("… and 1 more: --json\n"));
    }

    #[test]
    fn an_end_says_what_is_missing() {
        let totals = Totals {
            outcome: Outcome::Partial,
            files: 3,
            bytes: 2_000,
            seconds: 2.0,
            rate_bps: 8_000,
            failed_files: 1,
            failed_sources: 2,
            ..Totals::default()
        };
        let said = told(&Event::Ended(totals), false);
        assert_eq!(
            said,
            [
                "not all is here: 2 sources left out, 1 file failed; 3 files, 2 kB, in 2.0 s (8 kbit/s)"
            ]
        );
    }
}
