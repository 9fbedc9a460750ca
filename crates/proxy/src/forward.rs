//! Forwards a request in absolute form to its origin, and passes the answer back.

use super::{
    answer::No,
    body::{OriginBody, Outgoing, Reply, Way},
    connect::program,
    counted::Counted,
    dial::Dialled,
    event::Kind,
    fields,
    http::Place,
    record::Record,
    request_line::OriginForm,
    rest::Rest,
    split,
    target::Forward,
    tunnel::{self, Tunnel},
    upstream::{Again, Answered, NoAnswer, exchange},
};
use hyper::{
    Method, Request, Response, StatusCode, Version,
    body::{Body as _, Incoming},
    ext::on_informational,
    header::{self, HeaderValue},
    http::request::Parts,
    upgrade::OnUpgrade,
};
use hyper_util::rt::TokioIo;
use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};
use thalweg_paths::chooser::Content;
use tokio::{
    sync::{Notify, watch},
    task::yield_now,
    time::timeout,
};

/// How long a program's content waits for the origin's `100 Continue`. Older servers send none, and curl itself waits
/// as long (RFC 9110 §10.1.1 leaves it open).
const CONTINUE: Duration = Duration::from_secs(1);

/// Forwards one request.
pub async fn forward(place: &Place, to: Forward, request: Request<Incoming>) -> Response<Reply> {
    let name = to.to.to_string();
    match forwarded(place, to, request).await {
        Ok(response) => response,
        Err(no) => place.refuse(name, &no),
    }
}

async fn forwarded(
    place: &Place,
    to: Forward,
    mut request: Request<Incoming>,
) -> Result<Response<Reply>, No> {
    let upgrade = hyper::upgrade::on(&mut request);
    let (mut parts, body) = request.into_parts();
    let (version, method) = (parts.version, parts.method.clone());
    check(&parts, &place.shared.name)?;
    fields::one_length(&mut parts.headers);
    count_forwards(&mut parts)?;
    let asks_upgrade = fields::upgrade(&parts.headers, version).is_some();
    readdress(&mut parts, &to, &place.shared.name);
    let record =
        Record::begin(&place.shared.books, place.client, method.to_string(), to.to.to_string());
    let again = repeatable(&parts, &body, asks_upgrade, &record);
    let trip = Trip { place, to: &to, version, record: &record };
    let answered = match &again {
        Some(again) => trip.ask(again.request(), None, Some(again)).await?,
        None => {
            let (opens, gate) = continues(&mut parts, version, Arc::clone(&record));
            let body = Outgoing::new(body, gate, Arc::clone(&record));
            trip.ask(Request::from_parts(parts, body), opens, None).await?
        }
    };
    if answered.response.status() == StatusCode::SWITCHING_PROTOCOLS {
        if !asks_upgrade {
            answered.lease.close();
            return Err(No::Unasked);
        }
        return Ok(trip.switch(answered, upgrade));
    }
    match again {
        // Ranges would use other connections, on which the origin does not know the user.
        Some(_) if answered.lease.is_proven() => trip.pass(answered, None),
        Some(again) if method == Method::GET => trip.split_or_pass(answered, again).await,
        _ => trip.pass(answered, None),
    }
}

/// Refuses what no request may contain.
fn check(parts: &Parts, name: &str) -> Result<(), No> {
    let hosts = parts.headers.get_all(header::HOST).iter().count();
    if hosts > 1 || (hosts == 0 && parts.version >= Version::HTTP_11) {
        return Err(No::Host);
    }
    if let Some(coding) = fields::strange_coding(&parts.headers) {
        return Err(No::Coding(coding));
    }
    if fields::went_by(&parts.headers, name) { Err(No::Loop) } else { Ok(()) }
}

/// Decrements `Max-Forwards`, which counts only for these methods (RFC 9110 §7.6.2).
fn count_forwards(parts: &mut Parts) -> Result<(), No> {
    if !matches!(parts.method, Method::TRACE | Method::OPTIONS) {
        return Ok(());
    }
    let value = parts.headers.get("max-forwards").and_then(|v| v.to_str().ok());
    let Some(left) = value.and_then(|v| v.trim().parse::<u64>().ok()) else { return Ok(()) };
    let left = left.checked_sub(1).ok_or(No::Forwards)?;
    parts.headers.insert("max-forwards", HeaderValue::from(left));
    Ok(())
}

/// Addresses the request to the origin (RFC 9112 §3.2.1, §3.2.2).
fn readdress(parts: &mut Parts, to: &Forward, name: &str) {
    let upgrade = fields::upgrade(&parts.headers, parts.version);
    let trailers = fields::has_token(&parts.headers, &header::TE, "trailers");
    fields::strip_hop_by_hop(&mut parts.headers);
    fields::add_via(&mut parts.headers, parts.version, name);
    if let Some(protocol) = upgrade {
        fields::set_upgrade(&mut parts.headers, protocol);
    } else if trailers {
        parts.headers.insert(header::TE, HeaderValue::from_static("trailers"));
        parts.headers.insert(header::CONNECTION, HeaderValue::from_static("TE"));
    }
    if let Ok(host) = HeaderValue::from_str(&to.host) {
        parts.headers.insert(header::HOST, host);
    }
    parts.extensions.insert(OriginForm(to.path.clone()));
    parts.version = Version::HTTP_11;
}

/// The request to send again if the origin closes an idle link. `None` if it might have an effect twice, or has
/// content.
fn repeatable(
    parts: &Parts,
    body: &Incoming,
    asks_upgrade: bool,
    record: &Arc<Record>,
) -> Option<Again> {
    let may = body.is_end_stream() && parts.method.is_safe() && !asks_upgrade;
    may.then(|| Again { parts: parts.clone(), record: Arc::clone(record) })
}

type Gate = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

/// For a request that expects `100 Continue`: a sender that reports its arrival, and a future that waits for it.
/// HTTP/1.0 has no such expectation (RFC 9110 §10.1.1).
fn continues(
    parts: &mut Parts,
    version: Version,
    record: Arc<Record>,
) -> (Option<watch::Sender<bool>>, Option<Gate>) {
    if !fields::has_token(&parts.headers, &header::EXPECT, "100-continue") {
        return (None, None);
    }
    if version < Version::HTTP_11 {
        parts.headers.remove(header::EXPECT);
        return (None, None);
    }
    let (opens, mut opened) = watch::channel(false);
    let gate = async move {
        let opened = opened.wait_for(|open| *open);
        let answered = timeout(CONTINUE, opened).await.is_ok_and(|opened| opened.is_err());
        if answered {
            // The final answer is there: the content is no longer wanted.
            record.withheld.store(true, Relaxed);
            std::future::pending().await
        }
    };
    (Some(opens), Some(Box::pin(gate)))
}

/// One request under way.
struct Trip<'a> {
    place: &'a Place,
    to: &'a Forward,
    /// The version of the program's request.
    version: Version,
    record: &'a Arc<Record>,
}

impl Trip<'_> {
    /// As [`Trip::asked`], but reports if the program's own content is at fault.
    async fn ask(
        &self,
        request: Request<Outgoing>,
        opens: Option<watch::Sender<bool>>,
        again: Option<&Again>,
    ) -> Result<Answered, No> {
        let mut answered = self.asked(request, opens, again).await;
        if let Ok(answered) = &mut answered
            && answered.response.status() == StatusCode::NETWORK_AUTHENTICATION_REQUIRED
        {
            answered.lease.is_misled();
        }
        answered.map_err(|no| match self.record.malformed.load(Relaxed) {
            true => No::Content,
            false => No::Answer(no),
        })
    }

    /// Asks the origin, and passes interim answers to the program meanwhile.
    async fn asked(
        &self,
        mut request: Request<Outgoing>,
        opens: Option<watch::Sender<bool>>,
        again: Option<&Again>,
    ) -> Result<Answered, NoAnswer> {
        let came = Arc::new(Notify::new());
        let (interim, tell) = (self.place.interim.clone(), Arc::clone(&came));
        let understands = self.version >= Version::HTTP_11;
        on_informational(&mut request, move |answer| {
            if answer.status() == StatusCode::CONTINUE {
                // Without the expectation nothing waits for it.
                _ = opens.as_ref().map(|opens| opens.send_replace(true));
            } else if understands {
                let mut fields = answer.headers().clone();
                fields::strip_hop_by_hop(&mut fields);
                interim.put(answer.status(), &fields);
                tell.notify_one();
            }
        });
        self.place.interim.open();
        let place = self.place;
        let asking = exchange(&place.shared, &place.program, &self.to.to, request, again);
        let mut asking = std::pin::pin!(asking);
        let answered = loop {
            tokio::select! {
                biased;
                // hyper flushes when this task yields, which sends the interim answer.
                () = came.notified() => yield_now().await,
                answered = &mut asking => break answered,
            }
        };
        self.place.interim.close();
        answered
    }

    /// Passes the answer on as it arrives. If the request may be sent again and the object can be fetched in ranges,
    /// another interface brings the rest when this one fails.
    fn pass(&self, answered: Answered, again: Option<Again>) -> Result<Response<Reply>, No> {
        let rest = again.and_then(|again| self.rest(&answered, again));
        let Answered { response, lease, path, setup, .. } = answered;
        let (mut parts, incoming) = response.into_parts();
        if let Some(coding) = fields::strange_coding(&parts.headers) {
            lease.close();
            return Err(No::AnswerCoding(coding));
        }
        self.record.goes_by(&path);
        self.record.status.store(parts.status.as_u16(), Relaxed);
        self.ready(&mut parts);
        let way = Way { to: self.to.to.clone(), path, setup };
        let (record, shared) = (Arc::clone(self.record), Arc::clone(&self.place.shared));
        let mut body = OriginBody::new(incoming, lease, way, record, shared).resting_on(rest);
        if self.version < Version::HTTP_11 && !parts.headers.contains_key(header::CONTENT_LENGTH) {
            body = body.ending_with(self.place.wire.clone());
        }
        Ok(Response::from_parts(parts, Reply::Origin(Box::new(body))))
    }

    fn rest(&self, answered: &Answered, again: Again) -> Option<Rest> {
        let object = split::Object::of(&again.parts, &answered.response, self.to)?;
        let place = self.place;
        let of = (again, object);
        Rest::of(&place.shared, &place.program, &self.to.to, of, answered.interface)
    }

    /// Adapts the head of an answer to this hop.
    fn ready(&self, parts: &mut hyper::http::response::Parts) {
        // Both at once would contradict each other: the chunks count (RFC 9112 §6.3).
        if parts.headers.contains_key(header::TRANSFER_ENCODING) {
            parts.headers.remove(header::CONTENT_LENGTH);
        }
        fields::one_length(&mut parts.headers);
        fields::strip_hop_by_hop(&mut parts.headers);
        fields::add_via(&mut parts.headers, parts.version, &self.place.shared.name);
        parts.version = Version::HTTP_11;
    }

    /// Fetches a large object over several paths, if that is possible; otherwise passes on the answer that is there.
    async fn split_or_pass(&self, answered: Answered, again: Again) -> Result<Response<Reply>, No> {
        let found = split::Object::of(&again.parts, &answered.response, self.to);
        let place = found.and_then(|object| split::Place::find(&self.place.shared, object));
        let Some(place) = place else { return self.pass(answered, Some(again)) };
        let Answered { response, lease, .. } = answered;
        let mut parts = response.into_parts().0;
        // The content comes by the paths; what is under way on this link is dropped.
        lease.close();
        let fields = again.parts.headers.clone();
        match split::fetch(&self.place.shared, place, fields, self.record).await {
            Some(body) => {
                self.record.split.store(true, Relaxed);
                self.place.shared.books.tally.split.fetch_add(1, Relaxed);
                self.record.status.store(parts.status.as_u16(), Relaxed);
                self.ready(&mut parts);
                Ok(Response::from_parts(parts, Reply::Split(body)))
            }
            None => {
                let answered = self.ask(again.request(), None, Some(&again)).await?;
                self.pass(answered, Some(again))
            }
        }
    }

    /// Both sides speak another protocol from here on (RFC 9110 §15.2.2).
    fn switch(&self, answered: Answered, program_side: OnUpgrade) -> Response<Reply> {
        let Answered { mut response, lease, path, setup, .. } = answered;
        let origin_side = hyper::upgrade::on(&mut response);
        let passage = lease.forget();
        let mut parts = response.into_parts().0;
        let protocol = parts.headers.get(header::UPGRADE).cloned();
        self.ready(&mut parts);
        if let Some(protocol) = protocol {
            fields::set_upgrade(&mut parts.headers, protocol);
        }
        let (shared, client) = (Arc::clone(&self.place.shared), self.place.client);
        let to = self.to.to.clone();
        self.place.shared.tracker.spawn(async move {
            // Either fails if its side leaves.
            let (Ok(ours), Ok(theirs)) = tokio::join!(program_side, origin_side) else { return };
            let Some((tcp, early)) = program(ours).await else { return };
            let Ok(theirs) = theirs.downcast::<TokioIo<Counted>>() else { return };
            let (stream, late) = (theirs.io.into_inner().stream, theirs.read_buf);
            let dialled = Dialled { stream, path, setup, passage };
            let (kind, content) = (Kind::Upgrade, Content::Clear);
            let tunnel = Tunnel { client, kind, tcp, early, dialled, late, to, content };
            tunnel::run(&shared, tunnel).await;
        });
        Response::from_parts(parts, Reply::empty())
    }
}
