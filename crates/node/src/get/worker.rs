//! One path at work: a task with one connection.

use super::{
    HttpUrl, PathError, Web,
    http::{Connection, probe_request, segment_request},
    multipart::{Multipart, Piece},
    resource::{Answer, Resource, check_joined, check_range, check_segment, read_answer},
};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::{
    HeaderMap,
    body::{Body as _, Incoming},
};
use std::{
    collections::VecDeque,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use thalweg_net::Route;
use thalweg_units::{ByteSize, PathId};
use tokio::{sync::mpsc, time::timeout};

/// Browsers follow 20, RFC 2068 §10.3 once said 5; more than this is a loop.
const MAX_REDIRECTS: usize = 10;

/// The most ranges in one request. A download over 16 paths leaves 15 remainders;
/// servers refuse long lists (RFC 9110 §17.15).
const MAX_JOINED: usize = 16;

/// The longest range that is asked for in a list. A part's bytes are held in
/// memory until the delimiter behind it has come, and are lost if the
/// connection breaks; above this size the round trip that a list saves is small.
const MAX_PART: u64 = 16 << 20;

/// What follows the last byte that is wanted is read away up to this, so that
/// the connection can go on: a closing boundary, the page of a 416.
const MAX_TAIL: usize = 64 << 10;

/// And for this long; the next order waits meanwhile.
const TAIL_PATIENCE: Duration = Duration::from_secs(2);

/// What all paths of one download share.
pub(super) struct Shared {
    pub(super) web: Web,
    /// The URL as the user gave it; only its origin gets the user's fields.
    pub(super) url: HttpUrl,
    pub(super) fields: HeaderMap,
    /// How long a path may take until its first answer, dialling and redirects included.
    pub(super) patience: Duration,
    /// The server wants its ranges one by one.
    pub(super) one_by_one: AtomicBool,
}

/// An answer's body, with the connection that it comes over.
pub(super) struct Body {
    incoming: Incoming,
    _connection: Connection,
}

/// What a path tells.
pub(super) enum Report {
    /// The first answer; with its body if that is the object.
    Answered(Answer, Option<Body>),
    /// The request for the ordered range is on its way.
    Sent,
    /// The next bytes that were ordered, and where they belong; never more.
    Data(u64, Bytes),
    /// So many bytes came in a list's part, and are not to be believed yet.
    Held(u64),
    /// As `Data`, of bytes that were held.
    Verified(u64, Bytes),
    /// It is over; the task has ended.
    Failed(PathError),
}

/// A report and who sends it.
pub(super) struct Message {
    pub(super) path: PathId,
    /// Which of the path's tasks; a stopped one may still have sent some.
    pub(super) session: u32,
    pub(super) report: Report,
}

/// Bytes to fetch, in this order.
pub(super) struct Order {
    pub(super) ranges: Vec<Range<u64>>,
    pub(super) resource: Arc<Resource>,
}

/// One path's task. Its end closes the connection.
pub(super) struct Worker {
    pub(super) shared: Arc<Shared>,
    pub(super) path: PathId,
    pub(super) session: u32,
    pub(super) route: Route,
    pub(super) reports: mpsc::Sender<Message>,
    pub(super) connection: Option<Connection>,
}

impl Worker {
    /// Asks for the object first if `probe`, then fetches what is ordered until
    /// there are no more orders, or something fails.
    pub(super) async fn run(mut self, probe: bool, mut orders: mpsc::Receiver<Order>) {
        if let Err(error) = self.work(probe, &mut orders).await {
            self.connection = None;
            self.tell(Report::Failed(error)).await;
        }
    }

    async fn work(
        &mut self,
        probe: bool,
        orders: &mut mpsc::Receiver<Order>,
    ) -> Result<(), PathError> {
        if probe {
            let patience = self.shared.patience;
            let answered = timeout(patience, self.probe()).await;
            answered.unwrap_or(Err(PathError::Silent(patience)))?;
        }
        while let Some(order) = orders.recv().await {
            self.fetch(order).await?;
        }
        Ok(())
    }

    async fn tell(&self, report: Report) {
        let message = Message { path: self.path, session: self.session, report };
        // Nobody listens any more: the task is about to be stopped.
        _ = self.reports.send(message).await;
    }

    /// The user's fields go to the origin he wrote them for, and to no other.
    fn fields_for(&self, url: &HttpUrl) -> HeaderMap {
        self.shared.web.fields_for(&self.shared.url, url, &self.shared.fields)
    }

    /// Follows redirects to the object and reports what it is.
    async fn probe(&mut self) -> Result<(), PathError> {
        let mut url = self.shared.url.clone();
        for _ in 0..=MAX_REDIRECTS {
            let mut connection = Connection::open(&self.shared.web, &self.route, &url).await?;
            let request = probe_request(&url, &self.fields_for(&url));
            let response = connection.ask(request).await.map_err(PathError::http)?;
            let (head, body) = response.into_parts();
            match read_answer(&head, &url, 1)? {
                Answer::Redirect(next) => url = next,
                answer @ Answer::Whole(_) => {
                    let body = Body { incoming: body, _connection: connection };
                    self.tell(Report::Answered(answer, Some(body))).await;
                    return Ok(());
                }
                answer @ Answer::Ranged(_) => {
                    self.connection = drain(body).await?.then_some(connection);
                    self.tell(Report::Answered(answer, None)).await;
                    return Ok(());
                }
            }
        }
        Err(PathError::TooManyRedirects(MAX_REDIRECTS))
    }

    /// Fetches what is ordered: lists of ranges at once where the server can,
    /// as in UKAIRO §3.2.1, because every request costs a round trip.
    async fn fetch(&mut self, order: Order) -> Result<(), PathError> {
        let mut ranges = VecDeque::from(order.ranges);
        while let Some(first) = ranges.front().cloned() {
            let short = |r: &&Range<u64>| r.end - r.start <= MAX_PART;
            let list = ranges.iter().take(MAX_JOINED).take_while(short).count();
            if list > 1 && !self.shared.one_by_one.load(Ordering::Relaxed) {
                self.fetch_joined(&mut ranges, list, &order.resource).await?;
            } else {
                self.fetch_one(first, &order.resource).await?;
                ranges.pop_front();
            }
        }
        Ok(())
    }

    async fn fetch_one(&mut self, range: Range<u64>, resource: &Resource) -> Result<(), PathError> {
        let asked = std::slice::from_ref(&range);
        let (head, mut body) = self.ask(resource, asked).await?.into_parts();
        check_segment(&head, range.clone(), resource)?;
        // A chunked answer may go on behind the range: then its last piece counts for nothing.
        let framed = body.size_hint().exact().is_some();
        let mut at = range.start;
        while at < range.end {
            let early = PathError::Early(ByteSize::from_bytes(range.end - at));
            let data = next_bytes(&mut body).await?.ok_or(early)?;
            let end = at + data.len() as u64;
            if end > range.end {
                return Err(PathError::TooLong);
            }
            if end == range.end && !framed && next_bytes(&mut body).await?.is_some() {
                return Err(PathError::TooLong);
            }
            self.tell(Report::Data(at, data)).await;
            at = end;
        }
        self.settle(body).await;
        Ok(())
    }

    /// Fetches the first `list` ranges in one answer of several parts, and takes
    /// those that came off `ranges`. If the server declines, or does it otherwise than
    /// asked, the rest is left for single requests on a new connection.
    async fn fetch_joined(
        &mut self,
        ranges: &mut VecDeque<Range<u64>>,
        list: usize,
        resource: &Resource,
    ) -> Result<(), PathError> {
        let asked: Vec<_> = ranges.iter().take(list).cloned().collect();
        let (head, mut body) = self.ask(resource, &asked).await?.into_parts();
        let mut keeps_to_it = false;
        if let Some(mut parts) = check_joined(&head, resource)? {
            let end = ranges.len() - asked.len();
            keeps_to_it = self.read_parts(&mut body, &mut parts, ranges, end, resource).await?;
        }
        if keeps_to_it {
            self.settle(body).await;
        } else {
            self.shared.one_by_one.store(true, Ordering::Relaxed);
            self.connection = None;
        }
        Ok(())
    }

    /// All that was wanted of a body is there: the connection goes on if the
    /// body ends soon. Whatever is wrong with the tail harms nothing.
    async fn settle(&mut self, body: Incoming) {
        if !matches!(timeout(TAIL_PATIENCE, drain(body)).await, Ok(Ok(true))) {
            self.connection = None;
        }
    }

    /// Reads parts until `ranges` is down to `end`; false if they are not the ones
    /// asked for. A part counts once the delimiter behind it has come: one that is
    /// shorter than it says ends in a piece of the delimiter.
    async fn read_parts(
        &mut self,
        body: &mut Incoming,
        parts: &mut Multipart,
        ranges: &mut VecDeque<Range<u64>>,
        end: usize,
        resource: &Resource,
    ) -> Result<bool, PathError> {
        let (mut input, mut held) = (Bytes::new(), Vec::new());
        let mut open = None::<Range<u64>>;
        while ranges.len() > end {
            let piece = match parts.next(&mut input) {
                Ok(Some(piece)) => piece,
                Err(_) => return Ok(false),
                Ok(None) => match next_bytes(body).await? {
                    Some(data) => {
                        input = data;
                        continue;
                    }
                    // All came that was sent, and no delimiter behind it.
                    None => return Ok(false),
                },
            };
            if let Piece::Data(data) = piece {
                self.tell(Report::Held(data.len() as u64)).await;
                held.push(data);
                continue;
            }
            if let Some(done) = open.take() {
                self.release(done.start, std::mem::take(&mut held)).await;
                ranges.pop_front();
                if ranges.len() == end {
                    return Ok(piece == Piece::End);
                }
            }
            let (Piece::Part(got), Some(wanted)) = (piece, ranges.front().cloned()) else {
                return Ok(false);
            };
            match check_range(got, wanted.clone(), resource) {
                Err(PathError::Range { .. }) => return Ok(false),
                checked => checked?,
            }
            open = Some(wanted);
        }
        Ok(true)
    }

    /// Hands over a part's bytes, from `at` on.
    async fn release(&self, mut at: u64, held: Vec<Bytes>) {
        for data in held {
            let n = data.len() as u64;
            self.tell(Report::Verified(at, data)).await;
            at += n;
        }
    }

    /// Asks on the connection there is, or on a new one. A server may close an
    /// idle connection at any time: that costs a second try, and is no failure.
    async fn ask(
        &mut self,
        resource: &Resource,
        ranges: &[Range<u64>],
    ) -> Result<hyper::Response<Incoming>, PathError> {
        loop {
            let kept = self.connection.take().filter(Connection::is_open);
            let reused = kept.is_some();
            let mut connection = match kept {
                Some(connection) => connection,
                None => Connection::open(&self.shared.web, &self.route, &resource.url).await?,
            };
            let fields = self.fields_for(&resource.url);
            let request = segment_request(resource, ranges, &fields);
            self.tell(Report::Sent).await;
            match connection.ask(request).await {
                Ok(response) => {
                    self.connection = Some(connection);
                    return Ok(response);
                }
                Err(_) if reused => {}
                Err(error) => return Err(PathError::http(error)),
            }
        }
    }
}

/// The next bytes of a body; `None` at its end. Trailers are skipped.
async fn next_bytes(body: &mut Incoming) -> Result<Option<Bytes>, PathError> {
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame.map_err(PathError::http)?.into_data()
            && !data.is_empty()
        {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

/// Reads the rest of a body away; false if there is too much of it.
async fn drain(mut body: Incoming) -> Result<bool, PathError> {
    let mut read = 0;
    while let Some(data) = next_bytes(&mut body).await? {
        read += data.len();
        if read > MAX_TAIL {
            return Ok(false);
        }
    }
    Ok(true)
}

impl Body {
    /// The next bytes; `None` at the end that the server marked.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, PathError> {
        next_bytes(&mut self.incoming).await
    }
}
