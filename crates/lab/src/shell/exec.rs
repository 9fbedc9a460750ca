//! Runs a program inside a host: enters its namespaces, forks and supervises the program.
//!
//! There are three processes: the *client* (outside, seen by a shell or a test), the *monitor* (inside the lab's PID
//! namespace) and the program. Descriptors, terminal and process group are inherited. If the client is killed, the
//! kernel signals the monitor, which kills the program and its descendants. If the program ends by itself, daemons that
//! it left behind keep running in the lab.

use super::sys::{self, Fork, Signals};
use anyhow::{Context, Result};
use rustix::{
    process::{Pid, WaitOptions, WaitStatus, wait, waitpid},
    thread::{LinkNameSpaceType, move_into_link_name_space},
};
use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs::{self, File},
    io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
    process::{Command, ExitCode},
};
use thalweg_console::note;
use thalweg_lab::client::Lab;

/// Signals that a client forwards to the program.
const FORWARDED: [i32; 6] =
    [libc::SIGTERM, libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2];
/// A shell's exit code for a program that cannot be run.
const CANNOT_RUN: u8 = 127;

/// Runs `program` in `host` of the lab at `socket`. Returns its exit code, or 128 + n if signal n ended it.
pub fn run(socket: &Path, host: &str, program: &[OsString]) -> Result<ExitCode> {
    enter(&Lab::namespaces(socket, host)?)
        .with_context(|| format!("cannot enter host `{host}`"))?;
    let signals = Signals::block(&[&FORWARDED[..], &[libc::SIGCHLD]].concat())?;
    match sys::fork()? {
        Fork::Child => {
            let code = monitor(host, program).unwrap_or_else(|e| {
                note!("thalweg-lab: {e:#}");
                CANNOT_RUN
            });
            std::process::exit(code.into())
        }
        Fork::Parent(monitor) => Ok(ExitCode::from(wait_for_monitor(&signals, monitor)?)),
    }
}

/// Moves this single-threaded process into a host's namespaces; its children will also be in the lab's PID namespace.
fn enter(namespaces: &[OwnedFd]) -> Result<()> {
    use LinkNameSpaceType as Kind;
    let kinds =
        [Kind::User, Kind::ProcessID, Kind::Mount, Kind::Network, Kind::HostNameAndNISDomainName];
    let directory = std::env::current_dir();
    for (fd, kind) in namespaces.iter().zip(kinds) {
        if kind as u32 == Kind::User as u32 && is_current_user_namespace(fd)? {
            continue; // the kernel refuses to enter it twice
        }
        move_into_link_name_space(fd.as_fd(), Some(kind))?;
    }
    directory
        .and_then(std::env::set_current_dir)
        .context("cannot change to the current directory in the host")
}

fn is_current_user_namespace(fd: &OwnedFd) -> Result<bool> {
    let identity = |fd: &OwnedFd| rustix::fs::fstat(fd).map(|s| (s.st_dev, s.st_ino));
    let current = OwnedFd::from(File::open("/proc/self/ns/user")?);
    Ok(identity(fd)? == identity(&current)?)
}

/// The client's part: forwards signals and waits for the monitor. Returns its exit code.
fn wait_for_monitor(signals: &Signals, monitor: Pid) -> Result<u8> {
    loop {
        let caught = signals.next()?;
        if caught.signal != libc::SIGCHLD {
            // The program has already got the signals that the terminal sent.
            if caught.by_process {
                sys::kill(monitor, caught.signal);
            }
        } else if let Some((_, status)) = waitpid(Some(monitor), WaitOptions::NOHANG)? {
            return Ok(exit_code(status));
        }
    }
}

/// The monitor's part: starts the program and waits for its end, or kills it when the client dies. Returns the exit
/// code.
fn monitor(host: &str, program: &[OsString]) -> Result<u8> {
    let watched = [&FORWARDED[..], &[libc::SIGCHLD, sys::client_died()]].concat();
    let signals = Signals::block(&watched)?;
    sys::become_subreaper()?;
    sys::die_with_parent(sys::client_died())?;
    let name = program.first().context("no program is given")?;
    let mut command = Command::new(name);
    command.args(&program[1..]).env("THALWEG_HOST", host);
    let child = sys::bind_life(&mut command)
        .spawn()
        .map_err(|e| anyhow::anyhow!("cannot run `{}` in host `{host}`: {e}", name.display()))?;
    let child = Pid::from_raw(child.id().cast_signed()).context("the process has no id")?;
    loop {
        let caught = signals.next()?;
        if caught.signal == sys::client_died() {
            kill_descendants();
            return Ok(128 + libc::SIGKILL as u8);
        } else if caught.signal != libc::SIGCHLD {
            if caught.by_process {
                sys::kill(child, caught.signal);
            }
        } else if let Some(code) = reap_until(child) {
            return Ok(code);
        }
    }
}

/// Reaps children that have ended. Returns the exit code if `child` is among them.
fn reap_until(child: Pid) -> Option<u8> {
    while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
        if pid == child {
            return Some(exit_code(status));
        }
    }
    None
}

/// The exit code that a shell would report.
pub fn exit_code(status: WaitStatus) -> u8 {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => code as u8,
        (None, Some(signal)) => 128 + signal as u8,
        (None, None) => 1,
    }
}

/// Kills all descendants of this process, until there are no new ones.
///
/// This process is their subreaper, so none escapes by becoming an orphan.
fn kill_descendants() {
    loop {
        let alive = descendants(std::process::id().cast_signed()).unwrap_or_default();
        if alive.is_empty() {
            return;
        }
        for pid in alive.into_iter().filter_map(Pid::from_raw) {
            sys::kill(pid, libc::SIGKILL);
        }
        let _reaped = wait(WaitOptions::empty());
    }
}

/// The process ids of all descendants of `root` that are not zombies.
fn descendants(root: i32) -> io::Result<BTreeSet<i32>> {
    let parents: Vec<_> = fs::read_dir("/proc")?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid| Some((pid, living_parent(pid)?)))
        .collect();
    let mut found = BTreeSet::new();
    loop {
        let more = parents.iter().filter(|(_, parent)| *parent == root || found.contains(parent));
        let more: BTreeSet<i32> = more.map(|(pid, _)| *pid).collect();
        if more.len() == found.len() {
            return Ok(found);
        }
        found = more;
    }
}

/// The parent of a process, from `/proc/PID/stat`; `None` if the process is a zombie or has ended.
fn living_parent(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    (state != "Z").then_some(parent)
}
