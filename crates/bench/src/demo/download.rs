//! One download: runs a program in the client's host and watches it until it ends.

use super::mesh::{DemoMesh, Hosts};
use super::network::CLIENT;
use super::process::{Running, TICK};
use super::scratch::Verdict;
use super::tail::LastByteTime;
use super::watch::DownloadBar;
use super::web::FileServer;
use anyhow::{Context, bail};
use std::ops::ControlFlow;
use std::process::Command;
use std::time::{Duration, Instant};
use thalweg_units::{ByteSize, Rate};

/// A download through one relay is stopped after this time and judged by its rate. The paper does the same after 20 s
/// (UKAIRO §4); this limit is shorter because four slow relays must fit into the demonstration.
pub const RELAY_LIMIT: Duration = Duration::from_secs(10);

/// How long the demonstration watches after a revocation whether the member still receives bytes.
const WATCH: Duration = Duration::from_secs(5);

/// Variables that would make curl use another proxy.
const PROXY_VARIABLES: [&str; 6] =
    ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY"];

/// The result of a download.
#[derive(Debug, Clone)]
pub struct DownloadOutcome {
    /// Bytes in the file at the end.
    pub bytes: u64,
    /// Time from the program's start to its end; for a revoked member, to its last byte.
    pub took: Duration,
    /// Whether the bytes are the served ones.
    pub verdict: Verdict,
    /// The paths that `get` chose, in order.
    pub chosen: Vec<String>,
    /// Bytes present when the chosen relay was killed.
    pub killed_at: Option<u64>,
    /// The result of the client's revocation.
    pub revoked: Option<Revoked>,
}

/// The result of a revocation during a download.
#[derive(Debug, Clone)]
pub struct Revoked {
    /// Bytes present when `thalweg mesh revoke` was started.
    pub at: u64,
    /// Upper bound of the time from the start of `thalweg mesh revoke` to the last byte.
    pub last_byte: Duration,
    /// How many nodes have confirmed the new roster, and how many there are.
    pub confirmed: (u64, u64),
    /// The error with which the download ended; `None` if it did not end by itself.
    pub why: Option<String>,
}

impl DownloadOutcome {
    /// The mean rate over the whole time, including set-up and sampling.
    pub fn rate(&self) -> Rate {
        Rate::over(ByteSize::from_bytes(self.bytes), self.took)
    }
}

/// The hosts, the web server and the file of a download.
#[derive(Clone, Copy)]
pub struct Stage<'a> {
    pub hosts: Hosts<'a>,
    pub web: &'a FileServer,
    /// Size of the served file, bytes.
    pub size: u64,
}

impl<'a> Stage<'a> {
    /// Downloads with curl, directly.
    ///
    /// # Errors
    /// When curl fails; on Ctrl-C.
    pub fn curl(&self, name: &str) -> anyhow::Result<DownloadOutcome> {
        let mut command = self.hosts.lab.command(CLIENT, "curl");
        // The user's curl settings must not change the path; --disable must come first.
        command.args(["--disable", "--silent", "--show-error", "--fail", "--output"]);
        command.arg(self.hosts.scratch.target()).arg(self.web.url());
        for name in PROXY_VARIABLES {
            command.env_remove(name);
        }
        let mut watched = self.start(command, name)?;
        let code = watched.run(|_| Ok(ControlFlow::Continue(())))?;
        watched.must_succeed("curl", code)?;
        watched.finish()
    }

    /// Downloads with `thalweg get` over one path, `direct` or a relay's name, for at most `limit`.
    ///
    /// # Errors
    /// When `get` fails; on Ctrl-C.
    pub fn download_alone(
        &self,
        name: &str,
        path: &str,
        limit: Option<Duration>,
    ) -> anyhow::Result<DownloadOutcome> {
        let mut watched = self.start(self.get(&["--path", path]), name)?;
        let code = watched.run(|watched| {
            let over = limit.is_some_and(|limit| watched.started.elapsed() >= limit);
            Ok(if over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        if code.is_some() {
            watched.must_succeed("thalweg get", code)?;
        }
        watched.chosen.clear();
        watched.finish()
    }

    /// Downloads with `thalweg get`, which tries the direct path and all relays. With `kill`, the chosen relay is
    /// killed as soon as it is chosen.
    ///
    /// # Errors
    /// When `get` fails; on Ctrl-C.
    pub fn all(
        &self,
        name: &str,
        mesh: &mut DemoMesh<'_>,
        kill: bool,
    ) -> anyhow::Result<DownloadOutcome> {
        let mut watched = self.start(self.get(&[]), name)?;
        let mut killed_at = None;
        let code = watched.run(|watched| {
            let chosen = watched.chosen.first();
            let victim =
                mesh.nodes.iter_mut().find(|node| chosen.is_some_and(|c| c == node.name()));
            if let (true, None, Some(node)) = (kill, killed_at, victim) {
                node.kill();
                killed_at = Some(watched.bytes);
                watched.bar.note(&format!("killed {}", node.name()));
            }
            Ok(ControlFlow::Continue(()))
        })?;
        watched.must_succeed("thalweg get", code)?;
        let outcome = watched.finish()?;
        Ok(DownloadOutcome { killed_at, ..outcome })
    }

    /// Downloads with `thalweg get` over one relay and revokes the client when a quarter of the file has arrived.
    /// Returns `None` if the whole file arrived before the client was cut off.
    ///
    /// # Errors
    /// When `get` fails before that, or `thalweg mesh revoke` fails; on Ctrl-C.
    pub fn revoked(
        &self,
        name: &str,
        relay: &str,
        mesh: &DemoMesh<'_>,
    ) -> anyhow::Result<Option<DownloadOutcome>> {
        let mut watched = self.start(self.get(&["--path", relay]), name)?;
        let mut revoking: Option<(Running, u64, Instant)> = None;
        let code = watched.run(|watched| {
            match &revoking {
                Some((_, _, at)) if watched.tail.silent_since(*at, Instant::now()) >= WATCH => {
                    return Ok(ControlFlow::Break(()));
                }
                None if watched.bytes >= self.size / 4 => {
                    let at = Instant::now();
                    revoking = Some((mesh.revoke(CLIENT)?, watched.bytes, at));
                    watched.bar.note(&format!("revoked {CLIENT}"));
                }
                _ => {}
            }
            Ok(ControlFlow::Continue(()))
        })?;
        let Some((revoking, at, since)) = revoking else {
            watched.must_succeed("thalweg get", code)?;
            return Ok(None);
        };
        let reply = revoking.finish(self.hosts.scratch, self.hosts.stop);
        let reply = reply.with_context(|| format!("thalweg mesh revoke {CLIENT}"))?;
        let reply: serde_json::Value = serde_json::from_str(&reply)?;
        let count = |field: &str| reply[field].as_u64().unwrap_or_default();
        let last = watched.tail.last_byte();
        let (started, why) = (watched.started, watched.why.take());
        let revoked = Revoked {
            at,
            last_byte: last.saturating_duration_since(since),
            confirmed: (count("confirmed"), count("of")),
            why,
        };
        watched.chosen.clear();
        let outcome = watched.finish()?;
        let took = last.saturating_duration_since(started);
        let outcome = DownloadOutcome { revoked: Some(revoked), took, ..outcome };
        Ok((outcome.verdict != Verdict::Whole).then_some(outcome))
    }

    /// The command `thalweg get` with these additional arguments.
    fn get(&self, args: &[&str]) -> Command {
        let mut command =
            self.hosts.thalweg(CLIENT, &["get", &self.web.url(), "--json", "--history", "none"]);
        command.args(args).arg("--output").arg(self.hosts.scratch.target());
        command
    }

    fn start(&self, command: Command, name: &str) -> anyhow::Result<RunningDownload<'a>> {
        self.hosts.scratch.clear_target()?;
        let bar = DownloadBar::new(name, self.size);
        let started = Instant::now();
        Ok(RunningDownload {
            running: Running::start(command, self.hosts.scratch, "download")?,
            bar,
            started,
            bytes: 0,
            chosen: Vec::new(),
            tail: LastByteTime::new(started),
            why: None,
            hosts: self.hosts,
        })
    }
}

/// A download in progress.
struct RunningDownload<'a> {
    running: Running,
    bar: DownloadBar,
    started: Instant,
    /// Bytes present: the file's length, or the number that `get` reported last.
    bytes: u64,
    chosen: Vec<String>,
    tail: LastByteTime,
    /// The error that `get` reported.
    why: Option<String>,
    hosts: Hosts<'a>,
}

impl RunningDownload<'_> {
    /// Runs the download until the program ends or `act`, which is called every [`TICK`], breaks. Returns the program's
    /// exit code if it has ended.
    fn run(
        &mut self,
        mut act: impl FnMut(&mut Self) -> anyhow::Result<ControlFlow<()>>,
    ) -> anyhow::Result<Option<i32>> {
        loop {
            self.hosts.stop.check()?;
            let ended = self.running.ended()?;
            self.listen();
            if let Some(status) = ended {
                self.tail.record_end(Instant::now());
                return Ok(Some(status.code().unwrap_or(-1)));
            }
            if act(self)?.is_break() {
                self.running.kill();
                return Ok(None);
            }
            self.bar.set(self.bytes);
            std::thread::sleep(TICK);
        }
    }

    /// Reads the file's length and the events that `get` has printed.
    fn listen(&mut self) {
        if let Ok(file) = std::fs::metadata(self.hosts.scratch.target()) {
            self.bytes = file.len();
        }
        while let Some(line) = self.running.line() {
            match serde_json::from_str(&line) {
                Ok(Event::Progress { done_bytes, rate_bps }) => {
                    self.bytes = done_bytes;
                    self.tail.record_report(rate_bps > 0, Instant::now());
                }
                Ok(Event::Chosen { path }) => self.chosen.push(path),
                Ok(Event::Failed { why }) => self.why = Some(why),
                Ok(Event::Other) | Err(_) => {}
            }
        }
    }

    fn must_succeed(&self, what: &str, code: Option<i32>) -> anyhow::Result<()> {
        match code {
            Some(0) => Ok(()),
            code => {
                let log = self.hosts.scratch.log_tail(self.running.log());
                bail!("{what} failed ({}): {log}", code.unwrap_or(-1))
            }
        }
    }

    fn finish(self) -> anyhow::Result<DownloadOutcome> {
        let took = self.started.elapsed();
        let (bytes, verdict) = self.hosts.scratch.verify_target()?;
        self.hosts.scratch.clear_target()?;
        let Self { chosen, .. } = self;
        Ok(DownloadOutcome { bytes, took, verdict, chosen, killed_at: None, revoked: None })
    }
}

/// The events of `get --json` that the demonstration reads.
#[derive(serde::Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Event {
    Progress {
        done_bytes: u64,
        rate_bps: u64,
    },
    Chosen {
        path: String,
    },
    Failed {
        why: String,
    },
    #[serde(other)]
    Other,
}
