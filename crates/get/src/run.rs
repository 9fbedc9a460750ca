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
    path::PathBuf,
    sync::{Arc, atomic::AtomicBool},
};
use thalweg_base::job::{Event, EventSink};
use thalweg_part::{Digest, Part, PartError, PartKey};
use thalweg_paths::history::Observed;
use thalweg_units::Rate;
use tokio::{task::spawn_blocking, time::Instant};

/// Why an attempt ended without the file.
pub(super) enum Halt {
    /// For good.
    Failed(GetError),
    /// The object is another one now.
    Changed(String),
    /// A relay pinned an object that the direct path does not know.
    TrustDirect,
    /// An object that only comes whole broke off on this path.
    Broke(String, Box<PathError>),
}

impl Halt {
    pub(super) fn paths(failures: Vec<(String, PathError)>) -> Self {
        Self::Failed(GetError::Paths(failures))
    }
}

/// One call of [`get`]: what outlives its attempts.
pub(super) struct Run<'a> {
    pub(super) request: &'a Request,
    pub(super) advice: Advice,
    pub(super) sink: &'a dyn EventSink,
    pub(super) started: Instant,
    pub(super) attempts: u32,
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
        Self {
            request,
            advice,
            sink,
            started: Instant::now(),
            attempts: 0,
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

    /// Attempts, with at most one restart for either reason, and a few where the object
    /// only comes whole.
    async fn attempts(&mut self, stop: &mut Stop) -> Result<(), GetError> {
        let (mut trust, mut changed, mut broke) = (Trust::First, false, 0);
        loop {
            let done = self.attempt(trust, stop).await;
            self.running = None;
            let why = match done {
                Ok(()) => return Ok(()),
                Err(Halt::Failed(error)) => {
                    self.note_failures(&error);
                    return Err(error);
                }
                Err(Halt::Broke(path, error)) => {
                    if broke == whole::RETRIES {
                        return Err(GetError::Paths(vec![(path, *error)]));
                    }
                    broke += 1;
                    let why = format!("{path}: {error}; it can only be had from the start");
                    self.sink.event(&Event::Restarted { why });
                    whole::pause(broke, stop).await?;
                    continue;
                }
                Err(Halt::Changed(why)) if changed => return Err(GetError::KeepsChanging(why)),
                Err(Halt::Changed(why)) => {
                    changed = true;
                    why
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

    pub(super) async fn attempt(&mut self, trust: Trust, stop: &mut Stop) -> Result<(), Halt> {
        self.attempts += 1;
        let first = self.first_question().await?;
        let mut paths = Paths::start(self.shared(), &self.request.paths, first);
        let mut discovery = Discovery::new(&paths, trust, !self.request.digests.is_empty());
        let found = tokio::select! {
            found = self.discover(&mut discovery, &mut paths) => found?,
            () = stop.requested() => return Err(Halt::Failed(GetError::Interrupted)),
        };
        match found {
            Found::Ranged(by, resource) => {
                ranged::download(self, paths, by, resource, discovery, stop).await
            }
            Found::Whole(by, whole, body) => {
                let path = self.request.paths[by.0 as usize].clone();
                // The other paths' bodies and connections go with these.
                drop((discovery, paths));
                whole::download(self, path, whole, body, stop).await
            }
        }
    }

    /// What all paths have in common.
    pub(super) fn shared(&self) -> Arc<Shared> {
        Arc::new(Shared {
            web: self.request.web.clone(),
            url: self.request.url.clone(),
            fields: self.request.fields.clone(),
            patience: self.request.patience,
            one_by_one: AtomicBool::new(false),
            kept: Arc::clone(&self.request.kept),
            head_start: self.advice.head_start,
        })
    }

    /// The first path's first question: for the first bytes that are missing. Whatever led to a
    /// second attempt, what is there is most likely of no use.
    async fn first_question(&self) -> Result<Start, Halt> {
        if self.attempts > 1 {
            return Ok(Start::Bytes(0..HEAD));
        }
        // To look costs less than to have another thread look.
        let Some(target) = self.likely_target().filter(|target| !Part::is_untouched(target)) else {
            return Ok(Start::Bytes(0..HEAD));
        };
        let gap = blocking(move || Ok(Part::gap(&target))).await?;
        Ok(match gap {
            None => Start::Bytes(0..HEAD),
            Some(gap) if gap.is_empty() => Start::Probe,
            Some(gap) => Start::Bytes(gap.start..gap.end.min(gap.start.saturating_add(HEAD))),
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

    pub(super) fn started(&self, part: &Part, url: String, total_bytes: Option<u64>) {
        let job = part.job().id;
        let target = part.target().display().to_string();
        let paths = self.names();
        self.sink.event(&Event::Started { job, url, target, total_bytes, paths });
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
