//! One path at work: a task with one connection.

use super::{
    HttpUrl, PathError,
    http::{Connection, probe_request, segment_request},
    resource::{Answer, Resource, check_segment, read_answer},
};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::{HeaderMap, body::Incoming};
use std::{ops::Range, sync::Arc, time::Duration};
use thalweg_net::{Dialer, Route};
use thalweg_units::PathId;
use tokio::{sync::mpsc, time::timeout};

/// As many as curl's and browsers' habit allows or half of it; more is a loop.
const MAX_REDIRECTS: usize = 10;

/// What all paths of one download share.
pub(super) struct Shared {
    pub(super) dialer: Dialer,
    /// The URL as the user gave it; only its origin gets the user's fields.
    pub(super) url: HttpUrl,
    pub(super) fields: HeaderMap,
    /// How long a path may take until its first answer, dialling and redirects included.
    pub(super) patience: Duration,
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
    /// The next bytes of the range; never more than ordered.
    Data(Bytes),
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

/// Bytes to fetch.
pub(super) struct Order {
    pub(super) range: Range<u64>,
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
        let same = url.same_origin(&self.shared.url);
        if same { self.shared.fields.clone() } else { HeaderMap::new() }
    }

    /// Follows redirects to the object and reports what it is.
    async fn probe(&mut self) -> Result<(), PathError> {
        let mut url = self.shared.url.clone();
        for _ in 0..=MAX_REDIRECTS {
            let mut connection = Connection::open(&self.shared.dialer, &self.route, &url).await?;
            let request = probe_request(&url, &self.fields_for(&url));
            let response = connection.ask(request).await.map_err(PathError::Http)?;
            let (head, body) = response.into_parts();
            match read_answer(&head, &url)? {
                Answer::Redirect(next) => url = next,
                answer @ Answer::Whole(_) => {
                    let body = Body { incoming: body, _connection: connection };
                    self.tell(Report::Answered(answer, Some(body))).await;
                    return Ok(());
                }
                answer @ Answer::Ranged(_) => {
                    drain(body).await?;
                    self.connection = Some(connection);
                    self.tell(Report::Answered(answer, None)).await;
                    return Ok(());
                }
            }
        }
        Err(PathError::TooManyRedirects(MAX_REDIRECTS))
    }

    async fn fetch(&mut self, order: Order) -> Result<(), PathError> {
        let Order { range, resource } = order;
        let (head, mut body) = self.ask(&resource, range.clone()).await?.into_parts();
        check_segment(&head, range.clone(), &resource)?;
        let mut owed = range.end - range.start;
        while let Some(data) = next_bytes(&mut body).await? {
            owed = owed.checked_sub(data.len() as u64).ok_or(PathError::TooLong)?;
            self.tell(Report::Data(data)).await;
        }
        if owed == 0 {
            return Ok(());
        }
        Err(PathError::Early(thalweg_units::ByteSize::from_bytes(owed)))
    }

    /// Asks on the connection there is, or on a new one. A server may close an
    /// idle connection at any time: that costs a second try, and is no failure.
    async fn ask(
        &mut self,
        resource: &Resource,
        range: Range<u64>,
    ) -> Result<hyper::Response<Incoming>, PathError> {
        loop {
            let kept = self.connection.take().filter(Connection::is_open);
            let reused = kept.is_some();
            let mut connection = match kept {
                Some(connection) => connection,
                None => Connection::open(&self.shared.dialer, &self.route, &resource.url).await?,
            };
            let fields = self.fields_for(&resource.url);
            let request = segment_request(resource, range.clone(), &fields);
            self.tell(Report::Sent).await;
            match connection.ask(request).await {
                Ok(response) => {
                    self.connection = Some(connection);
                    return Ok(response);
                }
                Err(_) if reused => {}
                Err(error) => return Err(PathError::Http(error)),
            }
        }
    }
}

/// The next bytes of a body; `None` at its end. Trailers are skipped.
async fn next_bytes(body: &mut Incoming) -> Result<Option<Bytes>, PathError> {
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame.map_err(PathError::Http)?.into_data()
            && !data.is_empty()
        {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

/// Reads the one byte (or the page of an empty object's 416) away, so that the connection can go on.
async fn drain(mut body: Incoming) -> Result<(), PathError> {
    /// More is no single byte and no error page: not worth keeping the connection for.
    const LIMIT: usize = 64 << 10;
    let mut read = 0;
    while let Some(data) = next_bytes(&mut body).await? {
        read += data.len();
        if read > LIMIT {
            return Err(PathError::TooLong);
        }
    }
    Ok(())
}

impl Body {
    /// The next bytes; `None` at the end that the server marked.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, PathError> {
        next_bytes(&mut self.incoming).await
    }
}
