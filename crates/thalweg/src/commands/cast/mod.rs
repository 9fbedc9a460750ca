//! `thalweg cast`: runs the command, from arguments to exit code.

mod args;
mod display;
mod exit;
mod forget;
mod messages;
mod status;

pub use args::Args;

use super::{
    gather::{self, leg_estimates},
    local_files,
    signals::Signals,
    text::listed,
    uplinks,
};
use display::CastDisplay;
use exit::Code;
use std::{path::PathBuf, process::ExitCode, sync::Arc};
use thalweg_cast::source::{CastError, EventSink, Request, Totals, cast};
use thalweg_mesh::State;
use thalweg_paths::estimates::Estimates;
use thalweg_wire::mesh::Name;
use tokio_util::sync::CancellationToken;

/// Runs the command.
///
/// # Errors
/// If threads cannot be created, or this host is in no mesh. Other failures are printed here and end with the exit code
/// that the help names.
pub fn run(mut args: Args) -> anyhow::Result<ExitCode> {
    match args.command() {
        Ok(Some(args::CastCommand::Status(args))) => return status::run(&args),
        Ok(Some(args::CastCommand::Forget(args))) => return forget::run(&args),
        Ok(None) => {}
        Err(mistake) => return Ok(wrong(mistake)),
    }
    let path = match args.path() {
        Ok(path) => path,
        Err(mistake) => return Ok(wrong(&mistake)),
    };
    let rates = match leg_estimates::from_file(args.rates.as_deref()) {
        Ok(rates) => rates,
        Err(mistake) => return Ok(wrong(&format!("{mistake:#}"))),
    };
    if let Some(missing) = local_files::missing([&path]).pop() {
        let display = CastDisplay::start(args.style(), args.verbose)?;
        display.failed(missing, Code::Disk as u8);
        display.finish();
        return Ok(Code::Disk.into());
    }
    let state = args.state_dir.open()?;
    let runtime = gather::runtime()?;
    let display = Arc::new(CastDisplay::start(args.style(), args.verbose)?);
    let ended = runtime.block_on(deliver(&args, (path, rates), state, &display));
    runtime.shutdown_background();
    let code = match &ended {
        Ok(Ok(totals)) => Code::of(totals),
        Ok(Err(error)) => Code::of_error(error),
        Err(_) => Code::Other,
    };
    if let Ok(Err(error)) = &ended {
        display.failed(error.to_string(), code as u8);
    }
    let code = if display.finish() { code } else { code.unwritten() };
    ended.map(|_| ExitCode::from(code as u8))
}

fn wrong(mistake: &str) -> ExitCode {
    thalweg_console::note!("thalweg: {mistake}; see `thalweg cast --help`");
    Code::Usage.into()
}

/// The directory with the state of casts from this host: their jobs, and digests of the files.
fn record_dir(state: &State) -> PathBuf {
    state.dir().join("casts")
}

/// The outer error is a failure of this host; the inner one is a failure of the cast.
async fn deliver(
    args: &Args,
    (path, rates): (PathBuf, Estimates),
    state: State,
    display: &Arc<CastDisplay>,
) -> anyhow::Result<Result<Totals, CastError>> {
    let stop = CancellationToken::new();
    let note_display = Arc::clone(display);
    let signals = gather::stop_on_signals(Signals::watch()?, stop.clone(), move |text| {
        note_display.note(text)
    });
    let signals = tokio::spawn(signals);
    let names: Vec<&str> = args.to.iter().map(Name::as_str).collect();
    let note = |text: String| display.note(text);
    let asked =
        leg_estimates::ask(&state, &args.state_dir, &names, args.rates.is_none(), &note).await;
    let estimates = if args.rates.is_some() { rates } else { asked };
    let bonds = uplinks::track_bonds(gather::bonds(&state, false)?.awaited());
    let dialer = gather::dialer(&state)?.with_carrier(Arc::new(bonds));
    let (to, left_out) = args.receivers(&dialer)?;
    if !left_out.is_empty() {
        display.note(format!("left out: {}, without an address", listed(&left_out)));
    }
    let estimates = match args.stated(estimates, dialer.me(), &to) {
        Ok(estimates) => estimates,
        Err(why) => return Ok(Err(why)),
    };
    let request = Request {
        path,
        fidelity: args.fidelity(),
        name: args.name(),
        to,
        estimates,
        parents: args.parents,
        shape: (args.symbol(), args.block()),
        forwarding: args.forwarding(),
        open: args.is_open(),
        patience: args.wait,
        limit: args.bwlimit.clone(),
        kept_in: record_dir(&state),
        dry_run: args.dry_run,
    };
    let events = Arc::clone(display) as Arc<dyn EventSink>;
    let ended = cast(request, dialer, state.client_key()?, events, stop).await;
    uplinks::end();
    signals.abort();
    Ok(ended)
}
