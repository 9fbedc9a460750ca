//! The processes of jobs.
//!
//! The daemon starts `thalweg jobs run-child`, which holds the job's lock, runs the command, and writes its exit code to a
//! file. So a job never runs twice at once, and a daemon that was killed learns how it ended. Both processes are told to
//! end when their parent dies (prctl(2), PR_SET_PDEATHSIG).

use jiff::Timestamp;
use rustix::{
    fs::{FlockOperation, flock},
    io::{Errno, FdFlags, fcntl_setfd},
    process::{
        Pid, Signal, WaitId, WaitIdOptions, getppid, kill_process, kill_process_group,
        set_parent_process_death_signal, waitid,
    },
};
use serde_json::Value;
use std::{
    fs::{File, OpenOptions},
    io::{self, BufRead, BufReader, Read},
    os::unix::{
        fs::OpenOptionsExt as _,
        process::{CommandExt as _, ExitStatusExt as _},
    },
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::Duration,
};
use thalweg_base::durable;
use tokio::signal::unix::{SignalKind, signal};

/// The environment variable that tells a command that it is a job: it ends with its parent, whose process number this
/// is, and does not register.
pub const JOB_VARIABLE: &str = "THALWEG_JOB";

/// The longest line of events that is read, bytes.
const MAX_LINE: u64 = 256 * 1024;

/// The end of standard error that is kept, bytes.
const KEPT_MESSAGES: usize = 4096;

/// The interval at which a job looks whether its lock is free.
const LOCK_INTERVAL: Duration = Duration::from_millis(100);

/// The exit code of an interrupted command.
const INTERRUPTED: u8 = 130;

/// The exit code of `run-child` if it could not run the command now (EX_TEMPFAIL of sysexits.h). No command has it.
pub const NOT_NOW: u8 = 75;

/// How the process of a job is started.
#[derive(Clone, Debug)]
pub struct ChildOptions {
    /// The program `thalweg`.
    pub program: PathBuf,
    /// The directory of locks and results.
    pub directory: PathBuf,
    /// Variables added to the environment.
    pub environment: Vec<(String, String)>,
    pub id: u64,
    /// The number of this attempt, from 1.
    pub attempt: u32,
    pub arguments: Vec<String>,
    pub working_directory: PathBuf,
    /// Whether it gets a lower share of the CPU and the disk, and yields on the network.
    pub is_low: bool,
}

/// How a process ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// `None`: by a signal, or it could not be started.
    pub exit_code: Option<u8>,
    /// The last line on standard error.
    pub message: Option<String>,
}

/// The result that a job's process left: the attempt, and its exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobResult {
    pub attempt: u32,
    pub exit_code: u8,
}

impl JobResult {
    /// The file of a job's result.
    pub fn file(directory: &Path, id: u64) -> PathBuf {
        directory.join(format!("{id}.result"))
    }

    /// Reads a result; `None` if there is none that can be read.
    pub fn read(file: &Path) -> Option<Self> {
        let bytes = durable::read(file, 64).ok()??;
        let text = String::from_utf8(bytes).ok()?;
        let (attempt, exit_code) = text.trim_end().split_once(' ')?;
        Some(Self { attempt: attempt.parse().ok()?, exit_code: exit_code.parse().ok()? })
    }

    fn write(self, file: &Path) -> io::Result<()> {
        durable::replace(file, format!("{} {}\n", self.attempt, self.exit_code).as_bytes())
    }
}

/// The file that a job's process locks.
pub fn lock_file(directory: &Path, id: u64) -> PathBuf {
    directory.join(format!("{id}.lock"))
}

/// Runs a process to its end on this thread, which must be its own: the process ends with it. `started` gets the process
/// once it runs, and `None` just before its number becomes free for others.
pub fn run(
    options: &ChildOptions,
    started: &dyn Fn(Option<Pid>),
    event: &dyn Fn(Value, Timestamp),
) -> Ended {
    match spawn(options) {
        Ok(child) => follow(child, started, event),
        Err(e) => {
            let directory = &options.working_directory;
            let message = format!("cannot start the job in {}: {e}", directory.display());
            // A missing directory stays missing; descriptors, memory and the program may be there again.
            let exit_code = directory.is_dir().then_some(NOT_NOW);
            Ended { exit_code, message: Some(message) }
        }
    }
}

fn spawn(options: &ChildOptions) -> io::Result<Child> {
    let ChildOptions { program, directory, id, attempt, .. } = options;
    let mut command = Command::new(program);
    command.args(["jobs", "run-child", "--directory"]).arg(directory);
    command.args(["--id", &id.to_string(), "--attempt", &attempt.to_string()]);
    command.args(["--parent", &std::process::id().to_string()]);
    if options.is_low {
        command.arg("--low");
    }
    let arguments = with_json(&options.arguments);
    command.arg("--").args(if options.is_low { in_background(arguments) } else { arguments });
    command.envs(options.environment.iter().map(|(name, value)| (name, value)));
    command.current_dir(&options.working_directory);
    // Ctrl-C in the daemon's terminal is not for its jobs, and a job that does not end is killed with all its processes.
    command.process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
}

/// The arguments with `--json` behind the command's name. `stream` has no events of this kind.
fn with_json(arguments: &[String]) -> Vec<String> {
    let mut all = arguments.to_vec();
    let has_it = all.iter().take_while(|a| *a != "--").any(|a| a == "--json");
    let has_events = all.first().is_some_and(|verb| verb != "stream");
    if has_events && !has_it {
        all.insert(1, "--json".to_owned());
    }
    all
}

/// The arguments with `--background` behind the command's name, if the command has it.
fn in_background(mut arguments: Vec<String>) -> Vec<String> {
    const OPTION: &str = "--background";
    let can = arguments.first().is_some_and(|v| ["get", "gather", "send"].contains(&v.as_str()));
    if can && !arguments.iter().take_while(|a| *a != "--").any(|a| a == OPTION) {
        arguments.insert(1, OPTION.to_owned());
    }
    arguments
}

fn follow(
    mut child: Child,
    started: &dyn Fn(Option<Pid>),
    event: &dyn Fn(Value, Timestamp),
) -> Ended {
    let pid = Pid::from_child(&child);
    started(Some(pid));
    let errors = child.stderr.take();
    let messages = thread::Builder::new().name("job-stderr".into());
    let messages = messages.spawn(move || errors.map(last_message).unwrap_or_default());
    if let Some(output) = child.stdout.take() {
        read_events(output, event);
    }
    // Until it is waited for, nobody else gets its number.
    while let Err(Errno::INTR) =
        waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)
    {}
    started(None);
    let status = child.wait().ok();
    let message = messages.ok().and_then(|thread| thread.join().ok()).unwrap_or_default();
    Ended { exit_code: status.and_then(exit_code), message }
}

fn exit_code(status: ExitStatus) -> Option<u8> {
    status.code().and_then(|code| u8::try_from(code).ok())
}

/// Reads events until the output is closed. Lines that are too long or no JSON are left out.
fn read_events(output: impl Read, event: &dyn Fn(Value, Timestamp)) {
    let mut output = BufReader::new(output);
    let mut line = Vec::new();
    loop {
        line.clear();
        match (&mut output).take(MAX_LINE).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) if line.last() != Some(&b'\n') && skip_line(&mut output).is_err() => return,
            Ok(_) => {}
        }
        if let Ok(value) = serde_json::from_slice(&line) {
            event(value, Timestamp::now());
        }
    }
}

/// Reads to the end of a line without keeping it.
fn skip_line(output: &mut impl BufRead) -> io::Result<()> {
    loop {
        let bytes = output.fill_buf()?;
        if bytes.is_empty() {
            return Ok(());
        }
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let used = end.map_or(bytes.len(), |end| end + 1);
        output.consume(used);
        if end.is_some() {
            return Ok(());
        }
    }
}

/// Reads messages to their end. Returns the last line.
fn last_message(mut errors: impl Read) -> Option<String> {
    let (mut kept, mut buffer) = (Vec::new(), [0; 1024]);
    while let Ok(n @ 1..) = errors.read(&mut buffer) {
        kept.extend_from_slice(&buffer[..n]);
        let surplus = kept.len().saturating_sub(KEPT_MESSAGES);
        kept.drain(..surplus);
    }
    let text = String::from_utf8_lossy(&kept).into_owned();
    let last = text.lines().rev().find(|line| !line.trim().is_empty())?;
    Some(last.strip_prefix("thalweg: ").unwrap_or(last).to_owned())
}

/// Asks a job's process to end, which passes it on.
pub fn ask_to_end(pid: Pid) {
    // It may have ended; its number is not free before `started(None)`.
    _ = kill_process(pid, Signal::TERM);
}

/// Kills a job's process and the command.
pub fn kill_all(pid: Pid) {
    // As above.
    _ = kill_process_group(pid, Signal::KILL);
}

/// Makes this process end when its parent, the process with this number, does. Returns whether the parent still runs.
///
/// # Errors
/// The system's.
pub fn end_with_parent(parent: u32) -> io::Result<bool> {
    set_parent_process_death_signal(Some(Signal::TERM))?;
    let now = getppid().and_then(|pid| u32::try_from(pid.as_raw_nonzero().get()).ok());
    Ok(now == Some(parent))
}

/// The process between the daemon and a command: takes the job's lock, runs the command, and writes its exit code.
/// Returns the exit code. Must be called on the main thread, outside a runtime.
///
/// # Errors
/// The system's: the lock or the command cannot be opened. A failure to write the result is none: the daemon sees the
/// exit code, unless it was killed.
pub fn run_child(
    program: &Path,
    directory: &Path,
    id: u64,
    attempt: u32,
    parent: u32,
    arguments: &[String],
) -> io::Result<u8> {
    if !end_with_parent(parent)? {
        return Ok(INTERRUPTED);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let lock = open_lock(&lock_file(directory, id))?;
        while let Err(Errno::WOULDBLOCK) = flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            tokio::select! {
                () = tokio::time::sleep(LOCK_INTERVAL) => {}
                _ = terminate.recv() => return Ok(INTERRUPTED),
            }
        }
        let file = JobResult::file(directory, id);
        // The daemon was killed before it saw that the last attempt was complete.
        let last = JobResult::read(&file).filter(|result| result.attempt + 1 == attempt);
        if last.is_some_and(|result| result.exit_code == 0) {
            return Ok(0);
        }
        let mut command = tokio::process::Command::new(program);
        let mut child =
            command.args(arguments).env(JOB_VARIABLE, std::process::id().to_string()).spawn()?;
        let mut is_told = false;
        let status = loop {
            tokio::select! {
                status = child.wait() => break status?,
                // A second signal would end the command at once, without its last sync.
                _ = terminate.recv() => {
                    let told = std::mem::replace(&mut is_told, true);
                    child.id().filter(|_| !told).into_iter().for_each(forward);
                }
            }
        };
        let by_signal = || status.signal().and_then(|n| u8::try_from(128 + n).ok());
        let exit_code = exit_code(status).or_else(by_signal).unwrap_or(u8::MAX);
        _ = JobResult { attempt, exit_code }.write(&file);
        Ok(exit_code)
    })
}

fn forward(process: u32) {
    if let Some(pid) = i32::try_from(process).ok().and_then(Pid::from_raw) {
        // It has not been waited for, so that the number is still its own.
        _ = kill_process(pid, Signal::TERM);
    }
}

/// Opens the lock file so that the command inherits it: the job is locked until both processes have ended.
fn open_lock(file: &Path) -> io::Result<File> {
    let lock =
        OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(file)?;
    fcntl_setfd(&lock, FdFlags::empty())?;
    Ok(lock)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn json_is_asked_for_once_and_where_the_command_takes_it() {
        for (line, wanted) in [
            ("get URL", "get --json URL"),
            ("get --json URL", "get --json URL"),
            ("get -- --json", "get --json -- --json"),
            ("stream publish NAME", "stream publish NAME"),
        ] {
            assert_eq!(with_json(&words(line)), words(wanted));
        }
    }

    #[test]
    fn a_low_job_yields_if_its_command_can() {
        for (line, wanted) in [
            ("get URL", "get --background URL"),
            ("send --background a m:", "send --background a m:"),
            ("gather -- --background", "gather --background -- --background"),
            ("cast a --to b", "cast a --to b"),
        ] {
            assert_eq!(in_background(words(line)), words(wanted));
        }
    }

    #[test]
    fn long_lines_and_other_texts_are_left_out() {
        let long = format!("\"{}\"\n", "x".repeat(MAX_LINE as usize));
        let text = format!("{{\"event\":\"a\"}}\nnot JSON\n{long}\n{{\"event\":\"b\"}}");
        let seen = RefCell::new(Vec::new());
        read_events(text.as_bytes(), &|value, _| seen.borrow_mut().push(value["event"].clone()));
        assert_eq!(*seen.borrow(), ["a", "b"]);
    }

    #[test]
    fn the_last_message_is_kept_without_the_programs_name() {
        let text = format!("{}\nthalweg: cannot reach x\n\n", "y\n".repeat(9000));
        assert_eq!(last_message(text.as_bytes()).as_deref(), Some("cannot reach x"));
        assert_eq!(last_message(&b"\n"[..]), None);
    }

    #[test]
    fn a_result_is_read_back_and_anything_else_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let file = JobResult::file(dir.path(), 7);
        assert_eq!(JobResult::read(&file), None);
        let result = JobResult { attempt: 3, exit_code: 23 };
        result.write(&file).unwrap();
        assert_eq!(JobResult::read(&file), Some(result));
        std::fs::write(&file, "3").unwrap();
        assert_eq!(JobResult::read(&file), None);
    }
}
