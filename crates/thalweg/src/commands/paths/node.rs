//! Shows all paths to one node.

use super::{
    knowledge::PathKnowledge,
    rates::{gain, maybe, mbps},
};
use crate::commands::text::{aligned, rough};
use anyhow::{Context as _, bail};
use serde_json::{Value, json};
use thalweg_plan::Graph;
use thalweg_units::{Rate, likeness};
use thalweg_wire::mesh::measure::LegEntry;

/// The best detour over a relay from one node to another.
struct Best {
    via: usize,
    rate: Rate,
}

/// The legs to the node `name`, with the best detour each, as text and as JSON.
///
/// # Errors
/// If there is no such node, or no matrix.
pub fn render(found: &PathKnowledge, name: &str) -> anyhow::Result<(String, Value)> {
    let to = find(found, name)?;
    let paths = found.paths.as_ref().context("the oracle's rates are not known")?;
    let (graph, relays) = (found.graph(), found.relays());
    let since = paths.age(found.now);
    let leg = |from: usize| {
        let is = |l: &&LegEntry| l.from as usize == from && l.to as usize == to;
        paths.reply.legs.iter().find(is)
    };
    let others = (0..paths.reply.nodes.len()).filter(|from| *from != to);
    let all: Vec<_> =
        others.map(|from| (from, leg(from), best(&graph, &relays, from, to))).collect();
    let node = |at: usize| paths.reply.nodes[at].to_string();
    let row = |(from, leg, best): &(usize, Option<&LegEntry>, Option<Best>)| {
        let told = |tell: &dyn Fn(&LegEntry) -> String| leg.map_or("-".to_owned(), tell);
        let more = |b: &Best| Some(gain(gain_over(leg.as_ref()?, b)));
        [
            node(*from),
            told(&|l| format!("{}{}", if l.at_least { "≥" } else { "" }, mbps(l.bps))),
            told(&|l| l.spread_bps.map_or("-".to_owned(), |s| format!("±{}", mbps(s)))),
            told(&|l| rough(l.age + since)),
            told(&|l| l.method.clone()),
            best.as_ref().map_or("-".to_owned(), |b| node(b.via)),
            maybe(best.as_ref().map(|b| b.rate)),
            best.as_ref().and_then(more).unwrap_or("-".to_owned()),
        ]
    };
    let rows: Vec<_> = all.iter().map(row).collect();
    let head = ["FROM", "Mbit/s", "SPREAD", "AGE", "METHOD", "BEST DETOUR", "Mbit/s", "GAIN"];
    let value = |(from, leg, best): &(usize, Option<&LegEntry>, Option<Best>)| {
        json!({
            "from": node(*from),
            "rate_bps": leg.map(|l| l.bps),
            "spread_bps": leg.and_then(|l| l.spread_bps),
            "at_least": leg.map(|l| l.at_least),
            "age_seconds": leg.map(|l| (l.age + since).as_secs()),
            "method": leg.map(|l| &l.method),
            "detour": best.as_ref().map(|b| node(b.via)),
            "detour_bps": best.as_ref().map(|b| b.rate.as_bps()),
            "gain": leg.zip(best.as_ref()).map(|(l, b)| gain_over(l, b)),
        })
    };
    let list: Vec<Value> = all.iter().map(value).collect();
    Ok((aligned(head, &rows), json!({ "to": name, "from": list })))
}

/// The gain of the detour (UKAIRO Eq. 1).
fn gain_over(leg: &LegEntry, best: &Best) -> f64 {
    match leg.bps > 0.0 {
        true => (best.rate.as_bps() as f64 / leg.bps - 1.0).max(0.0),
        false => thalweg_plan::ranking::MOST_GAIN,
    }
}

fn best(graph: &Graph, relays: &[bool], from: usize, to: usize) -> Option<Best> {
    let detours = graph.detours(from, to).filter(|(l, _)| relays[*l]);
    let best = detours.reduce(|best, next| if next.1 > best.1 { next } else { best });
    best.map(|(via, rate)| Best { via, rate })
}

fn find(found: &PathKnowledge, name: &str) -> anyhow::Result<usize> {
    let names: Vec<&str> = found.names().into_iter().map(|n| n.as_str()).collect();
    if let Some(at) = names.iter().position(|n| *n == name) {
        return Ok(at);
    }
    if names.is_empty() {
        bail!("nothing is known of paths yet: {}", found.missing_reason());
    }
    match likeness::nearest(name, names) {
        Some(near) => bail!("the oracle knows no node `{name}`; did you mean `{near}`?"),
        None => bail!("the oracle knows no node `{name}`; `thalweg mesh members` lists them"),
    }
}
