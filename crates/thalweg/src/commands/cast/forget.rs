//! `thalweg cast forget`: abandons a cast; receivers delete what they received.

use super::args::ForgetArgs;
use super::exit::Code;
use crate::commands::{
    gather,
    text::{counted, listed, plain, say},
};
use std::process::ExitCode;
use thalweg_cast::source::{ForgetError, ForgetReport, forget};

/// Runs the command.
///
/// # Errors
/// If this host is in no mesh. Other failures are printed here.
pub fn run(args: &ForgetArgs) -> anyhow::Result<ExitCode> {
    let state = args.state_dir.open()?;
    let runtime = gather::runtime()?;
    let (dialer, key) = (gather::dialer(&state)?, state.client_key()?);
    let directory = super::record_dir(&state);
    let ended = runtime.block_on(forget(&directory, &args.cast, &dialer, &key));
    runtime.shutdown_background();
    let code = match ended {
        Err(why) => {
            thalweg_console::note!("thalweg: {why}");
            code_of(&why)
        }
        Ok(forgotten) => {
            match args.json {
                true => say(&(serde_json::to_string_pretty(&forgotten)? + "\n"))?,
                false => say(&text(&forgotten))?,
            }
            let mut notices = forgotten.notices.iter();
            let is_all = notices.all(|notice| notice.why.is_none() || notice.is_gone);
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

fn text(forgotten: &ForgetReport) -> String {
    let notices = forgotten.notices.iter();
    let (sent, failed): (Vec<_>, Vec<_>) = notices.partition(|notice| notice.why.is_none());
    let name = plain(&forgotten.name);
    let mut text = format!("{name}: abandoned");
    if !sent.is_empty() {
        text += &format!(
            "; {} delete what they received: {}",
            counted(sent.len() as u64, "receiver"),
            listed(sent.iter().map(|notice| &notice.receiver))
        );
    }
    text.push('\n');
    if !forgotten.complete.is_empty() {
        text += &format!("already complete, and kept: {}\n", listed(&forgotten.complete));
    }
    for notice in failed {
        let why = notice.why.as_deref().map(plain).unwrap_or_default();
        let next = match notice.is_gone {
            true => "anything received there is deleted a week after the offer ends",
            false => "the same command tries again",
        };
        text += &format!("{}: not informed: {why}; {next}\n", notice.receiver);
    }
    text
}
