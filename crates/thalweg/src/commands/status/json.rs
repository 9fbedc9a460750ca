//! The JSON of `thalweg status`. Durations are in seconds (`…_seconds`), dates in seconds since 1970 in UTC
//! (`…_unix_seconds`).

use serde_json::{Value, json};
use std::time::Duration;
use thalweg_mesh::MeshFile;
use thalweg_node::daemon::{NodeStatus, OracleStatus, RosterStatus};
use thalweg_units::WallTime;
use thalweg_wire::mesh::{MemberStatus, StatusReply};

/// The status that the daemon reports.
pub fn daemon(status: &NodeStatus) -> Value {
    json!({
        "name": status.name,
        "key": status.key,
        "mesh": status.mesh,
        "daemon": true,
        "program": status.program,
        "up_seconds": status.up.as_secs_f64(),
        "listen": status.listen,
        "roster": status.roster.as_ref().map(roster),
        "oracle": daemon_oracle(&status.oracle),
        "counts": status.counts,
        "relay": status.relay,
        "files": status.files,
        "drop_boxes": status.drop_boxes,
        "overlay": status.overlay,
        "calibration": status.calibration,
        "reach": status.reach,
        "restart": status.restart,
    })
}

/// The status on disk, and the oracle's answer to the command itself.
pub fn offline(
    mesh: &MeshFile,
    kept: Option<&RosterStatus>,
    oracle: &anyhow::Result<StatusReply>,
) -> Value {
    let (reply, error) = (oracle.as_ref().ok(), oracle.as_ref().err());
    json!({
        "name": mesh.name,
        "mesh": mesh.mesh,
        "daemon": false,
        "roster": kept.map(roster),
        "oracle": {
            "reached": reply.is_some(),
            "error": error.map(|e| format!("{e:#}")),
            "status": reply.map(oracle_reply),
        },
    })
}

fn roster(status: &RosterStatus) -> Value {
    json!({
        "version": status.version,
        "expires_unix_seconds": unix(status.expiry),
        "left_seconds": status.left.map(|left| left.as_secs_f64()),
        "members": status.members,
        "fault": status.fault,
        "key_number": status.key_number,
        "fork": status.fork,
    })
}

fn daemon_oracle(oracle: &OracleStatus) -> Value {
    json!({
        "inside": oracle.inside,
        "reached": oracle.reached,
        "error": oracle.error,
        "version": oracle.version,
        "clock_ahead_seconds": oracle.clock_ahead_s,
        "members": members(&oracle.members),
    })
}

fn oracle_reply(reply: &StatusReply) -> Value {
    json!({
        "mesh": reply.mesh,
        "version": reply.version,
        "expires_unix_seconds": unix(reply.expiry),
        "time_unix_seconds": unix(reply.time),
        "members": members(&reply.members),
    })
}

fn members(all: &[MemberStatus]) -> Vec<Value> {
    let seconds = |seen: Option<Duration>| seen.map(|seen| seen.as_secs_f64());
    let one = |m: &MemberStatus| json!({ "name": m.name, "seen_seconds": seconds(m.seen), "version": m.version });
    all.iter().map(one).collect()
}

/// Whole seconds since 1970.
fn unix(date: WallTime) -> u64 {
    date.as_unix_nanos() / 1_000_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_durations_and_dates_name_their_unit() {
        let status = RosterStatus {
            version: 7,
            expiry: WallTime::from_unix_nanos(1_700_000_000_900_000_000),
            left: Some(Duration::from_millis(1500)),
            members: 2,
            fault: None,
            key_number: 0,
            fork: None,
        };
        let report = roster(&status);
        assert_eq!(report["expires_unix_seconds"], 1_700_000_000_u64);
        assert_eq!(report["left_seconds"], 1.5);
        let seen = |seen| {
            let member = MemberStatus { name: "a".parse().unwrap(), seen, version: None };
            members(&[member])[0]["seen_seconds"].clone()
        };
        assert_eq!(seen(Some(Duration::ZERO)), 0.0);
        assert_eq!(seen(None), Value::Null);
    }
}
