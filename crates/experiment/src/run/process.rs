//! Runs a program and records its output, the exact time of its end, and its CPU time.

use super::capture::{Capture, TAIL_MAX};
use rustix::{
    event::{PollFd, PollFlags, poll},
    fd::OwnedFd,
    process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open},
};
use std::{
    fs, io,
    os::unix::process::{CommandExt, ExitStatusExt},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

/// How long to wait for the end of the output after the end of the program.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(2);
/// The unit of CPU time in /proc (`USER_HZ`, 100 on every Linux architecture in use).
const TICKS_PER_SECOND: f64 = 100.0;
/// Environment variables of the caller that must not affect a measured program.
const NOT_INHERITED: [&str; 8] = [
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
];

/// A running program; killed when dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    pidfd: Arc<OwnedFd>,
    /// When it was started.
    pub started: Instant,
    pub stdout: Capture,
    pub stderr: Capture,
    ended: Option<ProcessEnd>,
}

/// How a program ended.
#[derive(Clone, Copy, Debug)]
pub struct ProcessEnd {
    /// Its exit code or signal.
    pub status: ExitStatus,
    /// User and system time of the program and its waited-for children, seconds (resolution 10 ms).
    pub cpu_s: f64,
}

impl Process {
    /// Starts `command` in its own process group, and keeps `stdout_max` bytes of its standard output.
    ///
    /// # Errors
    /// If it cannot be started; the message names the program.
    pub fn spawn(mut command: Command, stdout_max: usize) -> io::Result<Self> {
        for name in NOT_INHERITED {
            command.env_remove(name);
        }
        command.env("LC_ALL", "C").process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let started = Instant::now();
        let mut child = command.spawn().map_err(|e| {
            let program = command.get_program().to_string_lossy().into_owned();
            io::Error::new(e.kind(), format!("cannot start {program}: {e}"))
        })?;
        let pidfd = Arc::new(pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?);
        let lost = || io::Error::other("cannot open a pipe to the program");
        let stdout = Capture::start(child.stdout.take().ok_or_else(lost)?, stdout_max);
        let stderr = Capture::start(child.stderr.take().ok_or_else(lost)?, TAIL_MAX);
        Ok(Self { child, pidfd, started, stdout, stderr, ended: None })
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends `(tag, time)` when the program ends.
    pub fn notify(&self, tag: usize, to: mpsc::SyncSender<(usize, Instant)>) {
        let pidfd = Arc::clone(&self.pidfd);
        thread::spawn(move || {
            let mut fds = [PollFd::new(&*pidfd, PollFlags::IN)];
            while poll(&mut fds, None) == Err(rustix::io::Errno::INTR) {}
            // The receiver may have given up waiting.
            let _gone = to.send((tag, Instant::now()));
        });
    }

    /// How the program ended; `None` if it is still running. Does not wait.
    pub fn ended(&mut self) -> Option<ProcessEnd> {
        if self.ended.is_none() && self.has_exited() {
            // Read while it is a zombie, because reaping removes its /proc entry.
            let cpu_s = cpu_seconds(self.child.id()).unwrap_or(0.0);
            let status = self.child.wait().ok()?;
            self.ended = Some(ProcessEnd { status, cpu_s });
        }
        self.ended
    }

    fn has_exited(&self) -> bool {
        let mut fds = [PollFd::new(&*self.pidfd, PollFlags::IN)];
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        matches!(poll(&mut fds, Some(&now)), Ok(1..))
    }

    /// Waits for the rest of its output after its end.
    pub fn drain(&self) {
        self.stdout.wait_end(OUTPUT_TIMEOUT);
        self.stderr.wait_end(OUTPUT_TIMEOUT);
    }

    /// Sends a signal to its process group.
    ///
    /// # Errors
    /// If the group has ended or the signal is not permitted.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(kill_process_group(Pid::from_child(&self.child), signal)?)
    }

    /// Kills its process group and waits for its end.
    pub fn kill(&mut self) {
        if self.ended().is_some() {
            return;
        }
        // An error means that it has already ended.
        let _gone = self.signal(Signal::KILL);
        let _gone = self.child.kill();
        let cpu_s = cpu_seconds(self.child.id()).unwrap_or(0.0);
        let killed = ExitStatus::from_raw(Signal::KILL.as_raw());
        let status = self.child.wait().unwrap_or(killed);
        self.ended = Some(ProcessEnd { status, cpu_s });
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// CPU time of a process and its waited-for children, seconds (proc_pid_stat(5), fields 14–17).
fn cpu_seconds(pid: u32) -> Option<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    let ticks = fields.split_whitespace().skip(11).take(4).map(|f| f.parse::<f64>().unwrap_or(0.0));
    Some(ticks.sum::<f64>() / TICKS_PER_SECOND)
}

/// An exit status as text: `exit code 1`, `signal 9`.
pub fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => status.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Process {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Process::spawn(command, TAIL_MAX).unwrap()
    }

    fn finish(process: &mut Process) -> ProcessEnd {
        let (to, from) = mpsc::sync_channel(1);
        process.notify(7, to);
        let (tag, when) = from.recv().unwrap();
        assert!(tag == 7 && when >= process.started);
        process.drain();
        process.ended().unwrap()
    }

    #[test]
    fn a_program_is_followed_to_its_end() {
        let mut process = shell("echo out; echo err >&2; exit 3");
        assert_eq!(describe(finish(&mut process).status), "exit code 3");
        assert_eq!(
            (process.stdout.text(), process.stderr.text()),
            ("out\n".into(), "err\n".into())
        );
    }

    #[test]
    fn cpu_time_is_counted() {
        let mut process = shell("i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done");
        assert!(finish(&mut process).cpu_s > 0.0);
    }

    #[test]
    fn killing_a_program_ends_its_children() {
        let mut process = shell("sleep 1000 & echo started; wait");
        while !process.stdout.contains("started") {
            thread::yield_now();
        }
        process.kill();
        // The sleeper holds the pipe open as well, so the end of the output shows that both have ended.
        process.stdout.wait_end(Duration::from_secs(10));
        process.drain();
        assert_eq!(describe(process.ended().unwrap().status), "signal 9");
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = Process::spawn(Command::new("no-such-program-x"), 1).unwrap_err();
        assert!(error.to_string().contains("no-such-program-x"), "{error}");
    }
}
