//! Casts from this host: who gets it from whom.

use super::{known_rate, left, number, ring};
use crate::commands::{
    gather::words::{rate, size},
    text::{aligned, counted, plain},
};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use thalweg_node::cast::source::{End, Listed, Receiver};
use thalweg_wire::mesh::Name;

/// A line about the cast, and unless all have it a table of its receivers, each below the parent that
/// gives it most.
pub fn text(found: &Listed) -> String {
    let record = &found.record;
    let all = counted(record.receivers.len() as u64, "receiver");
    let complete = record.receivers.values().filter(|receiver| receiver.is_complete).count();
    let state = match (found.is_running, record.end) {
        (true, _) => "it runs",
        (_, Some(End::Complete)) => "all have it",
        (_, Some(End::GivenUp)) => "given up",
        (_, Some(End::Interrupted)) => "interrupted; the same command goes on",
        (_, Some(End::Partial | End::Failed)) => "not all have it; the same command goes on",
        (_, None) => "cut off; the same command goes on",
    };
    let number = record.cast.get(..8).unwrap_or_default();
    let why = record.why.as_ref().map(|why| format!(": {}", plain(why))).unwrap_or_default();
    let line = format!(
        "{} ({number}): {} to {all}, {complete} complete: {state}{why}\n",
        plain(&record.name),
        size(record.total_bytes)
    );
    if !found.is_running && record.end == Some(End::Complete) {
        return line;
    }
    let rows: Vec<_> =
        tree(found).into_iter().map(|(depth, name)| row(found, depth, name)).collect();
    let head = [
        "RECEIVER", "STATE", "HELD", "RATE", "PLANNED", "MIN-HOP", "EQ2", "EQ3", "LEFT", "MISSED",
        "RING", "FROM",
    ];
    line + &aligned(head, &rows)
}

fn row(found: &Listed, depth: usize, name: &Name) -> [String; 12] {
    let receiver = &found.record.receivers[name];
    let now = progress(found, name);
    let state = match (now["state"].as_str(), receiver.is_complete) {
        (_, true) => "complete".to_owned(),
        (Some("receiving"), _) => "receiving".to_owned(),
        (state, _) => match &receiver.why {
            Some(why) => format!("{}: {}", state.unwrap_or("away"), plain(why)),
            None => state.unwrap_or("-").to_owned(),
        },
    };
    let parents: Vec<String> =
        parents(now).map(|(name, bps)| format!("{name} {}", rate(bps))).collect();
    let held = number(now, "held_bytes").max(receiver.held_bytes);
    [
        format!("{}{name}", "  ".repeat(depth)),
        state,
        size(held),
        known_rate(&now["rate_bps"]),
        known_rate(&json!(receiver.expected_bps)),
        known_rate(&json!(receiver.min_hop_bps)),
        known_rate(&json!(receiver.predicted.map(|by| by.eq2_bps))),
        known_rate(&json!(receiver.predicted.map(|by| by.eq3_bps))),
        left(&foreseen(found, receiver, now)),
        number(now, "missed_symbols").to_string(),
        ring(now),
        if parents.is_empty() { "-".to_owned() } else { parents.join(", ") },
    ]
}

/// Seconds until it has all: by its rate of now, or by the plan while nothing comes.
fn foreseen(found: &Listed, receiver: &Receiver, now: &Value) -> Value {
    if receiver.is_complete || !found.is_running {
        return Value::Null;
    }
    if now["left_seconds"].is_number() {
        return now["left_seconds"].clone();
    }
    let missing = found.record.total_bytes.saturating_sub(receiver.held_bytes);
    let planned = receiver.expected_bps.filter(|bps| *bps > 0);
    planned.map_or(Value::Null, |bps| json!(missing as f64 * 8.0 / bps as f64))
}

fn progress<'a>(found: &'a Listed, name: &Name) -> &'a Value {
    let all = found.progress.as_ref().and_then(|progress| progress["receivers"].as_array());
    let its = all.into_iter().flatten().find(|one| one["name"] == name.as_str());
    its.unwrap_or(&Value::Null)
}

fn parents(now: &Value) -> impl Iterator<Item = (&str, u64)> {
    let all = now["parents"].as_array().into_iter().flatten();
    all.filter_map(|parent| Some((parent["name"].as_str()?, number(parent, "rate_bps"))))
}

/// All receivers, each below its first parent, and how deep. Receivers may be each other's parents:
/// a circle is cut at its first member.
fn tree(found: &Listed) -> Vec<(usize, &Name)> {
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
    found: &'a Listed,
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

/// The parent that gives it most now, or the plan's first.
fn first<'a>(found: &'a Listed, name: &Name, receiver: &'a Receiver) -> Option<&'a str> {
    let now = parents(progress(found, name)).filter(|(_, bps)| *bps > 0);
    let most = now.max_by_key(|(_, bps)| *bps).map(|(name, _)| name);
    most.or_else(|| receiver.parents.first().map(Name::as_str))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `lab` → a → b; c and d are each other's.
    fn found() -> Listed {
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
        let job = thalweg_node::job::Job::begin(
            thalweg_node::job::Kind::Cast,
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
        Listed::of(serde_json::from_value(record).unwrap(), Some(progress))
    }

    #[test]
    fn receivers_stand_below_who_gives_them_most() {
        let found = found();
        let shape: Vec<(usize, &str)> =
            tree(&found).into_iter().map(|(depth, name)| (depth, name.as_str())).collect();
        assert_eq!(shape, [(0, "a"), (1, "b"), (0, "c"), (1, "d")]);
        let said = text(&found);
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(lines[0], "image (00112233): 2 MB to 4 receivers, 0 complete: it runs");
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
        assert_eq!(cells(3), b, "{said}");
        assert_eq!(cells(2)[6..8], ["-", "-"], "no formula says anything: {said}");
        assert_eq!(cells(4)[8], "4.0 s", "by the plan: {said}");
    }
}
