//! One download from its first question to the published file: its attempts.

use super::{
    Advice, GetError, PathError, Phases, Request, Stop, Target,
    discovery::{Discovery, Found, Trust},
    flow::{Flow, Running},
    paths::Paths,
    ranged,
    resource::Resource,
    said::Said,
    whole,
    worker::{HEAD, Shared, Start},
};
use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, atomic::AtomicBool},
};
use thalweg_base::job::{Event, EventSink};
use thalweg_part::{Digest, Part, PartError, PartKey};
use thalweg_paths::{candidates::Candidate, history::Observed};
use thalweg_units::Rate;
use tokio::{task::spawn_blocking, time::Instant};

/// Why an attempt ended without the file.
pub(super) enum Halt {
    /// For good.
    Failed(GetError),
    /// The object is another one now; as long as it was, if this is set: then perhaps only what the server calls it changed.
    Changed(String, bool),
    /// Ranges are of no use here, or would mix what nothing proves to be of one version.
    Plain(String),
    /// A relay pinned an object that the direct path does not know.
    TrustDirect,
    /// An object that only comes whole broke off on this path, after so many bytes.
    Broke(String, Box<PathError>, u64),
}

impl Halt {
    pub(super) fn paths(failures: Vec<(String, PathError)>) -> Self {
        Self::Failed(GetError::Paths(failures))
    }
}

/// How an attempt asks for the object, from the most to the least that it trusts the server with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// In ranges, of one version.
    Ranges,
    /// In ranges of whatever version: the digest that the user gave judges.
    ByHash,
    /// By one `GET` without range and condition.
    Plain,
}

/// One call of [`get`]: what outlives its attempts.
pub(super) struct Run<'a> {
    pub(super) request: &'a Request,
    pub(super) advice: Advice,
    pub(super) sink: &'a dyn EventSink,
    pub(super) started: Instant,
    pub(super) attempts: u32,
    pub(super) mode: Mode,
    /// Bytes that were there at the start.
    pub(super) resumed: Option<u64>,
    /// Bytes of another program's file that this attempt took over.
    pub(super) adopted: u64,
    pub(super) fetched: u64,
    pub(super) kept: u64,
    pub(super) direct_estimate: Option<Rate>,
    pub(super) phases: Phases,
    pub(super) observed: Vec<Observed>,
    pub(super) published: Option<(PathBuf, u64)>,
    /// Relays that altered bytes, and what was seen of it.
    pub(super) corrupt: Vec<(String, String)>,
    /// The output, if the bytes go to one, and the thread that fills it in this attempt.
    pub(super) flow: Option<Flow>,
    pub(super) running: Option<Running>,
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
        }
    }

    /// Attempts until one succeeds or it is hopeless, the user wishes it to end, or the
    /// output takes no more.
    pub(super) async fn until_done(&mut self, stop: &mut Stop) -> Result<(), GetError> {
        let (hand, mut inner) = Stop::new();
        if let Target::Output(output) = &self.request.target {
            self.flow = Some(Flow::new(Arc::clone(output), hand.clone()));
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
        let refusal = self.flow.as_ref().and_then(Flow::refusal);
        refusal.map_or(done, Err)
    }

    /// Attempts, with at most one restart for each reason, and a few where the object
    /// only comes whole.
    async fn attempts(&mut self, stop: &mut Stop) -> Result<(), GetError> {
        let (mut trust, mut changed, mut broke, mut broke_at) = (Trust::First, false, 0, None);
        loop {
            let done = self.attempt(trust, stop).await;
            self.running = None;
            let why = match done {
                Ok(()) => return Ok(()),
                Err(Halt::Failed(error)) => {
                    self.note_failures(&error);
                    return Err(error);
                }
                Err(Halt::Broke(path, error, at)) => {
                    // Twice at one place: it is not the network.
                    let again = broke_at.replace(at) == Some(at);
                    if broke == whole::RETRIES || again {
                        return Err(GetError::Paths(vec![(path, *error)]));
                    }
                    broke += 1;
                    let why = format!("{path}: {error}; it can only be had from the start");
                    self.sink.event(&Event::Restarted { why });
                    whole::pause(broke, stop).await?;
                    continue;
                }
                Err(Halt::Changed(why, is_as_long)) => {
                    self.after_change(is_as_long, changed);
                    changed = true;
                    why
                }
                Err(Halt::Plain(why)) => {
                    self.mode = Mode::Plain;
                    format!("{why}; it is fetched in one piece")
                }
                Err(Halt::TrustDirect) if trust == Trust::Direct => {
                    let why = "the paths disagree about it".to_owned();
                    return Err(GetError::KeepsChanging(why));
                }
                Err(Halt::TrustDirect) => {
                    trust = Trust::Direct;
                    "a relay spoke of another file than the direct path does".to_owned()
                }
            };
            self.sink.event(&Event::Restarted { why });
        }
    }

    /// How to ask for an object that is another one than before. Its new version may be fetched in ranges if it really
    /// changed, which its length shows. Else the server may call one version by several names, and no two answers will
    /// ever agree: a digest judges them, or there is only one answer.
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

    pub(super) async fn attempt(&mut self, trust: Trust, stop: &mut Stop) -> Result<(), Halt> {
        self.attempts += 1;
        let first = self.first_question().await?;
        let is_plain = self.mode == Mode::Plain;
        let candidates = if is_plain { self.fastest_first() } else { self.request.paths.clone() };
        let mut paths = Paths::start(self.shared(), &candidates, first);
        let is_verifiable = !self.request.digests.is_empty();
        let mut discovery = Discovery::new(&paths, trust, is_verifiable, is_plain);
        let found = tokio::select! {
            found = self.discover(&mut discovery, &mut paths) => found?,
            () = stop.requested() => return Err(Halt::Failed(GetError::Interrupted)),
        };
        match found {
            Found::Ranged(by, resource) => {
                ranged::download(self, paths, by, resource, discovery, stop).await
            }
            Found::Whole(by, whole, body) => {
                let path = candidates[by.0 as usize].clone();
                // The other paths' bodies and connections go with these.
                drop((discovery, paths));
                whole::download(self, path, whole, body, stop).await
            }
        }
    }

    /// The paths, the fastest known first, where it does not matter whose answer is believed: TLS or a digest proves it.
    fn fastest_first(&self) -> Vec<Candidate> {
        let mut paths = self.request.paths.clone();
        if !self.request.url.is_https() && self.request.digests.is_empty() {
            return paths;
        }
        let priors = self.request.paths.iter().zip(&self.request.priors);
        let mut rates: BTreeMap<&str, Rate> =
            priors.filter_map(|(p, prior)| Some((p.name.as_str(), prior.as_ref()?.rate))).collect();
        rates.extend(self.observed.iter().map(|o| (o.path.as_str(), o.rate)));
        // Stable: those of which nothing is known stay in their order, behind.
        paths.sort_by_key(|p| std::cmp::Reverse(rates.get(p.name.as_str()).copied()));
        paths
    }

    /// What all paths have in common.
    pub(super) fn shared(&self) -> Arc<Shared> {
        Arc::new(Shared {
            web: self.request.web.clone(),
            url: self.request.url.clone(),
            fields: self.request.fields.clone(),
            patience: self.request.patience,
            plain_patience: whole::plain_patience(self.request),
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
        })
    }

    /// The first path's first question: for the first bytes that are missing. Whatever led to a
    /// second attempt, what is there is most likely of no use.
    ///
    /// Several paths share what follows the first bytes. A single path asks for all, in the way of every other client: so
    /// a link is fetched that answers only once, and nothing depends on the server's ranges while the answer flows.
    async fn first_question(&self) -> Result<Start, Halt> {
        let is_alone = self.request.paths.len() == 1;
        let from_the_start = if is_alone { Start::Whole } else { Start::Bytes(0..HEAD) };
        if self.mode == Mode::Plain || self.attempts > 1 {
            return Ok(from_the_start);
        }
        // To look costs less than to have another thread look.
        let Some(target) = self.likely_target().filter(|target| !Part::is_untouched(target)) else {
            return Ok(from_the_start);
        };
        let gap = blocking(move || Ok(Part::gap(&target))).await?;
        let most = if is_alone { u64::MAX } else { HEAD };
        Ok(match gap {
            // Most of the bytes are probably there.
            None if self.request.adopt => Start::Bytes(0..HEAD),
            Some(gap) if gap.is_empty() => Start::Probe,
            Some(gap) if gap.start > 0 => {
                Start::Bytes(gap.start..gap.end.min(gap.start.saturating_add(most)))
            }
            Some(_) | None => from_the_start,
        })
    }

    /// Finds the object. A single relay's word neither costs what is kept nor
    /// ends the download for want of room: then the direct path is waited for.
    pub(super) async fn discover(
        &self,
        discovery: &mut Discovery,
        paths: &mut Paths,
    ) -> Result<Found, Halt> {
        loop {
            let mut found = discovery.run(paths, self.sink).await?;
            found.doubt(paths);
            let Found::Ranged(by, resource) = &found else { return Ok(found) };
            if discovery.is_confirmed(*by, resource, paths) {
                return Ok(found);
            }
            let Some(target) = self.target(&resource.said, &resource.url)? else {
                return Ok(found);
            };
            let key = self.key(resource);
            let harmless = blocking(move || Part::is_harmless(&target, &key)).await?;
            if harmless {
                return Ok(found);
            }
            if !discovery.awaits_direct(paths) {
                return Err(Halt::Failed(GetError::OneRelay(paths.name(*by).to_owned())));
            }
            discovery.insist();
        }
    }

    pub(super) fn key(&self, resource: &Resource) -> PartKey {
        PartKey::Url {
            url: resource.url.to_string(),
            length: Some(resource.length),
            validator: resource.validator.clone(),
            digests: self.digests(&resource.said),
        }
    }

    /// What the whole must hash to: as the user says, else as the server does.
    pub(super) fn digests(&self, said: &Said) -> Vec<Digest> {
        let given = &self.request.digests;
        if given.is_empty() { said.digest.into_iter().collect() } else { given.clone() }
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.request.paths.iter().map(|p| p.name.clone()).collect()
    }

    pub(super) fn started(&self, part: &Part, url: String, said: &Said, total_bytes: Option<u64>) {
        let job = part.job().id;
        let target = match &self.request.target {
            Target::Output(output) => output.path().unwrap_or(part.target()),
            Target::File(_) | Target::In(_) => part.target(),
        };
        let target = target.display().to_string();
        let paths = self.names();
        self.sink.event(&Event::Started { job, url, target, total_bytes, paths });
        if let Some(coding) = &said.compression {
            let text = format!(
                "the server sent the file compressed ({coding}), though asked not to; it is saved as it comes"
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
        // On a restart the user has been told already.
        if part.discarded() && self.attempts == 1 {
            let why = "what was there is not provably of this version of the file".to_owned();
            self.sink.event(&Event::Restarted { why });
        }
    }
}

/// Work on the disk, off the network's threads.
pub(super) async fn blocking<T, F>(work: F) -> Result<T, Halt>
where
    T: Send + 'static,
    F: FnOnce() -> Result<T, PartError> + Send + 'static,
{
    let done = spawn_blocking(work).await;
    let done = done.map_err(|e| Halt::Failed(GetError::System(std::io::Error::other(e))))?;
    done.map_err(|e| Halt::Failed(e.into()))
}
