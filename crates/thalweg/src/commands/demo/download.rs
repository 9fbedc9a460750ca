//! One download: a program in the client's host, watched until it ends.

use super::interrupt::Interrupt;
use super::network::CLIENT;
use super::process::{Running, TICK};
use super::scratch::{Scratch, Verdict};
use super::servers::{Relay, Web};
use super::watch::Bar;
use anyhow::{Context, bail};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use thalweg_lab::client::Lab;
use thalweg_units::{ByteSize, Rate};

/// A relay alone is stopped after this long, and counted by its rate. The paper does the
/// same after 20 s (UKAIRO §4); less here, since four slow relays must fit into the show.
pub const RELAY_LIMIT: Duration = Duration::from_secs(12);

/// Curl's exit code for "the time limit was reached".
const CURL_TIMED_OUT: i32 = 28;

/// What came of a download.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Bytes in the file at the end.
    pub bytes: u64,
    /// From the program's start to its end.
    pub took: Duration,
    /// Whether they are the right ones.
    pub verdict: Verdict,
    /// The path that `get` chose.
    pub chosen: Option<String>,
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
    /// Ctrl-C.
    pub interrupt: &'a Interrupt,
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
        command.args(["--silent", "--show-error", "--fail", "--output"]).arg(&file);
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
        watched.finish(None, None)
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
        let (mut chosen, mut killed_at) = (None, None);
        let code = loop {
            let ended = watched.step()?;
            while let Some(line) = watched.running.line() {
                chosen = chosen_path(&line).or(chosen);
                let victim = relays.iter_mut().find(|relay| relay.is(chosen.as_deref()));
                if let (true, None, Some(relay)) = (kill, killed_at, victim) {
                    relay.kill();
                    killed_at = Some(watched.bytes());
                    watched.bar.note(&format!("killed {}", relay.name()));
                }
            }
            if let Some(status) = ended {
                break status;
            }
        };
        if code != 0 {
            let log = self.scratch.log_tail(watched.running.log());
            bail!("thalweg get failed ({code}): {log}");
        }
        watched.finish(chosen, killed_at)
    }

    fn start(&self, command: Command, name: &str, file: &Path) -> anyhow::Result<Watched<'a>> {
        let bar = Bar::new(name, self.size);
        let started = Instant::now();
        let running = Running::start(command, self.scratch, "download")?;
        Ok(Watched { running, bar, started, file: file.to_owned(), stage: *self })
    }
}

/// A download under way.
struct Watched<'a> {
    running: Running,
    bar: Bar,
    started: Instant,
    file: PathBuf,
    stage: Stage<'a>,
}

impl Watched<'_> {
    /// Waits a moment; the program's exit code, once it has ended.
    fn step(&mut self) -> anyhow::Result<Option<i32>> {
        self.stage.interrupt.check()?;
        if let Some(status) = self.running.ended()? {
            return Ok(Some(status.code().unwrap_or(-1)));
        }
        self.bar.set(self.bytes());
        std::thread::sleep(TICK);
        Ok(None)
    }

    /// Bytes on disk: those of the file or, while `get` makes it, of its part.
    fn bytes(&self) -> u64 {
        use std::os::unix::fs::MetadataExt;
        let mut part = OsString::from(self.file.as_os_str());
        part.push(".thalweg-part");
        let file = std::fs::metadata(&self.file).or_else(|_| std::fs::metadata(part));
        // Blocks, not length: a part is as long as the file from the beginning.
        file.map_or(0, |file| file.len().min(file.blocks() * 512))
    }

    fn finish(self, chosen: Option<String>, killed_at: Option<u64>) -> anyhow::Result<Outcome> {
        let took = self.started.elapsed();
        let verdict = self.stage.scratch.verify(&self.file)?;
        let bytes = std::fs::metadata(&self.file)?.len();
        std::fs::remove_file(&self.file)?;
        Ok(Outcome { bytes, took, verdict, chosen, killed_at })
    }
}

/// The path named in one of the events of `get --json`, if it is the one of a choice.
fn chosen_path(line: &str) -> Option<String> {
    let event: serde_json::Value = serde_json::from_str(line).ok()?;
    (event["event"] == "chosen").then(|| event["path"].as_str().map(str::to_owned))?
}
