//! One object to one file, over several paths.
//!
//! The way of a byte: [`net::Dialer`](thalweg_net::Dialer) → `http` (one
//! connection per path) → `worker` (one task per path; checks every answer
//! against the pinned object) → `ranged` (one task; does what
//! [`Selection`](thalweg_plan::selection::Selection) says) →
//! [`part::Writer`](crate::part::Writer) → disk.
//!
//! 1. **Discovery**: all paths ask for one byte at once. The first 206 pins the
//!    object: {final URL, length, strong entity tag else modification date}.
//! 2. **Sampling and completion** (UKAIRO §3.2.1) of the bytes that are missing.
//!    A segment is taken only with status 206, the exact Content-Range and the
//!    pinned validator; `If-Match` has the server check, too.
//! 3. **Publication**: digest, sync, rename.
//!
//! If the server says that the object changed, all is discarded and begun anew,
//! once. A path that speaks of another object is dropped and named.

mod discovery;
mod error;
mod http;
mod kept;
mod limit;
mod many;
mod meter;
mod multipart;
mod paths;
mod ranged;
mod resource;
mod url;
mod web;
mod whole;
mod worker;

pub use error::{GetError, GetFailed, PathError};
pub use paths::Candidate;
pub use url::{HttpUrl, UrlError};
pub use web::{HttpVersion, Web};

use crate::history::Observed;
use crate::{
    budget::Budget,
    job::{Event, EventSink, Job, Kind},
    part::{Batch, Digest, Part, PartError, PartKey, Publisher, Writer},
};
use discovery::{Discovery, Found, Trust};
use hyper::HeaderMap;
pub use kept::Kept;
pub use limit::Limit;
pub use many::{Many, ManySink, Tally, many};
use paths::Paths;
use resource::Resource;
use std::{
    path::PathBuf,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};
use thalweg_plan::selection::{Config, Prior};
use thalweg_units::{ByteSize, Rate};
use tokio::{sync::watch, task::spawn_blocking, time::Instant};
use worker::Shared;

/// What is to be downloaded, to where, and how.
#[derive(Clone)]
pub struct Request {
    /// The URL.
    pub url: HttpUrl,
    /// What to make.
    pub target: Target,
    /// The paths to try, at least one; the direct one first if it is among them.
    pub paths: Vec<Candidate>,
    /// Further request fields.
    pub fields: HeaderMap,
    /// What the whole file must hash to.
    pub digests: Vec<Digest>,
    /// How a path is selected.
    pub selection: Config,
    /// What earlier transfers tell of the paths, in their order; may be shorter.
    pub priors: Vec<Option<Prior>>,
    /// How connections are made.
    pub web: Web,
    /// The most bytes per second, all downloads that share it together.
    pub limit: Option<Arc<Limit>>,
    /// When bytes are made durable.
    pub batch: Batch,
    /// Brings the file under its name.
    pub publisher: Arc<Publisher>,
    /// Connections that earlier downloads of the call left, by path.
    pub kept: Arc<Kept>,
    /// Is charged with the bytes that come, useful or not.
    pub budget: Arc<Budget>,
    /// How long a path may take until its first answer. 30 s suits servers
    /// that fetch from tape or another server first.
    pub patience: Duration,
}

/// What a download makes.
#[derive(Clone)]
pub enum Target {
    /// This file; an existing one is replaced, at the very end.
    File(PathBuf),
    /// A file in this directory, called as the server says (`Content-Disposition`), else by
    /// the final URL's last part. Never outside the directory, never hidden, and never in
    /// place of an existing file.
    In(PathBuf),
    /// A stream of the bytes in their order, e.g. standard output. With an expected digest
    /// nothing is written before the whole object is verified.
    Output(Arc<dyn Output>),
}

/// Where a stream of bytes goes.
pub trait Output: Send + Sync {
    /// Takes the next bytes; may block.
    ///
    /// # Errors
    /// If nobody reads any more.
    fn write(&self, data: &[u8]) -> std::io::Result<()>;
}

/// How a download went.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The file, under its final name.
    pub target: PathBuf,
    /// Its length.
    pub length: ByteSize,
    /// Bytes that came over the network in this session.
    pub fetched: ByteSize,
    /// Of these, bytes beyond what was missing when it started; see
    /// [`Event::Finished`].
    pub duplicate: ByteSize,
    /// From start to publication.
    pub took: Duration,
    /// What the direct path reached in sampling.
    pub direct_estimate: Option<Rate>,
    /// How its two phases went.
    pub phases: Phases,
    /// What was seen of the paths, for [`crate::history`].
    pub observed: Vec<Observed>,
    /// Relays that delivered other bytes than the object's, and what of.
    pub corrupt: Vec<(String, String)>,
}

/// Sampling and completion (UKAIRO §3.2.1), in the last attempt.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Phases {
    /// All paths' bytes over the time until the first path was chosen.
    pub sampling: Option<Rate>,
    /// All bytes from then on over the time until the last one came.
    pub completion: Option<Rate>,
    /// The path that was chosen last.
    pub completion_path: Option<String>,
}

impl Request {
    fn file(&self) -> PathBuf {
        match &self.target {
            Target::File(file) => file.clone(),
            Target::In(directory) => directory.join("download"),
            Target::Output(_) => PathBuf::new(),
        }
    }
}

impl Outcome {
    /// Fetched bytes over the whole time.
    pub fn rate(&self) -> Rate {
        Rate::over(self.fetched, self.took)
    }

    /// How many times the direct path's sampled rate the download reached.
    ///
    /// This overstates the gain: the direct path was sampled for about a second,
    /// in slow start, beside the other paths' flows.
    pub fn ratio_to_sampled_direct(&self) -> Option<f64> {
        let direct = self.direct_estimate.filter(|r| *r > Rate::ZERO)?;
        Some(self.rate().as_bps() as f64 / direct.as_bps() as f64)
    }

    fn event(&self) -> Event {
        Event::Finished {
            target: self.target.display().to_string(),
            bytes: self.length.as_bytes(),
            fetched_bytes: self.fetched.as_bytes(),
            duplicate_bytes: self.duplicate.as_bytes(),
            seconds: self.took.as_secs_f64(),
            rate_bps: self.rate().as_bps(),
            direct_estimate_bps: self.direct_estimate.map(Rate::as_bps),
            ratio_to_sampled_direct: self.ratio_to_sampled_direct(),
            sampling_rate_bps: self.phases.sampling.map(Rate::as_bps),
            completion_rate_bps: self.phases.completion.map(Rate::as_bps),
            completion_path: self.phases.completion_path.clone(),
        }
    }
}

/// A wish to end, from elsewhere: set to `true`. What is there is then kept.
#[derive(Clone, Debug)]
pub struct Stop(watch::Receiver<bool>);

impl Stop {
    /// The wish, and the hand that makes it.
    pub fn new() -> (watch::Sender<bool>, Self) {
        let (sender, receiver) = watch::channel(false);
        (sender, Self(receiver))
    }

    async fn requested(&mut self) {
        if self.0.wait_for(|stop| *stop).await.is_err() {
            // Nobody is left who could wish it.
            std::future::pending().await
        }
    }
}

/// Reads a user's header `NAME: VALUE` into `fields`.
///
/// # Errors
/// [`GetError::Header`] if it is not HTTP, or says which bytes are wanted.
pub fn add_field(fields: &mut HeaderMap, text: &str) -> Result<(), GetError> {
    let (name, value) =
        http::user_header(text).map_err(|why| GetError::Header(text.to_owned(), why))?;
    fields.append(name, value);
    Ok(())
}

/// Downloads one object to one file. See the [module](self).
///
/// What happens is told to `sink`; the last event is `finished` or `failed`.
///
/// # Errors
/// [`GetFailed`] with what was kept. The target then is what it was before.
pub async fn get(
    request: Request,
    sink: &dyn EventSink,
    mut stop: Stop,
) -> Result<Outcome, GetFailed> {
    let mut run = Run::new(&request, sink);
    match run.until_done(&mut stop).await {
        Ok(()) => {
            let outcome = run.outcome();
            sink.event(&outcome.event());
            Ok(outcome)
        }
        Err(error) => {
            let kept = ByteSize::from_bytes(run.kept);
            let (why, kept_bytes) = (error.to_string(), run.kept);
            sink.event(&Event::Failed { why, kept_bytes });
            Err(GetFailed { error, kept })
        }
    }
}

/// Why an attempt ended without the file.
enum Halt {
    /// For good.
    Failed(GetError),
    /// The object is another one now.
    Changed(String),
    /// A relay pinned an object that the direct path does not know.
    TrustDirect,
}

impl Halt {
    fn paths(failures: Vec<(String, PathError)>) -> Self {
        Self::Failed(GetError::Paths(failures))
    }
}

/// One call of [`get`]: what outlives its attempts.
struct Run<'a> {
    request: &'a Request,
    sink: &'a dyn EventSink,
    started: Instant,
    attempts: u32,
    /// Bytes that were there at the start.
    resumed: Option<u64>,
    fetched: u64,
    kept: u64,
    direct_estimate: Option<Rate>,
    phases: Phases,
    published: Option<(PathBuf, u64)>,
}

impl<'a> Run<'a> {
    fn new(request: &'a Request, sink: &'a dyn EventSink) -> Self {
        Self {
            request,
            sink,
            started: Instant::now(),
            attempts: 0,
            resumed: None,
            fetched: 0,
            kept: 0,
            direct_estimate: None,
            phases: Phases::default(),
            published: None,
        }
    }

    /// Attempts, with at most one restart for either reason.
    async fn until_done(&mut self, stop: &mut Stop) -> Result<(), GetError> {
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

    async fn attempt(&mut self, trust: Trust, stop: &mut Stop) -> Result<(), Halt> {
        self.attempts += 1;
        let shared = Arc::new(Shared {
            web: self.request.web.clone(),
            url: self.request.url.clone(),
            fields: self.request.fields.clone(),
            patience: self.request.patience,
            one_by_one: AtomicBool::new(false),
        });
        let mut paths = Paths::start(shared, &self.request.paths);
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

    /// Finds the object. A single relay's word neither costs what is kept nor
    /// ends the download for want of room: then the direct path is waited for.
    async fn discover(&self, discovery: &mut Discovery, paths: &mut Paths) -> Result<Found, Halt> {
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

    fn key(&self, resource: &Resource) -> PartKey {
        PartKey::Url {
            url: resource.url.to_string(),
            length: Some(resource.length),
            validator: resource.validator.clone(),
            digests: self.request.digests.clone(),
        }
    }

    async fn open_part(&mut self, key: PartKey) -> Result<Part, Halt> {
        let (target, batch) = (self.request.file(), self.request.batch);
        let shown = target.display().to_string();
        let job = Job::begin(Kind::Get, self.request.url.to_string(), shown);
        let part = blocking(move || Part::open(&target, key, job, batch)).await?;
        self.resumed.get_or_insert(part.resumed());
        self.kept = part.durable();
        Ok(part)
    }

    fn names(&self) -> Vec<String> {
        self.request.paths.iter().map(|p| p.name.clone()).collect()
    }

    fn started(&self, part: &Part, url: String, total_bytes: Option<u64>) {
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
    async fn close(&mut self, mut part: Part) -> Result<(), Halt> {
        self.kept = blocking(move || {
            part.checkpoint()?;
            let kept = part.durable();
            part.close().map(|()| kept)
        })
        .await?;
        Ok(())
    }

    /// Waits for the writer; its failure comes before any other.
    async fn finish(&mut self, writer: Writer) -> Result<Part, Halt> {
        let (part, durable) = writer.finish().await;
        self.kept = durable;
        part.map_err(|e| Halt::Failed(e.into()))
    }

    async fn publish(&mut self, part: Part, length: u64) -> Result<(), Halt> {
        let published = blocking(move || part.publish(length)).await;
        if let Err(Halt::Failed(GetError::Part(PartError::Digest { .. }))) = published {
            self.kept = 0;
        }
        let target = published?;
        self.published = Some((target, length));
        Ok(())
    }

    fn outcome(&self) -> Outcome {
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
            observed: Vec::new(),
            corrupt: Vec::new(),
        }
    }
}

/// Work on the disk, off the network's threads.
async fn blocking<T, F>(work: F) -> Result<T, Halt>
where
    T: Send + 'static,
    F: FnOnce() -> Result<T, PartError> + Send + 'static,
{
    let done = spawn_blocking(work).await;
    let done = done.map_err(|e| Halt::Failed(GetError::System(std::io::Error::other(e))))?;
    done.map_err(|e| Halt::Failed(e.into()))
}
