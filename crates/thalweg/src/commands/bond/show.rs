//! The status for people.

use crate::commands::{
    gather::words::{rate, size},
    text::{aligned, plain, rough},
};
use serde_json::Value;
use std::time::Duration;

/// Connections and programs that are shown; all are in the JSON.
const MOST: usize = 12;

/// All processes, or what is kept while none runs.
pub fn text(said: &Value) -> String {
    let processes = said["processes"].as_array().map(Vec::as_slice).unwrap_or_default();
    if processes.is_empty() {
        return format!("no proxy runs; what is kept:\n{}", one(&said["kept"]));
    }
    let texts = processes.iter().map(|said| format!("{}\n{}", process(said), one(said)));
    texts.collect::<Vec<_>>().join("\n")
}

/// Which process it is.
pub fn process(said: &Value) -> String {
    let listen = said["listen"].as_str().map_or(String::new(), |at| format!(" at {}", plain(at)));
    let schedule = said["schedule"].as_str().map_or_else(String::new, plain);
    format!("process {}{listen}: {schedule}", said["pid"])
}

fn one(said: &Value) -> String {
    let head =
        ["INTERFACE", "TIER", "DOWN", "UP", "RTT", "LOSS", "USED", "CAP", "OPEN", "LOAD", ""];
    let interfaces: Vec<_> = all(said, "interfaces").map(interface).collect();
    let mut text = match interfaces.is_empty() {
        true => "no interface leads into the world\n".to_owned(),
        false => aligned(head, &interfaces),
    };
    let programs: Vec<_> = all(said, "applications").take(MOST).map(program).collect();
    if !programs.is_empty() {
        text += "\n";
        text += &aligned(["PROGRAM", "PORT", "NATURE", "C_DEMAND", "CONNECTIONS"], &programs);
    }
    let connections: Vec<_> = all(said, "connections").take(MOST).map(connection).collect();
    if !connections.is_empty() {
        text += "\n";
        text += &aligned(["AGO", "PROGRAM", "TO", "BY", "SINCE"], &connections);
    }
    let links: Vec<_> = all(said, "bonds").flat_map(links).collect();
    if !links.is_empty() {
        text += "\n";
        text += &aligned(["BOND WITH", "BY", "STATE", "RATE", "RTT", "SENT", "RECEIVED"], &links);
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

fn interface(of: &Value) -> [String; 11] {
    let note = match (of["doubted"].as_bool(), of["rate_limit_bps"].as_u64()) {
        _ if of["probe_failure"].is_string() => word(&of["probe_failure"]),
        (Some(true), _) => "nothing was reached by it of late".to_owned(),
        (_, Some(limit)) => format!("at most {}", rate(limit)),
        _ => String::new(),
    };
    [
        word(&of["name"]),
        word(&of["tier"]),
        known(&of["down_bps"], rate),
        known(&of["up_bps"], rate),
        millis(&of["rtt_seconds"]),
        of["loss"].as_f64().map_or_else(|| "-".to_owned(), |p| format!("{:.1} %", p * 100.0)),
        known(&of["used_bytes"], size),
        known(&of["cap_bytes"], size),
        known(&of["connections"], |n| n.to_string()),
        known(&of["load_bytes"], size),
        note,
    ]
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
fn by(link: &Value) -> String {
    let interface = word(&link["interface"]);
    link["via"].as_str().map_or(interface.clone(), |via| format!("{interface} via {}", plain(via)))
}

fn links(bond: &Value) -> Vec<[String; 7]> {
    let member: String = word(&bond["member"]).chars().take(12).collect();
    let row = |link: &Value| {
        [
            member.clone(),
            by(link),
            word(&link["life"]),
            word(&link["rate"]),
            word(&link["rtt"]),
            known(&link["sent"], size),
            known(&link["received"], size),
        ]
    };
    all(bond, "links").map(row).collect()
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
            "doubted": false, "rate_limit_bps": 20_000_000,
        });
        let connection = json!({
            "process": "curl", "port": 443, "to": "a.example", "interface": "wan0",
            "why": "its turn", "ago_seconds": 3.2,
        });
        let program = json!({
            "process": "curl", "port": 443, "nature": "bulk", "demand_bytes": 600_000,
            "connections": 4,
        });
        let bond = json!({ "member": "0123456789abcdef", "links": [{
            "interface": "wan0", "life": "alive", "rate": "8 Mbit/s", "rtt": "20 ms",
            "sent": 10, "received": 2_000_000,
        }, {
            "interface": "wan0", "via": "nyc+ams", "life": "silent", "rate": "2 Mbit/s",
            "rtt": "90 ms", "sent": 7, "received": 1_000_000,
        }]});
        let said = json!({ "processes": [{
            "pid": 7, "listen": "127.0.0.1:3128", "schedule": "maximum-throughput",
            "interfaces": [interface], "applications": [program], "connections": [connection],
            "bonds": [bond],
        }]});
        insta::assert_snapshot!(text(&said));
    }
}
