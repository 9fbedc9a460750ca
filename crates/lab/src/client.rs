//! A client of the lab process: the API of tests and experiments.

use crate::{
    discover,
    protocol::{self, Description, Reply, Request},
    stats::Stats,
    topology::{LinkChange, Resolved, Topology, TopologyError},
};
use std::{
    ffi::OsStr,
    fs::File,
    io::{self, BufRead, BufReader, Write},
    net::IpAddr,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    time::{Duration, Instant},
};
use thiserror::Error;

/// A lab cannot be started or reached.
#[derive(Debug, Error)]
pub enum LabError {
    /// The topology is invalid.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// An error message of the lab process.
    #[error("{0}")]
    Lab(String),
    /// The program `thalweg-lab` was not found.
    #[error(
        "cannot find the program thalweg-lab in the directory of this program; build it \
         (`cargo build --bins`) or set THALWEG_LAB_PROGRAM to its path"
    )]
    NoProgram,
    /// No shared lab is running.
    #[error("no lab is running; start one with `thalweg-bench lab up TOPO.toml`")]
    NoneRunning,
    /// No lab of this name is running.
    #[error("no lab `{0}` is running; list the running labs with `thalweg-bench lab list`")]
    NotRunning(String),
    /// Several labs are running, and none was named.
    #[error("several labs are running ({}); name one of them", .0.join(", "))]
    Several(Vec<String>),
    /// The directory of lab sockets cannot be used.
    #[error("cannot use {path}: {why}", path = .0.display(), why = .1)]
    Directory(PathBuf, io::Error),
    /// Communication with the lab process failed.
    #[error("the lab does not answer: {0}; it may have ended")]
    Io(#[from] io::Error),
}

/// A running lab. A lab that was [started](Lab::start) ends when this value is dropped or the process dies.
#[derive(Debug)]
pub struct Lab {
    socket: PathBuf,
    resolved: Resolved,
    setup_s: f64,
    program: PathBuf,
    process: Option<(Child, ChildStdin)>,
}

impl Lab {
    /// Starts a lab in a process tree of its own and waits until its network is set up.
    ///
    /// The lab ends when this value is dropped or this process dies in any way.
    ///
    /// # Errors
    /// If the topology is invalid, or the machine does not allow a lab; the message says what to do.
    pub fn start(topology: &Topology) -> Result<Self, LabError> {
        let resolved = topology.resolve()?;
        let program = discover::find_program()?;
        let mut child = Command::new(&program)
            .arg("serve")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let (Some(mut stdin), Some(stdout)) = (stdin, stdout) else {
            return Err(LabError::Lab("cannot open pipes to the lab's process".into()));
        };
        let text = topology.to_toml()?;
        writeln!(stdin, "{}", serde_json::to_string(&text).map_err(io::Error::from)?)?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let started = serde_json::from_str(&line);
        if let Ok(StartMessage::Ready { socket, setup_s }) = started {
            return Ok(Self { socket, resolved, setup_s, program, process: Some((child, stdin)) });
        }
        drop(stdin);
        child.wait()?;
        Err(LabError::Lab(match started {
            Ok(StartMessage::Error(message)) => message,
            _ => "the lab ended before its network was set up".into(),
        }))
    }

    /// Attaches to a lab that another process started; it keeps running after this value is dropped.
    ///
    /// # Errors
    /// If the lab does not answer.
    pub fn attach(socket: &Path) -> Result<Self, LabError> {
        let description = describe(socket)?;
        let resolved = Topology::from_toml(&description.topology)?.resolve()?;
        let (socket, program) = (socket.to_owned(), discover::find_program()?);
        Ok(Self { socket, resolved, setup_s: description.setup_s, program, process: None })
    }

    /// The lab's socket, for other clients.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The process that holds the lab, if this value started it.
    pub fn process_id(&self) -> Option<u32> {
        self.process.as_ref().map(|(child, _)| child.id())
    }

    /// The resolved topology.
    pub fn resolved(&self) -> &Resolved {
        &self.resolved
    }

    /// Seconds from the start of the lab's process until the network was set up.
    pub fn setup_seconds(&self) -> f64 {
        self.setup_s
    }

    /// The IPv4 address of a host's first interface; unspecified if there is no such host.
    pub fn address(&self, host: &str) -> IpAddr {
        let first = self.resolved.hosts.iter().find(|h| h.name == host);
        let first = first.and_then(|h| h.interfaces.first());
        let address = first.map(|i| self.resolved.interfaces[*i].v4);
        IpAddr::V4(address.unwrap_or(std::net::Ipv4Addr::UNSPECIFIED))
    }

    /// A command that runs `program` inside `host`.
    ///
    /// Killing the child ends the program and its descendants. The exit code is the program's, or 128 + n if signal n
    /// ended it.
    pub fn command(&self, host: &str, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("exec").arg("--lab").arg(&self.socket).arg(host).arg("--").arg(program);
        command
    }

    /// A command that runs one of the lab's own tools (`thalweg-lab tool ARGS…`) inside `host`.
    pub fn tool(&self, host: &str, args: &[&str]) -> Command {
        let mut command = self.command(host, &self.program);
        command.arg("tool").args(args);
        command
    }

    /// Changes both directions of a link, or one of them (`core.rev`).
    ///
    /// # Errors
    /// If there is no such link, or the change is invalid.
    pub fn set(&self, link: &str, change: &LinkChange) -> Result<(), LabError> {
        self.ask(&Request::Set { link: link.to_owned(), change: *change }).map(drop)
    }

    /// The statistics of the lab and its links; `series` includes the time series of each link.
    ///
    /// # Errors
    /// If the lab does not answer.
    pub fn stats(&self, series: bool) -> Result<Stats, LabError> {
        match self.ask(&Request::Stats { series })?.0 {
            Reply::Stats(stats) => Ok(*stats),
            other => Err(unexpected(&other)),
        }
    }

    /// Restarts the measurement windows of lateness and CPU pressure.
    ///
    /// # Errors
    /// If the lab does not answer.
    pub fn reset_stats(&self) -> Result<(), LabError> {
        self.ask(&Request::ResetStats).map(drop)
    }

    /// Ends the lab; for an attached one.
    ///
    /// # Errors
    /// If the lab does not answer.
    pub fn stop(&self) -> Result<(), LabError> {
        self.ask(&Request::Stop).map(drop)
    }

    /// Writes the packets that enter a link to `file` in pcap format until the returned guard is dropped.
    ///
    /// # Errors
    /// If there is no such link.
    pub fn pcap(&self, link: &str, file: &File) -> Result<Capture, LabError> {
        let stream = UnixStream::connect(&self.socket)?;
        converse(&stream, &Request::Pcap(link.to_owned()), &[file.as_fd()])?;
        Ok(Capture(stream))
    }

    /// The namespaces of a host: user, PID, mount, network, UTS.
    ///
    /// # Errors
    /// If there is no such host.
    pub fn namespaces(socket: &Path, host: &str) -> Result<Vec<OwnedFd>, LabError> {
        let stream = UnixStream::connect(socket)?;
        match converse(&stream, &Request::Enter(host.to_owned()), &[])? {
            (Reply::Namespaces, fds) if fds.len() == 5 => Ok(fds),
            (other, _) => Err(unexpected(&other)),
        }
    }

    fn ask(&self, request: &Request) -> Result<(Reply, Vec<OwnedFd>), LabError> {
        converse(&UnixStream::connect(&self.socket)?, request, &[])
    }
}

/// The first line that the lab's process prints, as JSON.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StartMessage {
    /// The network is set up.
    Ready {
        /// The lab's control socket.
        socket: PathBuf,
        /// The set-up time, seconds.
        setup_s: f64,
    },
    /// The set-up failed; the error message.
    Error(String),
}

/// A running capture; it ends when this value is dropped.
#[derive(Debug)]
pub struct Capture(UnixStream);

impl Capture {
    /// Waits until the lab ends the capture.
    ///
    /// # Errors
    /// The reason: the lab ended, or writing to the file failed.
    pub fn wait(&self) -> Result<(), LabError> {
        match protocol::receive::<Reply>(&self.0, protocol::MAX_REPLY)?.0 {
            Reply::Error(why) => Err(LabError::Lab(why)),
            _ => Ok(()),
        }
    }
}

/// Describes the network of the lab at this socket.
///
/// # Errors
/// If the lab does not answer.
pub fn describe(socket: &Path) -> Result<Description, LabError> {
    match converse(&UnixStream::connect(socket)?, &Request::Describe, &[])?.0 {
        Reply::Description(description) => Ok(description),
        other => Err(unexpected(&other)),
    }
}

fn converse(
    stream: &UnixStream,
    request: &Request,
    fds: &[BorrowedFd<'_>],
) -> Result<(Reply, Vec<OwnedFd>), LabError> {
    protocol::send(stream, request, fds)?;
    match protocol::receive(stream, protocol::MAX_REPLY)? {
        (Reply::Error(message), _) => Err(LabError::Lab(message)),
        answer => Ok(answer),
    }
}

fn unexpected(reply: &Reply) -> LabError {
    LabError::Lab(format!("unexpected answer of the lab: {reply:?}"))
}

impl Drop for Lab {
    fn drop(&mut self) {
        let Some((mut child, stdin)) = self.process.take() else { return };
        drop(stdin); // end of file on its standard input ends the lab
        let deadline = Instant::now() + Duration::from_secs(5);
        while Instant::now() < deadline {
            if !matches!(child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let _gone = child.kill();
        let _reaped = child.wait();
    }
}
