//! Parses the output of an arm.

use crate::{
    plan::{Arm, Output},
    record::{Sample, Sockets},
};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// The contents of an arm's output.
#[derive(Debug, Default, PartialEq)]
pub struct ArmOutput {
    pub metrics: BTreeMap<String, Sample>,
    pub labels: BTreeMap<String, String>,
    /// Time series by name: `[seconds, value]`.
    pub series: BTreeMap<String, Vec<[f64; 2]>>,
    /// Congestion control and buffers, if the tool sampled its own sockets.
    pub sockets: Sockets,
}

/// The format of `output = "metrics"`, which our own tools print.
#[derive(Debug, Deserialize)]
struct Metrics {
    metrics: BTreeMap<String, Sample>,
    #[serde(default)]
    series: BTreeMap<String, Vec<[f64; 2]>>,
    #[serde(default)]
    congestion_control: Option<String>,
}

/// Parses an arm's standard output as its plan says.
///
/// # Errors
/// A message, if the output is not JSON, a pointer leads to no number, or a metric is not finite.
pub fn read(arm: &Arm, text: &str) -> Result<ArmOutput, String> {
    let mut printed = ArmOutput::default();
    if arm.output == Output::Ignored {
        return Ok(printed);
    }
    let value = json(text)?;
    if arm.output == Output::Metrics {
        let own =
            Metrics::deserialize(&value).map_err(|e| format!("cannot read its metrics: {e}"))?;
        printed.metrics = own.metrics;
        printed.series = own.series;
        printed.sockets.congestion_control.extend(own.congestion_control);
        printed.sockets.seen = printed.sockets.congestion_control.len() as u64;
    }
    for (name, source) in arm.metrics.iter().filter(|(_, s)| s.link.is_none()) {
        let event = source.event.as_deref().map(|name| (name, false));
        let found = find(&value, text, event, &source.pointer);
        match found.and_then(|v| v.as_f64()) {
            Some(number) => {
                let sample = Sample { unit: source.unit.clone(), value: number * source.scale };
                printed.metrics.insert(name.clone(), sample);
            }
            None if source.optional => {}
            None => return Err(format!("no number at {} for the metric {name}", source.pointer)),
        }
    }
    // A label may be missing, for example if no path was chosen because nothing was left to fetch.
    for (name, source) in &arm.labels {
        let event = source.event.as_deref().map(|name| (name, source.first));
        if let Some(found) = find(&value, text, event, &source.pointer) {
            let label = found.as_str().map_or_else(|| found.to_string(), str::to_owned);
            printed.labels.insert(name.clone(), cut(label, source.until.as_deref()));
        }
    }
    if let Some((name, _)) = printed.metrics.iter().find(|(_, s)| !s.value.is_finite()) {
        return Err(format!("its metric {name} is not a number"));
    }
    Ok(printed)
}

/// The value at `pointer` in the whole output, or in the first or last line of an event.
fn find(whole: &Value, text: &str, event: Option<(&str, bool)>, pointer: &str) -> Option<Value> {
    let Some((event, first)) = event else { return whole.pointer(pointer).cloned() };
    let lines = text.lines().filter_map(|l| serde_json::from_str::<Value>(l).ok());
    let mut found =
        lines.filter(|v| v["event"] == event).filter_map(|v| v.pointer(pointer).cloned());
    if first { found.next() } else { found.next_back() }
}

/// The part of a label before `until`.
fn cut(label: String, until: Option<&str>) -> String {
    match until.and_then(|u| label.split_once(u)) {
        Some((before, _)) => before.to_owned(),
        None => label,
    }
}

/// Parses one JSON value, or else the last line as JSON.
fn json(text: &str) -> Result<Value, String> {
    let whole = serde_json::from_str(text);
    whole.or_else(|e| {
        let last = text.lines().rev().find(|l| !l.trim().is_empty());
        last.and_then(|l| serde_json::from_str(l).ok())
            .ok_or_else(|| format!("its output is not valid JSON: {e}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arm(rest: &str) -> Arm {
        let head = "name='a'\nrole='ours'\ncommand=['x']\ntimeout='1 s'\nexpect='1 s'\n";
        toml::from_str(&format!("{head}{rest}")).unwrap()
    }

    #[test]
    fn metrics_are_scaled_and_labels_are_read() {
        let plan = "output='json'\nlabels={path={pointer='/path',event='chosen',until=':'}}\n\
                    [metrics.rate]\npointer='/a/0'\nunit='Mbit/s'\nscale=1e-6";
        let text = "{\"event\":\"chosen\",\"path\":\"relay1:1080\"}\n{\"a\":[2e6]}\n";
        let printed = read(&arm(plan), text).unwrap();
        assert_eq!(printed.metrics["rate"], Sample { unit: "Mbit/s".into(), value: 2.0 });
        assert_eq!(printed.labels["path"], "relay1");
        assert!(read(&arm(plan), "{}").unwrap_err().contains("/a/0"));
        assert!(read(&arm(plan), "{\"a\":[1]}").unwrap().labels.is_empty());
        let optional = plan.replace("scale=1e-6", "optional=true");
        assert!(read(&arm(&optional), "{}").unwrap().metrics.is_empty());
        assert!(read(&arm(plan), "no").unwrap_err().contains("not valid JSON"));
    }

    #[test]
    fn metrics_of_our_tools_are_taken_unchanged() {
        let text = r#"{"metrics":{"x":{"unit":"s","value":1.5}},"series":{"r":[[0,1],[1,2]]},"congestion_control":"cubic"}"#;
        let printed = read(&arm("output='metrics'"), text).unwrap();
        assert_eq!(printed.metrics["x"].value, 1.5);
        assert_eq!(printed.series["r"], [[0.0, 1.0], [1.0, 2.0]]);
        assert!(printed.sockets.congestion_control.contains("cubic"));
        assert_eq!(read(&arm(""), "whatever").unwrap(), ArmOutput::default());
    }
}
