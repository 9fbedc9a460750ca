//! Formats the matrix of rates: all of it for few nodes, a summary for many.

use super::{
    knowledge::PathKnowledge,
    measurement_limits,
    rates::{mbps, median, share},
};
use crate::commands::text::{aligned, rough};
use serde_json::{Value, json};
use std::{collections::BTreeMap, fmt::Write as _, time::Duration};
use thalweg_paths::detours::KnownPaths;
use thalweg_wire::mesh::{Name, measure::LegEntry};

/// The most nodes whose matrix fits a screen of 100 columns.
const MAX_NODES: usize = 12;

/// The most rows of a summary.
const ROWS: usize = 20;

/// The matrix as text and as JSON.
pub fn render(found: &PathKnowledge, full: bool) -> (String, Value) {
    let Some(paths) = &found.paths else {
        return (format!("no rates are known: {}\n", found.missing_reason()), Value::Null);
    };
    let since = paths.age(found.now);
    let nodes = paths.reply.nodes.len();
    let mut text = heading(paths, since);
    text += &match full || nodes <= MAX_NODES {
        true => cells(paths),
        false => summary(paths, since),
    };
    text += &troubles(paths, since);
    text += &measurement_limits::render(paths, since);
    (text, json!(paths.reply))
}

fn heading(paths: &KnownPaths, since: Duration) -> String {
    let reply = &paths.reply;
    let nodes = reply.nodes.len() as u64;
    let pairs = nodes * nodes.saturating_sub(1);
    let mut text = format!(
        "{nodes} nodes, {} of {pairs} ordered pairs measured ({})",
        reply.legs.len(),
        share(reply.legs.len() as u64, pairs)
    );
    if let Some(age) = median(reply.legs.iter().map(|leg| leg.age + since).collect()) {
        let oldest = reply.legs.iter().map(|leg| leg.age + since).max().unwrap_or_default();
        _ = write!(text, "\n{} old in the median, {} at most", rough(age), rough(oldest));
    }
    let mut methods: BTreeMap<&str, u64> = BTreeMap::new();
    reply.legs.iter().for_each(|leg| *methods.entry(&leg.method).or_default() += 1);
    let methods: Vec<String> = methods.iter().map(|(name, n)| format!("{n} by {name}")).collect();
    if !methods.is_empty() {
        _ = write!(text, "; {}", methods.join(", "));
    }
    text + "\n"
}

/// A table with a row per sender and a column per receiver, Mbit/s.
fn cells(paths: &KnownPaths) -> String {
    let names: Vec<String> = paths.reply.nodes.iter().map(ToString::to_string).collect();
    let mut rows = vec![vec!["-".to_owned(); names.len()]; names.len()];
    for (at, row) in rows.iter_mut().enumerate() {
        row[at] = String::new();
    }
    for leg in &paths.reply.legs {
        let least = if leg.at_least { "≥" } else { "" };
        rows[leg.from as usize][leg.to as usize] = format!("{least}{}", mbps(leg.bps));
    }
    let width = |at: usize| {
        let column = rows.iter().map(|row| row[at].chars().count());
        column.chain([names[at].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..names.len()).map(width).collect();
    let first = names.iter().map(|n| n.chars().count()).max().unwrap_or(0).max("Mbit/s".len());
    let line = |head: &str, cells: &[String]| {
        let cells = cells.iter().zip(&widths).map(|(cell, width)| format!("  {cell:>width$}"));
        format!("{head:first$}{}", cells.collect::<String>()).trim_end().to_owned() + "\n"
    };
    let mut text = line("Mbit/s", &names);
    for (name, row) in names.iter().zip(&rows) {
        text += &line(name, row);
    }
    text
}

/// The legs of one node.
#[derive(Default)]
struct NodeLegs<'a> {
    out: Vec<&'a LegEntry>,
    into: Vec<&'a LegEntry>,
}

fn summary(paths: &KnownPaths, since: Duration) -> String {
    let reply = &paths.reply;
    let mut legs: Vec<NodeLegs> = reply.nodes.iter().map(|_| NodeLegs::default()).collect();
    for leg in &reply.legs {
        legs[leg.from as usize].out.push(leg);
        legs[leg.to as usize].into.push(leg);
    }
    let middle = |legs: &[&LegEntry]| median(legs.iter().map(|leg| leg.bps).collect());
    let mut order: Vec<usize> = (0..legs.len()).collect();
    let fastest = |at: &usize| middle(&legs[*at].out).unwrap_or(-1.0);
    order.sort_by(|a, b| fastest(b).total_cmp(&fastest(a)).then(a.cmp(b)));
    let row = |at: &usize| {
        let NodeLegs { out, into } = &legs[*at];
        let both = || out.iter().chain(into);
        let rate = |legs: &[&LegEntry]| middle(legs).map_or("-".to_owned(), mbps);
        let age = median(both().map(|leg| leg.age + since).collect());
        [
            reply.nodes[*at].to_string(),
            rate(out),
            rate(into),
            share(both().count() as u64, 2 * reply.nodes.len().saturating_sub(1) as u64),
            age.map_or("-".to_owned(), rough),
        ]
    };
    let rows: Vec<_> = order.iter().take(ROWS).map(row).collect();
    let head = ["NODE", "OUT Mbit/s", "IN Mbit/s", "MEASURED", "AGE"];
    let mut text = aligned(head, &rows);
    if order.len() > ROWS {
        let rest = order.len() - ROWS;
        _ = writeln!(text, "… and {rest} more, the fastest senders first: --full shows all legs");
    }
    text
}

/// The nodes that are down, and the nodes whose claims contradict others.
fn troubles(paths: &KnownPaths, since: Duration) -> String {
    let mut text = String::new();
    for down in &paths.reply.down {
        let ago = rough(down.since + since);
        _ = writeln!(text, "{} is down since {ago}: {}", down.node, down.why);
    }
    let said = |bps: Option<f64>| bps.map_or("nothing".to_owned(), |b| mbps(b) + " Mbit/s");
    let leg = |from: &Name, to: &Name| format!("{from} → {to}");
    for d in paths.reply.disagreements.iter().take(ROWS) {
        _ = writeln!(
            text,
            "{}: {} reported {}, the other end measured {}, {} is used ({} ago)",
            leg(&d.from, &d.to),
            d.by,
            said(Some(d.claimed_bps)),
            said(d.seen_bps),
            said(d.believed_bps),
            rough(d.age + since)
        );
    }
    if let Some(more) = paths.reply.disagreements.len().checked_sub(ROWS + 1) {
        _ = writeln!(text, "… and {} more disagreements: --json shows them", more + 1);
    }
    text
}
