//! The Grafana dashboard in `deploy`, and the metrics that its queries name.

use super::exposition::Family;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Words of PromQL that are not followed by a parenthesis and are no metrics.
const KEYWORDS: &[&str] = &[
    "and",
    "atan2",
    "bool",
    "by",
    "group_left",
    "group_right",
    "ignoring",
    "inf",
    "nan",
    "offset",
    "on",
    "or",
    "unless",
    "without",
];

/// Words that are followed by a list of labels.
const BEFORE_LABELS: &[&str] = &["by", "group_left", "group_right", "ignoring", "on", "without"];

/// Functions whose argument must be a counter.
const OF_COUNTERS: &[&str] = &["increase", "irate", "rate"];

/// Labels that Prometheus adds to each series.
const ADDED_LABELS: &[&str] = &["instance", "job"];

/// What a query names.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Each metric, with the function that is applied to it directly.
    pub metrics: BTreeSet<(String, String)>,
    /// Labels by which it groups or joins.
    pub labels: BTreeSet<String>,
    /// Conditions `metric{label="value"}`: metric, label, operator and value.
    pub matchers: BTreeSet<[String; 4]>,
}

/// The names in a PromQL expression, by its words alone.
pub fn names(query: &str) -> Names {
    let mut found = Names::default();
    let mut rest = query;
    // The last word, the function whose parenthesis was opened last, and whether the parenthesis lists labels.
    let (mut word, mut within, mut lists) = (String::new(), String::new(), false);
    while let Some(first) = rest.chars().next() {
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
        match first {
            'a'..='z' | 'A'..='Z' | '_' | ':' => {
                let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
                word = rest[..end].to_owned();
                rest = &rest[end..];
                let next = rest.trim_start();
                let is_call = ["(", "by ", "by(", "without ", "without("]
                    .iter()
                    .any(|begin| next.starts_with(begin));
                if lists {
                    found.labels.insert(word.clone());
                } else if !is_call && !KEYWORDS.contains(&word.as_str()) {
                    found.metrics.insert((word.clone(), within.clone()));
                }
            }
            // A number, or a duration like `5m`.
            '0'..='9' => {
                let end = rest.find(|c: char| !is_part(c) && c != '.').unwrap_or(rest.len());
                rest = &rest[end..];
            }
            '{' => {
                let (inner, after) = braced(rest);
                for matcher in inner {
                    let [label, operator, value] = matcher;
                    found.matchers.insert([word.clone(), label, operator, value]);
                }
                rest = after;
            }
            '[' => rest = rest.split_once(']').map_or("", |(_, after)| after),
            '(' => {
                lists = BEFORE_LABELS.contains(&word.as_str());
                within = std::mem::take(&mut word);
                rest = &rest[1..];
            }
            ')' => {
                (lists, within) = (false, String::new());
                word.clear();
                rest = &rest[1..];
            }
            _ => rest = &rest[first.len_utf8()..],
        }
    }
    found
}

/// The conditions in braces, each as label, operator and value; and what follows the braces.
fn braced(text: &str) -> (Vec<[String; 3]>, &str) {
    let mut found = Vec::new();
    let mut rest = text.strip_prefix('{').unwrap_or(text).trim_start();
    while !rest.is_empty() && !rest.starts_with('}') {
        let Some((head, after)) = rest.split_once('"') else { return (found, "") };
        let Some((value, after)) = after.split_once('"') else { return (found, "") };
        let label = head.trim_end_matches(['=', '~', '!']);
        let operator = &head[label.len()..];
        found.push([label.trim(), operator, value].map(str::to_owned));
        rest = after.trim_start().trim_start_matches(',').trim_start();
    }
    (found, rest.strip_prefix('}').unwrap_or(rest))
}

/// The queries of a dashboard: the panel's title and the expression.
fn queries(dashboard: &Value) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for panel in panels(dashboard) {
        let title = panel["title"].as_str().unwrap_or_default();
        for target in panel["targets"].as_array().into_iter().flatten() {
            let query = target["expr"].as_str().unwrap_or_default();
            found.push((title.to_owned(), query.to_owned()));
        }
    }
    found
}

fn panels(dashboard: &Value) -> Vec<&Value> {
    let all = dashboard["panels"].as_array().into_iter().flatten();
    all.flat_map(|panel| {
        let inner = panel["panels"].as_array().into_iter().flatten();
        std::iter::once(panel).chain(inner)
    })
    .collect()
}

/// What the queries of the dashboard name that these families do not have.
pub fn problems(dashboard: &Value, families: &[Family]) -> Vec<String> {
    let mut series: BTreeMap<String, &Family> = BTreeMap::new();
    for family in families {
        series.extend(family.series().map(|name| (name, family)));
    }
    let mut found = Vec::new();
    for variable in dashboard["templating"]["list"].as_array().into_iter().flatten() {
        let Some(query) = variable["query"]["query"].as_str() else { continue };
        let metric =
            query.strip_prefix("label_values(").and_then(|rest| rest.split(['{', ',']).next());
        if metric.is_none_or(|metric| !series.contains_key(metric)) {
            found.push(format!("a variable: {query}"));
        }
    }
    for (title, query) in queries(dashboard) {
        let names = names(&query);
        let mut labels: BTreeSet<&str> = ADDED_LABELS.iter().copied().collect();
        // The labels of a family without series are not known.
        let mut has_unknown = false;
        for (metric, function) in &names.metrics {
            let Some(family) = series.get(metric) else {
                found.push(format!("{title}: no node has {metric}: {query}"));
                continue;
            };
            let of_samples = family.samples.iter().flat_map(|sample| &sample.labels);
            labels.extend(of_samples.map(|(label, _)| label.as_str()));
            has_unknown |= family.samples.is_empty();
            let is_counter = family.kind.as_deref() != Some("gauge");
            if OF_COUNTERS.contains(&function.as_str()) != is_counter {
                found.push(format!("{title}: {function}() of {metric}: {query}"));
            }
        }
        for label in &names.labels {
            if !labels.contains(label.as_str()) && !has_unknown {
                found.push(format!("{title}: no series has the label {label}: {query}"));
            }
        }
        for [metric, label, operator, value] in &names.matchers {
            let Some(family) = series.get(metric) else { continue };
            let mut all = family.samples.iter().flat_map(|sample| &sample.labels);
            let fits = all.any(|(name, has)| {
                name == label && (operator != "=" || has == value || value.contains('$'))
            });
            if !fits && !family.samples.is_empty() && !ADDED_LABELS.contains(&label.as_str()) {
                found.push(format!("{title}: no {metric} has {label}{operator}\"{value}\""));
            }
        }
    }
    found
}

/// The dashboard that is delivered.
pub fn delivered() -> Value {
    serde_json::from_str(include_str!("../../../../deploy/grafana/thalweg.json")).unwrap()
}

#[test]
fn the_dashboard_can_be_imported() {
    let dashboard = delivered();
    let version = dashboard["schemaVersion"].as_u64().unwrap();
    assert!((39..=41).contains(&version), "Grafana 11 has 39 to 41, not {version}");
    assert!(dashboard["id"].is_null(), "an id of one installation");
    assert_eq!(dashboard["uid"], "thalweg");
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let named = |name: &str| variables.iter().find(|variable| variable["name"] == name);
    assert_eq!(named("datasource").unwrap()["type"], "datasource");
    assert_eq!(named("datasource").unwrap()["query"], "prometheus");
    let (mut ids, mut places): (BTreeSet<u64>, Vec<[u64; 4]>) = Default::default();
    for panel in panels(&dashboard) {
        let title = panel["title"].as_str().unwrap();
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{title}: an id twice");
        let [x, y, w, h] =
            ["x", "y", "w", "h"].map(|side| panel["gridPos"][side].as_u64().unwrap());
        assert!(x + w <= 24 && w > 0 && h > 0, "{title}: outside the grid");
        for [x2, y2, w2, h2] in &places {
            let apart = x + w <= *x2 || x2 + w2 <= x || y + h <= *y2 || y2 + h2 <= y;
            assert!(apart, "{title}: overlaps another panel");
        }
        places.push([x, y, w, h]);
        if panel["type"] == "row" {
            continue;
        }
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{title}");
        assert!(!panel["description"].as_str().unwrap().is_empty(), "{title}: no description");
        assert!(panel["fieldConfig"]["defaults"]["unit"].is_string(), "{title}: no unit");
        let targets = panel["targets"].as_array().unwrap();
        let refs: BTreeSet<&str> = targets.iter().map(|t| t["refId"].as_str().unwrap()).collect();
        assert!(refs.len() == targets.len() && !targets.is_empty(), "{title}: {refs:?}");
    }
    for (title, query) in queries(&dashboard) {
        let marks = query.match_indices('$').map(|(at, _)| &query[at + 1..]);
        for mark in marks {
            let end = mark.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let variable = &mark[..end.unwrap_or(mark.len())];
            let is_known = variable == "__rate_interval" || named(variable).is_some();
            assert!(is_known, "{title}: no variable {variable}");
        }
        for [open, close] in [['(', ')'], ['{', '}'], ['[', ']']] {
            assert_eq!(
                query.matches(open).count(),
                query.matches(close).count(),
                "{title}: {query}"
            );
        }
    }
    let all: String = panels(&dashboard).iter().map(|panel| panel["title"].to_string()).collect();
    for room in ["Node", "Relay", "Measurements", "Files", "Casts", "Streams", "Oracle"] {
        assert!(all.contains(&format!("\"{room}\"")), "no row {room}");
    }
}

#[test]
fn the_names_in_queries_are_found() {
    let pair = |metric: &str, function: &str| (metric.to_owned(), function.to_owned());
    let found = names(
        "sum by (leg, instance) (rate(a_total{leg=\"open\",job=~\"$job\"}[$__rate_interval])) / 2",
    );
    assert_eq!(found.metrics, BTreeSet::from([pair("a_total", "rate")]));
    assert_eq!(found.labels, BTreeSet::from(["leg".to_owned(), "instance".to_owned()]));
    let matcher = |label: &str, operator: &str, value: &str| {
        ["a_total", label, operator, value].map(str::to_owned)
    };
    assert_eq!(
        found.matchers,
        BTreeSet::from([matcher("leg", "=", "open"), matcher("job", "=~", "$job")])
    );
    let found = names(
        "max(b_seconds) without (x) - time() + on(y) group_left(z) c offset 5m or d > bool 1e3",
    );
    let plain = [pair("b_seconds", "max"), pair("c", ""), pair("d", "")];
    assert_eq!(found.metrics, BTreeSet::from(plain));
    assert_eq!(found.labels, BTreeSet::from(["x", "y", "z"].map(str::to_owned)));
    let found = names("histogram_quantile(0.99, sum by (le) (rate(h_bucket[5m])))");
    assert_eq!(found.metrics, BTreeSet::from([pair("h_bucket", "rate")]));
}

#[test]
fn a_query_that_finds_nothing_is_detected() {
    let page = "# HELP thalweg_a A.\n# TYPE thalweg_a counter\nthalweg_a_total{leg=\"open\"} 1\n\
        # HELP thalweg_b B.\n# TYPE thalweg_b gauge\nthalweg_b 1\n# EOF\n";
    let families = super::exposition::parse(page).unwrap();
    for (query, says) in [
        ("rate(thalweg_a_total[5m])", None),
        ("sum by (leg) (rate(thalweg_a_total{leg=\"open\",job=\"$job\"}[5m]))", None),
        ("thalweg_b", None),
        ("thalweg_c", Some("no node has thalweg_c")),
        ("rate(thalweg_a[5m])", Some("no node has thalweg_a")),
        ("thalweg_a_total", Some("() of thalweg_a_total")),
        ("rate(thalweg_b[5m])", Some("rate() of thalweg_b")),
        ("sum by (kind) (thalweg_b)", Some("no series has the label kind")),
        ("rate(thalweg_a_total{leg=\"shut\"}[5m])", Some("has leg=\"shut\"")),
    ] {
        let panel = serde_json::json!({ "title": "t", "targets": [{ "expr": query }] });
        let found = problems(&serde_json::json!({ "panels": [panel] }), &families);
        match says {
            None => assert!(found.is_empty(), "{query}: {found:?}"),
            Some(says) => {
                assert!(found.iter().any(|what| what.contains(says)), "{query}: {found:?}")
            }
        }
    }
    let variable = serde_json::json!({ "query": { "query": "label_values(thalweg_c, job)" } });
    let found = problems(&serde_json::json!({ "templating": { "list": [variable] } }), &families);
    assert_eq!(found, ["a variable: label_values(thalweg_c, job)"]);
}
