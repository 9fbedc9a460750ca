//! What the page's scripts cost, from a trace of Chromium. Pure.

use serde_json::Value;

/// The records of scripts. They may contain each other.
const SCRIPTS: [&str; 9] = [
    "EvaluateScript",
    "EventDispatch",
    "FireAnimationFrame",
    "FunctionCall",
    "MajorGC",
    "MinorGC",
    "RunMicrotasks",
    "TimerFire",
    "v8.callFunction",
];

/// Scripts that follow each other within this time belong to one update, µs: events arrive and are told to the page four
/// times a second, and what follows from them is drawn in the next frame.
const GAP: f64 = 50e3;

/// The scripting time of each update, ms: all that the page's main thread did in scripts, with layout that scripts
/// enforced and collections of garbage, between two pauses.
pub fn updates(records: &[Value]) -> Vec<f64> {
    let Some((process, thread)) = page_thread(records) else { return Vec::new() };
    let is_ours = |record: &&Value| {
        record["pid"] == process && record["tid"] == thread && record["ph"] == "X"
    };
    let is_script = |record: &&Value| SCRIPTS.iter().any(|name| record["name"] == *name);
    let spans = records.iter().filter(is_ours).filter(is_script).filter_map(|record| {
        let (at, took) = (record["ts"].as_f64()?, record["dur"].as_f64().unwrap_or(0.0));
        Some((at, at + took))
    });
    let mut spans: Vec<(f64, f64)> = spans.collect();
    spans.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut all, mut until) = (Vec::new(), f64::MIN);
    for (begin, end) in spans {
        let part = (end - begin.max(until)).max(0.0) / 1e3;
        match all.last_mut() {
            Some(update) if begin - until < GAP => *update += part,
            _ => all.push(part),
        }
        until = until.max(end);
    }
    all
}

/// The process and the thread that drew most frames of scripts.
fn page_thread(records: &[Value]) -> Option<(Value, Value)> {
    let mut counts: Vec<((&Value, &Value), usize)> = Vec::new();
    for record in records.iter().filter(|record| record["name"] == "FireAnimationFrame") {
        let at = (&record["pid"], &record["tid"]);
        match counts.iter_mut().find(|(thread, _)| *thread == at) {
            Some((_, count)) => *count += 1,
            None => counts.push((at, 1)),
        }
    }
    let ((process, thread), _) = counts.into_iter().max_by_key(|(_, count)| *count)?;
    Some((process.clone(), thread.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_update_is_all_scripts_between_two_pauses() {
        let record = |name: &str, tid: u64, ts: u64, dur: u64| json!({ "name": name, "ph": "X", "pid": 1, "tid": tid, "ts": ts, "dur": dur });
        let records = [
            record("EventDispatch", 1, 0, 2000),
            record("FunctionCall", 1, 500, 1000),
            record("FireAnimationFrame", 1, 5000, 3000),
            record("FunctionCall", 1, 5100, 2000),
            record("FunctionCall", 2, 5100, 90_000),
            record("TimerFire", 1, 60_000, 1000),
            record("Layout", 1, 62_000, 9000),
            record("FireAnimationFrame", 1, 80_000, 500),
        ];
        assert_eq!(updates(&records), [5.0, 1.5]);
        assert!(updates(&[]).is_empty());
    }
}
