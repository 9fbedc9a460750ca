//! The progress display: a bar per source, and a summary below.

use super::super::messages;
use thalweg_gather::{Progress, SourceProgress};

/// The most bars, for the sources with most left: a terminal has few more lines.
const BARS: usize = 16;

/// The width of a bar, characters.
const WIDTH: usize = 24;

/// Draws the unfinished sources and the summary.
pub fn progress_lines(progress: &Progress) -> Vec<String> {
    let left = |source: &&SourceProgress| source.total_bytes.saturating_sub(source.done_bytes);
    let mut shown: Vec<&SourceProgress> =
        progress.sources.iter().filter(|source| left(source) > 0).collect();
    shown.sort_by_key(|source| std::cmp::Reverse(left(source)));
    let more = shown.len().saturating_sub(BARS);
    shown.truncate(BARS);
    shown.sort_by_key(|source| &source.source);
    let width = shown.iter().map(|source| source.source.as_str().len()).max().unwrap_or(0);
    let mut lines: Vec<String> = shown.into_iter().map(|source| bar(source, width)).collect();
    if more > 0 {
        lines.push(format!("… and {more} more sources"));
    }
    lines.push(messages::progress(progress));
    lines
}

fn bar(source: &SourceProgress, width: usize) -> String {
    let SourceProgress { source: name, done_bytes, total_bytes, rate_bps, left_seconds } = source;
    let share = *done_bytes as f64 / (*total_bytes).max(1) as f64;
    let full = ((share * WIDTH as f64) as usize).min(WIDTH);
    let left = left_seconds.map(|left| format!(", {} left", messages::time(left)));
    format!(
        "{name:width$} [{}{}] {:3.0} % of {}, {}{}",
        "=".repeat(full),
        " ".repeat(WIDTH - full),
        share * 100.0,
        messages::size(*total_bytes),
        messages::rate(*rate_bps),
        left.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sources_with_most_left_are_shown_with_a_summary() {
        let source = |n: u64| SourceProgress {
            source: format!("n{n}").parse().unwrap(),
            done_bytes: 50,
            total_bytes: 50 + n,
            rate_bps: 8_000,
            left_seconds: Some(2.0),
        };
        let sources = (0..=20).map(source).collect();
        let lines = progress_lines(&Progress { sources, ..Progress::default() });
        assert_eq!(lines.len(), BARS + 2);
        assert!(!lines.iter().any(|bar| bar.starts_with("n4 ")), "{lines:#?}");
        assert_eq!(lines[0], "n10 [====================    ]  83 % of 60 B, 8 kbit/s, 2.0 s left");
        assert_eq!(lines[BARS], "… and 4 more sources");
    }
}
