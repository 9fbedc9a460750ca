//! The known rates and prices of legs: from a file, from the oracle, or the oracle's stored ones.

use crate::commands::{history_file, host::StateDir, renewal};
use anyhow::{Context as _, bail};
use std::{
    fs::File,
    io::{self, Read as _},
    path::Path,
    time::Duration,
};
use thalweg_gather::PriceList;
use thalweg_mesh::State;
use thalweg_net::DialOptions;
use thalweg_paths::{
    detours::{KnownPaths, ask_paths},
    estimates::Estimates,
};

/// The timeout for the oracle's answer.
const ORACLE_TIMEOUT: Duration = Duration::from_secs(3);

/// A stored roster that is older than this is renewed.
const MAX_ROSTER_AGE: Duration = Duration::from_secs(600);

/// The most bytes read of a file of legs: enough for a million of them.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// Reads a whole file, which may be a pipe.
fn text_of(option: &str, file: &Path) -> anyhow::Result<String> {
    let read = || {
        let mut text = String::new();
        File::open(file)?.take(MAX_FILE_BYTES + 1).read_to_string(&mut text)?;
        Ok::<_, io::Error>(text)
    };
    let text = read().with_context(|| format!("cannot read {option} {}", file.display()))?;
    if text.len() as u64 > MAX_FILE_BYTES {
        bail!("{option} {}: the file is larger than the limit of 64 MiB", file.display());
    }
    Ok(text)
}

/// Reads the rates in this file; none without a file.
///
/// # Errors
/// The mistake in the file, or why it cannot be read.
pub fn from_file(file: Option<&Path>) -> anyhow::Result<Estimates> {
    let Some(file) = file else { return Ok(Estimates::default()) };
    let text = text_of("--rates", file)?;
    Estimates::parse(&text).with_context(|| format!("--rates {}", file.display()))
}

/// Reads the prices in this file.
///
/// # Errors
/// The mistake in the file, or why it cannot be read.
pub fn prices(file: Option<&Path>) -> anyhow::Result<Option<PriceList>> {
    let Some(file) = file else { return Ok(None) };
    let text = text_of("--prices", file)?;
    let list = PriceList::parse(&text);
    Ok(Some(list.with_context(|| format!("--prices {}", file.display()))?))
}

/// Asks for a newer roster, if the stored one is old or lacks one of the `names`, and, if `rates`, for the oracle's
/// rates. If the oracle does not answer, the stored rates are used. No known rates are no error.
pub async fn ask(
    state: &State,
    state_dir: &StateDir,
    names: &[&str],
    rates: bool,
    note: &impl Fn(String),
) -> Estimates {
    let renew = async {
        if needs_roster(state, names) {
            // An oracle that is away must not stop the transfer; if it refused, the first source fails with that
            // reason.
            _ = renewal::renew_without_daemon(state, DialOptions::default(), ORACLE_TIMEOUT).await;
        }
    };
    let asked = async {
        match rates {
            true => Some(ask_paths(state, ORACLE_TIMEOUT).await),
            false => None,
        }
    };
    let ((), asked) = tokio::join!(renew, asked);
    let (now, file) = (history_file::now(), history_file::file(None, state_dir));
    let file = file.map(|file| KnownPaths::beside(&file));
    match asked {
        None => Estimates::default(),
        Some(Ok(reply)) => {
            let known = KnownPaths::new(reply, now);
            // The stored rates are only a hint for the next transfer.
            _ = file.map(|file| known.keep(&file));
            Estimates::of_paths(&known, now)
        }
        Some(Err(why)) => {
            let kept = file.map(|file| KnownPaths::load(&file).0);
            let kept = kept.flatten().map(|known| Estimates::of_paths(&known, now));
            let kept = kept.unwrap_or_default();
            let what =
                if kept.is_empty() { "no rates are known" } else { "the stored rates are used" };
            note(format!("{what}: {why}"));
            kept
        }
    }
}

fn needs_roster(state: &State, names: &[&str]) -> bool {
    let Ok(membership) = state.membership() else { return false };
    let Some(roster) = membership.current() else { return true };
    let unknown = |name: &&str| name.parse().is_ok_and(|name| roster.by_name(&name).is_none());
    let is_old = renewal::age(state).is_none_or(|age| age > MAX_ROSTER_AGE);
    membership.time_left().is_none() || is_old || names.iter().any(unknown)
}
