//! A large object, fetched in ranges over several paths and streamed in order.
//!
//! The origin has answered a plain `GET` with a head that offers ranges of an object with a
//! strong entity tag. That head goes to the program; the content is fetched by
//! [`crate::get`], each request with `If-Match` on that very tag, and refused if the answers
//! have another one, so that head and content are of one version. Nothing is sent to the program before the first bytes are here: until
//! then the plain way is still open. What comes out of order waits in a file without a name;
//! a slow reader slows the writer's thread alone, and one that leaves ends it all.

use super::{
    body::Broken,
    chooser::{Candidates, Content, Seen},
    record::Record,
    server::Shared,
    target::Forward,
};
use crate::{
    budget::Budget,
    get::{GetFailed, HttpUrl, Kept, Outcome, Output, Request, Stop, Target, Web, get},
    job::{Event, EventSink},
    part::{Batch, Publisher},
};
use bytes::Bytes;
use hyper::{
    HeaderMap, Response, StatusCode,
    body::{Frame, Incoming},
    header::{self, HeaderName, HeaderValue},
    http::request::Parts,
};
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
    time::Duration,
};
use thalweg_plan::selection::Config;
use tokio::{
    sync::{OwnedSemaphorePermit, mpsc, watch},
    time::timeout,
};

/// How long the first bytes may take before the plain way is taken: the direct path has just
/// answered, so that this is ten round trips of a long one.
const PATIENCE: Duration = Duration::from_secs(10);

/// Pieces of 256 kB that wait for the program.
const PIECES: usize = 4;

/// Fields that `get` sets itself, or that belong to one hop.
const NOT_PASSED: [HeaderName; 6] = [
    header::HOST,
    header::CONNECTION,
    header::TE,
    header::CONTENT_LENGTH,
    header::EXPECT,
    header::RANGE,
];

/// With one of these a program asks for something else than the whole object as it is.
const CONDITIONS: [HeaderName; 6] = [
    header::RANGE,
    header::IF_RANGE,
    header::IF_MATCH,
    header::IF_NONE_MATCH,
    header::IF_MODIFIED_SINCE,
    header::IF_UNMODIFIED_SINCE,
];

/// An object that may be fetched in ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    url: String,
    length: u64,
    tag: HeaderValue,
}

impl Object {
    /// What `response` says, if ranges of it can be put together to exactly what it would
    /// bring: status 200, its length, `Accept-Ranges: bytes`, a strong entity tag
    /// (RFC 9110 §8.8.1), no coding.
    pub fn of(request: &Parts, response: &Response<Incoming>, to: &Forward) -> Option<Self> {
        let plain = !CONDITIONS.iter().any(|name| request.headers.contains_key(name));
        let tag = (plain && response.status() == StatusCode::OK)
            .then(|| offered(response.headers()))
            .flatten()?;
        let length = one(response.headers(), &header::CONTENT_LENGTH)?.parse().ok()?;
        let url = format!("http://{}{}", to.host, to.path);
        Some(Self { url, length, tag })
    }
}

/// The strong tag of an object that comes in ranges.
fn offered(fields: &HeaderMap) -> Option<HeaderValue> {
    let ranges = one(fields, &header::ACCEPT_RANGES)?.eq_ignore_ascii_case("bytes");
    let coded = [header::CONTENT_ENCODING, header::TRANSFER_ENCODING]
        .iter()
        .any(|name| fields.contains_key(name));
    // `get` shows nothing of an object with a digest before it has all of it.
    let digest = ["repr-digest", "digest"].iter().any(|name| fields.contains_key(*name));
    let tag = one(fields, &header::ETAG)?;
    let strong = tag.len() > 2 && tag.starts_with('"') && tag.ends_with('"');
    if ranges && strong && !coded && !digest { fields.get(header::ETAG).cloned() } else { None }
}

/// The value of a field that occurs once.
fn one<'a>(fields: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = fields.get_all(name).iter();
    let first = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(first.trim())
}

/// An object, the paths to it, and the leave to fetch it.
pub struct Place {
    object: Object,
    url: HttpUrl,
    candidates: Candidates,
    turn: OwnedSemaphorePermit,
}

impl Place {
    /// `None` if it is not worth it: the object is small, there is one path, or as many
    /// objects are split already as may be.
    pub fn find(shared: &Arc<Shared>, object: Object) -> Option<Self> {
        if object.length < shared.config.split_from.as_bytes() {
            return None;
        }
        let url = HttpUrl::parse(&object.url).ok()?;
        let candidates = shared.chooser.candidates(&url);
        if candidates.paths.len() < 2 {
            return None;
        }
        let turn = Arc::clone(&shared.splits).try_acquire_owned().ok()?;
        Some(Self { object, url, candidates, turn })
    }
}

/// Begins to fetch; the content once its first bytes are here. `None` if they do not come:
/// nothing was sent to the program then.
pub async fn fetch(
    shared: &Arc<Shared>,
    place: Place,
    fields: HeaderMap,
    record: &Arc<Record>,
) -> Option<SplitBody> {
    let (pieces, mut came) = mpsc::channel(PIECES);
    let (wish, stop) = Stop::new();
    let length = place.object.length;
    let work = run(Arc::clone(shared), place, fields, pieces, stop, Arc::clone(record));
    shared.tracker.spawn(work);
    let first = timeout(PATIENCE, came.recv()).await.ok().flatten()?;
    let (waiting, got, record) = (Some(first), 0, Arc::clone(record));
    Some(SplitBody { length, got, waiting, came, record, _end: End(wish) })
}

async fn run(
    shared: Arc<Shared>,
    place: Place,
    fields: HeaderMap,
    pieces: mpsc::Sender<Bytes>,
    stop: Stop,
    record: Arc<Record>,
) {
    let Place { object, url, candidates, turn } = place;
    let to = url.destination().clone();
    let (url_text, elsewhere) = (url.to_string(), Arc::new(AtomicBool::new(false)));
    let tag = object.tag.clone();
    let output = Arc::new(Pipe { pieces, tag, elsewhere: Arc::clone(&elsewhere) });
    let request = request(&shared, object, url, candidates, fields, output);
    let seen = Watching { record, url: url_text, elsewhere };
    let done = tokio::select! {
        done = get(request, &seen, stop) => done,
        () = shared.cut.cancelled() => return,
    };
    learn(&shared, &to, &done);
    drop(turn);
}

fn learn(shared: &Shared, to: &thalweg_wire::Destination, done: &Result<Outcome, GetFailed>) {
    let (observed, corrupt) = match done {
        Ok(outcome) => (&outcome.observed[..], &outcome.corrupt[..]),
        Err(failed) => (&[][..], &failed.corrupt[..]),
    };
    for seen in observed {
        shared.carried(to, Content::Clear, seen);
    }
    for (path, why) in corrupt {
        shared.chooser.learn(to, Content::Clear, Seen::Altered { path, why });
    }
}

fn request(
    shared: &Shared,
    object: Object,
    url: HttpUrl,
    candidates: Candidates,
    mut fields: HeaderMap,
    output: Arc<dyn Output>,
) -> Request {
    NOT_PASSED.iter().for_each(|name| _ = fields.remove(name));
    fields.insert(header::IF_MATCH, object.tag);
    // They may be cookies and keys: never printed.
    fields.values_mut().for_each(|value| value.set_sensitive(true));
    Request {
        url,
        target: Target::Output(output),
        paths: candidates.paths,
        fields,
        digests: Vec::new(),
        selection: Config::default(),
        priors: candidates.priors,
        web: Web { dialer: shared.dialer.clone(), ..Web::default() },
        limit: None,
        batch: Batch::default(),
        adopt: false,
        expected_length: Some(object.length),
        publisher: Arc::new(Publisher::default()),
        kept: Arc::new(Kept::default()),
        budget: Arc::new(Budget::new()),
        patience: PATIENCE,
    }
}

/// The writer's end of a stream to the program.
struct Pipe {
    pieces: mpsc::Sender<Bytes>,
    tag: HeaderValue,
    elsewhere: Arc<AtomicBool>,
}

impl Output for Pipe {
    /// A server may ignore `If-Match`, or send whoever asks for ranges to another place.
    fn begins(&self, tag: Option<&str>) -> io::Result<()> {
        let same = tag.is_some_and(|tag| tag.as_bytes() == self.tag.as_bytes());
        match same && !self.elsewhere.load(Relaxed) {
            true => Ok(()),
            false => Err(io::Error::other("another version than the head is of")),
        }
    }

    fn write(&self, data: &[u8]) -> io::Result<()> {
        let sent = self.pieces.blocking_send(Bytes::copy_from_slice(data));
        sent.map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

/// Notes which path carries the most, and whether the object is where it was asked for.
struct Watching {
    record: Arc<Record>,
    url: String,
    elsewhere: Arc<AtomicBool>,
}

impl EventSink for Watching {
    fn event(&self, event: &Event) {
        match event {
            Event::Chosen { path, .. } => self.record.goes_by(path),
            Event::Started { url, .. } if *url != self.url => self.elsewhere.store(true, Relaxed),
            _ => {}
        }
    }
}

/// The content, in order. Dropped before its end it stops the fetching.
pub struct SplitBody {
    length: u64,
    got: u64,
    waiting: Option<Bytes>,
    came: mpsc::Receiver<Bytes>,
    record: Arc<Record>,
    _end: End,
}

/// Nobody wants more.
struct End(watch::Sender<bool>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.send_replace(true);
    }
}

impl SplitBody {
    /// Whether all of it was given.
    pub fn is_over(&self) -> bool {
        self.got >= self.length
    }

    /// Bytes still to come.
    pub fn left(&self) -> u64 {
        self.length - self.got.min(self.length)
    }

    /// The next piece.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        if self.is_over() {
            return Poll::Ready(None);
        }
        let piece = match self.waiting.take() {
            Some(piece) => Some(piece),
            None => ready!(self.came.poll_recv(cx)),
        };
        let (got, length) = (self.got, self.length);
        // The fetching says how long it is: never more than was promised.
        let Some(piece) = piece.filter(|piece| piece.len() as u64 <= length - got) else {
            return Poll::Ready(Some(Err(Broken::Short { got, length })));
        };
        self.got += piece.len() as u64;
        self.record.down.fetch_add(piece.len() as u64, Relaxed);
        self.record.complete.store(self.is_over(), Relaxed);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let line = |(n, v): &(&'static str, &'static str)| {
            (HeaderName::from_static(n), HeaderValue::from_static(v))
        };
        lines.iter().map(line).collect()
    }

    #[test]
    fn only_a_strong_tag_and_ranges_of_plain_bytes_will_do() {
        let good = [("accept-ranges", "bytes"), ("etag", "\"1\"")];
        assert_eq!(offered(&fields(&good)).unwrap(), "\"1\"");
        for bad in [
            &[("accept-ranges", "bytes")][..],
            &[("etag", "\"1\"")],
            &[("accept-ranges", "none"), ("etag", "\"1\"")],
            &[("accept-ranges", "bytes"), ("etag", "W/\"1\"")],
            &[("accept-ranges", "bytes"), ("etag", "1")],
            &[("accept-ranges", "bytes"), ("etag", "\"1\""), ("content-encoding", "gzip")],
        ] {
            assert_eq!(offered(&fields(bad)), None, "{bad:?}");
        }
        let mut twice = fields(&good);
        twice.append("etag", HeaderValue::from_static("\"2\""));
        assert_eq!(offered(&twice), None);
    }
}
