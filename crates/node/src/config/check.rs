//! Reports values that are well-formed but make no sense.

use super::{
    ApiListen, ApiSection, Config, MeasureSection, OracleSection, Problem, QuotaSection,
    RelaySection, RuleSection,
};
use std::{collections::BTreeSet, net::SocketAddr, time::Duration};
use thalweg_mesh::routes_in;
use thalweg_net::{Destination, MAX_HOPS};
use thalweg_relay::SMTP;
use thalweg_units::{ByteSize, Rate};
use thalweg_wire::mesh::{Member, Name, PortRange, Roster};

/// Longer than anybody needs; beyond it timers would overflow.
const LONGEST: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

pub(super) fn config(config: &Config) -> Vec<Problem> {
    let mut problems = Vec::new();
    listeners(config, &mut problems);
    relay(&config.relay, &mut problems);
    measure(&config.measure, &mut problems);
    super::drop_box::check(&config.drop_box, &mut problems);
    super::files::check(&config.files, &mut problems);
    super::cast::check(&config.cast, &mut problems);
    super::stream::check(&config.stream, &mut problems);
    if config.stream.ride && !config.carrier.enabled {
        let what = "`ride` needs `carrier.enabled = true`; set both, or neither";
        problems.push(Problem::of("stream.ride", what));
    }
    super::bond::check(&config.bond, &mut problems);
    super::carrier::check(&config.carrier, &mut problems);
    if config.carrier.enabled && !config.measure.enabled {
        let what = "the carrier needs the port for probe trains, which `measure.enabled = false` \
                    closes; enable both, or neither";
        problems.push(Problem::of("carrier.enabled", what));
    }
    if config.measure.overlay && !config.measure.enabled {
        let what = "`overlay` measures with probe trains, which `measure.enabled = false` turns \
                    off; change one of the two";
        problems.push(Problem::of("measure.overlay", what));
    }
    super::interfaces::check(&config.interfaces, &mut problems);
    socks(config, &mut problems);
    jobs(config, &mut problems);
    oracle(&config.oracle, &mut problems);
    problems
}

fn listeners(config: &Config, problems: &mut Vec<Problem>) {
    if config.listen.is_empty() {
        problems.push(Problem::of(
            "listen",
            "the list is empty, so no other host could reach this \
                                             node; give an address",
        ));
    }
    let local =
        |address: Option<SocketAddr>| address.filter(|a| !a.ip().to_canonical().is_loopback());
    if let Some(open) = local(config.api.listen.address()) {
        let what = format!(
            "{open} is reachable from other hosts; write 127.0.0.1:{}, and reach it from another host \
             with `ssh -L`",
            open.port()
        );
        problems.push(Problem::of("api.listen", what));
    }
    if let Some(open) = local(config.socks.listen) {
        let what = format!(
            "{open} is reachable from other hosts, and this SOCKS5 listener has no authentication; \
             write 127.0.0.1:{}",
            open.port()
        );
        problems.push(Problem::of("socks.listen", what));
    }
    if let Some(open) = local(config.metrics.listen) {
        let what = format!(
            "{open} is reachable from other hosts, and metrics have no authentication; write \
             127.0.0.1:{}",
            open.port()
        );
        problems.push(Problem::of("metrics.listen", what));
    }
    duplicate_addresses(config, problems);
}

/// Reports an address that has two purposes.
fn duplicate_addresses(config: &Config, problems: &mut Vec<Problem>) {
    let mut seen = BTreeSet::new();
    let mesh = config.listen.iter().map(|a| ("listen", *a));
    let socks = config.socks.listen.map(|a| ("socks.listen", a));
    let metrics = config.metrics.listen.map(|a| ("metrics.listen", a));
    // If the default address is taken, the node runs without it.
    let api = (config.api != ApiSection::default()).then_some(config.api.listen);
    let api = api.and_then(ApiListen::address).map(|a| ("api.listen", a));
    let all = mesh.chain(socks).chain(metrics).chain(api);
    for (key, address) in all.filter(|(_, a)| a.port() != 0) {
        if !seen.insert(address) {
            problems.push(Problem::of(key, format!("{address} is given twice; use another port")));
        }
    }
}

fn relay(relay: &RelaySection, problems: &mut Vec<Problem>) {
    if relay.max_connections == 0 {
        let what = "0 serves no connection; to turn relaying off, write `enabled = false`";
        problems.push(Problem::of("relay.max_connections", what));
    }
    for (key, time) in [
        ("relay.handshake", relay.handshake),
        ("relay.connect", relay.connect),
        ("relay.idle", relay.idle),
        ("relay.linger", relay.linger),
        ("relay.black_hole", relay.black_hole),
    ] {
        positive(key, time, problems);
    }
    if relay.drain > LONGEST {
        problems.push(Problem::of("relay.drain", "too long; the maximum is 10 years"));
    }
    if relay.ports.is_empty() {
        let what = "the list is empty, so the relay could connect to no port; write e.g. [\"80\", \
                    \"443\"]";
        problems.push(Problem::of("relay.ports", what));
    }
    ports("relay.ports", &relay.ports, problems);
    quota("relay.quota", &relay.quota, problems);
}

fn measure(measure: &MeasureSection, problems: &mut Vec<Problem>) {
    let nothing = [
        ("max_bytes_per_day", measure.max_bytes_per_day == ByteSize::ZERO),
        ("max_rate", measure.max_rate == Some(Rate::ZERO)),
    ];
    for (key, _) in nothing.into_iter().filter(|(_, zero)| *zero) {
        let what = "0 allows no measurement; to turn measuring off, write `enabled = false`";
        problems.push(Problem::of(format!("measure.{key}"), what));
    }
    if measure.overlay && measure.overlay_share.fraction() == 0.0 {
        let what = "a share of 0 allows no measurement; to turn it off, write `overlay = false`";
        problems.push(Problem::of("measure.overlay_share", what));
    }
    if measure.relay_capacity == Some(Rate::ZERO) {
        let what = "0 means that this relay is never offered to clients; leave it out to have the \
                    capacity measured";
        problems.push(Problem::of("measure.relay_capacity", what));
    }
}

fn positive(key: &str, time: Duration, problems: &mut Vec<Problem>) {
    match time {
        Duration::ZERO => problems.push(Problem::of(
            key,
            "it must be more than 0; write e.g. \
                                                          \"10 s\"",
        )),
        time if time > LONGEST => {
            problems.push(Problem::of(key, "too long; the maximum is 10 years"))
        }
        _ => {}
    }
}

fn ports(key: &str, ports: &[PortRange], problems: &mut Vec<Problem>) {
    if ports.contains(&PortRange::one(SMTP)) {
        let what = format!(
            "relays never connect to port {SMTP}, so that they cannot send spam; \
                            remove the port"
        );
        problems.push(Problem::of(key, what));
    }
}

fn quota(key: &str, quota: &QuotaSection, problems: &mut Vec<Problem>) {
    let nothing = [
        ("connections", quota.connections == Some(0)),
        ("rate", quota.rate == Some(Rate::ZERO)),
        ("bytes_per_day", quota.bytes_per_day == Some(ByteSize::ZERO)),
    ];
    for (part, _) in nothing.into_iter().filter(|(_, zero)| *zero) {
        let what = "a quota of 0 allows nothing; leave it out for no limit";
        problems.push(Problem::of(format!("{key}.{part}"), what));
    }
}

fn jobs(config: &Config, problems: &mut Vec<Problem>) {
    let jobs = &config.jobs;
    if !(1..=64).contains(&jobs.parallel) {
        problems.push(Problem::of("jobs.parallel", "must be from 1 to 64: each job is a process"));
    }
    for (key, value) in [("jobs.max_open", jobs.max_open), ("jobs.max_ended", jobs.max_ended)] {
        if !(1..=100_000).contains(&value) {
            problems.push(Problem::of(key, "must be from 1 to 100000"));
        }
    }
}

fn socks(config: &Config, problems: &mut Vec<Problem>) {
    let socks = &config.socks;
    positive("socks.idle", socks.idle, problems);
    if socks.listen.is_none() && !socks.via.is_empty() {
        let what = "`via` has no effect without `listen`; add e.g. listen = \"127.0.0.1:1080\"";
        problems.push(Problem::of("socks", what));
    }
    for way in &socks.via {
        let routes = routes_in(way).map_err(|why| why.to_string());
        if let Err(why) = routes.and_then(|all| all.into_iter().try_for_each(route)) {
            problems.push(Problem::of("socks.via", why));
        }
    }
    if socks.avoid.len() > Member::MAX_TAGS {
        let what = format!("at most {} tags can be avoided", Member::MAX_TAGS);
        problems.push(Problem::of("socks.avoid", what));
    }
}

/// Checks that the text has the form of a route. Only the roster tells whether its relays exist.
fn route(text: &str) -> Result<(), String> {
    if text == "direct" {
        return Ok(());
    }
    let hops: Vec<_> = text.split('+').collect();
    if hops.len() > MAX_HOPS {
        return Err(format!("`{text}`: a route has at most {MAX_HOPS} relays"));
    }
    hops.into_iter().try_for_each(|hop| match hop.contains(':') {
        true => hop.parse::<Destination>().map(drop).map_err(|e| e.to_string()),
        false => hop.parse::<Name>().map(drop).map_err(|e| e.to_string()),
    })
}

fn oracle(oracle: &OracleSection, problems: &mut Vec<Problem>) {
    positive("oracle.validity", oracle.validity, problems);
    positive("oracle.token_validity", oracle.token_validity, problems);
    if oracle.database_password_file.is_some() && oracle.database.is_none() {
        let what = "the file has no effect without `database`";
        problems.push(Problem::of("oracle.database_password_file", what));
    }
    super::oracle_measure::check(&oracle.measure, problems);
    if oracle.rule.len() > Roster::MAX_RULES {
        let what = format!(
            "there are {} rules; a roster has at most {}",
            oracle.rule.len(),
            Roster::MAX_RULES
        );
        problems.push(Problem::of("oracle.rule", what));
    }
    for (i, one) in oracle.rule.iter().enumerate() {
        rule(&format!("oracle.rule.{}", i + 1), one, problems);
    }
}

fn rule(key: &str, rule: &RuleSection, problems: &mut Vec<Problem>) {
    let named = RuleSection {
        client: rule.client.clone(),
        relay: rule.relay.clone(),
        ..RuleSection::default()
    };
    if *rule == named {
        let what = "this rule changes nothing: give deny_to, ports, avoid or quota";
        problems.push(Problem::of(key, what));
    }
    ports(&format!("{key}.ports"), &rule.ports, problems);
    quota(&format!("{key}.quota"), &rule.quota, problems);
}
