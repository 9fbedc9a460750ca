//! `thalweg cast`: from arguments to exit code.

mod args;
mod display;
mod exit;
mod forget;
mod status;
mod words;

pub use args::Args;

use super::{
    gather::{self, known},
    signals::Signals,
    text::listed,
    uplinks,
};
use display::Display;
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
/// When the system gives no threads, or this host is in no mesh; other failures are printed here
/// and end with the exit code that the help names.
pub fn run(mut args: Args) -> anyhow::Result<ExitCode> {
    match args.command() {
        Ok(Some(args::Sub::Status(args))) => return status::run(&args),
        Ok(Some(args::Sub::Forget(args))) => return forget::run(&args),
        Ok(None) => {}
        Err(mistake) => return Ok(wrong(mistake)),
    }
    let path = match args.path() {
        Ok(path) => path,
        Err(mistake) => return Ok(wrong(&mistake)),
    };
    let rates = match known::from_file(args.rates.as_deref()) {
        Ok(rates) => rates,
        Err(mistake) => return Ok(wrong(&format!("{mistake:#}"))),
    };
    let state = args.place.open()?;
    let runtime = gather::runtime()?;
    let display = Arc::new(Display::start(args.style(), args.verbose)?);
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
    thalweg_console::note!("thalweg cast: {mistake}; see `thalweg cast --help`");
    Code::Usage.into()
}

/// Where casts from this host are kept: their jobs, and digests of what they cast.
fn kept_in(state: &State) -> PathBuf {
    state.dir().join("casts")
}

/// The outer error is this host's own.
async fn deliver(
    args: &Args,
    (path, rates): (PathBuf, Estimates),
    state: State,
    display: &Arc<Display>,
) -> anyhow::Result<Result<Totals, CastError>> {
    let stop = CancellationToken::new();
    let told = Arc::clone(display);
    let signals = gather::listen(Signals::watch()?, stop.clone(), move |text| told.note(text));
    let signals = tokio::spawn(signals);
    let names: Vec<&str> = args.to.iter().map(Name::as_str).collect();
    let note = |text: String| display.note(text);
    let asked = known::ask(&state, &args.place, &names, args.rates.is_none(), &note).await;
    let estimates = if args.rates.is_some() { rates } else { asked };
    let bonds = uplinks::shown(gather::bonds(&state)?.awaited());
    let reach = gather::reach(&state)?.carried_by(Arc::new(bonds));
    let (to, left_out) = args.receivers(&reach)?;
    if !left_out.is_empty() {
        display.note(format!("left out: {}, without an address", listed(&left_out)));
    }
    let estimates = match args.stated(estimates, reach.me(), &to) {
        Ok(estimates) => estimates,
        Err(why) => return Ok(Err(why)),
    };
    let request = Request {
        path,
        name: args.name(),
        to,
        estimates,
        parents: args.parents,
        shape: (args.symbol(), args.block()),
        forwarding: args.forwarding(),
        open: args.is_open(),
        patience: args.wait,
        kept_in: kept_in(&state),
    };
    let events = Arc::clone(display) as Arc<dyn EventSink>;
    let ended = cast(request, reach, state.client_key()?, events, stop).await;
    uplinks::end();
    signals.abort();
    Ok(ended)
}
