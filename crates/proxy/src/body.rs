//! The content of requests and answers on its way through the proxy.

use super::{
    answer_rest::AnswerRest, client_io::Wire, linger, pool::Lease, record::Record,
    split::SplitBody, state::ProxyState, upstream::UpstreamAnswer,
};
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use std::{
    pin::Pin,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};
use thalweg_paths::chooser::Content;
use thalweg_paths::history::{Bound, PathObservation};
use thalweg_units::{ByteSize, Rate};
use thalweg_wire::Destination;
use thiserror::Error;
use tokio::runtime::Handle;

/// The rate of an answer is recorded as its path's rate only from this many bytes on. In smaller answers, slow start
/// determines the rate.
const MIN_RATE_SAMPLE: u64 = 1 << 20;

/// Why an answer breaks off. The program's connection is then closed in the middle of it.
#[derive(Debug, Error)]
pub enum BodyError {
    /// The connection to the origin failed.
    #[error("{0}")]
    Http(#[from] hyper::Error),
    /// The paths of a split object did not bring all of it.
    #[error("the paths delivered {got} of {length} bytes")]
    Short {
        /// The number of bytes that the paths delivered.
        got: u64,
        /// Bytes that were promised.
        length: u64,
    },
}

/// Completes when the content may be sent.
pub type SendPermission = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The content of a request. With `Expect: 100-continue` nothing is taken from the program before the origin allows it,
/// because taking it makes hyper send `100 Continue` to the program.
pub struct Outgoing {
    body: Option<Incoming>,
    gate: Option<SendPermission>,
    record: Arc<Record>,
}

impl Outgoing {
    /// A request without content.
    pub fn empty(record: Arc<Record>) -> Self {
        Self { body: None, gate: None, record }
    }

    /// The content of a program's request. Nothing is read from the program before `gate` has completed.
    pub fn new(body: Incoming, gate: Option<SendPermission>, record: Arc<Record>) -> Self {
        Self { body: Some(body), gate, record }
    }
}

impl Drop for Outgoing {
    /// The origin takes no more content. The rest is read and discarded, so that the program receives the answer. A
    /// program that still waits for `100 Continue` sends nothing.
    fn drop(&mut self) {
        let rest = self.body.take().filter(|rest| !rest.is_end_stream() && self.gate.is_none());
        // Without a runtime nothing is served any more.
        if let (Some(rest), Ok(runtime)) = (rest, Handle::try_current()) {
            runtime.spawn(linger::read_off_content(rest));
        }
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        if let Some(gate) = &mut self.gate {
            ready!(gate.as_mut().poll(cx));
            self.gate = None;
        }
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let frame = ready!(Pin::new(body).poll_frame(cx));
        count(&frame, &self.record.up);
        if !matches!(frame, Some(Ok(_))) {
            // Nothing is left to be read.
            self.body = None;
        }
        if matches!(frame, Some(Err(_))) {
            self.record.malformed.store(true, Relaxed);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or(SizeHint::with_exact(0), Body::size_hint)
    }
}

fn count<E>(frame: &Option<Result<Frame<Bytes>, E>>, to: &AtomicU64) {
    if let Some(Ok(frame)) = frame
        && let Some(data) = frame.data_ref()
    {
        to.fetch_add(data.len() as u64, Relaxed);
    }
}

/// The content of an answer to a program.
pub enum Reply {
    /// Content that the proxy makes itself.
    Own(Full<Bytes>),
    /// Content of an origin, over one origin connection.
    Origin(Box<OriginBody>),
    /// Content of an origin, in ranges over several paths.
    Split(SplitBody),
}

impl Reply {
    /// A reply without content.
    pub fn empty() -> Self {
        Self::Own(Full::default())
    }
}

impl Body for Reply {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.get_mut() {
            Self::Own(text) => Pin::new(text).poll_frame(cx).map_err(|never| match never {}),
            Self::Origin(body) => body.poll(cx).map_err(BodyError::from),
            Self::Split(body) => body.poll(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Own(text) => text.is_end_stream(),
            Self::Origin(body) => body.incoming.is_end_stream(),
            Self::Split(body) => body.is_over(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Own(text) => text.size_hint(),
            Self::Origin(body) => body.incoming.size_hint(),
            Self::Split(body) => SizeHint::with_exact(body.left()),
        }
    }
}

/// The content of an origin's answer, with its origin connection. When it is dropped, at its end or before, the
/// connection is returned to the pool or closed, and the result is recorded.
pub struct OriginBody {
    incoming: Incoming,
    ended: bool,
    /// The program's connection, if only its end marks the end of the answer.
    ends_wire: Option<Weak<Wire>>,
    began: Instant,
    way: AnswerPath,
    record: Arc<Record>,
    shared: Arc<ProxyState>,
    lease: Option<Lease>,
    /// Bytes that were passed on.
    got: u64,
    /// Fetches the rest if the answer breaks off.
    rest: Option<AnswerRest>,
    /// Why the answer broke off, while the rest is being asked for.
    broke: Option<hyper::Error>,
}

type FrameResult = Result<Frame<Bytes>, hyper::Error>;

/// The origin and the network path from which an answer arrives.
pub struct AnswerPath {
    /// The origin.
    pub to: Destination,
    pub path: String,
    /// Time from dialling until the origin connection was established.
    pub setup: Duration,
}

impl OriginBody {
    /// The content of an answer whose head has just arrived.
    pub fn new(
        incoming: Incoming,
        lease: Lease,
        way: AnswerPath,
        record: Arc<Record>,
        shared: Arc<ProxyState>,
    ) -> Self {
        let (began, lease) = (Instant::now(), Some(lease));
        let (ended, ends_wire, got, rest, broke) = (false, None, 0, None, None);
        Self { incoming, ended, ends_wire, began, way, record, shared, lease, got, rest, broke }
    }

    /// If the answer breaks off or falls silent, `rest` fetches what is missing.
    pub fn with_rest(mut self, rest: Option<AnswerRest>) -> Self {
        self.rest = rest;
        self
    }

    /// For an answer that ends with the program's connection (HTTP/1.0 without a length): if the answer breaks off, the
    /// program's connection is reset, so that the answer does not look complete.
    pub fn ending_with(mut self, wire: Weak<Wire>) -> Self {
        self.ends_wire = Some(wire);
        self
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<FrameResult>> {
        loop {
            let came = match self.broke {
                Some(_) => Poll::Pending,
                None => Pin::new(&mut self.incoming).poll_frame(cx),
            };
            match came {
                Poll::Ready(Some(Err(why))) if self.asks_for_rest() => self.broke = Some(why),
                Poll::Ready(frame) => {
                    self.rest.iter_mut().for_each(AnswerRest::note_progress);
                    return Poll::Ready(self.passed(frame));
                }
                Poll::Pending => {
                    let Some(rest) = &mut self.rest else { return Poll::Pending };
                    match (ready!(rest.poll(self.got, cx)), self.broke.take()) {
                        (Some(answered), _) => self.continue_with(answered),
                        (None, Some(why)) => return Poll::Ready(self.passed(Some(Err(why)))),
                        // The silent connection is still listened to.
                        (None, None) => {}
                    }
                }
            }
        }
    }

    fn asks_for_rest(&mut self) -> bool {
        self.rest.as_mut().is_some_and(|rest| rest.begin(self.got))
    }

    /// Continues with another answer, which delivers the rest.
    fn continue_with(&mut self, answered: UpstreamAnswer) {
        let UpstreamAnswer { response, lease, path, setup, .. } = answered;
        self.incoming = response.into_body();
        self.record.set_path(&path);
        (self.way.path, self.way.setup) = (path, setup);
        // Nothing more is wanted of the old connection.
        if let Some(old) = self.lease.replace(lease) {
            old.close();
        }
    }

    fn passed(&mut self, frame: Option<FrameResult>) -> Option<FrameResult> {
        count(&frame, &self.record.down);
        let data = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref());
        self.got += data.map_or(0, |data| data.len() as u64);
        self.ended |= frame.is_none();
        if let (Some(Err(_)), Some(wire)) =
            (&frame, self.ends_wire.as_ref().and_then(Weak::upgrade))
        {
            wire.reset_on_close();
        }
        frame
    }
}

impl Drop for OriginBody {
    fn drop(&mut self) {
        let complete = self.ended || self.incoming.is_end_stream();
        self.record.complete.store(complete, Relaxed);
        if self.record.withheld.load(Relaxed) {
            // The origin still waits for content that will not come.
            if let Some(lease) = self.lease.take() {
                lease.close();
            }
        }
        let down = self.record.down.load(Relaxed);
        if down < MIN_RATE_SAMPLE {
            return;
        }
        // The program may have been the slower side: the path could do more.
        let observed = PathObservation {
            path: self.way.path.clone(),
            rate: Rate::over(ByteSize::from_bytes(down), self.began.elapsed()),
            setup: self.way.setup,
            bound: Bound::AtLeast,
        };
        self.shared.report_carried(&self.way.to, Content::Clear, &observed);
    }
}
