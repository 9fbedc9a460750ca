//! Fetches a large object in ranges over several paths, and streams it in order.
//!
//! The origin has answered a plain `GET` with a head that offers ranges of an object with a strong entity tag. That
//! head goes to the program; [`thalweg_get`] fetches the content, with `If-Match` on that tag in each request, and
//! refuses answers with another tag, so that head and content are of one version. Head and content are sent only once
//! the first bytes have arrived; until then the answer can still be forwarded over one path. Bytes that arrive out of
//! order wait in an unlinked temporary file. If the program reads slowly, the thread that writes to it waits; if the
//! program leaves, the whole fetch ends.

mod object;
mod stream;

pub use object::Object;
pub use stream::SplitBody;

use super::{record::Record, state::ProxyState};
use bytes::Bytes;
use hyper::{
    HeaderMap,
    header::{self, HeaderName},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};
use stream::{FetchStopper, Pipe};
use thalweg_base::{
    budget::Budget,
    job::{Event, EventSink},
};
use thalweg_get::{
    GetFailed, HttpSettings, IdleConnections, Outcome, Output, Request, Stop, Target, get,
};
use thalweg_part::{Batch, Publisher};
use thalweg_paths::chooser::{Candidates, Content, PathReport};
use thalweg_paths::url::HttpUrl;
use thalweg_plan::selection::Config;
use tokio::{
    sync::{OwnedSemaphorePermit, mpsc},
    time::timeout,
};

/// How long the first bytes may take before the request is forwarded over one path. The origin has just answered, so
/// this is ample even for round trips of a second.
const PATIENCE: Duration = Duration::from_secs(10);

/// Pieces of 256 kB that may wait for the program.
const WAITING_PIECES: usize = 4;

/// Request fields that `thalweg_get` sets itself, or that belong to one hop.
const NOT_PASSED: [HeaderName; 6] = [
    header::HOST,
    header::CONNECTION,
    header::TE,
    header::CONTENT_LENGTH,
    header::EXPECT,
    header::RANGE,
];

/// An object, the paths to it, and a permit to fetch it.
pub struct SplitPlan {
    object: Object,
    url: HttpUrl,
    candidates: Candidates,
    turn: OwnedSemaphorePermit,
}

impl SplitPlan {
    /// `None` if splitting is not worth it: the object is small, there is a single path, or the limit of concurrent
    /// split downloads is reached.
    pub fn find(shared: &Arc<ProxyState>, object: Object) -> Option<Self> {
        if object.length < shared.config.split_from.as_bytes() {
            return None;
        }
        // The paths of a split know nothing about tiers and caps.
        if shared.uplinks.as_ref().is_some_and(|uplinks| !uplinks.table().settings().is_plain()) {
            return None;
        }
        let url = HttpUrl::parse(&object.url).ok()?;
        // Ranges are requested by this URL: if it spells the target differently, it is another object.
        if url.target().as_bytes() != object.path {
            return None;
        }
        let candidates = shared.chooser.candidates(&url);
        if candidates.paths.len() < 2 {
            return None;
        }
        let turn = Arc::clone(&shared.splits).try_acquire_owned().ok()?;
        Some(Self { object, url, candidates, turn })
    }
}

/// Begins to fetch, and returns the content once its first bytes have arrived; `None` if they did not arrive in time.
pub async fn fetch(
    shared: &Arc<ProxyState>,
    plan: SplitPlan,
    fields: HeaderMap,
    record: &Arc<Record>,
) -> Option<SplitBody> {
    let (pieces, mut came) = mpsc::channel(WAITING_PIECES);
    let (wish, stop) = Stop::new();
    let length = plan.object.length;
    let work = run(Arc::clone(shared), plan, fields, pieces, stop, Arc::clone(record));
    shared.tracker.spawn(work);
    let first = timeout(PATIENCE, came.recv()).await.ok().flatten()?;
    let (waiting, got, record) = (Some(first), 0, Arc::clone(record));
    Some(SplitBody { length, got, waiting, came, record, _end: FetchStopper(wish) })
}

async fn run(
    shared: Arc<ProxyState>,
    plan: SplitPlan,
    fields: HeaderMap,
    pieces: mpsc::Sender<Bytes>,
    stop: Stop,
    record: Arc<Record>,
) {
    let SplitPlan { object, url, candidates, turn } = plan;
    let to = url.destination().clone();
    let (url_text, elsewhere) = (url.to_string(), Arc::new(AtomicBool::new(false)));
    let tag = object.tag.clone();
    let output = Arc::new(Pipe { pieces, tag, elsewhere: Arc::clone(&elsewhere) });
    let request = request(&shared, object, url, candidates, fields, output);
    let seen = SplitObserver { record, url: url_text, elsewhere };
    let done = tokio::select! {
        done = get(request, &seen, stop) => done,
        () = shared.cut.cancelled() => return,
    };
    learn(&shared, &to, &done);
    drop(turn);
}

fn learn(shared: &ProxyState, to: &thalweg_wire::Destination, done: &Result<Outcome, GetFailed>) {
    let (observed, corrupt) = match done {
        Ok(outcome) => (&outcome.observed[..], &outcome.corrupt[..]),
        Err(failed) => (&[][..], &failed.corrupt[..]),
    };
    for seen in observed {
        shared.report_carried(to, Content::Clear, seen);
    }
    for (path, why) in corrupt {
        shared.chooser.learn(to, Content::Clear, PathReport::Altered { path, why });
    }
}

fn request(
    shared: &ProxyState,
    object: Object,
    url: HttpUrl,
    candidates: Candidates,
    mut fields: HeaderMap,
    output: Arc<dyn Output>,
) -> Request {
    NOT_PASSED.iter().for_each(|name| _ = fields.remove(name));
    fields.insert(header::IF_MATCH, object.tag);
    // They may be cookies and keys, which are never printed.
    fields.values_mut().for_each(|value| value.set_sensitive(true));
    Request {
        url,
        target: Target::Output(output),
        paths: candidates.paths,
        fields,
        digests: Vec::new(),
        pieces: None,
        selection: Config { in_order: true, ..Config::default() },
        priors: candidates.priors,
        web: HttpSettings { dialer: shared.dialer.clone(), ..HttpSettings::default() },
        limit: None,
        batch: Batch::default(),
        adopt: false,
        expected_length: Some(object.length),
        publisher: Arc::new(Publisher::default()),
        kept: Arc::new(IdleConnections::default()),
        budget: Arc::new(Budget::new()),
        thrift: None,
        patience: PATIENCE,
    }
}

/// Records which path carries the most bytes, and whether the object came from the requested URL without a redirect.
struct SplitObserver {
    record: Arc<Record>,
    url: String,
    elsewhere: Arc<AtomicBool>,
}

impl EventSink for SplitObserver {
    fn event(&self, event: &Event) {
        match event {
            Event::Chosen { path, .. } => self.record.set_path(path),
            Event::Started { url, .. } if *url != self.url => self.elsewhere.store(true, Relaxed),
            _ => {}
        }
    }
}
