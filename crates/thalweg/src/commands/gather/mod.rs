//! `thalweg gather`: runs the command, from arguments to exit code.

mod args;
mod display;
mod exit;
pub mod leg_estimates;
pub mod messages;

pub use args::{Args, node_and_path};
pub use display::GatherDisplay;

use super::{
    bond_options::{BondOptions, deadline_overrun},
    exit::Code,
    host,
    signals::Signals,
    text::say,
    uplinks,
};
use std::{process::ExitCode, sync::Arc, time::Instant};
use thalweg_gather::{
    Totals,
    run::{GatherError, LISTING_PATIENCE, Request, gather},
};
use thalweg_mesh::{State, member_dialer::MemberDialer};
use thalweg_net::{DialOptions, Dialer, channel::Connector};
use thalweg_uplinks::{bond::Bonding, interfaces::Direction};
use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;

/// The most threads that move data: more than some Gbit/s need for hashes and encryption.
const THREADS: usize = 4;

/// Runs the command.
///
/// # Errors
/// If threads cannot be created, or this host is in no mesh. Other failures are printed here and end with the exit code
/// that the help names.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let request = match request(&args) {
        Ok(request) => request,
        Err(mistake) => {
            thalweg_console::note!("thalweg: {mistake:#}");
            return Ok(Code::Usage.into());
        }
    };
    let state = args.state_dir.open()?;
    let runtime = runtime()?;
    let display = Arc::new(GatherDisplay::start(args.style(), args.verbose)?);
    let ended = runtime.block_on(collect(&args, state, request, display.clone()));
    // A pending name lookup may hang; it is not waited for.
    runtime.shutdown_background();
    let code = match &ended {
        Ok(Ok(totals)) => Code::of(totals),
        Ok(Err(error)) => Code::of_error(error),
        Err(_) => Code::Other,
    };
    if let Ok(Err(error)) = &ended {
        display.failed(error.to_string(), code as u8);
    }
    let code = match display.finish() {
        true => code,
        false => code.unwritten(),
    };
    let listed = display.listed();
    if args.dry_run && !listed.is_empty() {
        say(&listed)?;
    }
    if let Some(forecast) = display.planned().filter(|_| args.dry_run && !args.is_json()) {
        say(&(messages::table(&forecast, usize::MAX) + &messages::curve(&forecast)))?;
    }
    ended.map(|_| code.into())
}

/// A runtime with as many threads as there are cores, up to [`THREADS`].
///
/// # Errors
/// If threads cannot be created.
pub fn runtime() -> std::io::Result<Runtime> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Builder::new_multi_thread().worker_threads(cores.min(THREADS)).enable_all().build()
}

/// The request that the arguments describe.
fn request(args: &Args) -> anyhow::Result<Request> {
    let bounds = args.bounds();
    let (prices, budget) = args.cost();
    Ok(Request {
        prices: leg_estimates::prices(prices.map(|file| file.as_path()))?,
        budget,
        sources: args.sources()?,
        exclude: args.excluded(),
        listing_patience: LISTING_PATIENCE,
        into: args.into.clone(),
        layout: args.layout(),
        checksum: args.checksum,
        fidelity: args.fidelity(),
        via: args.via()?,
        terms: args.terms(),
        estimates: leg_estimates::from_file(args.rates().map(|file| file.as_path()))?,
        method: args.method(),
        slot: bounds.slot,
        unit: bounds.unit,
        ways: Some(bounds.ways),
        limit: bounds.limit,
        deadline: bounds.deadline,
        dry_run: args.dry_run,
        list: args.is_json() || (args.dry_run && args.verbose),
        bytes: Arc::default(),
    })
}

/// The outer error is a failure of this host; the inner one is a failure of the collection.
async fn collect(
    args: &Args,
    state: State,
    mut request: Request,
    display: Arc<GatherDisplay>,
) -> anyhow::Result<Result<Totals, GatherError>> {
    let stop = CancellationToken::new();
    let note_display = Arc::clone(&display);
    let signals =
        stop_on_signals(Signals::watch()?, stop.clone(), move |text| note_display.note(text));
    let signals = tokio::spawn(signals);
    let note = |text: String| display.note(text);
    let names: Vec<&str> = request.sources.iter().map(|source| source.node.as_str()).collect();
    let ask = args.rates().is_none();
    let estimates = leg_estimates::ask(&state, &args.state_dir, &names, ask, &note).await;
    if ask {
        request.estimates = estimates;
    }
    let dialer = bonding_dialer(&state, args.bond_options())?;
    if let Ok(roster) = dialer.roster() {
        super::get::mesh::check_tags(&roster, args.avoided(), &args.state_dir.argument())?;
    }
    let events = args.bond_options().begin(Direction::Down, display.clone());
    let began = Instant::now();
    let ended = gather(request, dialer, events, stop).await;
    deadline_overrun(args.bond_options().within, began).filter(|_| ended.is_ok()).map(note);
    uplinks::end();
    signals.abort();
    Ok(ended)
}

/// The dialer of channels to members, with the identity of this host's client.
///
/// # Errors
/// If the state cannot be read.
pub fn dialer(state: &State) -> anyhow::Result<MemberDialer> {
    let identity = Connector::new(&state.client_key()?)?;
    let (me, membership) = (state.mesh()?.name, state.membership()?);
    Ok(MemberDialer::new(me, membership, identity, DialOptions::default()))
}

/// As [`dialer`], but over all interfaces to members that accept bonds; with `--ride`, over the carrier only. A
/// transfer has few channels and keeps them to its end, so a channel waits for the bond: opened without it, the channel
/// would never use another interface.
///
/// # Errors
/// As [`dialer`].
pub fn bonding_dialer(state: &State, bond_options: BondOptions) -> anyhow::Result<MemberDialer> {
    if bond_options.rides() {
        let dialer = dialer(state)?.in_background(bond_options.background);
        return dialer.riding().map_err(|why| anyhow::anyhow!("--ride: {why}"));
    }
    let bonds = uplinks::track_bonds(bonds(state, bond_options.background)?.awaited());
    let dialer = dialer(state)?.in_background(bond_options.background);
    Ok(dialer.with_carrier(Arc::new(bonds)))
}

/// The bonds of this host's client, as its settings allow; in the background they yield to other traffic.
///
/// # Errors
/// As [`dialer`].
pub fn bonds(state: &State, is_background: bool) -> anyhow::Result<Bonding> {
    let identity = Connector::new(&state.client_key()?)?;
    let options = DialOptions { is_background, ..DialOptions::default() };
    let dialer = Dialer::with_identity(options, identity);
    let settings = host::settings(None)?.interfaces.settings();
    uplinks::bonding(dialer, settings, state, uplinks::to_stderr)
}

/// Waits for signals: the first Ctrl-C or SIGTERM ends the transfer in order, the second one at once. `note` prints
/// beside the progress display.
pub async fn stop_on_signals(mut signals: Signals, stop: CancellationToken, note: impl Fn(String)) {
    loop {
        signals.next().await;
        if stop.is_cancelled() {
            // The progress display has no line end; this one keeps the message off its line.
            if thalweg_console::stderr_is_terminal() {
                thalweg_console::note!("");
            }
            thalweg_console::note!("interrupted a second time: stopping at once");
            std::process::exit(thalweg_console::INTERRUPTED.into());
        }
        note("stopping, with all received data kept; interrupt again to stop at once".to_owned());
        stop.cancel();
    }
}
