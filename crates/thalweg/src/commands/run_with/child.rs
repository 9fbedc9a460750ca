//! Runs the command as a child process: starts it, forwards signals to it, and waits for it.

use super::supervise::{Prepared, RedirectTargets, Supervisor};
use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};
use std::{ffi::OsString, io, os::unix::process::ExitStatusExt as _, time::Duration};
use thalweg_console::note;
use tokio::{
    process::{Child, Command},
    signal::unix::{SignalKind, signal},
    sync::mpsc,
};

/// How long open requests may take after the end of the child.
pub const MOMENT: Duration = Duration::from_millis(500);

/// A shell's exit codes for programs that cannot be started.
const NOT_FOUND: u8 = 127;
const CANNOT_RUN: u8 = 126;

/// The forwarded signals. `SIGINT` and `SIGQUIT` from a terminal reach the child by themselves.
const FORWARDED: [(SignalKind, Signal); 6] = [
    (SignalKind::hangup(), Signal::HUP),
    (SignalKind::terminate(), Signal::TERM),
    (SignalKind::user_defined1(), Signal::USR1),
    (SignalKind::user_defined2(), Signal::USR2),
    (SignalKind::interrupt(), Signal::INT),
    (SignalKind::quit(), Signal::QUIT),
];

/// Runs the command with these variables added to its environment, and with its connections redirected by `targets`, if
/// given. Returns its exit code, as a shell does.
///
/// # Errors
/// If signals cannot be watched, or the child cannot be waited for or supervised.
pub async fn run(
    command: &[OsString],
    variables: &[(&str, String)],
    targets: Option<RedirectTargets>,
) -> anyhow::Result<u8> {
    let mut signals = watch()?;
    let (program, arguments) = command.split_first().context("no command is given")?;
    let shown = program.to_string_lossy();
    let mut child = Command::new(program);
    child.args(arguments).envs(variables.iter().map(|(name, value)| (name, value)));
    let prepared = targets.as_ref().map(|_| Prepared::new(&mut child)).transpose()?;
    let mut child = match child.spawn() {
        Ok(child) => child,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            note!("thalweg: {shown}: command not found");
            return Ok(NOT_FOUND);
        }
        Err(e) => {
            note!("thalweg: cannot run {shown}: {e}");
            return Ok(CANNOT_RUN);
        }
    };
    let _supervisor = supervise(prepared, targets)?;
    loop {
        tokio::select! {
            ended = child.wait() => {
                let status = ended.context("cannot wait for the command")?;
                return Ok(code(status.code(), status.signal()));
            }
            Some(signal) = signals.recv() => forward(&child, signal),
        }
    }
}

fn supervise(
    prepared: Option<Prepared>,
    targets: Option<RedirectTargets>,
) -> anyhow::Result<Option<Supervisor>> {
    prepared.zip(targets).map(|(prepared, targets)| prepared.supervise(targets)).transpose()
}

/// 128 + N for signal N; codes have eight bits.
fn code(code: Option<i32>, signal: Option<i32>) -> u8 {
    let code = code.or(signal.map(|n| 128 + n)).unwrap_or(1);
    u8::try_from(code & 0xff).unwrap_or(1)
}

/// A channel of the signals that this process receives.
fn watch() -> anyhow::Result<mpsc::Receiver<Signal>> {
    // One place per kind of signal: the kernel merges equal ones as well.
    let (sender, receiver) = mpsc::channel(FORWARDED.len());
    for (kind, passed) in FORWARDED {
        let mut signals = signal(kind).context("cannot handle signals")?;
        let sender = sender.clone();
        tokio::spawn(async move {
            while signals.recv().await.is_some() && sender.send(passed).await.is_ok() {}
        });
    }
    Ok(receiver)
}

fn forward(child: &Child, signal: Signal) {
    let by_keys = matches!(signal, Signal::INT | Signal::QUIT) && has_terminal();
    let pid = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    if let Some(pid) = pid.filter(|_| !by_keys) {
        // A child that has just ended is not signalled.
        _ = kill_process(pid, signal);
    }
}

/// Whether this process is in the foreground of a terminal: then the terminal's keys signal the child as well.
fn has_terminal() -> bool {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    foreground(&stat).unwrap_or(false)
}

/// Parses proc_pid_stat(5): behind the name in parentheses follow state, ppid, pgrp, session, tty and tpgid.
fn foreground(stat: &str) -> Option<bool> {
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    Some(fields.get(2)? == fields.get(5)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_those_of_a_shell() {
        assert_eq!(code(Some(0), None), 0);
        assert_eq!(code(Some(42), None), 42);
        assert_eq!(code(None, Some(15)), 143);
    }

    #[test]
    fn the_foreground_is_parsed_for_any_program_name() {
        assert_eq!(foreground("1 (a) b) S 2 3 4 5 3 0"), Some(true));
        assert_eq!(foreground("1 (a) S 2 3 4 0 -1 0"), Some(false));
        assert_eq!(foreground(""), None);
    }
}
