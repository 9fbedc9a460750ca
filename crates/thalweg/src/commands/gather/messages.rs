//! The messages of `thalweg gather` for people.

use crate::commands::text::{aligned, counted, rough};
use std::time::Duration;
use thalweg_base::{sample::UnlistedFailures, verdict::Verdict};
use thalweg_gather::{
    Changes, Event, FileListed, Forecast, Outcome, PlannedPath, PricePoint, Progress,
    SourceProgress, Totals,
};
use thalweg_units::{ByteSize, Rate};
use thalweg_wire::mesh::Name;

/// The most paths listed on a terminal, unless more are asked for.
const MAX_WAYS: usize = 12;

/// The most sources named as the last ones.
const MAX_LATE: usize = 3;

/// A size for people.
pub fn size(bytes: u64) -> String {
    ByteSize::from_bytes(short(bytes)).to_string()
}

/// A rate for people.
pub fn rate(bps: u64) -> String {
    Rate::from_bps(short(bps)).to_string()
}

/// Rounds to three digits: nobody reads more while they change.
fn short(value: u64) -> u64 {
    let scale = 10_u64.pow(value.max(1).ilog10().saturating_sub(2));
    value.saturating_add(scale / 2) / scale * scale
}

/// A time for people, with tenths below ten seconds.
pub fn time(seconds: f64) -> String {
    match seconds {
        s if s < 0.0 => "0 s".to_owned(),
        s if s < 9.95 => format!("{s:.1} s"),
        s => rough(Duration::try_from_secs_f64(s.round()).unwrap_or(Duration::MAX)),
    }
}

/// The hosts on the path, or `direct`.
pub fn way(via: &[Name]) -> String {
    match via {
        [] => "direct".to_owned(),
        via => via.iter().map(Name::as_str).collect::<Vec<_>>().join("+"),
    }
}

/// The line that names the bound of a finished transfer.
pub fn bound_line(verdict: &Verdict) -> String {
    format!("bound: {}: {}", verdict.bound, verdict.text)
}

/// The lines for an event; many only with `verbose`.
pub fn message_lines(event: &Event, verbose: bool) -> Vec<String> {
    match event {
        Event::Listed { source, files, bytes, seconds } if verbose => {
            let files = counted(*files, "file");
            vec![format!("{source}: {files}, {}, listed in {}", size(*bytes), time(*seconds))]
        }
        Event::SourceFailed { source, why } => vec![format!("{source} is left out: {why}")],
        Event::Started { into, files, bytes, present_files, present_bytes, changes, .. } => {
            let here = present(*present_files, *present_bytes, "here");
            vec![format!("{}, to {into}{here}", amount(*files, *bytes, *changes))]
        }
        Event::PassedOver { source, special, own, paths } => {
            vec![format!("{source}: {}", skipped_line(*special, *own, paths))]
        }
        Event::Planned(forecast) if forecast.bytes > 0 => {
            let mut lines = vec![plan(forecast)];
            if verbose {
                lines.extend(table(forecast, MAX_WAYS).lines().map(str::to_owned));
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
            vec![format!("replanned: {why}{}", then.unwrap_or_default())]
        }
        Event::FileFailed { source, file, why } => {
            let why = why.strip_prefix(&format!("{file}: ")).unwrap_or(why);
            vec![format!("{source}: {file}: {why}")]
        }
        Event::MoreFailed { source, why, count } => {
            let (whose, why) = (String::new(), why.clone());
            let more = UnlistedFailures { whose, why, count: *count };
            let source = source.as_ref().map(|source| format!("{source}: ")).unwrap_or_default();
            vec![format!("{source}{more}")]
        }
        Event::Progress(far) => vec![progress(far) + &behind(far).unwrap_or_default()],
        Event::Note { text } => vec![text.clone()],
        Event::Ended(totals) => vec![end_line(totals)],
        Event::Verdict(verdict) if verbose => vec![bound_line(verdict)],
        _ => Vec::new(),
    }
}

/// One line about what is left out without being an error.
pub fn skipped_line(special: u64, own: u64, paths: &[String]) -> String {
    let special_files = match special {
        0 => None,
        1 => Some("1 device, socket or pipe".to_owned()),
        n => Some(format!("{n} devices, sockets or pipes")),
    };
    let own_files = (own > 0).then(|| format!("{} of Thalweg's own", counted(own, "file")));
    let what: Vec<String> = special_files.into_iter().chain(own_files).collect();
    let more = (special + own).saturating_sub(paths.len() as u64);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("left out: {} ({}{more})", what.join(", "), paths.join(", "))
}

/// Describes files with their bytes, and other items that are created or changed.
pub fn amount(files: u64, bytes: u64, changes: Changes) -> String {
    let files = format!("{}, {}", counted(files, "file"), size(bytes));
    [files].into_iter().chain(change_counts(changes)).collect::<Vec<_>>().join(", ")
}

/// Describes items that are created or changed, besides files.
fn change_counts(changes: Changes) -> impl Iterator<Item = String> {
    let Changes { links, directories, attributes } = changes;
    let directories = match directories {
        1 => "1 directory".to_owned(),
        n => format!("{n} directories"),
    };
    let all = [
        (links, counted(links, "symbolic link")),
        (changes.directories, directories),
        (attributes, format!("attributes of {attributes}")),
    ];
    all.into_iter().filter(|(count, _)| *count > 0).map(|(_, words)| words)
}

/// Describes files that are already `here` or there, as an addition to what is missing.
pub fn present(files: u64, bytes: u64, here: &str) -> String {
    match (files, bytes) {
        (0, 0) => String::new(),
        (n, b) => format!("; {}, {}, {here} already", counted(n, "file"), size(b)),
    }
}

/// The final line when everything is `here` or there, for gather and send.
pub fn complete(totals: &Totals, here: &str) -> String {
    let Totals { files, bytes, seconds, rate_bps, present_files, changes, .. } = totals;
    match (*files, changes.is_empty()) {
        (0, true) => format!("all is {here} already: {}", counted(*present_files, "file")),
        (0, false) => {
            let made: Vec<String> = change_counts(*changes).collect();
            format!("all is {here}: {}", made.join(", "))
        }
        _ => {
            let (time, rate) = (time(*seconds), rate(*rate_bps));
            format!("all is {here}: {}, in {time} ({rate})", amount(*files, *bytes, *changes))
        }
    }
}

/// The files to fetch, one line each: size and location.
pub fn files(source: &Name, files: &[FileListed]) -> String {
    let line = |file: &FileListed| format!("{:>9}  {source}:{}\n", size(file.bytes), file.path);
    files.iter().map(line).collect()
}

/// The last sources, for logs: by time left, those with an unknown time first.
fn behind(progress: &Progress) -> Option<String> {
    let left = |s: &SourceProgress| s.total_bytes.saturating_sub(s.done_bytes);
    let mut late: Vec<&SourceProgress> =
        progress.sources.iter().filter(|source| left(source) > 0).collect();
    if late.is_empty() || progress.sources.len() == 1 {
        return None;
    }
    let time_left = |s: &SourceProgress| s.left_seconds.unwrap_or(f64::INFINITY);
    late.sort_by(|a, b| time_left(b).total_cmp(&time_left(a)));
    let named = late.iter().take(MAX_LATE);
    let named: Vec<String> =
        named.map(|s| format!("{} ({} left)", s.source, size(left(s)))).collect();
    Some(format!("; last: {}", named.join(", ")))
}

/// The plan in one line.
pub fn plan(forecast: &Forecast) -> String {
    let Forecast { method, makespan_seconds, bound_seconds, unmeasured, .. } = forecast;
    let relayed = forecast.paths.iter().filter(|path| !path.via.is_empty()).count() as u64;
    let ways = match relayed {
        0 => "all directly".to_owned(),
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
            format!("plan ({method}): duration unknown: no measured path from {names}{least}")
        }
    }
}

/// The plan's paths, at most `most`, those that carry most of each source first.
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

/// The costs of other durations, if prices are given.
pub fn curve(forecast: &Forecast) -> String {
    let row = |point: &PricePoint| [time(point.seconds), format!("{:.4}", point.price)];
    let rows: Vec<_> = forecast.curve.iter().map(row).collect();
    if rows.is_empty() {
        String::new()
    } else {
        "\n".to_owned() + &aligned(["WITHIN", "COSTS (currency of --prices)"], &rows)
    }
}

/// The progress in one line.
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

fn end_line(totals: &Totals) -> String {
    let Totals { files, bytes, seconds, rate_bps, changes, .. } = totals;
    let came = format!(
        "{}, in {} ({})",
        amount(*files, *bytes, *changes),
        time(*seconds),
        rate(*rate_bps)
    );
    match totals.outcome {
        Outcome::Planned if totals.failed_files + totals.failed_sources > 0 => {
            let missing = missing(totals);
            format!(
                "nothing was fetched (--dry-run); some would be missing: {missing}{}",
                late(totals)
            )
        }
        Outcome::Planned => format!("nothing was fetched (--dry-run){}", late(totals)),
        Outcome::Complete => complete(totals, "here") + late(totals),
        Outcome::Partial => format!("not all is here: {}; {came}{}", missing(totals), lost(totals)),
        Outcome::Interrupted => format!(
            "interrupted: {came}; {} of unfinished files are kept; the same command continues from \
             there",
            size(totals.kept_bytes)
        ),
        Outcome::Failed => format!(
            "failed: {}; {came}; the same command continues from there",
            totals.why.as_deref().unwrap_or("nothing was received")
        ),
    }
}

fn late(totals: &Totals) -> &'static str {
    match (totals.late, totals.outcome) {
        (false, _) => "",
        (true, Outcome::Planned) => "; the deadline cannot be met",
        (true, _) => "; later than the deadline",
    }
}

fn lost(totals: &Totals) -> String {
    match totals.lost_bytes {
        0 => String::new(),
        bytes => format!("; {} more received of files that failed", size(bytes)),
    }
}

fn missing(totals: &Totals) -> String {
    let parts = [
        (totals.failed_sources, "source", " left out"),
        (totals.failed_files, "file", " failed"),
        (totals.unfinished_files, "file", " unfinished"),
    ];
    let named = parts.iter().filter(|(n, ..)| *n > 0);
    let named: Vec<String> = named.map(|(n, what, how)| counted(*n, what) + how).collect();
    named.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plan_is_shown_as_a_line_and_a_table() {
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
    fn the_final_line_counts_links_directories_and_attributes() {
        let of = |files, links, directories, attributes| Totals {
            outcome: Outcome::Complete,
            files,
            bytes: files * 1_000,
            seconds: 2.0,
            rate_bps: 8_000,
            present_files: 5,
            changes: Changes { links, directories, attributes },
            ..Totals::default()
        };
        for (totals, expected) in [
            (of(0, 0, 0, 0), "all is here already: 5 files"),
            (of(0, 1, 0, 0), "all is here: 1 symbolic link"),
            (of(0, 2, 1, 0), "all is here: 2 symbolic links, 1 directory"),
            (of(0, 0, 2, 3), "all is here: 2 directories, attributes of 3"),
            (of(0, 0, 0, 1), "all is here: attributes of 1"),
            (of(1, 0, 0, 0), "all is here: 1 file, 1 kB, in 2.0 s (8 kbit/s)"),
            (
                of(2, 1, 2, 3),
                "all is here: 2 files, 2 kB, 1 symbolic link, 2 directories, attributes of 3, in 2.0 s (8 kbit/s)",
            ),
        ] {
            assert_eq!(message_lines(&Event::Ended(totals.clone()), false), [expected]);
            assert_eq!(complete(&totals, "there"), expected.replacen("here", "there", 1));
        }
        let started = Event::Started {
            job: thalweg_base::job::JobId::from([0; 16]),
            into: "in".into(),
            files: 0,
            bytes: 0,
            present_files: 5,
            present_bytes: 5_000,
            changes: Changes { links: 1, directories: 0, attributes: 2 },
        };
        let expected =
            "0 files, 0 B, 1 symbolic link, attributes of 2, to in; 5 files, 5 kB, here already";
        assert_eq!(message_lines(&started, false), [expected]);
        let json = serde_json::to_value(&started).unwrap();
        let counts = ["links", "directories", "attributes"].map(|name| json[name].as_u64());
        assert_eq!(counts, [Some(1), Some(0), Some(2)], "{json}");
    }

    #[test]
    fn the_final_line_says_what_is_missing() {
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
        let lines = message_lines(&Event::Ended(totals), false);
        assert_eq!(
            lines,
            [
                "not all is here: 2 sources left out, 1 file failed; 3 files, 2 kB, in 2.0 s (8 kbit/s)"
            ]
        );
    }
}
