//! A real HTTP server with ranges and validators, and with any fault that a test wants.

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::{
    HeaderMap, Request, Response,
    body::{Body, Frame, Incoming},
    header::{HeaderName, HeaderValue},
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use std::{
    collections::VecDeque,
    convert::Infallible,
    io,
    net::SocketAddr,
    ops::Range,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
};
use tokio::{net::TcpListener, sync::watch, task::JoinSet};

/// The most bytes of a path's first request.
pub const HEAD: u64 = 256_000;

/// One version of the file.
#[derive(Clone, Debug)]
pub struct Version {
    pub bytes: Bytes,
    pub etag: Option<String>,
    pub last_modified: Option<String>,
}

impl Version {
    /// `n` bytes that differ for each `seed`.
    pub fn new(seed: u64, n: usize) -> Self {
        let byte = |i: u64| {
            let x = (i ^ (seed << 40)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (x ^ (x >> 29)).to_be_bytes()[0]
        };
        Self {
            bytes: (0..n as u64).map(byte).collect(),
            etag: Some(format!("\"v{seed}\"")),
            last_modified: None,
        }
    }

    pub fn without_validator(self) -> Self {
        Self { etag: None, last_modified: None, ..self }
    }
}

/// A piece of a body.
pub enum Step {
    Data(Bytes),
    /// Nothing more is sent on the open connection.
    Hang,
    /// Nothing is sent for this time.
    Pause(Pin<Box<tokio::time::Sleep>>),
    /// The connection is closed.
    Cut,
    /// Nothing is sent until this is done.
    Wait(Pin<Box<dyn Future<Output = ()> + Send>>),
}

/// A request as the server saw it.
#[derive(Clone, Debug)]
pub struct Ask {
    /// The number of requests for segments before it.
    pub segments: usize,
    pub path: String,
    /// The requested ranges, ends exclusive, as requested.
    asked: Vec<Range<u64>>,
    /// The requested ranges, ends exclusive, cut to the file; empty for a plain request.
    pub ranges: Vec<Range<u64>>,
    pub fields: HeaderMap,
}

impl Ask {
    /// Whether it is the first request of a path: for no particular version, and for one byte or the first bytes.
    pub fn is_probe(&self) -> bool {
        let certain =
            ["if-match", "if-unmodified-since"].iter().any(|f| self.fields.contains_key(*f));
        !certain && matches!(&self.asked[..], [r] if r.end - r.start <= HEAD)
    }

    /// Whether it is the first request for a segment, or a first request that is not limited to the first bytes.
    pub fn is_first_segment(&self) -> bool {
        !self.is_probe() && self.segments == 0
    }
}

/// The answer, which a test may change.
pub struct Reply {
    pub status: u16,
    pub fields: HeaderMap,
    pub body: VecDeque<Step>,
    /// The head is sent when this turns true.
    pub after: Option<watch::Receiver<bool>>,
}

impl Reply {
    pub fn set(&mut self, name: &'static str, value: &str) {
        let name = HeaderName::from_static(name);
        self.fields.insert(name, HeaderValue::from_str(value).unwrap());
    }

    pub fn unset(&mut self, name: &'static str) {
        self.fields.remove(name);
    }

    /// A bare status.
    pub fn status(&mut self, status: u16) {
        (self.status, self.fields, self.body) = (status, HeaderMap::new(), VecDeque::new());
    }

    /// The whole of `bytes` with status 200.
    pub fn whole(&mut self, bytes: Bytes) {
        self.status = 200;
        self.unset("content-range");
        self.set("content-length", &bytes.len().to_string());
        self.body = VecDeque::from([Step::Data(bytes)]);
    }

    /// These ranges as the parts of one body.
    pub fn parts(&mut self, version: &Version, ranges: &[Range<u64>]) {
        let length = version.bytes.len();
        let mut body = Vec::new();
        for r in ranges {
            let range = format!("bytes {}-{}/{length}", r.start, r.end - 1);
            let head = format!("\r\n--boundary\r\nContent-Range: {range}\r\n\r\n");
            body.extend_from_slice(head.as_bytes());
            body.extend_from_slice(&version.bytes[r.start as usize..r.end as usize]);
        }
        body.extend_from_slice(b"\r\n--boundary--\r\n");
        self.status = 206;
        self.unset("content-range");
        self.set("content-type", "multipart/byteranges; boundary=boundary");
        self.set("content-length", &body.len().to_string());
        self.body = VecDeque::from([Step::Data(body.into())]);
    }

    /// Only the first `n` bytes of the body, then `end`.
    pub fn after_bytes(&mut self, n: usize, end: Step) {
        if let Some(Step::Data(data)) = self.body.pop_front() {
            self.body.clear();
            self.body.push_back(Step::Data(data.slice(..n.min(data.len()))));
            if n < data.len() {
                self.body.push_back(end);
            }
        }
    }
}

type Spoil = dyn Fn(&Ask, &mut Reply) + Send + Sync;

struct Site {
    version: Mutex<Version>,
    /// From this request on, another version is served.
    next: Mutex<Option<(usize, Version)>>,
    asks: Mutex<Vec<Ask>>,
    spoil: Mutex<Box<Spoil>>,
}

/// The server; stops when dropped.
pub struct Server {
    pub address: SocketAddr,
    site: Arc<Site>,
    _tasks: JoinSet<()>,
}

impl Server {
    /// Serves `version` under every path.
    pub async fn honest(version: &Version) -> Self {
        Self::start(version, |_, _| {}).await
    }

    /// Serves `version`; `spoil` changes every reply.
    pub async fn start(
        version: &Version,
        spoil: impl Fn(&Ask, &mut Reply) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let version = Mutex::new(version.clone());
        let (next, asks) = (Mutex::default(), Mutex::default());
        let spoil = Mutex::new(Box::new(spoil) as Box<Spoil>);
        let site = Arc::new(Site { version, next, asks, spoil });
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, Arc::clone(&site)));
        Self { address, site, _tasks: tasks }
    }

    pub fn url(&self) -> String {
        format!("http://{}/dir/file.bin", self.address)
    }

    /// Replaces the function that changes replies.
    pub fn respoil(&self, spoil: impl Fn(&Ask, &mut Reply) + Send + Sync + 'static) {
        *self.site.spoil.lock().unwrap() = Box::new(spoil);
    }

    /// Replaces the file.
    pub fn publish(&self, version: Version) {
        *self.site.version.lock().unwrap() = version;
    }

    /// Replaces the file when the request with this number arrives.
    pub fn publish_at(&self, number: usize, version: Version) {
        *self.site.next.lock().unwrap() = Some((number, version));
    }

    /// All requests so far.
    pub fn asks(&self) -> Vec<Ask> {
        self.site.asks.lock().unwrap().clone()
    }

    /// The ranges that were requested after the paths' first requests.
    pub fn segments(&self) -> Vec<Range<u64>> {
        self.asks().into_iter().filter(|a| !a.is_probe()).flat_map(|a| a.ranges).collect()
    }
}

async fn accept(listener: TcpListener, site: Arc<Site>) {
    let mut connections = JoinSet::new();
    while let Ok((tcp, _)) = listener.accept().await {
        let site = Arc::clone(&site);
        connections.spawn(async move {
            let service = service_fn(|request| answer(&site, request));
            // A cut body is an error here, and intended.
            let http = hyper::server::conn::http1::Builder::new();
            _ = http.serve_connection(TokioIo::new(tcp), service).await;
        });
    }
}

async fn answer(site: &Site, request: Request<Incoming>) -> Result<Response<Steps>, Infallible> {
    site.switch_version();
    let version = site.version.lock().unwrap().clone();
    let ask = site.note(&request, version.bytes.len() as u64);
    let mut reply = honest_reply(&version, &ask);
    (site.spoil.lock().unwrap())(&ask, &mut reply);
    _ = request.into_body().collect().await;
    if let Some(mut gate) = reply.after.take() {
        _ = gate.wait_for(|open| *open).await;
    }
    let mut response = Response::new(Steps(reply.body));
    *response.status_mut() = reply.status.try_into().unwrap();
    *response.headers_mut() = reply.fields;
    Ok(response)
}

impl Site {
    fn switch_version(&self) {
        let number = self.asks.lock().unwrap().len();
        let mut next = self.next.lock().unwrap();
        if let Some((_, version)) = next.take_if(|(at, _)| *at <= number) {
            *self.version.lock().unwrap() = version;
        }
    }

    fn note(&self, request: &Request<Incoming>, length: u64) -> Ask {
        let mut asks = self.asks.lock().unwrap();
        let text = request.headers().get("range").map(|r| r.to_str().unwrap());
        let list = text.and_then(|r| r.strip_prefix("bytes=")).unwrap_or("");
        let range =
            |(a, b): (&str, &str)| a.parse().unwrap()..b.parse::<u64>().map_or(length, |b| b + 1);
        let asked: Vec<Range<u64>> =
            list.split(',').filter_map(|r| r.split_once('-')).map(range).collect();
        let ranges = asked.iter().map(|r| r.start..r.end.min(length)).collect();
        let ask = Ask {
            segments: asks.iter().filter(|a| !a.is_probe()).count(),
            asked,
            path: request.uri().path().to_owned(),
            ranges,
            fields: request.headers().clone(),
        };
        asks.push(ask.clone());
        ask
    }
}

fn honest_reply(version: &Version, ask: &Ask) -> Reply {
    let mut reply =
        Reply { status: 200, fields: HeaderMap::new(), body: VecDeque::new(), after: None };
    let length = version.bytes.len();
    let matches = |name: &str, value: &Option<String>| {
        ask.fields.get(name).is_none_or(|f| Some(f.to_str().unwrap()) == value.as_deref())
    };
    if !matches("if-match", &version.etag)
        || !matches("if-unmodified-since", &version.last_modified)
    {
        reply.status(412);
        return reply;
    }
    match &ask.ranges[..] {
        [] => reply.whole(version.bytes.clone()),
        [r] if r.start < length as u64 => {
            reply.status = 206;
            let data = version.bytes.slice(r.start as usize..r.end as usize);
            reply.set("content-range", &format!("bytes {}-{}/{length}", r.start, r.end - 1));
            reply.set("content-length", &data.len().to_string());
            reply.body.push_back(Step::Data(data));
        }
        [_] => {
            reply.status(416);
            reply.set("content-range", &format!("bytes */{length}"));
            return reply;
        }
        ranges => reply.parts(version, ranges),
    }
    if let Some(etag) = &version.etag {
        reply.set("etag", etag);
    }
    if let Some(date) = &version.last_modified {
        reply.set("last-modified", date);
    }
    reply
}

/// A body made of steps.
struct Steps(VecDeque<Step>);

impl Body for Steps {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        /// A typical piece size when reading from a disk.
        const PIECE: usize = 16 << 10;
        if let Some(Step::Pause(sleep)) = self.0.front_mut() {
            std::task::ready!(sleep.as_mut().poll(context));
            self.0.pop_front();
        }
        match self.0.pop_front() {
            // One pause does not follow another.
            Some(Step::Pause(_)) | None => Poll::Ready(None),
            Some(Step::Data(mut data)) if data.len() > PIECE => {
                let piece = data.split_to(PIECE);
                self.0.push_front(Step::Data(data));
                Poll::Ready(Some(Ok(Frame::data(piece))))
            }
            Some(Step::Data(data)) => Poll::Ready(Some(Ok(Frame::data(data)))),
            Some(Step::Cut) => Poll::Ready(Some(Err(io::ErrorKind::ConnectionReset.into()))),
            Some(Step::Hang) => {
                self.0.push_front(Step::Hang);
                Poll::Pending
            }
            Some(Step::Wait(mut until)) => match until.as_mut().poll(context) {
                Poll::Ready(()) => self.poll_frame(context),
                Poll::Pending => {
                    self.0.push_front(Step::Wait(until));
                    Poll::Pending
                }
            },
        }
    }
}
