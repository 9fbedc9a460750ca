//! Forwards a request in absolute form to its origin, and passes the answer back.

use super::{
    answer::ForwardError,
    answer_rest::AnswerRest,
    body::{AnswerPath, OriginBody, Outgoing, Reply, SendPermission},
    connect::take_program_stream,
    counted_stream::CountedStream,
    dial::DialledConnection,
    event::TunnelKind,
    fields,
    http::ClientContext,
    record::Record,
    request_line::OriginForm,
    split,
    target::Forward,
    tunnel::{self, Tunnel},
    upstream::{RepeatableRequest, UpstreamAnswer, UpstreamError, exchange},
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

/// Forwards one request and returns the origin's response, or the proxy's own if that fails.
pub async fn forward(
    context: &ClientContext,
    to: Forward,
    request: Request<Incoming>,
) -> Response<Reply> {
    let name = to.to.to_string();
    match forwarded(context, to, request).await {
        Ok(response) => response,
        Err(error) => context.refuse(name, &error),
    }
}

async fn forwarded(
    context: &ClientContext,
    to: Forward,
    mut request: Request<Incoming>,
) -> Result<Response<Reply>, ForwardError> {
    let upgrade = hyper::upgrade::on(&mut request);
    let (mut parts, body) = request.into_parts();
    let (version, method) = (parts.version, parts.method.clone());
    check(&parts, &context.shared.name)?;
    fields::merge_lengths(&mut parts.headers);
    decrement_max_forwards(&mut parts)?;
    let asks_upgrade = fields::upgrade(&parts.headers, version).is_some();
    readdress(&mut parts, &to, &context.shared.name);
    let record = Record::begin(
        &context.shared.recorder,
        context.client,
        method.to_string(),
        to.to.to_string(),
    );
    let again = repeatable(&parts, &body, asks_upgrade, &record);
    let forwarded = ForwardedRequest { context, to: &to, version, record: &record };
    let answered = match &again {
        Some(again) => forwarded.ask(again.request(), None, Some(again)).await?,
        None => {
            let (opens, gate) = continues(&mut parts, version, Arc::clone(&record));
            let body = Outgoing::new(body, gate, Arc::clone(&record));
            forwarded.ask(Request::from_parts(parts, body), opens, None).await?
        }
    };
    if answered.response.status() == StatusCode::SWITCHING_PROTOCOLS {
        if !asks_upgrade {
            answered.lease.close();
            return Err(ForwardError::Unasked);
        }
        return Ok(forwarded.switch(answered, upgrade));
    }
    match again {
        // Ranges would use other connections, on which the origin does not know the user.
        Some(_) if answered.lease.is_reserved() => forwarded.pass(answered, None),
        Some(again) if method == Method::GET => forwarded.split_or_pass(answered, again).await,
        _ => forwarded.pass(answered, None),
    }
}

/// Checks that the request can be forwarded: exactly one `Host`, a supported transfer coding, and no loop.
fn check(parts: &Parts, name: &str) -> Result<(), ForwardError> {
    let hosts = parts.headers.get_all(header::HOST).iter().count();
    if hosts > 1 || (hosts == 0 && parts.version >= Version::HTTP_11) {
        return Err(ForwardError::Host);
    }
    if let Some(coding) = fields::unsupported_coding(&parts.headers) {
        return Err(ForwardError::Coding(coding));
    }
    if fields::has_passed(&parts.headers, name) { Err(ForwardError::Loop) } else { Ok(()) }
}

/// Decrements `Max-Forwards`, which counts only for these methods (RFC 9110 §7.6.2).
fn decrement_max_forwards(parts: &mut Parts) -> Result<(), ForwardError> {
    if !matches!(parts.method, Method::TRACE | Method::OPTIONS) {
        return Ok(());
    }
    let value = parts.headers.get("max-forwards").and_then(|v| v.to_str().ok());
    let Some(left) = value.and_then(|v| v.trim().parse::<u64>().ok()) else { return Ok(()) };
    let left = left.checked_sub(1).ok_or(ForwardError::MaxForwards)?;
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

/// The request to send again if the origin closes an idle connection. `None` if repeating it might have an effect
/// twice, or it has content.
fn repeatable(
    parts: &Parts,
    body: &Incoming,
    asks_upgrade: bool,
    record: &Arc<Record>,
) -> Option<RepeatableRequest> {
    let may = body.is_end_stream() && parts.method.is_safe() && !asks_upgrade;
    may.then(|| RepeatableRequest { parts: parts.clone(), record: Arc::clone(record) })
}

/// For a request that expects `100 Continue`: a sender to report that it has arrived, and a future that completes then.
/// HTTP/1.0 has no such expectation (RFC 9110 §10.1.1).
fn continues(
    parts: &mut Parts,
    version: Version,
    record: Arc<Record>,
) -> (Option<watch::Sender<bool>>, Option<SendPermission>) {
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
struct ForwardedRequest<'a> {
    context: &'a ClientContext,
    to: &'a Forward,
    /// The version of the program's request.
    version: Version,
    record: &'a Arc<Record>,
}

impl ForwardedRequest<'_> {
    /// As [`ForwardedRequest::send_request`]; if the request failed because the program's content is malformed, returns
    /// [`ForwardError::Content`].
    async fn ask(
        &self,
        request: Request<Outgoing>,
        opens: Option<watch::Sender<bool>>,
        again: Option<&RepeatableRequest>,
    ) -> Result<UpstreamAnswer, ForwardError> {
        let mut answered = self.send_request(request, opens, again).await;
        if let Ok(answered) = &mut answered
            && answered.response.status() == StatusCode::NETWORK_AUTHENTICATION_REQUIRED
        {
            answered.lease.mark_captive_portal();
        }
        answered.map_err(|error| match self.record.malformed.load(Relaxed) {
            true => ForwardError::Content,
            false => ForwardError::Answer(error),
        })
    }

    /// Sends the request to the origin and returns its answer; passes interim answers to the program meanwhile.
    async fn send_request(
        &self,
        mut request: Request<Outgoing>,
        opens: Option<watch::Sender<bool>>,
        again: Option<&RepeatableRequest>,
    ) -> Result<UpstreamAnswer, UpstreamError> {
        let came = Arc::new(Notify::new());
        let (interim, tell) = (self.context.interim.clone(), Arc::clone(&came));
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
        self.context.interim.open();
        let context = self.context;
        let asking = exchange(&context.shared, &context.program, &self.to.to, request, again);
        let mut asking = std::pin::pin!(asking);
        let answered = loop {
            tokio::select! {
                biased;
                // hyper flushes when this task yields, which sends the interim answer.
                () = came.notified() => yield_now().await,
                answered = &mut asking => break answered,
            }
        };
        self.context.interim.close();
        answered
    }

    /// Passes the answer on as it arrives. If the request is repeatable and the object can be fetched in ranges,
    /// another interface delivers the rest when this one fails.
    fn pass(
        &self,
        answered: UpstreamAnswer,
        again: Option<RepeatableRequest>,
    ) -> Result<Response<Reply>, ForwardError> {
        let rest = again.and_then(|again| self.rest(&answered, again));
        let UpstreamAnswer { response, lease, path, setup, .. } = answered;
        let (mut parts, incoming) = response.into_parts();
        if let Some(coding) = fields::unsupported_coding(&parts.headers) {
            lease.close();
            return Err(ForwardError::AnswerCoding(coding));
        }
        self.record.set_path(&path);
        self.record.status.store(parts.status.as_u16(), Relaxed);
        self.ready(&mut parts);
        let way = AnswerPath { to: self.to.to.clone(), path, setup };
        let (record, shared) = (Arc::clone(self.record), Arc::clone(&self.context.shared));
        let mut body = OriginBody::new(incoming, lease, way, record, shared).with_rest(rest);
        if self.version < Version::HTTP_11 && !parts.headers.contains_key(header::CONTENT_LENGTH) {
            body = body.ending_with(self.context.wire.clone());
        }
        Ok(Response::from_parts(parts, Reply::Origin(Box::new(body))))
    }

    fn rest(&self, answered: &UpstreamAnswer, again: RepeatableRequest) -> Option<AnswerRest> {
        let object = split::Object::from_response(&again.parts, &answered.response, self.to)?;
        let context = self.context;
        let of = (again, object);
        AnswerRest::for_answer(
            &context.shared,
            &context.program,
            &self.to.to,
            of,
            answered.interface,
        )
    }

    /// Adapts the head of an answer to this hop.
    fn ready(&self, parts: &mut hyper::http::response::Parts) {
        // Both at once would contradict each other: the chunks count (RFC 9112 §6.3).
        if parts.headers.contains_key(header::TRANSFER_ENCODING) {
            parts.headers.remove(header::CONTENT_LENGTH);
        }
        fields::merge_lengths(&mut parts.headers);
        fields::strip_hop_by_hop(&mut parts.headers);
        fields::add_via(&mut parts.headers, parts.version, &self.context.shared.name);
        parts.version = Version::HTTP_11;
    }

    /// Fetches a large object over several paths, if that is possible; otherwise passes on the answer that is there.
    async fn split_or_pass(
        &self,
        answered: UpstreamAnswer,
        again: RepeatableRequest,
    ) -> Result<Response<Reply>, ForwardError> {
        let found = split::Object::from_response(&again.parts, &answered.response, self.to);
        let plan = found.and_then(|object| split::SplitPlan::find(&self.context.shared, object));
        let Some(plan) = plan else { return self.pass(answered, Some(again)) };
        let UpstreamAnswer { response, lease, .. } = answered;
        let mut parts = response.into_parts().0;
        // The split download delivers the content, so the rest of the answer on this connection is dropped.
        lease.close();
        let fields = again.parts.headers.clone();
        match split::fetch(&self.context.shared, plan, fields, self.record).await {
            Some(body) => {
                self.record.split.store(true, Relaxed);
                self.context.shared.recorder.tally.split.fetch_add(1, Relaxed);
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

    /// Passes on `101 Switching Protocols` and begins a tunnel, since both sides speak another protocol now (RFC 9110
    /// §15.2.2).
    fn switch(&self, answered: UpstreamAnswer, program_side: OnUpgrade) -> Response<Reply> {
        let UpstreamAnswer { mut response, lease, path, setup, .. } = answered;
        let origin_side = hyper::upgrade::on(&mut response);
        let passage = lease.forget();
        let mut parts = response.into_parts().0;
        let protocol = parts.headers.get(header::UPGRADE).cloned();
        self.ready(&mut parts);
        if let Some(protocol) = protocol {
            fields::set_upgrade(&mut parts.headers, protocol);
        }
        let (shared, client) = (Arc::clone(&self.context.shared), self.context.client);
        let to = self.to.to.clone();
        self.context.shared.tracker.spawn(async move {
            // Either fails if its side leaves.
            let (Ok(ours), Ok(theirs)) = tokio::join!(program_side, origin_side) else { return };
            let Some((tcp, early)) = take_program_stream(ours).await else { return };
            let Ok(theirs) = theirs.downcast::<TokioIo<CountedStream>>() else { return };
            let (stream, late) = (theirs.io.into_inner().stream, theirs.read_buf);
            let dialled = DialledConnection { stream, path, setup, passage };
            let (kind, content) = (TunnelKind::Upgrade, Content::Clear);
            let tunnel = Tunnel { client, kind, tcp, early, dialled, late, to, content };
            tunnel::run(&shared, tunnel).await;
        });
        Response::from_parts(parts, Reply::empty())
    }
}
