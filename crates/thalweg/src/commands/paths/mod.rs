//! `thalweg paths`: shows rates of paths, the candidates for relays, and the reasons.

mod advice;
mod candidates;
mod destination;
mod knowledge;
mod matrix;
mod measurement_limits;
mod node;
mod rates;
#[cfg(test)]
mod tests;

use super::{
    get::{Drawing, mesh::check_tags},
    host::{self, StateDir},
    text::say,
};
use anyhow::bail;
use destination::DestinationUrl;
use knowledge::PathKnowledge;
use serde_json::{Value, json};
use std::{path::PathBuf, process::ExitCode, time::Duration};
use thalweg_mesh::State;
use thalweg_node::daemon::PathDocument;
use thalweg_wire::mesh::Tag;

const HELP: &str = "\
Shows what the oracle knows of the paths between members and which relays this host would try. If
the oracle does not answer within three seconds, its last answer is shown with its age.

  thalweg paths                              # a summary of all rates, and the candidate relays
  thalweg paths --full                       # the rates between all members
  thalweg paths --to nyc                     # all paths to nyc, with their detours
  thalweg paths https://example.org/big.iso  # which relays a download would try now, and why
  thalweg paths example.org --avoid country=xx
  thalweg paths --advise                     # which further relay would help most
  thalweg paths --json | jq .candidates

Rates are in Mbit/s, from the row's node to the column's; `≥` marks a lower bound, `-` means not
measured. A score is the mean gain of a detour over the direct path: +50 % means 1.5 times as fast.

Exit codes: 0 done; 1 this host is in no mesh, nothing is known, or there is no such node.";

/// Arguments of `thalweg paths`.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// A URL, HOST or HOST:PORT: show which relays a download from it would try now, and why
    #[arg(value_name = "DEST", conflicts_with_all = ["to", "advise"])]
    destination: Option<String>,
    /// Show all paths to this node
    #[arg(long, value_name = "NODE", conflicts_with = "advise")]
    to: Option<String>,
    /// Show which further relay would help most
    #[arg(long)]
    advise: bool,
    /// Do not shorten tables
    #[arg(long)]
    full: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// With DEST: exclude relays with this tag, as `thalweg get --avoid` does
    #[arg(long, value_name = "TAG", value_delimiter = ',', requires = "destination")]
    avoid: Vec<Tag>,
    /// With DEST: how relays are chosen from the list, `proportional` or `top`
    #[arg(long, value_name = "HOW", value_enum, default_value_t = Drawing::Proportional)]
    #[arg(requires = "destination", hide_possible_values = true)]
    draw: Drawing,
    /// The history file, as for `thalweg get --history`
    /// [default: history.json in the state directory, else in ~/.cache/thalweg]
    #[arg(long, value_name = "FILE|none")]
    history: Option<PathBuf>,
    #[command(flatten)]
    state_dir: StateDir,
}

/// Runs the command.
///
/// # Errors
/// If it fails; the message says what to try.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let state = args.state_dir.open()?;
    let wanted = args.destination.as_deref().map(DestinationUrl::parse).transpose()?;
    let mut found =
        host::block_on(PathKnowledge::ask(&state, args.history.as_deref(), &args.state_dir))?;
    found.notes.iter().for_each(|note| thalweg_console::note!("thalweg: {note}"));
    let (text, value) = match (&wanted, &args.to) {
        (Some(wanted), _) => args.destination(&mut found, wanted)?,
        (None, Some(name)) => node::render(&found, name)?,
        (None, None) if args.advise => advice::render(&found, args.full)?,
        (None, None) => overview(&found, args.full)?,
    };
    match args.json {
        true => say(&(serde_json::to_string_pretty(&with_oracle(value, &found))? + "\n"))?,
        false => say(&text)?,
    }
    Ok(ExitCode::SUCCESS)
}

impl Args {
    fn destination(
        &self,
        found: &mut PathKnowledge,
        to: &DestinationUrl,
    ) -> anyhow::Result<(String, Value)> {
        match &found.roster {
            Some(roster) => check_tags(roster, &self.avoid, &self.state_dir.argument())?,
            None if self.avoid.is_empty() => {}
            None => bail!("--avoid needs the list of relays: this host has no roster yet"),
        }
        let terms = destination::GetOptions { avoid: &self.avoid, draw: self.draw.into() };
        Ok(destination::render(found, to, &terms))
    }
}

/// The most nodes for which the daemon's API gives advice: its cost grows with the cube of their number.
const MAX_ADVISED: usize = 300;

/// How long the daemon's API keeps the document of paths.
const MIN_VALIDITY: Duration = Duration::from_secs(10);
const MAX_VALIDITY: Duration = Duration::from_secs(120);

/// The validity of a document grows with its legs, so that an open page costs no transfer its rate: making it moves about
/// 100 bytes for each leg from the oracle, and stores them.
const VALIDITY_PER_LEG: Duration = Duration::from_micros(1200);

/// The document that `--full --json` prints, with the advice, for the daemon's API. Blocks.
///
/// # Errors
/// If nothing is known, or it cannot be read.
pub fn document(state: &State, state_dir: &StateDir) -> anyhow::Result<PathDocument> {
    let found = host::block_on(PathKnowledge::ask(state, None, state_dir))?;
    check_known(&found)?;
    let (_, candidates) = candidates::render(&found, false);
    let advice = (found.names().len() <= MAX_ADVISED).then(|| advice::render(&found, false));
    // Without a measured pair there is no advice.
    let advice = advice.and_then(Result::ok).map(|(_, value)| value);
    let rest = with_oracle(json!({ "candidates": candidates, "advice": advice }), &found);
    let age = found.paths.as_ref().map(|known| known.age(found.now)).unwrap_or_default();
    let paths = found.paths.map(|known| known.reply);
    let legs = paths.as_ref().map_or(0, |reply| reply.legs.len());
    // There are less than 2³² legs: the oracle's answer is bounded.
    let valid_for = VALIDITY_PER_LEG.saturating_mul(legs as u32).clamp(MIN_VALIDITY, MAX_VALIDITY);
    Ok(PathDocument { paths, rest, age, valid_for })
}

fn check_known(found: &PathKnowledge) -> anyhow::Result<()> {
    if found.paths.is_none() && found.detours.relay_list().is_none() {
        bail!("nothing is known of paths yet: {}", found.missing_reason());
    }
    Ok(())
}

fn overview(found: &PathKnowledge, full: bool) -> anyhow::Result<(String, Value)> {
    check_known(found)?;
    let (matrix, matrix_json) = matrix::render(found, full);
    let (candidates, candidates_json) = candidates::render(found, full);
    let text = format!("{matrix}\n{candidates}");
    Ok((text, json!({ "paths": matrix_json, "candidates": candidates_json })))
}

/// Adds whether the oracle answered, and the ages of its answers.
fn with_oracle(mut value: Value, found: &PathKnowledge) -> Value {
    let age = |age: Option<Duration>| age.map(|age| age.as_secs());
    if let Some(fields) = value.as_object_mut() {
        let oracle = json!({
            "answered": found.trouble.is_none(),
            "trouble": found.trouble,
            "paths_age_seconds": age(found.paths.as_ref().map(|p| p.age(found.now))),
            "candidates_age_seconds": age(found.detours.relay_list().map(|l| l.age(found.now))),
        });
        fields.insert("oracle".to_owned(), oracle);
    }
    value
}
