//! Formats events and quantities for people.

use super::Note;
pub use crate::commands::text::{rate, size};
use std::time::Duration;
use thalweg_base::job::{Event, PathRate};

/// An event of a single download; `None` if it is shown elsewhere.
pub fn event(event: &Event) -> Option<String> {
    Some(match event {
        Event::Started { url, target, total_bytes, paths, .. } => {
            let size = total_bytes.map_or("unknown length".to_owned(), size);
            let paths = match &paths[..] {
                [] | [_] => String::new(),
                several => format!("; trying {}", several.join(", ")),
            };
            format!("{url} → {}: {size}{paths}", target_name(target))
        }
        Event::Resumed { bytes } => format!("continuing after {}", size(*bytes)),
        Event::Adopted { file, bytes } => format!("{} of {file} used", size(*bytes)),
        Event::Restarted { why } => format!("starting over: {why}"),
        Event::PathSampled { path, rate_bps } => format!("{path}: {}", rate(*rate_bps)),
        Event::Chosen { path, reason } => format!("chosen: {path} ({reason})"),
        Event::Reselected { from, path } => format!("{path} instead of {from}"),
        Event::Busy { path, why, seconds } => format!("{path} waits {seconds:.0} s: {why}"),
        Event::Moved { path, url } => format!("{path}: the URL has expired; the new one is {url}"),
        Event::Mirror { mirror, says } => format!("{mirror}: {says}"),
        Event::Corrupt { .. } => corrupt(event)?,
        Event::Note { text } => text.clone(),
        Event::PathFailed { path, why } => format!("{path} failed: {why}"),
        Event::Finished { .. } => finished(event, None)?,
        Event::Hedged { .. } | Event::PathTotal { .. } => return None,
        Event::Progress { .. } | Event::Failed { .. } => return None,
    })
}

fn corrupt(event: &Event) -> Option<String> {
    let Event::Corrupt { path, bytes } = event else { return None };
    Some(format!(
        "{path} altered at least {bytes} bytes; they were fetched again over another path, and \
         {path} is not used for a while"
    ))
}

/// An event of one of several downloads: only events that change the result for the user.
pub fn event_of_several(name: &str, event: &Event) -> Option<String> {
    match event {
        Event::Restarted { why } => Some(format!("{name}: starting over: {why}")),
        Event::PathFailed { path, why } => Some(format!("{name}: {path} failed: {why}")),
        Event::Corrupt { .. } => corrupt(event).map(|text| format!("{name}: {text}")),
        Event::Adopted { .. } => self::event(event),
        Event::Finished { .. } => finished(event, None),
        _ => None,
    }
}

/// In less than this time, seconds, a rate means nothing.
const MIN_RATED_SECONDS: f64 = 0.1;

/// For how long the direct path was sampled, and the bytes that arrived by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectSample {
    pub time: Duration,
    pub bytes: u64,
}

impl DirectSample {
    /// Whether its rate can be compared with that of a whole download. A shorter sample measures slow start, or what
    /// buffers held.
    fn is_comparable(self) -> bool {
        self.time >= Duration::from_secs(1) && self.bytes >= 1_000_000
    }
}

/// The size, the time, the rate, and the ratio to the direct path's rate.
pub fn finished(event: &Event, sampled: Option<DirectSample>) -> Option<String> {
    let Event::Finished {
        target,
        bytes,
        fetched_bytes,
        seconds,
        rate_bps,
        direct_estimate_bps,
        ratio_to_sampled_direct,
        ..
    } = event
    else {
        return None;
    };
    let (target, whole) = (target_name(target), size(*bytes));
    if *fetched_bytes == 0 && *bytes > 0 {
        return Some(format!("{target}: {whole}, already complete"));
    }
    let mut line = format!("{target}: {whole} in {seconds:.2} s");
    if *seconds >= MIN_RATED_SECONDS {
        line += &format!(", {}", rate(*rate_bps));
    }
    if fetched_bytes < bytes {
        line += &format!(", of which {} now and the rest earlier", size(*fetched_bytes));
    }
    if let (Some(direct), Some(ratio), true) = (
        direct_estimate_bps,
        ratio_to_sampled_direct,
        sampled.is_some_and(DirectSample::is_comparable),
    ) {
        line += &format!("; {ratio:.2}× the direct path's sampled rate ({})", rate(*direct));
    }
    Some(line)
}

/// The lines for a failure: its reason, and a line per hint; none for other notes.
pub fn failure(note: &Note, several: bool) -> Vec<String> {
    let Note::Failed { url, why, hints, .. } = note else { return Vec::new() };
    // Many errors name the URL themselves.
    let what = match several && !url.is_empty() && !why.contains(url.as_str()) {
        true => format!("thalweg: {url}: {why}"),
        false => format!("thalweg: {why}"),
    };
    let hints = hints.iter().map(|hint| format!("hint: {hint}"));
    std::iter::once(what).chain(hints).collect()
}

/// The line for a retry.
pub fn retry_line(note: &Note, several: bool) -> Option<String> {
    let Note::Again { url, why, wait, attempt, of, .. } = note else { return None };
    let url = if several { format!("{url}: ") } else { String::new() };
    Some(format!("{url}{why}; again in {} s (try {attempt} of {of})", wait.as_secs()))
}

/// The rates of the paths that carry data, `idle` if none does.
pub fn rates(paths: &[PathRate]) -> String {
    let busy = paths.iter().filter(|p| p.rate_bps > 0);
    let text = busy.map(|p| format!("{} {}", p.path, rate(p.rate_bps)));
    let text = text.collect::<Vec<_>>().join(", ");
    if text.is_empty() { "idle".to_owned() } else { text }
}

/// The name of a target; an empty name or a temporary file stands for standard output.
pub fn target_name(target: &str) -> &str {
    match target.is_empty() || target == "-" || target.ends_with("(a temporary file)") {
        true => "standard output",
        false => target,
    }
}

/// The time left at this rate, as a clock shows it; `-:--` if it is unknown.
pub fn left(bytes: u64, bps: u64) -> String {
    let bits = u128::from(bytes) * 8;
    match bits.checked_div(u128::from(bps)) {
        None => "-:--".to_owned(),
        Some(s) if s >= 100 * 3600 => "days".to_owned(),
        Some(s) if s >= 3600 => format!("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60),
        Some(s) => format!("{}:{:02}", s / 60, s % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_have_three_digits() {
        for (bytes, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1 kB"),
            (1234, "1.23 kB"),
            (12_345, "12.3 kB"),
            (999_499, "999 kB"),
            (999_500, "1 MB"),
            (40_000_000, "40 MB"),
            (9_999_000, "10 MB"),
            (u64::MAX, "18447 PB"),
        ] {
            assert_eq!(size(bytes), text);
        }
        assert_eq!(rate(8_765_432), "8.77 Mbit/s");
        let times = [left(5, 0), left(1_000_000, 8_000_000), left(90_000_000, 8_000_000)];
        assert_eq!(times, ["-:--", "0:01", "1:30"]);
        assert_eq!(left(u64::MAX, 1), "days");
    }

    #[test]
    fn no_rate_is_shown_that_means_nothing() {
        let says = |fetched_bytes, seconds, sampled| {
            let event = Event::Finished {
                target: "a".into(),
                bytes: 9_000_000,
                fetched_bytes,
                duplicate_bytes: 0,
                seconds,
                rate_bps: 8_000_000,
                direct_estimate_bps: Some(4_000_000),
                ratio_to_sampled_direct: Some(2.0),
                sampling_rate_bps: None,
                completion_rate_bps: None,
                completion_path: None,
            };
            finished(&event, sampled).unwrap()
        };
        let sampled = |ms, bytes| Some(DirectSample { time: Duration::from_millis(ms), bytes });
        let all = "a: 9 MB in 9.00 s, 8 Mbit/s; 2.00× the direct path's sampled rate (4 Mbit/s)";
        assert_eq!(says(9_000_000, 9.0, sampled(1000, 1_000_000)), all);
        for little in [None, sampled(900, 5_000_000), sampled(2000, 900_000)] {
            assert_eq!(says(9_000_000, 9.0, little), "a: 9 MB in 9.00 s, 8 Mbit/s");
        }
        assert_eq!(says(9_000_000, 0.09, None), "a: 9 MB in 0.09 s");
        assert_eq!(says(0, 0.5, None), "a: 9 MB, already complete");
    }

    #[test]
    fn progress_names_the_paths_that_carry_something() {
        let rate = |path: &str, rate_bps| PathRate { path: path.into(), rate_bps, bytes: 0 };
        assert_eq!(rates(&[rate("direct", 8_000_000), rate("r1:1080", 0)]), "direct 8 Mbit/s");
        assert_eq!(rates(&[rate("direct", 0)]), "idle");
    }
}
