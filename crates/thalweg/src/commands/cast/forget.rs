//! `thalweg cast forget`: a cast is given up, and receivers throw away what came.

use super::args::ForgetArgs;
use super::exit::Code;
use crate::commands::{
    gather,
    text::{counted, listed, plain, say},
};
use std::process::ExitCode;
use thalweg_cast::source::{ForgetError, Forgotten, forget};

/// Runs the command.
///
/// # Errors
/// When this host is in no mesh; other failures are printed here.
pub fn run(args: &ForgetArgs) -> anyhow::Result<ExitCode> {
    let state = args.place.open()?;
    let runtime = gather::runtime()?;
    let (reach, key) = (gather::reach(&state)?, state.client_key()?);
    let directory = super::kept_in(&state);
    let ended = runtime.block_on(forget(&directory, &args.cast, &reach, &key));
    runtime.shutdown_background();
    let code = match ended {
        Err(why) => {
            thalweg_console::note!("thalweg cast: {why}");
            code_of(&why)
        }
        Ok(forgotten) => {
            match args.json {
                true => say(&(serde_json::to_string_pretty(&forgotten)? + "\n"))?,
                false => say(&text(&forgotten))?,
            }
            let is_all = forgotten.told.iter().all(|told| told.why.is_none() || told.is_gone);
            if is_all { Code::Done } else { Code::Partial }
        }
    };
    Ok(code.into())
}

fn code_of(why: &ForgetError) -> Code {
    match why {
        ForgetError::Unknown(_) | ForgetError::Ambiguous(..) => Code::Usage,
        ForgetError::Running => Code::Busy,
        ForgetError::Job(_) | ForgetError::Damaged => Code::Disk,
    }
}

fn text(forgotten: &Forgotten) -> String {
    let (told, away): (Vec<_>, Vec<_>) = forgotten.told.iter().partition(|t| t.why.is_none());
    let name = plain(&forgotten.name);
    let mut text = format!(
        "{name}: given up; {} throw away what came: {}\n",
        counted(told.len() as u64, "receiver"),
        listed(told.iter().map(|told| &told.receiver))
    );
    if !forgotten.complete.is_empty() {
        text += &format!("complete already, and kept: {}\n", listed(&forgotten.complete));
    }
    for told in away {
        let why = told.why.as_deref().map(plain).unwrap_or_default();
        let next = match told.is_gone {
            true => "what came there, if anything, goes a week after the offer is over",
            false => "the same command tries again",
        };
        text += &format!("{}: not told: {why}; {next}\n", told.receiver);
    }
    text
}
