//! Runs one download: its attempts, from the first request to the published file.

use super::{
    Advice, GetError, PathError, Phases, Request, Stop, Target,
    discovery::{DiscoveredObject, Discovery, Trust},
    facts::{Connections, Waits},
    metadata::Metadata,
    output::{OutputWriter, WriterThread},
    paths::Paths,
    ranged,
    resource::Resource,
    whole_object,
    worker::{DownloadState, HEAD, Start},
};
use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, atomic::AtomicBool},
};
use thalweg_base::job::{Event, EventSink};
use thalweg_part::{Digest, Part, PartError, PartKey};
use thalweg_paths::{candidates::Candidate, history::PathObservation};
use thalweg_units::Rate;
use tokio::{task::spawn_blocking, time::Instant};

/// Why an attempt ended without the file.
pub(super) enum AttemptError {
    /// The download has failed.
    Failed(GetError),
    /// The object has changed. The flag is set if its length is the same; then perhaps only the server's name for the
    /// version has changed.
    Changed(String, bool),
    /// Ranges cannot be used, or would mix bytes that nothing proves to be of one version.
    Plain(String),
    /// A relay pinned an object that the direct path contradicts.
    TrustDirect,
    /// An object that is only sent whole broke off on this path, after this many bytes.
    Broke(String, Box<PathError>, u64),
}

impl AttemptError {
    pub(super) fn paths(failures: Vec<(String, PathError)>) -> Self {
        Self::Failed(GetError::Paths(failures))
    }
}

/// How an attempt requests the object, in order of decreasing trust in the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// In ranges of one version.
    Ranges,
    /// In ranges of any version: the user's digest verifies the whole.
    ByHash,
    /// With one `GET` without a range or condition.
    Plain,
}

/// One call of [`get`]: the state across its attempts.
pub(super) struct Run<'a> {
    pub(super) request: &'a Request,
    pub(super) advice: Advice,
    pub(super) sink: &'a dyn EventSink,
    pub(super) started: Instant,
    pub(super) attempts: u32,
    pub(super) mode: Mode,
    /// Bytes that were already there at the start.
    pub(super) resumed: Option<u64>,
    /// Bytes of another program's file that this attempt took over.
    pub(super) adopted: u64,
    pub(super) fetched: u64,
    pub(super) kept: u64,
    pub(super) direct_estimate: Option<Rate>,
    pub(super) phases: Phases,
    pub(super) observed: Vec<PathObservation>,
    pub(super) published: Option<(PathBuf, u64)>,
    /// Paths that altered bytes, each with a description.
    pub(super) corrupt: Vec<(String, String)>,
    /// The output, if there is one, and the thread that writes to it in this attempt.
    pub(super) flow: Option<OutputWriter>,
    pub(super) running: Option<WriterThread>,
    /// The times in which no bytes were taken.
    pub(super) waits: Waits,
    /// When the last byte arrived.
    pub(super) last_byte: Option<Instant>,
    /// The connections of all attempts.
    pub(super) connections: Arc<Connections>,
}

impl<'a> Run<'a> {
    pub(super) fn new(request: &'a Request, advice: Advice, sink: &'a dyn EventSink) -> Self {
        let is_verifiable = !request.digests.is_empty();
        let mode = match &advice.server {
            server if server.is_asked_plainly() => Mode::Plain,
            server if !is_verifiable && server.is_never_steady() => Mode::Plain,
            server if is_verifiable && server.has_unsteady_versions() => Mode::ByHash,
            _ => Mode::Ranges,
        };
        Self {
            request,
            advice,
            sink,
            started: Instant::now(),
            attempts: 0,
            mode,
            resumed: None,
            adopted: 0,
            fetched: 0,
            kept: 0,
            direct_estimate: None,
            phases: Phases::default(),
            observed: Vec::new(),
            published: None,
            corrupt: Vec::new(),
            flow: None,
            running: None,
            waits: Waits::default(),
            last_byte: None,
            connections: Arc::default(),
        }
    }

    /// Runs attempts until one succeeds or the download fails, the user stops it, or the output accepts no more bytes.
    pub(super) async fn until_done(&mut self, stop: &mut Stop) -> Result<(), GetError> {
        let (hand, mut inner) = Stop::new();
        if let Target::Output(output) = &self.request.target {
            self.flow = Some(OutputWriter::new(Arc::clone(output), hand.clone()));
        }
        let wish = async {
            stop.requested().await;
            hand.send_replace(true);
            std::future::pending().await
        };
        let done = tokio::select! {
            done = self.attempts(&mut inner) => done,
            () = wish => Ok(()),
        };
        let refusal = self.flow.as_ref().and_then(OutputWriter::refusal);
        refusal.map_or(done, Err)
    }

    /// Runs attempts, with at most one restart for each reason, and a few for an object that is only sent whole.
    async fn attempts(&mut self, stop: &mut Stop) -> Result<(), GetError> {
        let (mut trust, mut changed, mut broke, mut broke_at) = (Trust::First, false, 0, None);
        loop {
            let done = self.attempt(trust, stop).await;
            self.running = None;
            let why = match done {
                Ok(()) => return Ok(()),
                Err(AttemptError::Failed(error)) => {
                    self.note_failures(&error);
                    return Err(error);
                }
                Err(AttemptError::Broke(path, error, at)) => {
                    // Twice at the same position: the network is not the cause.
                    let again = broke_at.replace(at) == Some(at);
                    if broke == whole_object::RETRIES || again {
                        return Err(GetError::Paths(vec![(path, *error)]));
                    }
                    broke += 1;
                    let why =
                        format!("{path}: {error}; the file can only be fetched from the start");
                    self.sink.event(&Event::Restarted { why });
                    whole_object::pause(broke, stop).await?;
                    continue;
                }
                Err(AttemptError::Changed(why, is_as_long)) => {
                    self.after_change(is_as_long, changed);
                    changed = true;
                    why
                }
                Err(AttemptError::Plain(why)) => {
                    self.mode = Mode::Plain;
                    format!("{why}; the file is fetched in one piece")
                }
                Err(AttemptError::TrustDirect) if trust == Trust::Direct => {
                    let why = "the paths disagree about the file".to_owned();
                    return Err(GetError::KeepsChanging(why));
                }
                Err(AttemptError::TrustDirect) => {
                    trust = Trust::Direct;
                    "a relay led to another file than the direct path".to_owned()
                }
            };
            self.sink.event(&Event::Restarted { why });
        }
    }

    /// Sets the mode after the object has changed. If its length differs, it really changed, and the new version may be
    /// fetched in ranges. Otherwise the server may give one version several names, and no two answers will ever agree:
    /// a digest verifies them, or there is only one answer.
    fn after_change(&mut self, is_as_long: bool, again: bool) {
        if is_as_long {
            self.advice.server.versions_failed();
        }
        self.mode = match self.mode {
            Mode::Ranges if !is_as_long && !again => Mode::Ranges,
            Mode::Ranges if !self.request.digests.is_empty() => Mode::ByHash,
            _ => Mode::Plain,
        };
    }

    pub(super) async fn attempt(
        &mut self,
        trust: Trust,
        stop: &mut Stop,
    ) -> Result<(), AttemptError> {
        self.attempts += 1;
        let first = self.first_question().await?;
        let is_plain = self.mode == Mode::Plain;
        let candidates = if is_plain { self.fastest_first() } else { self.request.paths.clone() };
        let mut paths = Paths::start(self.shared(), &candidates, first);
        let is_verifiable = !self.request.digests.is_empty();
        let mut discovery = Discovery::new(&paths, trust, is_verifiable, is_plain);
        let found = tokio::select! {
            found = self.discover(&mut discovery, &mut paths) => found?,
            () = stop.requested() => return Err(AttemptError::Failed(GetError::Interrupted)),
        };
        match found {
            DiscoveredObject::Ranged(by, resource) => {
                ranged::download(self, paths, by, resource, discovery, stop).await
            }
            DiscoveredObject::Whole(by, whole, body) => {
                let path = candidates[by.0 as usize].clone();
                // This drops the bodies and connections of the other paths too.
                drop((discovery, paths));
                whole_object::download(self, path, whole, body, stop).await
            }
        }
    }

    /// The paths, the fastest first, if it does not matter which answer is believed, because TLS or a digest verifies
    /// it; otherwise in their given order.
    fn fastest_first(&self) -> Vec<Candidate> {
        let mut paths = self.request.paths.clone();
        if !self.request.url.is_https() && self.request.digests.is_empty() {
            return paths;
        }
        let priors = self.request.paths.iter().zip(&self.request.priors);
        let mut rates: BTreeMap<&str, Rate> =
            priors.filter_map(|(p, prior)| Some((p.name.as_str(), prior.as_ref()?.rate))).collect();
        rates.extend(self.observed.iter().map(|o| (o.path.as_str(), o.rate)));
        // The sort is stable: paths without a known rate stay in their order, at the end.
        paths.sort_by_key(|p| std::cmp::Reverse(rates.get(p.name.as_str()).copied()));
        paths
    }

    /// The state that all paths share.
    pub(super) fn shared(&self) -> Arc<DownloadState> {
        Arc::new(DownloadState {
            web: self.request.web.clone(),
            url: self.request.url.clone(),
            fields: self.request.fields.clone(),
            patience: self.request.patience,
            plain_patience: whole_object::plain_patience(self.request),
            one_by_one: AtomicBool::new(false),
            kept: Arc::clone(&self.request.kept),
            head_start: self.advice.head_start,
            server: Arc::clone(&self.advice.server),
            cookies: Arc::clone(&self.advice.cookies),
            logins: Arc::clone(&self.advice.logins),
            is_plain: self.mode == Mode::Plain,
            is_verifiable: !self.request.digests.is_empty(),
            by_hash: self.mode == Mode::ByHash,
            served_segment: AtomicBool::new(false),
            offers_ranges: AtomicBool::new(false),
            is_clamped: AtomicBool::new(false),
            closes: AtomicBool::new(false),
            stall: self.request.selection.stall,
            is_alone: AtomicBool::new(false),
            connections: Arc::clone(&self.connections),
        })
    }

    /// The first path's first request: for the first missing bytes. After a failed attempt the existing bytes are most
    /// likely useless, so the request is for the start.
    ///
    /// Several paths share the rest after the first bytes. A single path requests everything, like any other client:
    /// this also fetches a link that answers only once, and does not depend on ranges while the answer flows.
    async fn first_question(&self) -> Result<Start, AttemptError> {
        let is_alone = self.request.paths.len() == 1;
        let from_the_start = if is_alone { Start::Whole } else { Start::Bytes(0..HEAD) };
        if self.mode == Mode::Plain || self.attempts > 1 {
            return Ok(from_the_start);
        }
        // This check costs less than a second thread for it.
        let Some(target) = self.likely_target().filter(|target| !Part::is_untouched(target)) else {
            return Ok(from_the_start);
        };
        let gap = blocking(move || Ok(Part::gap(&target))).await?;
        let most = if is_alone { u64::MAX } else { HEAD };
        Ok(match gap {
            // Most bytes are probably there.
            None if self.request.adopt => Start::Bytes(0..HEAD),
            Some(gap) if gap.is_empty() => Start::Probe,
            Some(gap) if gap.start > 0 => {
                Start::Bytes(gap.start..gap.end.min(gap.start.saturating_add(most)))
            }
            Some(_) | None => from_the_start,
        })
    }

    /// Determines the object. The answer of a single relay suffices neither to discard kept bytes nor to fail for lack
    /// of disk space; the direct path is then waited for.
    pub(super) async fn discover(
        &self,
        discovery: &mut Discovery,
        paths: &mut Paths,
    ) -> Result<DiscoveredObject, AttemptError> {
        loop {
            let mut found = discovery.run(paths, self.sink).await?;
            found.doubt(paths);
            let DiscoveredObject::Ranged(by, resource) = &found else { return Ok(found) };
            if discovery.is_confirmed(*by, resource, paths) {
                return Ok(found);
            }
            let Some(target) = self.target(&resource.metadata, &resource.url)? else {
                return Ok(found);
            };
            let key = self.key(resource);
            let harmless = blocking(move || Part::can_continue(&target, &key)).await?;
            if harmless {
                return Ok(found);
            }
            if !discovery.awaits_direct(paths) {
                return Err(AttemptError::Failed(GetError::OneRelay(paths.name(*by).to_owned())));
            }
            discovery.insist();
        }
    }

    pub(super) fn key(&self, resource: &Resource) -> PartKey {
        PartKey::Url {
            url: resource.url.to_string(),
            length: Some(resource.length),
            validator: resource.validator.clone(),
            digests: self.digests(&resource.metadata),
        }
    }

    /// The digests of the whole file: the user's, or else the server's.
    pub(super) fn digests(&self, metadata: &Metadata) -> Vec<Digest> {
        let given = &self.request.digests;
        if given.is_empty() { metadata.digest.into_iter().collect() } else { given.clone() }
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.request.paths.iter().map(|p| p.name.clone()).collect()
    }

    pub(super) fn started(
        &self,
        part: &Part,
        url: String,
        metadata: &Metadata,
        total_bytes: Option<u64>,
    ) {
        let job = part.job().id;
        let target = match &self.request.target {
            Target::Output(output) => output.path().unwrap_or(part.target()),
            Target::File(_) | Target::In(_) => part.target(),
        };
        let target = target.display().to_string();
        let paths = self.names();
        self.sink.event(&Event::Started { job, url, target, total_bytes, paths });
        if let Some(coding) = &metadata.compression {
            let text = format!(
                "the server sent the file compressed ({coding}) although asked not to; it is saved as received"
            );
            self.sink.event(&Event::Note { text });
        }
        if part.resumed() > 0 {
            self.sink.event(&Event::Resumed { bytes: part.resumed() });
        }
        if self.adopted > 0 {
            let file = part.target().display().to_string();
            self.sink.event(&Event::Adopted { file, bytes: self.adopted });
        }
        // On a restart the user has already been told.
        if part.discarded() && self.attempts == 1 {
            let why =
                "nothing proves that the kept bytes belong to this version of the file".to_owned();
            self.sink.event(&Event::Restarted { why });
        }
    }
}

/// Runs disk work outside of the network's threads.
pub(super) async fn blocking<T, F>(work: F) -> Result<T, AttemptError>
where
    T: Send + 'static,
    F: FnOnce() -> Result<T, PartError> + Send + 'static,
{
    let done = spawn_blocking(work).await;
    let done =
        done.map_err(|e| AttemptError::Failed(GetError::System(std::io::Error::other(e))))?;
    done.map_err(|e| AttemptError::Failed(e.into()))
}
