//! The result of a measurement, in words and as JSON.

use super::{Args, progress::bits};
use crate::commands::gather::messages::{size, time};
use serde_json::{Value, json};
use thalweg_console::{note, say_line};
use thalweg_measure::estimators::{Finding, Quantity};
use thalweg_probe::trains::{Cost, Measured};

/// Prints the result. `carried`: this host's node sent the trains, so packets could ride in them.
///
/// # Errors
/// If standard output is closed.
pub fn print(args: &Args, tool: &str, found: &Measured, carried: bool) -> anyhow::Result<()> {
    if args.json {
        let result = |finding| say_line(as_json(args, tool, finding, found));
        return Ok(found.findings.iter().try_for_each(result)?);
    }
    for finding in &found.findings {
        say_line(words(finding))?;
    }
    for line in validity(found) {
        match args.quiet {
            // With --quiet, doubts about the value are still shown.
            true if !found.doubts.is_empty() => note!("thalweg: {line}"),
            true => {}
            false => say_line(line)?,
        }
    }
    if !args.quiet {
        let rode = if carried { rode(found) } else { String::new() };
        say_line(cost(args, tool, found) + &rode)?;
    }
    Ok(())
}

fn validity(found: &Measured) -> Vec<String> {
    match &found.doubts[..] {
        [] => vec!["valid".to_owned()],
        doubts => doubts.iter().map(|doubt| format!("not valid: {doubt}")).collect(),
    }
}

fn cost(args: &Args, tool: &str, found: &Measured) -> String {
    let way = if args.back { "from" } else { "to" };
    let (spent, took) = (size(found.cost.bytes), time(found.cost.took.as_secs_f64()));
    format!("{way} {} by {tool}: {} trains, {spent} in {took}", args.node, found.cost.trains)
}

/// The part of the cost that carried packets of programs.
fn rode(found: &Measured) -> String {
    let Cost { bytes, rode, .. } = found.cost;
    let net = size(bytes.saturating_sub(rode));
    format!("; {} of it were application packets, {net} the trains' own", size(rode))
}

/// The name of a quantity.
fn name(of: Quantity) -> String {
    match of {
        Quantity::Capacity => "capacity".to_owned(),
        Quantity::AvailableBandwidth => "available bandwidth".to_owned(),
        Quantity::DispersionRate => "dispersion rate".to_owned(),
        Quantity::LossFrequency => "time with losses".to_owned(),
        Quantity::LossDuration => "length of a loss".to_owned(),
        Quantity::Loss => "lost probes".to_owned(),
        Quantity::RateAtHop { .. } => "rate at hop".to_owned(),
        Quantity::NarrowestHop => "narrowest hop".to_owned(),
    }
}

fn words(finding: &Finding) -> String {
    let Finding { of, value, low, high, is_lower_bound, .. } = finding;
    let name = name(*of);
    let range = || match low == high {
        true => bits(*value),
        false => format!("{} ({} to {})", bits(*value), bits(*low), bits(*high)),
    };
    match of {
        Quantity::LossFrequency | Quantity::Loss => {
            let [value, low, high] = [value, low, high].map(|share| share * 100.0);
            format!("{name}  {value:.2} % ({low:.2} % to {high:.2} %)")
        }
        Quantity::LossDuration => {
            let [value, low, high] = [value, low, high].map(|s| s * 1000.0);
            format!("{name}  {value:.0} ms ({low:.0} ms to {high:.0} ms)")
        }
        Quantity::RateAtHop { hop, router: Some(router) } => {
            format!("hop {hop}  {router}  {}", range())
        }
        Quantity::RateAtHop { router: None, .. } => format!("destination  {}", range()),
        Quantity::NarrowestHop if low == high => {
            format!("{name}  {value}: the link into it is the narrowest")
        }
        Quantity::NarrowestHop => {
            format!("{name}  one of {low} to {high}: the routers in between do not answer")
        }
        _ if *is_lower_bound => {
            format!("{name}  at least {}: this host cannot probe faster", bits(*low))
        }
        _ => format!("{name}  {}", range()),
    }
}

fn as_json(args: &Args, tool: &str, finding: &Finding, found: &Measured) -> Value {
    let doubts: Vec<String> = found.doubts.iter().map(ToString::to_string).collect();
    let mut result = json!({
        "event": "result", "node": args.node.as_str(), "back": args.back, "method": tool,
        "of": name(finding.of).replace(' ', "_"), "value": finding.value,
        "low": finding.low, "high": finding.high, "hidden": finding.hidden,
        "at_least": finding.is_lower_bound, "valid": doubts.is_empty(), "doubts": doubts,
        "trains": found.cost.trains, "probe_bytes": found.cost.bytes,
        "rode_bytes": found.cost.rode,
        "seconds": found.cost.took.as_secs_f64(),
    });
    if let Quantity::RateAtHop { hop, router } = finding.of {
        (result["hop"], result["router"]) = (json!(hop), json!(router));
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use thalweg_measure::train::{Doubt, End};

    fn all() -> Vec<Finding> {
        let mbps = |of, low: f64, high: f64| Finding::corrected(of, low * 1e6, high * 1e6, 0.0);
        let router = "192.0.2.1".parse().ok();
        vec![
            mbps(Quantity::AvailableBandwidth, 5.8, 6.2),
            Finding { is_lower_bound: true, ..mbps(Quantity::AvailableBandwidth, 400.0, 900.0) },
            mbps(Quantity::Capacity, 9.9, 10.1),
            Finding::share(Quantity::LossFrequency, 0.0123, (9, 2000.0)),
            Finding::counted(Quantity::LossDuration, 0.0504, 9),
            Finding::share(Quantity::Loss, 0.0, (0, 500.0)),
            mbps(Quantity::RateAtHop { hop: 1, router }, 94.0, 97.0),
            mbps(Quantity::RateAtHop { hop: 2, router: None }, 9.9, 9.9),
            Finding::plain(Quantity::NarrowestHop, 2.0),
            Finding { low: 2.0, ..Finding::plain(Quantity::NarrowestHop, 4.0) },
        ]
    }

    #[test]
    fn results_read_as_sentences() {
        let mut lines: Vec<String> = all().iter().map(words).collect();
        let cost =
            Cost { trains: 60, bytes: 1_234_567, rode: 1_000_000, took: Duration::from_secs(12) };
        let mut found = Measured { findings: all(), doubts: vec![], cost };
        lines.extend(validity(&found));
        lines.push(rode(&found));
        let off = Duration::from_micros(1234);
        found.doubts = vec![
            Doubt::Busy { end: End::Sender, off },
            Doubt::Late { late: 900, timed: 1200 },
            Doubt::Paused { late: 90, timed: 1200 },
            Doubt::Unsent(1),
            Doubt::Dropped(7),
            Doubt::Queueless,
        ];
        lines.extend(validity(&found));
        insta::assert_snapshot!(lines.join("\n"));
    }
}
