//! The sites: the file, faults and counters of each URL.

use super::{
    answer::HttpAnswer,
    fault::{self, Fault, FaultKind, Refusal},
    request::HttpRequest,
    send::{self, ConnectionFate},
};
use anyhow::{Context, bail};
use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::BTreeMap,
    fs::File,
    net::TcpStream,
    path::{Component, Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};
use thalweg_units::Rate;

/// The most URLs. The tool is for trials, not for public use.
const URLS_MAX: usize = 4096;

/// All URLs.
pub struct Sites {
    directory: PathBuf,
    known: Mutex<BTreeMap<String, Arc<Site>>>,
}

/// One URL.
pub struct Site {
    file: PathBuf,
    faults: Vec<Fault>,
    state: Mutex<State>,
}

/// The present version of a site's file.
pub struct Version {
    /// The file, open for reading.
    pub file: File,
    /// Its length, bytes.
    pub length: u64,
    /// The entity tag with its quotes; `None` if the site sends none.
    pub tag: Option<String>,
    /// Whether it is the second version.
    changed: bool,
}

/// The counters and state of a URL.
#[derive(Debug, Default)]
struct State {
    requests: u64,
    refused: u64,
    /// Bytes of bodies written to sockets.
    bytes: u64,
    /// Answers in progress.
    open: usize,
    /// Whether the file was replaced.
    changed: bool,
    /// How often each fault has happened.
    happened: Vec<u32>,
    /// When the next byte may be sent.
    next: Option<Instant>,
}

/// An answer in progress; it counts until dropped.
pub struct AnswerInProgress<'a>(&'a Site);

impl Drop for AnswerInProgress<'_> {
    fn drop(&mut self) {
        self.0.state().open -= 1;
    }
}

impl Sites {
    /// Creates the sites of a directory.
    pub fn new(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), known: Mutex::default() }
    }

    /// Answers a request.
    ///
    /// # Errors
    /// If the connection breaks or the file cannot be read.
    pub fn answer(
        &self,
        request: &HttpRequest,
        stream: &TcpStream,
    ) -> anyhow::Result<ConnectionFate> {
        if let Some(target) = request.target.strip_prefix("/counts") {
            let counts = self.site(target).map(|site| site.counts());
            return send::send_text(stream, request, counts);
        }
        match self.site(&request.target) {
            Ok(site) => send::send_answer(stream, request, &site),
            Err(e) => send::send_text(stream, request, Err(e)),
        }
    }

    fn site(&self, target: &str) -> anyhow::Result<Arc<Site>> {
        let mut known = self.known.lock();
        if let Some(site) = known.get(target) {
            return Ok(Arc::clone(site));
        }
        if known.len() >= URLS_MAX {
            bail!("more than {URLS_MAX} URLs were requested");
        }
        let site = Arc::new(self.open(target)?);
        known.insert(target.to_owned(), Arc::clone(&site));
        Ok(site)
    }

    fn open(&self, target: &str) -> anyhow::Result<Site> {
        let path = target.split('?').next().unwrap_or_default();
        let (faults, name) = path
            .strip_prefix('/')
            .and_then(|path| path.split_once('/'))
            .context("URLs are /FAULT[,FAULT…]/NAME; see --help")?;
        let inside = Path::new(name).components().all(|c| matches!(c, Component::Normal(_)));
        let file = self.directory.join(name);
        if !inside || !file.is_file() {
            bail!("the file {name} does not exist");
        }
        let faults = fault::parse_all(faults)?;
        let happened = vec![0; faults.len()];
        let state = Mutex::new(State { happened, ..State::default() });
        Ok(Site { file, faults, state })
    }
}

impl Site {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// The counters as JSON.
    fn counts(&self) -> String {
        let State { requests, refused, bytes, changed, .. } = &*self.state();
        let counts = serde_json::json!({
            "requests": requests, "refused": refused, "bytes": bytes, "changed": changed,
        });
        counts.to_string()
    }

    /// Counts a request. Returns the refusal with which it is to be answered, if any.
    pub fn begin(&self) -> (AnswerInProgress<'_>, Option<Refusal>) {
        let mut state = self.state();
        let first = state.requests == 0;
        state.requests += 1;
        state.open += 1;
        let refusal = self.faults.iter().enumerate().find_map(|(i, fault)| match fault.kind {
            FaultKind::Busy(refusal) if !first && fault.times > state.happened[i] => {
                Some((i, refusal))
            }
            FaultKind::Parallel(most, refusal) if state.open > most => Some((i, refusal)),
            _ => None,
        });
        if let Some((i, _)) = refusal {
            state.happened[i] += 1;
            state.refused += 1;
        }
        drop(state);
        (AnswerInProgress(self), refusal.map(|(_, refusal)| refusal))
    }

    /// Opens the present version of the file.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn version(&self) -> anyhow::Result<Version> {
        let changed = self.state().changed;
        let mut name = self.file.clone().into_os_string();
        if changed {
            name.push(".next");
        }
        let file =
            File::open(&name).with_context(|| format!("{} no longer exists", name.display()))?;
        let length = file.metadata()?.len();
        let validator = !self.faults.iter().any(|f| f.kind == FaultKind::NoValidator);
        let tag = format!("\"{}-{length}\"", if changed { "next" } else { "first" });
        Ok(Version { file, length, tag: validator.then_some(tag), changed })
    }

    /// Whether ranges are ignored.
    pub fn ignores_ranges(&self) -> bool {
        self.faults.iter().any(|f| f.kind == FaultKind::IgnoreRange)
    }

    /// Injects each fault that still happens into an answer.
    pub fn inject(&self, answer: &mut HttpAnswer) {
        let mut state = self.state();
        for (i, fault) in self.faults.iter().enumerate() {
            if fault.times > state.happened[i] && answer.inject(fault.kind) {
                state.happened[i] += 1;
            }
        }
    }

    /// Reserves a time slot for `n` bytes. Returns when they may be sent; `None` without a rate limit.
    pub fn reserve(&self, n: usize) -> Option<Instant> {
        let rate = self.faults.iter().find_map(|f| match f.kind {
            FaultKind::Rate(rate) if rate > Rate::ZERO => Some(rate),
            _ => None,
        })?;
        let mut state = self.state();
        let turn = state.next.unwrap_or_else(Instant::now).max(Instant::now());
        let takes = n as f64 * 8.0 / rate.as_bps() as f64;
        state.next = Some(turn + Duration::from_secs_f64(takes));
        Some(turn)
    }

    /// Counts `n` sent bytes of this version. Returns `false` if the file is replaced now.
    pub fn count_sent(&self, n: usize, version: &Version) -> bool {
        let mut state = self.state();
        state.bytes += n as u64;
        let change = self.faults.iter().find_map(|f| match f.kind {
            FaultKind::Change(at) => Some(at.offset_in(version.length)),
            _ => None,
        });
        state.changed |= change.is_some_and(|at| state.bytes >= at);
        state.changed == version.changed
    }
}
