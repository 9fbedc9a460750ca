//! `thalweg cast status`: what is cast to this host's node.

use super::args::StatusArgs;
use crate::commands::{
    gather::words::{rate, size},
    here,
    text::{aligned, say},
};
use anyhow::bail;
use serde_json::Value;
use std::process::ExitCode;

/// Runs the command.
///
/// # Errors
/// When no daemon answers.
pub fn run(args: &StatusArgs) -> anyhow::Result<ExitCode> {
    let state = args.place.open()?;
    let casts = here::block_on(async {
        match here::daemon(&state).await? {
            Some(daemon) => Ok(daemon.node_status().await?.casts),
            None => bail!("no node runs here; start it with `thalweg node`"),
        }
    })?;
    match args.json {
        true => say(&(serde_json::to_string_pretty(&casts)? + "\n"))?,
        false => say(&text(&casts))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn text(casts: &Value) -> String {
    let rows: Vec<_> = casts["casts"].as_array().into_iter().flatten().map(row).collect();
    if rows.is_empty() {
        return match casts["inboxes"].as_u64() {
            Some(0) | None => "nothing; this node takes no casts: `[cast] inbox`\n".to_owned(),
            Some(_) => "nothing\n".to_owned(),
        };
    }
    aligned(["NAME", "FROM", "STATE", "HELD", "OF", "RATE", "PARENTS", "GIVEN"], &rows)
}

fn row(cast: &Value) -> [String; 8] {
    let text = |key: &str| cast[key].as_str().unwrap_or("-").to_owned();
    let number = |key: &str| cast[key].as_u64().unwrap_or(0);
    let now = cast["parents"].as_array().into_iter().flatten().filter(|p| p["is_now"] == true);
    let parents: Vec<&str> = now.filter_map(|p| p["name"].as_str()).collect();
    let state = match cast["why"].as_str() {
        Some(why) => format!("failed: {why}"),
        None => text("state"),
    };
    [
        text("name"),
        text("from"),
        state,
        size(number("held_bytes")),
        size(number("total_bytes")),
        rate(number("rate_bps")),
        if parents.is_empty() { "-".to_owned() } else { parents.join("+") },
        size(number("served_bytes")),
    ]
}
