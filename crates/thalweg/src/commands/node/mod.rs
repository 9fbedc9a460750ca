//! `thalweg node`: runs the daemon.

mod documents;
mod jobs;
mod local_oracle;
mod parts;
mod probe_tasks;
mod reload;
mod settings;
mod socket_file;
mod streams;

use super::{
    host::{self, StateDir},
    signals::Signals,
    text::say,
    uplinks,
};
use anyhow::{Context as _, anyhow};
use parts::Parts;
use reload::SettingsReload;
use sd_notify::NotifyState;
use serde_json::json;
use std::{fs::File, io, net::SocketAddr, path::PathBuf, process::ExitCode, sync::Arc};
use thalweg_base::{descriptors::raise_descriptor_limit, log::Log};
use thalweg_console::note;
use thalweg_mesh::State;
use thalweg_node::daemon::{Daemon, DaemonError, Node};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::oneshot,
};

const HELP: &str = "\
Serves the mesh on one TCP port and the same UDP port: relays for members if its role allows it,
measures paths, keeps the roster up to date and, on an oracle's host, answers the mesh's API. Its
own API and page are on loopback: `thalweg page`.
Prints the line `ready ADDR…` once it serves, and logs to standard error. Settings:
`thalweg config example`.

  thalweg node
  THALWEG_STATE=/var/lib/thalweg thalweg node --config /etc/thalweg.toml

On SIGHUP it reads the settings again, as with `thalweg config reload`. On SIGTERM it accepts no more connections and gives existing ones the time of `relay.drain` to
end; a second SIGTERM ends it at once.";

/// Arguments of `thalweg node`.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// Listen on these addresses instead of those in the settings; port 0 takes a free one
    #[arg(long, value_name = "ADDR:PORT", value_delimiter = ',')]
    pub listen: Vec<SocketAddr>,
    /// The settings file [default: $XDG_CONFIG_HOME/thalweg/config.toml, if there is one]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print the "ready" line as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub state_dir: StateDir,
}

/// Runs the command until SIGTERM or SIGINT, then drains connections; a second signal ends it at once.
///
/// # Errors
/// If it fails; the message says what to try.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    run_with(args, || ())
}

/// As [`run`], and calls `on_ready` once the node serves.
///
/// # Errors
/// As [`run`].
pub fn run_with(args: Args, on_ready: impl FnOnce()) -> anyhow::Result<ExitCode> {
    let config = host::settings(args.config.as_deref())?;
    let state = args.state_dir.open()?;
    state.mesh()?;
    let _lock = state.lock()?;
    settings::warn_of_few_descriptors(raise_descriptor_limit(), config.relay.max_connections);
    // Name lookups block a thread each; 64 threads outlast any burst that one resolver survives.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .max_blocking_threads(64)
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let (log, writer) =
        Log::to_stderr_as(config.log.format.into()).context("cannot start the log")?;
    let result = runtime.block_on(serve(&args, &state, config, log, on_ready));
    // A name lookup may hang for half a minute; its answer is not waited for.
    runtime.shutdown_background();
    result?;
    // All tasks have ended, and with them the last sender, so the writer ends.
    writer.join().ok().context("the log's writer failed")?;
    Ok(ExitCode::SUCCESS)
}

async fn serve(
    args: &Args,
    state: &State,
    config: thalweg_node::config::Config,
    log: Log,
    on_ready: impl FnOnce(),
) -> anyhow::Result<()> {
    let mut signals = Signals::watch()?;
    let mut hangups = Hangups::watch()?;
    let parts = Parts::open(state, &config, log.clone()).await?;
    let settings = settings::daemon(&config, &args.listen, state, &parts)?;
    let (node, tasks, live) = parts.into_node(&config, &settings, state, &args.state_dir)?;
    let jobs = jobs::open(&config.jobs, state, &log);
    // The log's writer ends with its last user: it goes along.
    let given = args.config.clone();
    let reload = SettingsReload::new(live, jobs.clone(), given, (&config, &settings), log);
    let reload = Arc::new(reload);
    let node = Node { jobs: jobs.clone(), settings: reload.clone(), ..node };
    let daemon = Daemon::bind(settings, node).await.map_err(with_hint)?;
    tasks.start_trains_at(daemon.local_addrs());
    print_ready(&daemon, args.json)?;
    // Outside systemd there is nothing to notify.
    _ = sd_notify::notify(&[NotifyState::Ready]);
    on_ready();

    let (stop, stopped) = oneshot::channel::<()>();
    let (cut, at_once) = oneshot::channel::<()>();
    let running = daemon.run(async { _ = stopped.await }, async { _ = at_once.await });
    let mut running = std::pin::pin!(running);
    tokio::select! {
        _ = &mut running => {}
        () = signals.next() => {}
        () = hangups.reload_at_each(&reload) => {}
    }
    drop(reload);
    _ = sd_notify::notify(&[NotifyState::Stopping]);
    note!("thalweg: draining: waiting for open connections; interrupt again to stop at once");
    tasks.stop();
    drop(stop);
    let jobs_end = jobs::close(jobs);
    let is_hurried = tokio::select! {
        _ = &mut running => {
            drop(cut);
            false
        }
        () = signals.next() => {
            drop(cut);
            running.await;
            true
        }
    };
    tasks.join().await;
    if !is_hurried {
        tokio::select! { _ = jobs_end => {}, () = signals.next() => {} }
    }
    uplinks::end();
    Ok(())
}

/// SIGHUP: an operator asks for the settings to be read again, or the terminal of the node was closed.
struct Hangups {
    signal: Signal,
    /// Whether the node was started in a terminal.
    had_terminal: bool,
}

impl Hangups {
    fn watch() -> anyhow::Result<Self> {
        let signal = signal(SignalKind::hangup()).context("cannot handle SIGHUP")?;
        Ok(Self { signal, had_terminal: has_terminal() })
    }

    /// Reads the settings again at each signal. Returns when the terminal was closed.
    async fn reload_at_each(&mut self, settings: &SettingsReload) {
        loop {
            self.signal.recv().await;
            if self.had_terminal && !has_terminal() {
                return;
            }
            // The result is in the log.
            _ = settings.reload_and_log().await;
        }
    }
}

/// Whether this process has a terminal that it could be ended from.
fn has_terminal() -> bool {
    File::open("/dev/tty").is_ok()
}

/// Adds what the user can try.
fn with_hint(error: DaemonError) -> anyhow::Error {
    let hint = match &error {
        DaemonError::Listen { source, .. } => match source.kind() {
            io::ErrorKind::AddrInUse => {
                "another program uses this address; see `ss -ltnp`, or set `listen`"
            }
            io::ErrorKind::AddrNotAvailable => {
                "this host does not have this address; `ip address` lists its addresses"
            }
            io::ErrorKind::PermissionDenied => "ports below 1024 need root; choose a higher one",
            _ => return error.into(),
        },
        DaemonError::Socket { source, .. } if source.kind() == io::ErrorKind::InvalidInput => {
            "the path of a socket can have at most 107 bytes; choose a shorter --state DIR"
        }
        _ => return error.into(),
    };
    anyhow!("{error}: {hint}")
}

/// Prints the bound addresses for the parent process; from now on all of them are served.
fn print_ready(daemon: &Daemon, as_json: bool) -> anyhow::Result<()> {
    let listen = daemon.local_addrs();
    let line = match as_json {
        true => json!({
            "event": "ready", "listen": listen, "socks": daemon.socks_addr(),
            "metrics": daemon.metrics_addr(), "api": daemon.api_addr(),
        })
        .to_string(),
        false => {
            let all: Vec<_> = listen.iter().map(SocketAddr::to_string).collect();
            format!("ready {}", all.join(" "))
        }
    };
    say(&format!("{line}\n")).context("cannot print the address")
}
