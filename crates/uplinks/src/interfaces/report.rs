//! The report on the interfaces as JSON: sizes in bytes, rates in bit/s, times in seconds.

use super::{InterfaceStatus, Settings, Uplinks};
use serde_json::{Value, json};
use std::{num::NonZeroU32, time::Duration};
use thalweg_base::budget::{Purpose, Scope};
use thalweg_bond::{Application, Demand};
use thalweg_measure::{self as measure, Method};
use thalweg_net::{Interface, Survey, UnusableReason, survey};
use thalweg_units::{Rate, Time};

/// Applications in the report: those that were used last.
const MOST_APPLICATIONS: usize = 64;

/// The interfaces, the applications, and the reasons of the last decisions.
pub fn report(uplinks: &Uplinks) -> Value {
    let (now, today) = (uplinks.now(), uplinks.today());
    let spent_on_probes = uplinks.spent_on_probes().as_bytes();
    let mut faults = uplinks.0.faults.all();
    let survey = survey().unwrap_or_else(|why| {
        faults.push(format!("cannot find out why interfaces are not used: {why}"));
        Survey::default()
    });
    let table = uplinks.table();
    let settings = table.settings();
    let all = table.show(today);
    let interfaces: Vec<Value> = all
        .iter()
        .zip(0..)
        .map(|(shown, place)| {
            let policy = settings.policy(&shown.name);
            let mut value = interface(shown, now);
            let at = measure::Interface { node: measure::NodeIndex(0), interface: place };
            value["estimates"] = json!(shown.estimate.measured(at, now));
            value["probe_bytes"] = json!(charged(uplinks, shown, Purpose::Probe));
            value["duplicate_bytes"] = json!(charged(uplinks, shown, Purpose::Duplicate));
            value["rate_limit_bps"] = json!(policy.rate_limit.map(Rate::as_bps));
            value["metered"] = json!(policy.metered);
            value["beside_tunnel"] = json!(policy.beside_tunnel);
            value["may_spend"] = json!(policy.may_spend());
            value["price_per_gb"] = json!(policy.price);
            value["fault"] = json!(table.fault(&shown.name));
            value["reset_day"] = json!(policy.cap.map(|cap| cap.reset_day));
            found(&mut value, &shown.name, &survey);
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
    let unused = unused(&all, &survey).chain(absent(settings, &survey));
    json!({
        "schedule": settings.schedule,
        "affinity_seconds": settings.affinity.as_secs_f64(),
        "near": settings.near,
        "rules": settings.rules,
        "spent_on_probes_bytes": spent_on_probes,
        "faults": faults,
        "interfaces": interfaces,
        "unused": unused.map(|(name, why)| json!({ "name": name, "why": why })).collect::<Vec<_>>(),
        "applications": applications.collect::<Vec<_>>(),
        "connections": connections.collect::<Vec<_>>(),
    })
}

fn interface(shown: &InterfaceStatus, now: Time) -> Value {
    let known = |rate: Rate| (rate > Rate::ZERO).then(|| rate.as_bps());
    let rtt = shown.estimate.rtt();
    let heard = shown.estimate.age(now).filter(|age| *age < Duration::MAX);
    let by = shown.estimate.newest_method(now).map(|by| match by {
        Method::Passive => "passive",
        _ => "probe",
    });
    json!({
        "name": shown.name, "tier": shown.tier,
        "down_bps": known(shown.estimate.down()), "up_bps": known(shown.estimate.up()),
        "rtt_seconds": (!rtt.is_zero()).then_some(rtt.as_secs_f64()),
        "loss": shown.estimate.loss(),
        "heard_seconds_ago": heard.map(|age| age.as_secs_f64()), "heard_by": by,
        "used_bytes": shown.used, "cap_bytes": shown.cap, "cap_is_used_up": shown.is_used_up,
        "connections": shown.connections, "load_bytes": shown.load,
        "doubted": shown.doubted.is_some(), "doubt": shown.doubted,
        "probe_failure": shown.probe_failure,
    })
}

/// Bytes that this process was charged for a purpose.
fn charged(uplinks: &Uplinks, shown: &InterfaceStatus, purpose: Purpose) -> u64 {
    let scope = Scope { interface: NonZeroU32::new(shown.index), ..Scope::purpose(purpose) };
    uplinks.budget().spent(scope).as_bytes()
}

/// Adds what the kernel says about an interface that is used.
fn found(value: &mut Value, name: &str, survey: &Survey) {
    let Some(this) = survey.usable.iter().find(|found| found.name == name) else { return };
    value["ipv4"] = json!(this.addresses.iter().any(|ip| ip.is_ipv4()));
    value["ipv6"] = json!(this.addresses.iter().any(|ip| ip.is_ipv6()));
}

/// The interfaces that no connection is assigned to, with the reason.
fn unused<'a>(
    used: &'a [InterfaceStatus],
    survey: &'a Survey,
) -> impl Iterator<Item = (&'a str, String)> {
    let is_used = move |found: &&Interface| used.iter().any(|shown| shown.name == found.name);
    let has_default = survey.usable.iter().any(|found| found.has_default_route);
    let name =
        move |index| survey.usable.iter().find(|found| found.index == index).map(|f| &f.name);
    let idle = survey.usable.iter().filter(move |found| !is_used(found)).map(move |found| {
        let why = match (found.beside.and_then(name), found.doubles.and_then(name)) {
            _ if has_default && !found.has_default_route => "no default route uses it".to_owned(),
            (Some(tunnel), _) => format!(
                "the tunnel {tunnel} has the default route, and other interfaces are used beside \
                 it only with beside_tunnel = true"
            ),
            (_, Some(other)) => {
                format!("it is in the same network as {other}, which receives its answers")
            }
            _ => "it is a tunnel without the default route".to_owned(),
        };
        (found.name.as_str(), why)
    });
    let lacking =
        survey.lacking.iter().map(|(name, lack)| (name.as_str(), lacks(*lack).to_owned()));
    idle.chain(lacking)
}

/// Interfaces that the settings name and this host does not have. Otherwise a misspelt name would forbid nothing,
/// unnoticed.
fn absent<'a>(
    settings: &'a Settings,
    survey: &'a Survey,
) -> impl Iterator<Item = (&'a str, String)> {
    let ruled = (settings.rules.0.iter().zip(1..))
        .flat_map(|(rule, number)| rule.interfaces().iter().map(move |name| (name, number)));
    let policies = settings.policies.keys().map(|name| (name, "a policy".to_owned()));
    let named = policies.chain(ruled.map(|(name, number)| (name, format!("rule {number}"))));
    let is_there = |name: &str| {
        survey.usable.iter().any(|found| found.name == name)
            || survey.lacking.iter().any(|(lacking, _)| lacking == name)
    };
    let absent = named.filter(move |(name, _)| !is_there(name));
    absent.map(|(name, by)| {
        (name.as_str(), format!("no interface has this name now, but {by} refers to it"))
    })
}

fn lacks(lack: UnusableReason) -> &'static str {
    match lack {
        UnusableReason::Down => "it is down",
        UnusableReason::Carrier => "it has no cable, or has not joined a network",
        UnusableReason::Address => "it has no address",
        UnusableReason::Route => "no route uses it",
    }
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

#[cfg(test)]
mod tests {
    use super::{super::UsableInterface, *};
    use std::sync::Arc;
    use thalweg_base::budget::Budget;
    use thalweg_bond::{Action, Policy, Rule};
    use thalweg_units::ByteSize;

    #[test]
    fn names_without_an_interface_are_reported() {
        let mut settings = Settings::default();
        settings.policies.insert("lte7".to_owned(), Policy::default());
        settings.policies.insert("lo0there".to_owned(), Policy::default());
        let only = Action::Only(vec!["eth77".to_owned(), "lo0there".to_owned()]);
        let rule = Rule { process: None, port: Some(22), destination: None, action: only };
        settings.rules.0.push(rule);
        let lacking = vec![("lo0there".to_owned(), UnusableReason::Down)];
        let survey = Survey { usable: Vec::new(), lacking };
        let why = |by: &str| format!("no interface has this name now, but {by} refers to it");
        assert_eq!(
            absent(&settings, &survey).collect::<Vec<_>>(),
            [("lte7", why("a policy")), ("eth77", why("rule 1"))]
        );
    }

    #[test]
    fn probes_and_second_copies_are_charged_to_the_process_and_shown_by_interface() {
        let (uplinks, budget) =
            (Uplinks::without_file(Settings::default()), Arc::new(Budget::new()));
        uplinks.set_budget(budget.clone());
        let present = ["wan0", "wan1"].into_iter().zip([7, 8]);
        let present = present.map(|(name, index)| UsableInterface { name: name.to_owned(), index });
        uplinks.table().follow(present.collect(), uplinks.now(), uplinks.today());
        uplinks.sent_twice("wan1", 500);
        uplinks.sent_twice("gone", 500);
        let seven = NonZeroU32::new(7).unwrap();
        uplinks.spend_on(Purpose::Probe, seven, ByteSize::from_bytes(300));
        let said = report(&uplinks);
        let of = |at: usize, key: &str| said["interfaces"][at][key].as_u64();
        assert_eq!((of(0, "probe_bytes"), of(0, "duplicate_bytes")), (Some(300), Some(0)));
        assert_eq!((of(1, "probe_bytes"), of(1, "duplicate_bytes")), (Some(0), Some(500)));
        let all = |purpose| budget.spent(Scope::purpose(purpose)).as_bytes();
        assert_eq!((all(Purpose::Probe), all(Purpose::Duplicate)), (300, 500));
    }
}
