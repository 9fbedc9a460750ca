//! Shows what limits the mesh's measurements, as reported by the oracle that schedules them.

use crate::commands::text::rough;
use std::{fmt::Write as _, time::Duration};
use thalweg_console::field;
use thalweg_paths::detours::KnownPaths;
use thalweg_wire::mesh::measure::{MeasuringStatus, SpentRelay};

/// The most relays named.
const NAMES: usize = 8;

/// One line per limit; empty if the oracle reports none. Its report is `since` old.
pub fn render(paths: &KnownPaths, since: Duration) -> String {
    let Some(MeasuringStatus { enabled, spent, failed }) = &paths.reply.measuring else {
        return String::new();
    };
    if !enabled {
        return "measuring: off (`enabled` in [oracle.measure] of the oracle's host)\n".to_owned();
    }
    let mut text = String::new();
    if !spent.is_empty() {
        let named = spent.iter().take(NAMES).map(|relay| until(relay, since));
        let more = match spent.len().checked_sub(NAMES + 1) {
            Some(more) => format!(" and {} more", more + 1),
            None => String::new(),
        };
        let named = named.collect::<Vec<_>>().join(", ");
        _ = writeln!(text, "measuring: today's byte budget is used up at {named}{more}");
    }
    if let Some(last) = failed {
        let ago = rough(last.age + since);
        let (from, to, why) = (&last.from, &last.to, field(&last.why));
        _ = writeln!(text, "measuring: the last failure, {ago} ago: {from} → {to}: {why}");
    }
    text
}

fn until(relay: &SpentRelay, since: Duration) -> String {
    match relay.free_in {
        Some(free_in) => format!("{} (for {})", relay.node, rough(free_in.saturating_sub(since))),
        None => {
            format!("{} (always: one measurement needs more than its daily budget)", relay.node)
        }
    }
}
