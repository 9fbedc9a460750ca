//! Lists a transfer that runs in a terminal among the jobs of this host's node.

use crate::commands::host::{self, StateDir};
use clap::ArgMatches;
use parking_lot::Mutex;
use rustix::process::{Signal, getpid, kill_process};
use serde_json::{Value, json};
use std::{process::ExitCode, sync::mpsc as std_mpsc, thread, time::Duration};
use thalweg_jobs::{JOB_VARIABLE, TerminalRequest, VERBS, without_secrets};
use thalweg_mesh::State;
use tokio::{sync::mpsc, time::timeout};
use tokio_util::sync::CancellationToken;

/// Shorter commands are not listed: nobody would see them.
const DELAY: Duration = Duration::from_millis(500);

/// The most arguments that the node is told.
const MAX_ARGUMENTS: usize = 100;

/// The most events that wait for the node.
const MAX_WAITING: usize = 1024;

/// How long the end of a command waits until the node knows it.
const PATIENCE: Duration = Duration::from_millis(500);

/// Subcommands that move nothing.
const QUERIES: [&str; 4] = ["status", "forget", "list", "help"];

/// Where the displays put their events; there is one command in a process.
static EVENTS: Mutex<Option<mpsc::Sender<Value>>> = Mutex::new(None);

/// A command that is being listed; nothing happens if no node runs.
#[derive(Debug)]
pub struct JobListing(Option<Listed>);

#[derive(Debug)]
struct Listed {
    ended: CancellationToken,
    done: std_mpsc::Receiver<()>,
}

/// Passes an event of the command on, as `--json` prints it. Never blocks. `event` is called only if it is wanted.
pub fn report_event(event: impl FnOnce() -> Option<Value>) {
    let sender = EVENTS.lock().clone();
    if let Some(sender) = sender
        && let Some(event) = event()
    {
        // A node that does not read loses events, as a slow terminal does.
        _ = sender.try_send(event);
    }
}

impl JobListing {
    /// Begins to list the command, if it is a transfer and a node may run.
    pub fn start(matches: &ArgMatches) -> Self {
        Self(Self::try_start(matches))
    }

    fn try_start(matches: &ArgMatches) -> Option<Listed> {
        let (verb, command) = matches.subcommand()?;
        let is_query = command.subcommand_name().is_some_and(|name| QUERIES.contains(&name));
        if !VERBS.contains(&verb) || is_query || std::env::var_os(JOB_VARIABLE).is_some() {
            return None;
        }
        let state = StateDir::from(state_directory(command)).open().ok()?;
        if !state.socket().exists() {
            return None;
        }
        let arguments = std::env::args_os().skip(1).take(MAX_ARGUMENTS);
        let arguments: Vec<String> = arguments.map(|a| a.to_string_lossy().into()).collect();
        let terminal = TerminalRequest {
            arguments: without_secrets(&arguments),
            directory: std::env::current_dir().unwrap_or_default(),
            pid: std::process::id(),
        };
        let (sender, receiver) = mpsc::channel(MAX_WAITING);
        let (finished, done) = std_mpsc::sync_channel(1);
        let ended = CancellationToken::new();
        let token = ended.clone();
        let list = move || {
            // A node that cannot be reached lists nothing; the transfer goes on.
            _ = host::block_on(list(&state, &terminal, receiver, &token));
            _ = finished.send(());
        };
        thread::Builder::new().name("job-listing".into()).spawn(list).ok()?;
        *EVENTS.lock() = Some(sender);
        Some(Listed { ended, done })
    }

    /// The command has ended: waits a moment until the node knows how.
    pub fn end(self, code: ExitCode) {
        let Some(Listed { ended, done }) = self.0 else { return };
        report_event(|| Some(json!({ "event": "exit", "exit_code": number(code) })));
        EVENTS.lock().take();
        ended.cancel();
        _ = done.recv_timeout(PATIENCE);
    }
}

/// The state directory that the command line names.
fn state_directory(command: &ArgMatches) -> Option<std::path::PathBuf> {
    let named = command.try_get_one("state").ok().flatten().cloned();
    named.or_else(|| command.subcommand().and_then(|(_, command)| state_directory(command)))
}

async fn list(
    state: &State,
    terminal: &TerminalRequest,
    events: mpsc::Receiver<Value>,
    ended: &CancellationToken,
) -> anyhow::Result<()> {
    if timeout(DELAY, ended.cancelled()).await.is_ok() {
        return Ok(());
    }
    if let Some(node) = host::daemon(state).await? {
        // As Ctrl-C: the command ends in order, and says so.
        let cancel = || _ = kill_process(getpid(), Signal::TERM);
        node.list_terminal(terminal, events, cancel).await?;
    }
    Ok(())
}

/// The number in an exit code, which has no other accessor.
fn number(code: ExitCode) -> u8 {
    (0..=u8::MAX).find(|n| ExitCode::from(*n) == code).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_an_exit_code_is_found() {
        for n in [0, 1, 23, 130, 255] {
            assert_eq!(number(ExitCode::from(n)), n);
        }
    }
}
