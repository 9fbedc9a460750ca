//! Formats the candidates for relays, with their scores and reasons.

use super::{
    knowledge::PathKnowledge,
    rates::{gain, share},
};
use crate::commands::text::{aligned, rough};
use serde_json::{Value, json};
use thalweg_paths::detours::{CANDIDATES, RelayState};

/// The most rows without `--full`.
const ROWS: usize = 25;

/// The candidates as text and as JSON.
pub fn render(found: &PathKnowledge, full: bool) -> (String, Value) {
    let relay_states = found.detours.relay_states();
    if relay_states.is_empty() {
        let text = "no candidates: the oracle ranks no relays yet, so the first relays of the roster are \
             tried\n";
        return (text.to_owned(), json!([]));
    }
    let rows: Vec<_> = relay_states.iter().map(|s| row(found, s, &relay_states)).collect();
    let most = if full { rows.len() } else { ROWS };
    let head = ["CANDIDATE", "SCORE", "PAIRS", "AGE", "LOAD", "TRIED", "WHY"];
    let mut text = heading(found) + &aligned(head, &rows[..most.min(rows.len())]);
    if rows.len() > most {
        text += &format!("… and {} more: --full\n", rows.len() - most);
    }
    let value = |s: &RelayState| json(found, s, &relay_states);
    (text, relay_states.iter().map(value).collect())
}

fn heading(found: &PathKnowledge) -> String {
    let Some(listed) = found.detours.relay_list() else { return String::new() };
    let strategy = json!(listed.reply.strategy);
    let strategy = strategy.as_str().unwrap_or_default().replace('_', "-");
    let stale =
        if found.detours.is_stale(found.now) { ", which is older than it should be" } else { "" };
    format!(
        "candidates by the {strategy} ranking, asked for {} ago{stale}; {} of all pairs measured then\n",
        rough(listed.age(found.now)),
        share(listed.reply.measured, listed.reply.pairs)
    )
}

fn row(found: &PathKnowledge, s: &RelayState, all: &[RelayState]) -> [String; 7] {
    let since = found.detours.relay_list().map(|l| l.age(found.now)).unwrap_or_default();
    let oracle = s.oracle.as_ref();
    let dash = || "-".to_owned();
    [
        s.relay.clone(),
        gain(s.score),
        oracle.map_or_else(dash, |c| c.evidence.to_string()),
        oracle.map_or_else(dash, |c| rough(c.age + since)),
        oracle.and_then(|c| c.load).map_or_else(dash, |load| format!("{:.0} %", load * 100.0)),
        s.tried.to_string(),
        why(found, s, all),
    ]
}

/// The source of its score, and what that means for the next download.
fn why(found: &PathKnowledge, s: &RelayState, all: &[RelayState]) -> String {
    if is_quarantined(found, &s.relay) {
        return "in quarantine (`thalweg history`): not tried".to_owned();
    }
    let whose = match (s.tried, &s.oracle) {
        (0, _) => "the oracle's score",
        (_, None) => "learnt here, not in the oracle's list",
        (_, Some(_)) => "learnt here",
    };
    if all.len() <= CANDIDATES + 1 {
        return format!("all are tried; {whose}");
    }
    match s.is_test {
        true => format!("test detour, until it loses; {whose}"),
        false => {
            format!("drawn first with a probability of {:.0} %; {whose}", 100.0 * odds(s, all))
        }
    }
}

/// The probability of being drawn first.
fn odds(s: &RelayState, all: &[RelayState]) -> f64 {
    let others = all.iter().filter(|other| !other.is_test);
    let (n, sum) = others.fold((0.0, 0.0), |(n, sum), other| (n + 1.0, sum + other.score));
    // With the weights of thalweg_plan::adaptive.
    let least = if sum > 0.0 { sum * thalweg_plan::adaptive::EXPLORE / n } else { 1.0 };
    (s.score + least) / (sum + least * n)
}

fn json(found: &PathKnowledge, s: &RelayState, all: &[RelayState]) -> Value {
    let since = found.detours.relay_list().map(|l| l.age(found.now)).unwrap_or_default();
    json!({
        "relay": s.relay,
        "score": s.score,
        "tried": s.tried,
        "test": s.is_test,
        "oracle_score": s.oracle.as_ref().map(|c| c.score),
        "evidence": s.oracle.as_ref().map(|c| c.evidence),
        "age_seconds": s.oracle.as_ref().map(|c| (c.age + since).as_secs()),
        "load": s.oracle.as_ref().and_then(|c| c.load),
        "quarantined": is_quarantined(found, &s.relay),
        "why": why(found, s, all),
    })
}

fn is_quarantined(found: &PathKnowledge, relay: &str) -> bool {
    let history = found.history.lock();
    history.is_quarantined(relay, None, found.now)
}
