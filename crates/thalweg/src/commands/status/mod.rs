//! `thalweg status`: shows the state of this host and its mesh.

mod json;

use super::{
    host::{self, StateDir},
    renewal,
    text::{aligned, counted, listed, rough, say},
};
use anyhow::Context as _;
use serde_json::Value;
use std::{fmt::Write as _, process::ExitCode, time::Duration};
use thalweg_console::note;
use thalweg_mesh::State;
use thalweg_net::DialOptions;
use thalweg_node::daemon::{NodeStatus, OracleStatus, RosterStatus, roster_status};
use thalweg_units::Rate;
use thalweg_wire::mesh::{MemberStatus, StatusReply};

const HELP: &str = "\
Asks the daemon. If none runs, shows what is on disk and asks the oracle with the key of this
host's command line.

  thalweg status --json | jq .roster.version

In JSON, times are in seconds: `…_seconds` are durations, `…_unix_seconds` dates.

Exit codes: 0 all is well; 1 the roster is not valid or another host signs rosters, no oracle was
reached (the cached roster is used until it expires), or the daemon needs a restart.";

/// Arguments of `thalweg status`.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    state_dir: StateDir,
}

/// Runs the command.
///
/// # Errors
/// If it fails; the message says what to try.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let state = args.state_dir.open()?;
    warn_of_root_key(&state);
    let well = host::block_on(async {
        match host::daemon(&state).await? {
            Some(daemon) => show_daemon(&daemon.node_status().await?, args.json),
            None => show_offline(&state, args.json).await,
        }
    })?;
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The root key is of use only if a thief of `mesh.key` cannot get it too.
fn warn_of_root_key(state: &State) {
    let root = state.root_key_file();
    if root.exists() {
        note!("thalweg: move {} to a safe place off this host", root.display());
    }
}

fn show_daemon(status: &NodeStatus, as_json: bool) -> anyhow::Result<bool> {
    match as_json {
        true => say(&(serde_json::to_string_pretty(&json::daemon(status))? + "\n"))?,
        false => say(&text(status))?,
    }
    let holds = status.roster.as_ref().is_some_and(|r| r.fault.is_none() && r.fork.is_none());
    Ok(holds && status.oracle.reached && status.restart.is_none())
}

/// Shows the status without a daemon.
async fn show_offline(state: &State, as_json: bool) -> anyhow::Result<bool> {
    let (mesh, membership) = (state.mesh()?, state.membership()?);
    let (renewed, oracle) = tokio::join!(
        renewal::renew(state, &membership, DialOptions::default(), renewal::PATIENCE),
        query_oracle(state)
    );
    let mut roster = roster_status(&membership);
    if let Err(failed) = renewed {
        note!("thalweg: showing the stored roster: {failed:#}");
        if let (true, Some(roster)) = (renewal::is_refusal(&failed), roster.as_mut()) {
            // The roster may still be valid for its members.
            (roster.left, roster.fault) = (None, Some("no longer valid for this host".to_owned()));
        }
    }
    let holds = roster.as_ref().is_some_and(|r| r.fault.is_none());
    let well = holds && oracle.is_ok();
    if as_json {
        let all = json::offline(&mesh, roster.as_ref(), &oracle);
        say(&(serde_json::to_string_pretty(&all).context("cannot print")? + "\n"))?;
        return Ok(well);
    }
    let oracle = match oracle {
        Ok(reply) => format!("reached\n\n{}", members(&reply.members)),
        Err(e) => format!("not reached: {e:#}\n"),
    };
    say(&format!(
        "node     {}, no daemon runs (start it with `thalweg node`)\n\
         mesh     {:?}\n\
         roster   {}\n\
         oracle   {oracle}",
        mesh.name,
        mesh.mesh,
        roster_line(roster.as_ref()),
    ))?;
    Ok(well)
}

/// The oracle's status, wherever the oracle is.
async fn query_oracle(state: &State) -> anyhow::Result<StatusReply> {
    host::control(state).await?.status().await.map_err(host::api_error)
}

fn text(status: &NodeStatus) -> String {
    let NodeStatus { name, key, mesh, program, up, listen, roster, oracle, .. } = status;
    let NodeStatus { counts, relay, files, drop_boxes, calibration, reach, restart, .. } = status;
    let mut text = format!(
        "node     {name}, key {key:?}, thalweg {program}, up {}\n\
         mesh     {mesh:?}\n\
         listens  {}\n\
         roster   {}\n\
         oracle   {}\n\
         traffic  {} open; {} accepted, {}; {} local\n",
        rough(*up),
        listed(listen),
        roster_line(roster.as_ref()),
        oracle_line(oracle),
        counted(counts.channels, "channel"),
        counted(counts.accepted, "connection"),
        strangers(counts.strangers),
        counts.local,
    );
    for (what, report) in [("relay", relay), ("files", files), ("drop-box", drop_boxes)] {
        let Some(fields) = report.as_object() else { continue };
        let pairs = fields.iter().filter(|(_, v)| v.is_number() || v.is_string());
        let pairs: Vec<_> = pairs.map(|(k, v)| format!("{} {v}", k.replace('_', " "))).collect();
        // Writing to a string cannot fail.
        _ = writeln!(text, "{what:<8} {}", pairs.join(", "));
    }
    if let Some(reach) = reach_line(reach) {
        _ = writeln!(text, "reached  {reach}");
    }
    if let Some(probes) = probes(calibration) {
        _ = writeln!(text, "probes   {probes}");
    }
    if let Some(why) = restart {
        _ = writeln!(text, "restart  {}", thalweg_console::field(why));
    }
    if !oracle.members.is_empty() {
        text += "\n";
        text += &members(&oracle.members);
        let ours = oracle.version.or(roster.as_ref().map(|r| r.version));
        text += &behind(&oracle.members, ours).unwrap_or_default();
    }
    text
}

/// How others reach this node; `None` if that is not known.
fn reach_line(reach: &Value) -> Option<String> {
    let relay = |relay: &Value| {
        let ms = relay["round_trip_seconds"].as_f64()? * 1e3;
        Some(format!("{} ({ms:.1} ms)", relay["name"].as_str()?))
    };
    let relays: Vec<_> = reach["relays"].as_array()?.iter().filter_map(relay).collect();
    let mut line = match (reach["way"].as_str()?, &relays[..]) {
        ("direct", _) => "directly".to_owned(),
        (_, []) => "not at all: no standing channel to a relay".to_owned(),
        (_, relays) => format!("through {}", relays.join(", ")),
    };
    if let Some(trouble) = reach["trouble"].as_str() {
        line = format!("{line}; {}", thalweg_console::field(trouble));
    }
    if let Some(standing) = reach["standing"].as_u64().filter(|standing| *standing > 0) {
        line = format!("{line}; leads to {}", counted(standing, "member"));
    }
    Some(line)
}

/// How accurately this host times probe trains; `None` if it is not calibrated.
fn probes(calibration: &Value) -> Option<String> {
    let us = |ns: &Value| Some(ns.as_u64()? / 1000);
    let [off, gap] = [&calibration["gap_error_ns"][1], &calibration["shortest_gap_ns"]].map(us);
    let (off, gap) = (off?, gap?);
    Some(match calibration["is_valid"].as_bool()? {
        true => {
            let bps = calibration["honest_bps"].as_u64()?;
            format!(
                "keeps gaps of {gap} us and more, 99 % of them within {off} us; up to {}",
                Rate::from_bps(bps)
            )
        }
        false => format!("too busy to time probes: 1 % of gaps are off by {off} us or more"),
    })
}

fn strangers(n: u64) -> String {
    if n == 1 {
        "1 of them without a channel".to_owned()
    } else {
        format!("{n} of them without a channel")
    }
}

fn roster_line(roster: Option<&RosterStatus>) -> String {
    match roster {
        None => "none yet".to_owned(),
        Some(RosterStatus { version, members, left, fault, key_number, fork, .. }) => {
            let holds = left.map(|left| format!("valid for {}", rough(left)));
            let holds = holds.or(fault.clone()).unwrap_or_default();
            let fork = fork.as_ref().map(|fork| format!("\n         {fork}"));
            let members = counted(*members as u64, "member");
            let key = (*key_number > 0).then(|| format!(" of key {key_number}"));
            let (key, fork) = (key.unwrap_or_default(), fork.unwrap_or_default());
            format!("version {version}{key}, {members}; {holds}{fork}")
        }
    }
}

fn oracle_line(oracle: &OracleStatus) -> String {
    let why = thalweg_console::field(oracle.error.as_deref().unwrap_or("the reason is unknown"));
    match (oracle.inside, oracle.reached) {
        (true, true) => return "this node".to_owned(),
        (true, false) => return format!("this node; {why}"),
        (false, false) => return format!("not reached: {why}"),
        (false, true) => {}
    }
    let version = oracle.version.map(|v| format!(", roster version {v}")).unwrap_or_default();
    format!("reached{version}{}", oracle.clock_ahead_s.map(clock).unwrap_or_default())
}

/// The difference of the clocks, from 2 s on: the question itself takes time.
fn clock(ahead_s: f64) -> String {
    let off = Duration::try_from_secs_f64(ahead_s.abs()).unwrap_or_default();
    match (off.as_secs(), ahead_s > 0.0) {
        (0..2, _) => String::new(),
        (_, true) => format!("; this host's clock is {} behind the oracle's", rough(off)),
        (_, false) => format!("; this host's clock is {} ahead of the oracle's", rough(off)),
    }
}

/// An alert if a member has a newer roster than the oracle.
fn behind(members: &[MemberStatus], ours: Option<u64>) -> Option<String> {
    let ahead = members.iter().max_by_key(|m| m.version).filter(|m| m.version > ours)?;
    let (name, has) = (&ahead.name, ahead.version?);
    Some(format!(
        "\nALERT: {name} has roster version {has}, the oracle {}. If the oracle's state was restored \
         from a backup, members revoked since may be members again: copy {name}'s `roster` file to \
         oracle/roster on the oracle's host and restart its node. If not, somebody signs with a copy \
         of mesh.key: do not copy the file, but run `thalweg mesh rekey` there.\n",
        ours?
    ))
}

/// When the oracle last heard of each member.
fn members(members: &[MemberStatus]) -> String {
    let ago = |m: &MemberStatus| m.seen.map(|seen| format!("{} ago", rough(seen)));
    let version = |m: &MemberStatus| m.version.map(|v| v.to_string());
    let dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let row = |m: &MemberStatus| [m.name.to_string(), dash(ago(m)), dash(version(m))];
    let rows: Vec<_> = members.iter().map(row).collect();
    aligned(["NAME", "SEEN", "ROSTER VERSION"], &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_mentioned_only_if_it_is_wrong() {
        assert_eq!(clock(0.3), "");
        assert_eq!(clock(7200.5), "; this host's clock is 2 h behind the oracle's");
        assert_eq!(clock(-90.0), "; this host's clock is 1 min 30 s ahead of the oracle's");
    }

    #[test]
    fn the_accuracy_of_probes_is_shown_once_it_is_known() {
        let of = |is_valid| {
            serde_json::json!({
                "is_valid": is_valid, "gap_error_ns": [2000, 250_000], "shortest_gap_ns": 100_000,
                "honest_bps": 120_000_000,
            })
        };
        assert_eq!(probes(&Value::Null), None);
        assert_eq!(
            probes(&of(true)).unwrap(),
            "keeps gaps of 100 us and more, 99 % of them within 250 us; up to 120 Mbit/s"
        );
        assert!(probes(&of(false)).unwrap().contains("1 % of gaps are off by 250 us or more"));
    }
}
