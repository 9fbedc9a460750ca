//! What is shown of the interfaces, as JSON: sizes in bytes, rates in bit/s, times in seconds.

use super::{Shown, Uplinks};
use serde_json::{Value, json};
use thalweg_bond::{Application, Demand};
use thalweg_units::{Rate, Time};

/// Applications that are shown: those that were used last.
const MOST_APPLICATIONS: usize = 64;

/// Interfaces, applications, and why the last connections went where they went.
pub fn report(uplinks: &Uplinks) -> Value {
    let (now, today) = (uplinks.now(), uplinks.today());
    let table = uplinks.table();
    let settings = table.settings();
    let interfaces: Vec<Value> = table
        .show(today)
        .iter()
        .map(|shown| {
            let policy = settings.policy(&shown.name);
            let mut value = interface(shown);
            value["rate_limit_bps"] = json!(policy.rate_limit.map(Rate::as_bps));
            value["may_spend"] = json!(policy.may_spend());
            value["price_per_gb"] = json!(policy.price);
            value["reset_day"] = json!(policy.cap.map(|cap| cap.reset_day));
            value
        })
        .collect();
    let applications = table.applications().into_iter().take(MOST_APPLICATIONS).map(application);
    let connections = table.decisions().map(|decision| {
        json!({
            "process": decision.application.process, "port": decision.application.port,
            "to": decision.destination, "interface": decision.interface, "why": decision.why,
            "ago_seconds": ago(decision.at, now),
        })
    });
    json!({
        "schedule": settings.schedule,
        "affinity_seconds": settings.affinity.as_secs_f64(),
        "near": settings.near,
        "rules": settings.rules.0.len(),
        "spent_on_probes_bytes": uplinks.spent_on_probes().as_bytes(),
        "interfaces": interfaces,
        "applications": applications.collect::<Vec<_>>(),
        "connections": connections.collect::<Vec<_>>(),
    })
}

fn interface(shown: &Shown) -> Value {
    let known = |rate: Rate| (rate > Rate::ZERO).then(|| rate.as_bps());
    let rtt = shown.estimate.rtt();
    json!({
        "name": shown.name, "tier": shown.tier,
        "down_bps": known(shown.estimate.down()), "up_bps": known(shown.estimate.up()),
        "rtt_seconds": (!rtt.is_zero()).then_some(rtt.as_secs_f64()),
        "loss": shown.estimate.loss(),
        "used_bytes": shown.used, "cap_bytes": shown.cap,
        "connections": shown.connections, "load_bytes": shown.load, "doubted": shown.doubted,
        "probe_failure": shown.probe_failure,
    })
}

fn application((application, demand): (&Application, Demand)) -> Value {
    json!({
        "process": application.process, "port": application.port,
        "nature": application.nature(),
        "demand_bytes": demand.bytes(), "connections": demand.connections(),
    })
}

fn ago(at: Time, now: Time) -> f64 {
    now.since(at).as_secs_f64()
}
