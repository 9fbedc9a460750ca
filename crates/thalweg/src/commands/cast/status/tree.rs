//! The tables of casts from this host: the tree of receivers.

use super::{
    bytes, known_rate, left, now, number, some,
    table::{NOTHING, table},
};
use crate::commands::{
    gather::messages::{rate, size},
    text::{counted, plain},
};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use thalweg_cast::source::{CastEnd, ListedCast, Receiver};
use thalweg_wire::mesh::Name;

/// The most receivers named in a line.
const NAMED: usize = 4;

/// Returns a line about the cast. Unless the cast has ended, a table of its receivers follows, each below the parent
/// that gives it most, and the reasons why some are incomplete.
pub fn text(found: &ListedCast, verbose: bool) -> String {
    let record = &found.record;
    let names: Vec<&str> = record.receivers.keys().map(Name::as_str).collect();
    let complete = record.receivers.values().filter(|receiver| receiver.is_complete).count();
    let number = record.cast.get(..8).unwrap_or_default();
    let what = format!("{} ({number}): {}", plain(&record.name), size(record.total_bytes));
    let count = counted(names.len() as u64, "receiver");
    let is_over = matches!(record.end, Some(CastEnd::Complete | CastEnd::GivenUp));
    if is_over && !found.is_running {
        let to = if names.len() <= NAMED { names.join(", ") } else { count };
        let end = match record.end {
            Some(CastEnd::Complete) => "all have it".to_owned(),
            _ => format!("abandoned, {complete} complete"),
        };
        return format!("{what} to {to}: {end}\n");
    }
    let line = format!("{what} to {count}, {complete} complete: {}\n", state(found));
    let rows: Vec<_> =
        tree(found).into_iter().map(|(depth, name)| row(found, depth, name, verbose)).collect();
    let head = [
        "RECEIVER", "STATE", "HELD", "RATE", "PLANNED", "MIN-HOP", "EQ2", "EQ3", "LEFT", "MISSED",
        "RING", "FROM",
    ];
    line + &table(head, &rows) + &reasons(found)
}

/// The state of the cast, or how it ended and what the same command does now.
fn state(found: &ListedCast) -> String {
    let record = &found.record;
    let goes_on = "the same command continues";
    match (found.is_running, record.end, &record.why) {
        (true, ..) => "running".to_owned(),
        (_, _, Some(why)) => {
            format!("{}; the same command starts another cast of the current content", plain(why))
        }
        (_, Some(CastEnd::Interrupted), _) => format!("interrupted; {goes_on}"),
        (_, Some(_), _) => format!("incomplete; {goes_on}"),
        (_, None, _) => format!("interrupted; {goes_on}"),
    }
}

/// Why receivers are incomplete, one line each.
fn reasons(found: &ListedCast) -> String {
    let lacking = found.record.receivers.iter().filter(|(_, receiver)| !receiver.is_complete);
    let line = |(name, receiver): (&Name, &Receiver)| {
        let how = if receiver.is_refused { "refused" } else { "away" };
        receiver.why.as_ref().map(|why| format!("{name}: {how}: {}\n", plain(why)))
    };
    lacking.filter_map(line).collect()
}

fn row(found: &ListedCast, depth: usize, name: &Name, verbose: bool) -> [String; 12] {
    let receiver = &found.record.receivers[name];
    let its = progress(found, name);
    let parents: Vec<(&str, u64)> = parents(its).collect();
    let given = parents.iter().map(|(_, bps)| bps).sum();
    let parents: Vec<String> =
        parents.into_iter().map(|(name, bps)| format!("{name} {}", rate(bps))).collect();
    // A receiver that refused has no planned rate. The formulas' rates are shown with -v only.
    let planned = |bps: Option<u64>, is_wanted: bool| {
        known_rate(&json!(bps.filter(|_| is_wanted && is_served(receiver))))
    };
    let (is_complete, by) = (receiver.is_complete, receiver.predicted);
    [
        format!("{}{name}", "  ".repeat(depth)),
        state_word(receiver, its),
        size(number(its, "held_bytes").max(receiver.held_bytes)),
        if is_complete { known_rate(&json!(receiver.rate_bps)) } else { now(its, given) },
        planned(receiver.expected_bps, true),
        planned(receiver.min_hop_bps, true),
        planned(by.map(|by| by.eq2_bps), verbose),
        planned(by.map(|by| by.eq3_bps), verbose),
        left(&expected_left(found, receiver, its)),
        some(number(its, "missed_symbols")),
        bytes(number(its, "ring_peak_bytes")),
        if is_complete || parents.is_empty() { NOTHING.to_owned() } else { parents.join(", ") },
    ]
}

/// The receiver's state as one word. The reasons for `refused` and `away` are below the table.
fn state_word(receiver: &Receiver, now: &Value) -> String {
    let state = now["state"].as_str();
    match receiver {
        Receiver { is_complete: true, .. } => "complete",
        _ if state == Some("receiving") => "receiving",
        Receiver { why: Some(_), is_refused: true, .. } => "refused",
        Receiver { why: Some(_), .. } => state.filter(|state| *state == "lost").unwrap_or("away"),
        _ => state.unwrap_or(NOTHING),
    }
    .to_owned()
}

/// Whether it takes part in the tree: a receiver that refused does not.
fn is_served(receiver: &Receiver) -> bool {
    receiver.is_complete || !receiver.is_refused
}

/// Seconds until it is complete: at its present rate, or at the planned one while nothing arrives.
fn expected_left(found: &ListedCast, receiver: &Receiver, now: &Value) -> Value {
    if receiver.is_complete || !found.is_running || !is_served(receiver) {
        return Value::Null;
    }
    if now["left_seconds"].is_number() {
        return now["left_seconds"].clone();
    }
    let missing = found.record.total_bytes.saturating_sub(receiver.held_bytes);
    let planned = receiver.expected_bps.filter(|bps| *bps > 0);
    planned.map_or(Value::Null, |bps| json!(missing as f64 * 8.0 / bps as f64))
}

fn progress<'a>(found: &'a ListedCast, name: &Name) -> &'a Value {
    let all = found.progress.as_ref().and_then(|progress| progress["receivers"].as_array());
    let its = all.into_iter().flatten().find(|one| one["name"] == name.as_str());
    its.unwrap_or(&Value::Null)
}

fn parents(now: &Value) -> impl Iterator<Item = (&str, u64)> {
    let all = now["parents"].as_array().into_iter().flatten();
    all.filter_map(|parent| Some((parent["name"].as_str()?, number(parent, "rate_bps"))))
}

/// All receivers with their depth, each below its first parent. Receivers may be each other's parents: a cycle is cut
/// at its first member.
fn tree(found: &ListedCast) -> Vec<(usize, &Name)> {
    let mut order = Vec::new();
    let mut seen = BTreeSet::new();
    below(found, &found.record.source, 0, &mut seen, &mut order);
    for name in found.record.receivers.keys() {
        if seen.insert(name) {
            order.push((0, name));
            below(found, name, 1, &mut seen, &mut order);
        }
    }
    order
}

fn below<'a>(
    found: &'a ListedCast,
    parent: &Name,
    depth: usize,
    seen: &mut BTreeSet<&'a Name>,
    order: &mut Vec<(usize, &'a Name)>,
) {
    for (name, receiver) in &found.record.receivers {
        if first(found, name, receiver) == Some(parent.as_str()) && seen.insert(name) {
            order.push((depth, name));
            below(found, name, depth + 1, seen, order);
        }
    }
}

/// The parent that gives it most now, or else the first planned parent that takes part itself.
fn first<'a>(found: &'a ListedCast, name: &Name, receiver: &'a Receiver) -> Option<&'a str> {
    let now = parents(progress(found, name)).filter(|(_, bps)| *bps > 0);
    let most = now.max_by_key(|(_, bps)| *bps).map(|(name, _)| name);
    let takes_part = |parent: &&Name| found.record.receivers.get(*parent).is_none_or(is_served);
    let planned = || receiver.parents.iter().find(takes_part).map(Name::as_str);
    most.or_else(|| is_served(receiver).then(planned).flatten())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `lab` → a → b; c and d are each other's parents.
    fn found() -> ListedCast {
        let receiver = |parent: &str, hop: u64| {
            json!({"is_complete": false, "held_bytes": 0, "why": null, "parents": [parent],
                   "min_hop_bps": hop, "expected_bps": 4_000_000})
        };
        let mut b = receiver("lab", 8_000_000);
        b["predicted"] = json!({"eq2_bps": 7_000_000, "eq3_bps": 3_000_000});
        let now = |name: &str, parent: &str| {
            json!({"name": name, "state": "receiving", "held_bytes": 1_000_000,
                   "rate_bps": 8_000_000, "left_seconds": 1.0, "missed_symbols": 2, "ring_peak_bytes": 9_000,
                   "parents": [{"name": parent, "rate_bps": 8_000_000, "bytes": 1}]})
        };
        let job = thalweg_base::job::Job::begin(
            thalweg_base::job::Kind::Cast,
            "/data/image".to_owned(),
            "a,b,c,d".to_owned(),
        );
        let record = json!({
            "job": job, "cast": "00112233445566778899aabbccddeeff", "name": "image",
            "object": "", "total_bytes": 2_000_000, "source": "lab", "offer": "",
            "receivers": {"a": receiver("lab", 9_000_000), "b": b,
                          "c": receiver("d", 1), "d": receiver("c", 1)},
            "end": null, "why": null,
        });
        let progress = json!({"receivers": [now("a", "lab"), now("b", "a")]});
        ListedCast::running(serde_json::from_value(record).unwrap(), Some(progress))
    }

    #[test]
    fn receivers_are_listed_below_the_parent_that_gives_them_most() {
        let found = found();
        let shape: Vec<(usize, &str)> =
            tree(&found).into_iter().map(|(depth, name)| (depth, name.as_str())).collect();
        assert_eq!(shape, [(0, "a"), (1, "b"), (0, "c"), (1, "d")]);
        let shown = text(&found, true);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[0], "image (00112233): 2 MB to 4 receivers, 0 complete: running");
        assert!(!text(&found, false).contains("EQ2"), "the formulas are for the curious");
        let cells = |n: usize| -> Vec<&str> {
            lines[n].split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()
        };
        let b = [
            "b",
            "receiving",
            "1 MB",
            "8 Mbit/s",
            "4 Mbit/s",
            "8 Mbit/s",
            "7 Mbit/s",
            "3 Mbit/s",
            "1.0 s",
            "2",
            "9 kB",
            "a 8 Mbit/s",
        ];
        assert_eq!(cells(3), b, "{shown}");
        assert_eq!(cells(2)[6..8], ["-", "-"], "no formula says anything: {shown}");
        assert_eq!(cells(4)[8], "4.0 s", "by the plan: {shown}");
    }
    #[test]
    fn a_receiver_that_refuses_is_no_parent_and_its_reason_is_shown() {
        let mut found = found();
        found.progress = None;
        let a = found.record.receivers.get_mut(&"a".parse().unwrap()).unwrap();
        (a.why, a.is_refused) = (Some("its inbox takes nothing".to_owned()), true);
        let b = found.record.receivers.get_mut(&"b".parse().unwrap()).unwrap();
        b.parents = vec!["a".parse().unwrap(), "lab".parse().unwrap()];
        b.why = Some("no route".to_owned());
        let shape: Vec<(usize, &str)> =
            tree(&found).into_iter().map(|(depth, name)| (depth, name.as_str())).collect();
        assert_eq!(shape, [(0, "b"), (0, "a"), (0, "c"), (1, "d")]);
        let shown = text(&found, false);
        let cells = |name: &str| -> Vec<String> {
            let line = shown.lines().find(|line| line.starts_with(&format!("{name} "))).unwrap();
            line.split("  ").map(str::trim).filter(|c| !c.is_empty()).map(str::to_owned).collect()
        };
        assert_eq!(cells("a"), ["a", "refused", "0 B", "-", "-", "-"], "{shown}");
        assert_eq!(cells("b"), ["b", "away", "0 B", "4 Mbit/s", "8 Mbit/s", "4.0 s"], "{shown}");
        let reasons = "a: refused: its inbox takes nothing\nb: away: no route\n";
        assert!(shown.ends_with(reasons), "{shown}");
    }

    #[test]
    fn an_ended_cast_is_one_line_and_a_changed_file_needs_another_cast() {
        let mut found = found();
        (found.is_running, found.progress) = (false, None);
        found.record.end = Some(CastEnd::GivenUp);
        let shown = text(&found, false);
        assert_eq!(shown, "image (00112233): 2 MB to a, b, c, d: abandoned, 0 complete\n");
        found.record.end = Some(CastEnd::Failed);
        found.record.why = Some("chg.bin: it has changed".to_owned());
        let shown = text(&found, false);
        let says = "chg.bin: it has changed; the same command starts another cast of the current \
                    content";
        assert!(shown.lines().next().unwrap().ends_with(says), "{shown}");
        assert!(!shown.contains("continues"), "{shown}");
    }

    #[test]
    fn a_complete_receiver_shows_its_average_rate() {
        let mut found = found();
        let a = found.record.receivers.get_mut(&"a".parse().unwrap()).unwrap();
        (a.is_complete, a.rate_bps) = (true, Some(3_000_000));
        let shown = text(&found, false);
        let line = shown.lines().find(|line| line.starts_with("a ")).unwrap();
        assert!(line.contains("complete") && line.contains(" 3 Mbit/s"), "{shown}");
        assert!(!line.contains(" 8 Mbit/s"), "the last second's: {shown}");
    }
}
