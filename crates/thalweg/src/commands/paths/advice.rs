//! Formats the advice on where one more relay would help most; the model is in `thalweg_plan::advice`.

use super::{
    knowledge::PathKnowledge,
    rates::{gain, maybe, share},
};
use crate::commands::text::aligned;
use anyhow::bail;
use serde_json::{Value, json};
use thalweg_plan::advice::{self, Advice, Neighbourhood, PoorPair, RelaySite};

/// The most rows of each table without `--full`.
const ROWS: usize = 10;

/// The advice as text and as JSON.
///
/// # Errors
/// If no pair is measured.
pub fn render(found: &PathKnowledge, full: bool) -> anyhow::Result<(String, Value)> {
    let (graph, relays) = (found.graph(), found.relays());
    let most = if full { usize::MAX } else { ROWS };
    let advice = advice::advise(&graph, |l| relays[l], most);
    if advice.pairs == 0 {
        bail!("no advice is possible: {}", found.missing_reason());
    }
    let near = advice::neighbourhoods(&advice, &found.tags());
    let text = AdviceText { found, advice: &advice, near: &near, most };
    Ok((text.all(), json(found, &advice, &near)))
}

struct AdviceText<'a> {
    found: &'a PathKnowledge,
    advice: &'a Advice,
    near: &'a [Neighbourhood],
    most: usize,
}

impl AdviceText<'_> {
    fn all(&self) -> String {
        let Advice { pairs, good, .. } = self.advice;
        let mut text = format!(
            "{pairs} measured pairs; {} have a good detour (20 % and 1 Mbit/s more); the best one \
             gains {} on average\n\n",
            share(*good, *pairs),
            gain(self.advice.gain)
        );
        text += &self.places(false);
        text += &self.places(true);
        text += &self.tags();
        text += &self.poor();
        text + "A new relay is assumed to have the rates of the node at its place, with little \
                load; pairs that\nare not measured count as gaining nothing. See docs/paths.md.\n"
    }

    fn name(&self, at: usize) -> String {
        name(self.found, at)
    }

    /// The table of members that could relay, or of relays.
    fn places(&self, relays: bool) -> String {
        let worth = |s: &&RelaySite| s.is_relay == relays && s.worth() > 0.0;
        let all: Vec<&RelaySite> = self.advice.sites.iter().filter(worth).collect();
        if all.is_empty() {
            return match relays {
                true => "No relay is the best detour of any pair.\n\n".to_owned(),
                false => "No further member would add a better detour as a relay.\n\n".to_owned(),
            };
        }
        let row = |s: &&RelaySite| {
            let (worth, pairs) = (s.worth(), if relays { s.carries } else { s.helps });
            [self.name(s.node), gain(worth), pairs.to_string(), s.evidence.to_string()]
        };
        let rows: Vec<_> = all.iter().take(self.most).map(row).collect();
        match relays {
            false => {
                "Let it relay, or place a relay near it:\n".to_owned()
                    + &aligned(["NODE", "ADDS", "PAIRS CURED", "OF KNOWN"], &rows)
                    + "\n"
            }
            true => {
                "The gain by existing relays; a second one at the same place adds capacity:\n"
                    .to_owned()
                    + &aligned(["RELAY", "GIVES", "BEST FOR PAIRS", "OF KNOWN"], &rows)
                    + "\n"
            }
        }
    }

    fn tags(&self) -> String {
        if self.near.is_empty() {
            return String::new();
        }
        let row = |n: &Neighbourhood| [n.name.clone(), gain(n.worth), n.nodes.len().to_string()];
        let rows: Vec<_> = self.near.iter().take(self.most).map(row).collect();
        "By tag, the mean over its nodes:\n".to_owned()
            + &aligned(["TAG", "WORTH", "NODES"], &rows)
            + "\n"
    }

    fn poor(&self) -> String {
        if self.advice.poor.is_empty() {
            return "Every measured pair has a good detour.\n\n".to_owned();
        }
        let row = |p: &PoorPair| {
            let (via, rate) =
                p.cure.map_or(("-".to_owned(), None), |(l, r)| (self.name(l), Some(r)));
            let direct = maybe(Some(p.direct));
            [self.name(p.from), self.name(p.to), direct, maybe(p.detour), via, maybe(rate)]
        };
        let rows: Vec<_> = self.advice.poor.iter().map(row).collect();
        "The slowest pairs without a good detour, Mbit/s:\n".to_owned()
            + &aligned(["FROM", "TO", "DIRECT", "DETOUR", "BY ONE AT", "THEN"], &rows)
            + "\n"
    }
}

fn name(found: &PathKnowledge, at: usize) -> String {
    found.names().get(at).map(ToString::to_string).unwrap_or_default()
}

fn json(found: &PathKnowledge, advice: &Advice, near: &[Neighbourhood]) -> Value {
    let site = |s: &RelaySite| {
        json!({
            "node": name(found, s.node), "is_relay": s.is_relay, "adds": s.adds, "helps": s.helps,
            "gives": s.gives, "carries": s.carries, "evidence": s.evidence,
        })
    };
    let poor = |p: &PoorPair| {
        json!({
            "from": name(found, p.from), "to": name(found, p.to), "direct_bps": p.direct.as_bps(),
            "detour_bps": p.detour.map(|r| r.as_bps()),
            "cure": p.cure.map(|(l, _)| name(found, l)),
            "cure_bps": p.cure.map(|(_, r)| r.as_bps()),
        })
    };
    let tag =
        |n: &Neighbourhood| json!({ "tag": n.name, "worth": n.worth, "nodes": n.nodes.len() });
    json!({
        "pairs": advice.pairs,
        "pairs_with_a_good_detour": advice.good,
        "mean_best_gain": advice.gain,
        "sites": advice.sites.iter().map(site).collect::<Vec<_>>(),
        "tags": near.iter().map(tag).collect::<Vec<_>>(),
        "poor": advice.poor.iter().map(poor).collect::<Vec<_>>(),
    })
}
