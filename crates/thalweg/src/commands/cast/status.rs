//! `thalweg cast status`: what this host casts, and what is cast to its node.

mod here;
mod tree;

use super::args::StatusArgs;
use crate::commands::{here as host, text::say};
use anyhow::bail;
use serde_json::{Value, json};
use std::process::ExitCode;
use thalweg_node::cast::source::list;

/// Runs the command.
///
/// # Errors
/// When no daemon answers, and nothing was cast from here.
pub fn run(args: &StatusArgs) -> anyhow::Result<ExitCode> {
    let state = args.place.open()?;
    let sources = list(&super::kept_in(&state));
    let casts = host::block_on(async {
        match host::daemon(&state).await? {
            Some(daemon) => Ok(Some(daemon.node_status().await?.casts)),
            None => Ok(None),
        }
    })?;
    if casts.is_none() && sources.is_empty() {
        bail!("nothing was cast from here, and no node runs here; start it with `thalweg node`");
    }
    let text = match args.json {
        true => {
            let mut all = casts.unwrap_or_else(|| json!({ "inboxes": null, "casts": [] }));
            all["sources"] = serde_json::to_value(&sources)?;
            serde_json::to_string_pretty(&all)? + "\n"
        }
        false => {
            let trees: String = sources.iter().map(tree::text).collect();
            let here = casts.as_ref().map(|casts| here::text(casts, !sources.is_empty()));
            trees + &here.unwrap_or_default()
        }
    };
    say(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// A number of a JSON object; 0 if it is not there.
fn number(of: &Value, key: &str) -> u64 {
    of[key].as_u64().unwrap_or(0)
}

/// A time in seconds, as it is shown.
fn left(of: &Value) -> String {
    of.as_f64().map_or_else(|| "-".to_owned(), crate::commands::gather::words::time)
}

/// The most bytes that a ring held, if there was something in it.
fn ring(of: &Value) -> String {
    match number(of, "ring_peak_bytes") {
        0 => "-".to_owned(),
        bytes => crate::commands::gather::words::size(bytes),
    }
}

/// A rate, if there is one.
fn known_rate(of: &Value) -> String {
    of.as_u64().map_or_else(|| "-".to_owned(), crate::commands::gather::words::rate)
}
