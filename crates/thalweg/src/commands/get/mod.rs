//! `thalweg get`: arguments, exit codes, and the last line.

mod args;
mod display;

pub use args::Args;

use super::signals::INTERRUPTED;
use display::Display;
use std::{io, process::ExitCode};
use thalweg_node::get::{GetError, GetFailed, Outcome, Request, Stop, get};
use tokio::{
    runtime::Runtime,
    signal::unix::{SignalKind, signal},
    sync::watch,
};

/// Runs the command.
///
/// # Errors
/// When the system gives no threads; failures of the download itself are
/// printed here and end with the exit code that the help names.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
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

async fn download(request: Request, display: &Display) -> io::Result<Result<Outcome, GetFailed>> {
    let (wish, stop) = Stop::new();
    let signals = tokio::spawn(listen(wish));
    let result = get(request, display, stop).await;
    signals.abort();
    Ok(result)
}

/// The first Ctrl-C or SIGTERM ends the download in order, the second one at once.
async fn listen(wish: watch::Sender<bool>) -> io::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    loop {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        if wish.send_replace(true) {
            std::process::exit(INTERRUPTED.into());
        }
    }
}

/// Bytes, time, rate, the direct path's estimate and the gain.
fn last_line(outcome: &Outcome) -> String {
    let Outcome { target, length, fetched, took, direct_estimate, .. } = outcome;
    let seconds = took.as_secs_f64();
    let mut line = format!("{}: {length} in {seconds:.2} s, {}", target.display(), outcome.rate());
    if fetched < length {
        line += &format!(", of which {fetched} now and the rest earlier");
    }
    if let (Some(direct), Some(gain)) = (direct_estimate, outcome.gain()) {
        line += &format!("; direct path about {direct}, gain {gain:.2}");
    }
    line
}

fn complain(failed: &GetFailed) -> ExitCode {
    eprintln!("thalweg get: {failed}");
    if failed.kept.as_bytes() > 0 {
        eprintln!("hint: {} are kept; the same command goes on from there", failed.kept);
    }
    match failed.error {
        GetError::Interrupted => ExitCode::from(INTERRUPTED),
        _ => ExitCode::FAILURE,
    }
}
