//! Formats the status of interfaces for people.

use crate::commands::{
    gather::messages::{rate, size},
    text::{aligned, plain, rough},
};
use serde_json::Value;
use std::time::Duration;

/// The most connections and programs shown; the JSON has all.
const MAX_ROWS: usize = 12;

/// The status of all processes, or what is stored if none runs.
pub fn text(said: &Value) -> String {
    let processes = said["processes"].as_array().map(Vec::as_slice).unwrap_or_default();
    if processes.is_empty() {
        return format!(
            "no thalweg process runs; the stored records of interfaces:\n{}",
            process_details(&said["kept"])
        );
    }
    let texts = processes.iter().map(|said| match said["error"].as_str() {
        Some(why) => format!("process {}: {}\n", said["pid"], plain(why)),
        None => format!("{}\n{}", process(said), process_details(said)),
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// The title line of a process.
pub fn process(said: &Value) -> String {
    let listen = said["listen"].as_str().map_or(String::new(), |at| format!(" at {}", plain(at)));
    let schedule = said["schedule"].as_str().map_or_else(String::new, plain);
    format!("process {}{listen}: {schedule}", said["pid"])
}

/// What an interface may do now, if it is used.
pub fn allowed(said: &Value, name: &str) -> Option<String> {
    let of = all(said, "interfaces").find(|of| of["name"] == name)?;
    let cap = of["cap_bytes"].as_u64().map(|cap| {
        format!("cap {} from day {}", size(cap), known(&of["reset_day"], |day| day.to_string()))
    });
    let limit = of["rate_limit_bps"].as_u64().map(|limit| format!("at most {}", rate(limit)));
    let tier = Some(format!("{} {}", word(&of["name"]), word(&of["tier"])));
    Some([tier, cap, limit].into_iter().flatten().collect::<Vec<_>>().join(", "))
}

fn process_details(said: &Value) -> String {
    let faults = all(said, "faults").map(|why| format!("{}\n", word(why))).collect::<String>();
    let head = [
        "INTERFACE",
        "TIER",
        "DOWN",
        "UP",
        "RTT",
        "LOSS",
        "HEARD",
        "USED",
        "CAP",
        "OPEN",
        "LOAD",
        "",
    ];
    let interfaces: Vec<_> = all(said, "interfaces").map(interface).collect();
    let mut text = match interfaces.is_empty() {
        true => "no interface has a route to the Internet\n".to_owned(),
        false => aligned(head, &interfaces),
    };
    let unused: Vec<_> =
        all(said, "unused").map(|of| [word(&of["name"]), word(&of["why"])]).collect();
    text = faults + &text;
    if !unused.is_empty() {
        text += "\n";
        text += &aligned(["NOT USED", "BECAUSE"], &unused);
    }
    let rules: Vec<_> = all(said, "rules").zip(1..).map(rule).collect();
    if !rules.is_empty() {
        let head = ["RULE", "PROGRAM", "PORT", "TO", "", "INTERFACES"];
        text += "\n";
        text += &aligned(head, &rules);
    }
    let programs: Vec<_> = all(said, "applications").take(MAX_ROWS).map(program).collect();
    if !programs.is_empty() {
        text += "\n";
        text += &aligned(["PROGRAM", "PORT", "NATURE", "C_DEMAND", "CONNECTIONS"], &programs);
    }
    let connections: Vec<_> = all(said, "connections").take(MAX_ROWS).map(connection).collect();
    if !connections.is_empty() {
        text += "\n";
        text += &aligned(["AGO", "PROGRAM", "TO", "BY", "SINCE"], &connections);
    }
    let bonds = all(said, "bonds").chain(all(said, "bonds_of_others"));
    let links: Vec<_> = bonds.flat_map(links).collect();
    if !links.is_empty() {
        let head = ["BOND WITH", "BY", "STATE", "RATE", "RTT", "SENT", "RECEIVED", ""];
        text += "\n";
        text += &aligned(head, &links);
    }
    text
}

fn all<'a>(said: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    said[key].as_array().into_iter().flatten()
}

fn word(value: &Value) -> String {
    value.as_str().map_or_else(|| "-".to_owned(), plain)
}

fn known(value: &Value, show: impl Fn(u64) -> String) -> String {
    value.as_u64().map_or_else(|| "-".to_owned(), show)
}

fn millis(value: &Value) -> String {
    value.as_f64().map_or_else(|| "-".to_owned(), |s| format!("{:.0} ms", s * 1000.0))
}

fn interface(of: &Value) -> [String; 12] {
    [
        word(&of["name"]),
        word(&of["tier"]),
        known(&of["down_bps"], rate),
        known(&of["up_bps"], rate),
        millis(&of["rtt_seconds"]),
        of["loss"].as_f64().map_or_else(|| "-".to_owned(), |p| format!("{:.1} %", p * 100.0)),
        rate_age(of),
        known(&of["used_bytes"], size),
        known(&of["cap_bytes"], size),
        known(&of["connections"], |n| n.to_string()),
        known(&of["load_bytes"], size),
        notes(of),
    ]
}

/// The age of its newest rate, with "probe" if the rate was measured by a probe instead of by other traffic.
fn rate_age(of: &Value) -> String {
    let ago = of["heard_seconds_ago"].as_f64();
    match (ago.and_then(|s| Duration::try_from_secs_f64(s).ok()), of["heard_by"].as_str()) {
        (Some(ago), Some("probe")) => format!("{}, probe", rough(ago)),
        (Some(ago), _) => rough(ago),
        (None, Some(_)) => "long ago".to_owned(),
        (None, None) => "-".to_owned(),
    }
}

/// Everything out of the ordinary about an interface.
fn notes(of: &Value) -> String {
    let doubt = match of["doubt"].as_str() {
        Some("impostor") => Some(
            "left out: another host answers than the one that was asked (a captive portal?)"
                .to_owned(),
        ),
        Some(_) => Some("left out: the latest connections over it failed".to_owned()),
        None => None,
    };
    let alone = match (of["ipv4"].as_bool(), of["ipv6"].as_bool()) {
        (Some(false), Some(true)) => Some("IPv6 only".to_owned()),
        _ => None,
    };
    let limit = of["rate_limit_bps"].as_u64().map(|limit| format!("at most {}", rate(limit)));
    let fault =
        of["fault"].as_str().map(|why| format!("its cap cannot be enforced: {}", plain(why)));
    let used_up = (of["cap_is_used_up"] == true).then(|| {
        format!("its cap is used up until day {}", known(&of["reset_day"], |day| day.to_string()))
    });
    let metered = (of["metered"] == true).then(|| "metered".to_owned());
    let price = of["price_per_gb"].as_f64().filter(|price| *price > 0.0);
    let price = price.map(|price| format!("{price} / GB"));
    let probe = of["probe_failure"].as_str().map(plain);
    let charged = |key: &str, what: &str| {
        of[key].as_u64().filter(|bytes| *bytes > 0).map(|bytes| format!("{} {what}", size(bytes)))
    };
    let probes = charged("probe_bytes", "of probes");
    let twice = charged("duplicate_bytes", "sent or fetched twice");
    [doubt, used_up, fault, alone, probe, limit, metered, price, probes, twice]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join("; ")
}

fn program(of: &Value) -> [String; 5] {
    [
        word(&of["process"]),
        known(&of["port"], |n| n.to_string()),
        word(&of["nature"]),
        known(&of["demand_bytes"], size),
        known(&of["connections"], |n| n.to_string()),
    ]
}

fn rule((of, number): (&Value, usize)) -> [String; 6] {
    let action = ["only", "prefer", "avoid"].into_iter().find(|action| of[action].is_array());
    let names = all(of, action.unwrap_or_default()).map(word).collect::<Vec<_>>();
    [
        number.to_string(),
        word(&of["process"]),
        known(&of["port"], |n| n.to_string()),
        word(&of["destination"]),
        action.unwrap_or_default().to_owned(),
        names.join(", "),
    ]
}

fn connection(of: &Value) -> [String; 5] {
    let ago = Duration::try_from_secs_f64(of["ago_seconds"].as_f64().unwrap_or(0.0));
    [
        rough(ago.unwrap_or_default()),
        word(&of["process"]),
        format!("{}:{}", word(&of["to"]), of["port"]),
        word(&of["interface"]),
        word(&of["why"]),
    ]
}

/// The interface of a link, and its relays.
fn link_route(link: &Value) -> String {
    let interface = word(&link["interface"]);
    link["via"].as_str().map_or(interface.clone(), |via| format!("{interface} via {}", plain(via)))
}

fn links(bond: &Value) -> Vec<[String; 8]> {
    let member = match bond["name"].as_str() {
        Some(name) => plain(name),
        None => word(&bond["member"]).chars().take(12).collect(),
    };
    let no_link = |by: &str, state: &str, why: String| {
        let none = || "-".to_owned();
        [member.clone(), plain(by), state.to_owned(), none(), none(), none(), none(), why]
    };
    if let Some(why) = bond["none"].as_str() {
        let again = Duration::try_from_secs_f64(bond["again_seconds"].as_f64().unwrap_or(0.0));
        let again = rough(again.unwrap_or_default());
        return vec![no_link("-", "none", format!("{} (asked again in {again})", plain(why)))];
    }
    let row = |link: &Value| {
        [
            member.clone(),
            link_route(link),
            word(&link["life"]),
            word(&link["rate"]),
            word(&link["rtt"]),
            known(&link["sent"], size),
            known(&link["received"], size),
            String::new(),
        ]
    };
    let without = bond["without"].as_object().into_iter().flatten();
    let without = without.map(|(by, why)| no_link(by, "no link", word(why)));
    all(bond, "links").map(row).chain(without).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn it_reads_as_tables() {
        let interface = json!({
            "name": "wan0", "tier": "primary", "down_bps": 8_000_000, "up_bps": null,
            "rtt_seconds": 0.021, "loss": 0.013, "used_bytes": 5_000_000,
            "cap_bytes": 10_000_000_000_u64, "connections": 2, "load_bytes": 300_000,
            "cap_is_used_up": true, "reset_day": 5, "metered": true, "price_per_gb": 2.5,
            "doubted": false, "doubt": null, "rate_limit_bps": 20_000_000, "ipv4": false,
            "ipv6": true, "heard_seconds_ago": 3.7, "heard_by": "passive",
            "probe_bytes": 0, "duplicate_bytes": 2_000_000,
        });
        let portal = json!({
            "name": "wan1", "tier": "primary", "doubt": "impostor", "down_bps": 1_000_000,
            "heard_seconds_ago": 7260.0, "heard_by": "probe",
        });
        let unused = json!({ "name": "eth3", "why": "no route uses it" });
        let connection = json!({
            "process": "curl", "port": 443, "to": "a.example", "interface": "wan0",
            "why": "its turn", "ago_seconds": 3.2,
        });
        let program = json!({
            "process": "curl", "port": 443, "nature": "bulk", "demand_bytes": 600_000,
            "connections": 4,
        });
        let without = json!({ "wan1": "cannot reach fra: another node answered" });
        let bond = json!({ "member": "0123456789abcdef", "without": without, "links": [{
            "interface": "wan0", "life": "alive", "rate": "8 Mbit/s", "rtt": "20 ms",
            "sent": 10, "received": 2_000_000,
        }, {
            "interface": "wan0", "via": "nyc+ams", "life": "silent", "rate": "2 Mbit/s",
            "rtt": "90 ms", "sent": 7, "received": 1_000_000,
        }]});
        let none = json!({
            "member": "fedcba9876543210", "name": "nyc", "links": [],
            "none": "wan0: it takes no bonds", "again_seconds": 540.0,
        });
        let rules = json!([
            { "process": "zoom*", "only": ["wan0"] },
            { "port": 22, "destination": "*.example", "avoid": ["wan0", "wan1"] },
        ]);
        let theirs = json!([{ "member": "ams", "streams": 1, "links": [{
            "interface": null, "via": null, "life": "alive", "rate": "1 Mbit/s", "rtt": "5 ms",
            "sent": 3, "received": 4,
        }]}]);
        let said = json!({ "processes": [{
            "faults": ["what was learnt is not kept: no space"], "rules": rules,
            "bonds_of_others": theirs, "pid": 7, "listen": "127.0.0.1:3128", "schedule": "maximum-throughput",
            "interfaces": [interface, portal], "unused": [unused], "applications": [program],
            "connections": [connection], "bonds": [bond, none],
        }]});
        insta::assert_snapshot!(text(&said));
    }
}
