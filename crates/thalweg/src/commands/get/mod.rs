//! `thalweg get`: arguments, exit codes, and the last line.

mod args;
mod display;
mod mesh;
mod renewal;

pub use args::Args;

use super::signals::{INTERRUPTED, Signals};
use display::Display;
use std::process::ExitCode;
use thalweg_node::{
    get::{GetError, GetFailed, Outcome, Request, Stop, get},
    part::PartError,
};
use tokio::{runtime::Runtime, sync::watch};

/// Runs the command.
///
/// # Errors
/// When the system gives no threads; failures of the download itself are
/// printed here and end with the exit code that the help names.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let renewal = args.renew();
    let request = match args.request() {
        Ok(request) => request,
        Err(error) => {
            eprintln!("thalweg get: {error}");
            return Ok(ExitCode::from(2));
        }
    };
    let display = Display::start(args.style())?;
    let result = Runtime::new()?.block_on(download(request, &display));
    display.finish();
    renewal.finish();
    Ok(match result? {
        Ok(outcome) => {
            if args.wants_last_line() {
                eprintln!("{}", last_line(&outcome));
            }
            ExitCode::SUCCESS
        }
        Err(failed) => complain(&failed),
    })
}

async fn download(
    request: Request,
    display: &Display,
) -> anyhow::Result<Result<Outcome, GetFailed>> {
    let (wish, stop) = Stop::new();
    let signals = tokio::spawn(listen(Signals::watch()?, wish));
    let result = get(request, display, stop).await;
    signals.abort();
    Ok(result)
}

/// The first Ctrl-C or SIGTERM ends the download in order, the second one at once.
async fn listen(mut signals: Signals, wish: watch::Sender<bool>) {
    loop {
        signals.next().await;
        if wish.send_replace(true) {
            std::process::exit(INTERRUPTED.into());
        }
    }
}

/// Bytes, time, rate, and how many times the direct path's sampled rate that is.
fn last_line(outcome: &Outcome) -> String {
    let Outcome { target, length, fetched, took, direct_estimate, .. } = outcome;
    let seconds = took.as_secs_f64();
    let mut line = format!("{}: {length} in {seconds:.2} s, {}", target.display(), outcome.rate());
    if fetched < length {
        line += &format!(", of which {fetched} now and the rest earlier");
    }
    if let (Some(direct), Some(ratio)) = (direct_estimate, outcome.ratio_to_sampled_direct()) {
        line += &format!("; {ratio:.2}× the direct path's sampled rate ({direct})");
    }
    line
}

fn complain(failed: &GetFailed) -> ExitCode {
    eprintln!("thalweg get: {failed}");
    if failed.kept.as_bytes() > 0 {
        eprintln!("hint: {} are kept; the same command goes on from there", failed.kept);
    }
    if let GetError::Part(PartError::Busy(_)) = failed.error {
        eprintln!("hint: another file can be named with -o");
    }
    match failed.error {
        GetError::Interrupted => ExitCode::from(INTERRUPTED),
        _ => ExitCode::FAILURE,
    }
}
