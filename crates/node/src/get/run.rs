//! One download from its first question to the published file: its attempts.

use super::{
    Advice, GetError, Outcome, PathError, Phases, Request, Stop,
    discovery::{Discovery, Found, Trust},
    paths::Paths,
    ranged,
    resource::Resource,
    whole,
    worker::{HEAD, Shared, Start},
};
use crate::{
    history::Observed,
    job::{Event, EventSink, Job, Kind},
    part::{Part, PartError, PartKey, Writer},
};
use std::{
    path::PathBuf,
    sync::{Arc, atomic::AtomicBool},
};
use thalweg_units::{ByteSize, Rate};
use tokio::{task::spawn_blocking, time::Instant};

/// Why an attempt ended without the file.
pub(super) enum Halt {
    /// For good.
    Failed(GetError),
    /// The object is another one now.
    Changed(String),
    /// A relay pinned an object that the direct path does not know.
    TrustDirect,
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
    pub(super) fetched: u64,
    pub(super) kept: u64,
    pub(super) direct_estimate: Option<Rate>,
    pub(super) phases: Phases,
    pub(super) observed: Vec<Observed>,
    pub(super) published: Option<(PathBuf, u64)>,
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
            fetched: 0,
            kept: 0,
            direct_estimate: None,
            phases: Phases::default(),
            observed: Vec::new(),
            published: None,
        }
    }

    /// Attempts, with at most one restart for either reason.
    pub(super) async fn until_done(&mut self, stop: &mut Stop) -> Result<(), GetError> {
        let (mut trust, mut changed) = (Trust::First, false);
        loop {
            let why = match self.attempt(trust, stop).await {
                Ok(()) => return Ok(()),
                Err(Halt::Failed(error)) => return Err(error),
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
        let shared = Arc::new(Shared {
            web: self.request.web.clone(),
            url: self.request.url.clone(),
            fields: self.request.fields.clone(),
            patience: self.request.patience,
            one_by_one: AtomicBool::new(false),
            kept: Arc::clone(&self.request.kept),
            head_start: self.advice.head_start,
        });
        let first = self.first_question().await?;
        let mut paths = Paths::start(shared, &self.request.paths, first);
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

    /// The first path's first question: for the first bytes that are missing. Whatever led to a
    /// second attempt, what is there is most likely of no use.
    async fn first_question(&self) -> Result<Start, Halt> {
        if self.attempts > 1 {
            return Ok(Start::Bytes(0..HEAD));
        }
        let target = self.request.file();
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
            let found = discovery.run(paths, self.sink).await?;
            let Found::Ranged(by, resource) = &found else { return Ok(found) };
            if discovery.is_confirmed(*by, resource, paths) {
                return Ok(found);
            }
            let (target, key) = (self.request.file(), self.key(resource));
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
            digests: self.request.digests.clone(),
        }
    }

    pub(super) async fn open_part(&mut self, key: PartKey) -> Result<Part, Halt> {
        let (target, batch) = (self.request.file(), self.request.batch);
        let shown = target.display().to_string();
        let job = Job::begin(Kind::Get, self.request.url.to_string(), shown);
        let part = blocking(move || Part::open(&target, key, job, batch)).await?;
        self.resumed.get_or_insert(part.resumed());
        self.kept = part.durable();
        Ok(part)
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.request.paths.iter().map(|p| p.name.clone()).collect()
    }

    pub(super) fn started(&self, part: &Part, url: String, total_bytes: Option<u64>) {
        let job = part.job().id;
        let target = self.request.file().display().to_string();
        let paths = self.names();
        self.sink.event(&Event::Started { job, url, target, total_bytes, paths });
        if part.resumed() > 0 {
            self.sink.event(&Event::Resumed { bytes: part.resumed() });
        }
        // On a restart the user has been told already.
        if part.discarded() && self.attempts == 1 {
            let why = "what was there is not provably of this version of the file".to_owned();
            self.sink.event(&Event::Restarted { why });
        }
    }

    /// Makes durable what is there.
    pub(super) async fn close(&mut self, mut part: Part) -> Result<(), Halt> {
        self.kept = blocking(move || {
            part.checkpoint()?;
            let kept = part.durable();
            part.close().map(|()| kept)
        })
        .await?;
        Ok(())
    }

    /// Waits for the writer; its failure comes before any other.
    pub(super) async fn finish(&mut self, writer: Writer) -> Result<Part, Halt> {
        let (part, durable) = writer.finish().await;
        self.kept = durable;
        part.map_err(|e| Halt::Failed(e.into()))
    }

    pub(super) async fn publish(&mut self, part: Part, length: u64) -> Result<(), Halt> {
        let published = blocking(move || part.publish(length)).await;
        if let Err(Halt::Failed(GetError::Part(PartError::Digest { .. }))) = published {
            self.kept = 0;
        }
        let target = published?;
        self.published = Some((target, length));
        Ok(())
    }

    pub(super) fn outcome(&self) -> Outcome {
        let (target, length) = self.published.clone().unwrap_or_default();
        let needed = length.saturating_sub(self.resumed.unwrap_or(0));
        Outcome {
            target,
            length: ByteSize::from_bytes(length),
            fetched: ByteSize::from_bytes(self.fetched),
            duplicate: ByteSize::from_bytes(self.fetched.saturating_sub(needed)),
            took: self.started.elapsed(),
            direct_estimate: self.direct_estimate,
            phases: self.phases.clone(),
            observed: self.observed.clone(),
            corrupt: Vec::new(),
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
