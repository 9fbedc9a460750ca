//! `thalweg cast status`: shows casts from this host and casts to its node.

mod incoming;
mod selection;
mod table;
mod tree;

use super::args::StatusArgs;
use crate::commands::{host, text::say};
use anyhow::bail;
use selection::CastSelection;
use serde_json::{Value, json};
use std::process::ExitCode;
use table::NOTHING;
use thalweg_cast::source::list;

/// Runs the command.
///
/// # Errors
/// If no daemon answers and nothing was cast from here, or if no cast has the given name or number.
pub fn run(args: &StatusArgs) -> anyhow::Result<ExitCode> {
    let state = args.state_dir.open()?;
    let mut sources = list(&super::record_dir(&state));
    sources.reverse();
    let casts = host::block_on(async {
        match host::daemon(&state).await? {
            Some(daemon) => Ok(Some(daemon.node_status().await?.casts)),
            None => Ok(None),
        }
    })?;
    if casts.is_none() && sources.is_empty() {
        bail!("no casts from this host, and no node runs here; start it with `thalweg node`");
    }
    let is_short = !sources.is_empty();
    let casts = casts.unwrap_or_else(|| json!({ "inboxes": null, "casts": [] }));
    let mut chosen = CastSelection::new(sources, casts);
    if let Some(what) = &args.cast {
        chosen.keep_only(what)?;
    }
    if args.json {
        say(&(serde_json::to_string_pretty(&chosen.json()?)? + "\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let left_out = if args.all || args.cast.is_some() { 0 } else { chosen.drop_older() };
    let trees: String = chosen.sources.iter().map(|one| tree::text(one, args.verbose)).collect();
    let more = match left_out {
        0 => String::new(),
        more => format!("{more} more that ended: thalweg cast status --all\n"),
    };
    say(&(trees + &incoming::text(&chosen.casts, is_short) + &more))?;
    Ok(ExitCode::SUCCESS)
}

/// A number in a JSON object; 0 if it is missing.
fn number(of: &Value, key: &str) -> u64 {
    of[key].as_u64().unwrap_or(0)
}

/// A count as text; 0 is shown as nothing.
fn some(count: u64) -> String {
    if count == 0 { NOTHING.to_owned() } else { count.to_string() }
}

/// A time in seconds as text.
fn left(of: &Value) -> String {
    of.as_f64().map_or_else(|| NOTHING.to_owned(), crate::commands::gather::messages::time)
}

/// A size as text; 0 is shown as nothing.
fn bytes(bytes: u64) -> String {
    match bytes {
        0 => NOTHING.to_owned(),
        bytes => crate::commands::gather::messages::size(bytes),
    }
}

/// A rate as text, if it is known.
fn known_rate(of: &Value) -> String {
    of.as_u64().map_or_else(|| NOTHING.to_owned(), crate::commands::gather::messages::rate)
}

/// The present rate: of what was stored, or else `parents`, the rate at which the parents say they send: a block may
/// not be decoded yet.
fn now(of: &Value, parents: u64) -> String {
    let bps = Some(number(of, "rate_bps")).filter(|bps| *bps > 0).unwrap_or(parents);
    if bps == 0 { NOTHING.to_owned() } else { crate::commands::gather::messages::rate(bps) }
}
