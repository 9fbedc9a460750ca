//! One download: a program in the client's host, watched until it ends.

use super::network::CLIENT;
use super::process::{Running, TICK};
use super::scratch::{Scratch, Verdict};
use super::servers::{Relay, Web};
use super::watch::Bar;
use anyhow::{Context, bail};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use thalweg_experiment::run::stop::Stop;
use thalweg_lab::client::Lab;
use thalweg_units::{ByteSize, Rate};

/// A relay alone is stopped after this long, and counted by its rate. The paper does the
/// same after 20 s (UKAIRO §4); less here, since four slow relays must fit into the show.
pub const RELAY_LIMIT: Duration = Duration::from_secs(12);

/// Curl's exit code for "the time limit was reached".
const CURL_TIMED_OUT: i32 = 28;

/// What would make curl use another proxy.
const PROXY_VARIABLES: [&str; 6] =
    ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY"];

/// What came of a download.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Bytes in the file at the end.
    pub bytes: u64,
    /// From the program's start to its end.
    pub took: Duration,
    /// Whether they are the right ones.
    pub verdict: Verdict,
    /// The paths that `get` chose, one after the other.
    pub chosen: Vec<String>,
    /// Bytes present when the chosen relay was killed.
    pub killed_at: Option<u64>,
}

impl Outcome {
    /// The mean rate over the whole time, set-up and sampling included.
    pub fn rate(&self) -> Rate {
        Rate::over(ByteSize::from_bytes(self.bytes), self.took)
    }
}

/// Everything that a download needs.
#[derive(Clone, Copy)]
pub struct Stage<'a> {
    /// The running lab.
    pub lab: &'a Lab,
    /// Where files go.
    pub scratch: &'a Scratch,
    /// The web server.
    pub web: &'a Web,
    /// Size of the served file, bytes.
    pub size: u64,
    /// Set by Ctrl-C.
    pub stop: &'a Stop,
}

impl<'a> Stage<'a> {
    /// Downloads with curl, directly or through one relay; the latter at most
    /// for [`RELAY_LIMIT`].
    ///
    /// # Errors
    /// When curl fails in any way but the time limit; on Ctrl-C.
    pub fn curl(&self, name: &str, relay: Option<&Relay>) -> anyhow::Result<Outcome> {
        let file = self.scratch.path("download.bin");
        let mut command = self.lab.command(CLIENT, "curl");
        // The user's own settings must not lead it elsewhere; --disable must come first.
        command.args(["--disable", "--silent", "--show-error", "--fail", "--output"]).arg(&file);
        for name in PROXY_VARIABLES {
            command.env_remove(name);
        }
        if let Some(relay) = relay {
            command.args(["--socks5-hostname", &relay.address()]);
            command.args(["--max-time", &RELAY_LIMIT.as_secs().to_string()]);
        }
        command.arg(self.web.url());
        let mut watched = self.start(command, name, &file)?;
        let code = loop {
            if let Some(status) = watched.step()? {
                break status;
            }
        };
        if code != 0 && code != CURL_TIMED_OUT {
            bail!("curl failed ({code}): {}", self.scratch.log_tail(watched.running.log()));
        }
        watched.finish(code == 0, Vec::new(), None)
    }

    /// Downloads with `thalweg get` over the direct path and all relays; if `kill`, the
    /// relay that it chooses is killed as soon as it is chosen.
    ///
    /// # Errors
    /// When `get` fails; on Ctrl-C.
    pub fn get(&self, name: &str, relays: &mut [Relay], kill: bool) -> anyhow::Result<Outcome> {
        let file = self.scratch.path("download.bin");
        let via: Vec<String> = relays.iter().map(Relay::address).collect();
        let own = std::env::current_exe().context("cannot find this program")?;
        let mut command = self.lab.command(CLIENT, own);
        command.arg("get").arg(self.web.url()).args(["--via", &via.join(","), "--json"]);
        command.arg("--output").arg(&file);
        let mut watched = self.start(command, name, &file)?;
        let (mut chosen, mut killed_at) = (Vec::new(), None);
        let code = loop {
            let ended = watched.step()?;
            while let Some(line) = watched.running.line() {
                match serde_json::from_str(&line) {
                    Ok(Event::Progress { done_bytes }) => watched.bytes = done_bytes,
                    Ok(Event::Chosen { path }) => chosen.push(path),
                    Ok(Event::Other) | Err(_) => {}
                }
            }
            let victim = relays.iter_mut().find(|relay| chosen.first() == Some(&relay.address()));
            if let (true, None, None, Some(relay)) = (kill, ended, killed_at, victim) {
                relay.kill();
                killed_at = Some(watched.bytes);
                watched.bar.note(&format!("killed {}", relay.name()));
            }
            if let Some(status) = ended {
                break status;
            }
        };
        if code != 0 {
            let log = self.scratch.log_tail(watched.running.log());
            bail!("thalweg get failed ({code}): {log}");
        }
        watched.finish(true, chosen, killed_at)
    }

    fn start(&self, command: Command, name: &str, file: &Path) -> anyhow::Result<Watched<'a>> {
        let bar = Bar::new(name, self.size);
        let started = Instant::now();
        let running = Running::start(command, self.scratch, "download")?;
        Ok(Watched { running, bar, started, file: file.to_owned(), bytes: 0, stage: *self })
    }
}

/// A download under way.
struct Watched<'a> {
    running: Running,
    bar: Bar,
    started: Instant,
    file: PathBuf,
    /// Bytes present: of the file, or what `get` said last.
    bytes: u64,
    stage: Stage<'a>,
}

impl Watched<'_> {
    /// Waits a moment; the program's exit code, once it has ended.
    fn step(&mut self) -> anyhow::Result<Option<i32>> {
        self.stage.stop.check()?;
        if let Some(status) = self.running.ended()? {
            return Ok(Some(status.code().unwrap_or(-1)));
        }
        if let Ok(file) = std::fs::metadata(&self.file) {
            self.bytes = file.len();
        }
        self.bar.set(self.bytes);
        std::thread::sleep(TICK);
        Ok(None)
    }

    /// `complete`: the program says that it has the whole file; less is wrong then.
    fn finish(
        self,
        complete: bool,
        chosen: Vec<String>,
        killed_at: Option<u64>,
    ) -> anyhow::Result<Outcome> {
        let took = self.started.elapsed();
        if !complete && !self.file.exists() {
            // Stopped before the first byte.
            std::fs::write(&self.file, [])?;
        }
        let verdict = match self.stage.scratch.verify(&self.file)? {
            Verdict::Beginning if complete => Verdict::Wrong,
            verdict => verdict,
        };
        let bytes = std::fs::metadata(&self.file)?.len();
        std::fs::remove_file(&self.file)?;
        Ok(Outcome { bytes, took, verdict, chosen, killed_at })
    }
}

/// What is of interest in the events of `get --json`.
#[derive(serde::Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Event {
    Progress {
        done_bytes: u64,
    },
    Chosen {
        path: String,
    },
    #[serde(other)]
    Other,
}
