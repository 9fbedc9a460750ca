//! Shows which paths would be used for one destination now, and why.

use super::{knowledge::PathKnowledge, rates::mbps};
use crate::commands::text::{aligned, rough};
use anyhow::Context as _;
use serde_json::{Value, json};
use std::{fmt::Write as _, sync::Arc};
use thalweg_mesh::Names;
use thalweg_net::Route;
use thalweg_paths::{
    chooser::{Content, PathAttempt, PathChooser as _},
    detours::{Draw, PickedRelay},
    history::{Bound, HistoryEntry},
    history_chooser::HistoryChooser,
    url::HttpUrl,
};
use thalweg_units::Rate;
use thalweg_wire::mesh::{self, LegKind, Tag};

/// A destination as the user gave it.
#[derive(Debug)]
pub struct DestinationUrl(HttpUrl);

impl DestinationUrl {
    /// Parses a URL, or `HOST[:PORT]`, which means https, or http for port 80.
    ///
    /// # Errors
    /// If it is neither.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let url = match (text.contains("://"), text.ends_with(":80")) {
            (true, _) => text.to_owned(),
            (false, true) => format!("http://{text}/"),
            (false, false) => format!("https://{text}/"),
        };
        let url = HttpUrl::parse(&url);
        Ok(Self(url.with_context(|| format!("`{text}` is neither a URL nor HOST[:PORT]"))?))
    }
}

/// The options of the `thalweg get` to predict.
#[derive(Clone, Debug, Default)]
pub struct GetOptions<'a> {
    pub avoid: &'a [Tag],
    pub draw: Draw,
}

/// What is known and what would be done, as text and as JSON.
pub fn render(
    found: &mut PathKnowledge,
    wanted: &DestinationUrl,
    terms: &GetOptions<'_>,
) -> (String, Value) {
    let origin = wanted.0.origin();
    let known = known(found, &origin);
    let relays = relays(found, wanted, terms.avoid);
    let names: Vec<String> = relays.iter().map(|(name, _)| name.clone()).collect();
    let rate = |path: &str| {
        let own = known.iter().find(|k| k.path == path && k.is_valid);
        own.map(|k| k.rate).filter(|rate| *rate > Rate::ZERO)
    };
    // The draw is not saved, because nothing is transferred.
    let picked = found.detours.pick(&names, rate, terms.draw);
    let ways = ways(found, wanted, relays);
    let mut text = table(&known, &origin);
    text += &download(&picked, names.len());
    text += &connection(&ways);
    let way = |w: &PathAttempt| json!({ "path": w.name, "after_seconds": w.after.as_secs_f64() });
    let path = |k: &HistoryEntry| {
        json!({
            "path": k.path, "rate_bps": k.rate.as_bps(), "at_least": k.bound == Bound::AtLeast,
            "setup_seconds": k.setup.map(|s| s.as_secs_f64()), "age_seconds": k.age.as_secs(),
            "used": k.is_valid,
        })
    };
    let value = json!({
        "destination": origin,
        "known": known.iter().map(path).collect::<Vec<_>>(),
        "download_tries": picked,
        "usable_relays": names.len(),
        "connection_goes": ways.iter().map(way).collect::<Vec<_>>(),
    });
    (text, value)
}

/// What earlier transfers from this origin measured.
fn known(found: &PathKnowledge, origin: &str) -> Vec<HistoryEntry> {
    let history = found.history.lock();
    history.entries(found.now).into_iter().filter(|e| e.origin == origin).collect()
}

/// The relays of the mesh that are neither excluded by tag nor in quarantine for this origin.
fn relays(found: &PathKnowledge, wanted: &DestinationUrl, avoid: &[Tag]) -> Vec<(String, Route)> {
    let leg = if wanted.0.is_https() { LegKind::Open } else { LegKind::Sealed };
    let terms = mesh::Terms { leg, avoid: avoid.iter().cloned().collect() };
    let Some(roster) = &found.roster else { return Vec::new() };
    let names = Names { roster: Ok(roster), me: Some(&found.me) };
    let history = found.history.lock();
    let open = names.candidates(&terms, usize::MAX).into_iter();
    let open = open.map(|(name, route)| (name.to_string(), route));
    let origin = wanted.0.origin();
    open.filter(|(name, _)| !history.is_quarantined(name, Some(&origin), found.now)).collect()
}

fn ways(
    found: &PathKnowledge,
    wanted: &DestinationUrl,
    mut relays: Vec<(String, Route)>,
) -> Vec<PathAttempt> {
    let content = if wanted.0.is_https() { Content::Encrypted } else { Content::Clear };
    let score = |name: &str| found.detours.score(name).unwrap_or(0.0);
    relays.sort_by(|a, b| score(&b.0).total_cmp(&score(&a.0)));
    let chooser =
        HistoryChooser::new(Box::new(move |_| relays.clone()), Some(Arc::clone(&found.history)));
    chooser.choose(wanted.0.destination(), content).attempts().to_vec()
}

fn table(known: &[HistoryEntry], origin: &str) -> String {
    if known.is_empty() {
        return format!("nothing is known of {origin} yet\n\n");
    }
    let row = |k: &HistoryEntry| {
        let least = if k.bound == Bound::AtLeast { "≥" } else { "" };
        [
            k.path.clone(),
            format!("{least}{}", mbps(k.rate.as_bps() as f64)),
            k.setup.map_or("-".to_owned(), |s| format!("{} ms", s.as_millis())),
            rough(k.age),
            if k.is_valid { "yes" } else { "too old" }.to_owned(),
        ]
    };
    let rows: Vec<_> = known.iter().map(row).collect();
    let head = ["PATH", "Mbit/s", "SET-UP", "AGE", "COUNTS"];
    format!("known of {origin}:\n{}\n", aligned(head, &rows))
}

fn download(picked: &[PickedRelay], usable: usize) -> String {
    let mut text = "a download samples the direct path".to_owned();
    match picked.len() {
        0 => text += " only: there are no relays to try\n",
        n => {
            _ = writeln!(text, " and {n} of {usable} relays, and continues over the fastest:");
            picked.iter().for_each(|p| _ = writeln!(text, "  {p}"));
        }
    }
    text + "\n"
}

fn connection(ways: &[PathAttempt]) -> String {
    let mut text = "a connection through the proxy begins ".to_owned();
    let way = |(at, way): (usize, &PathAttempt)| match (at, way.after.is_zero()) {
        (0, _) => way.name.clone(),
        (_, true) => format!("with {} at once", way.name),
        (_, false) => format!("with {} after {} ms", way.name, way.after.as_millis()),
    };
    let told: Vec<String> = ways.iter().enumerate().map(way).collect();
    match told.split_first() {
        None => text += "nowhere",
        Some((first, rest)) => {
            text += if first == "direct" { "directly" } else { "by " };
            text += if first == "direct" { "" } else { first };
            rest.iter().for_each(|t| _ = write!(text, ", {t}"));
        }
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_are_urls_or_hosts() {
        let origin =
            |text: &str| DestinationUrl::parse(text).map(|w| w.0.origin()).unwrap_or_default();
        assert_eq!(origin("https://www.example/x?y"), "https://www.example:443");
        assert_eq!(origin("www.example"), "https://www.example:443");
        assert_eq!(origin("www.example:80"), "http://www.example:80");
        assert_eq!(origin("[2001:db8::1]:8443"), "https://[2001:db8::1]:8443");
        for bad in ["", "ftp://x/", "a b", "http://", "x:y"] {
            let error = DestinationUrl::parse(bad).unwrap_err().to_string();
            assert!(error.contains("is neither a URL nor HOST[:PORT]"), "{error}");
        }
    }
}
