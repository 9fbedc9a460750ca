//! Serves a program's connection that speaks HTTP.

use super::{
    answer::ForwardError,
    body::Reply,
    client_io::{ClientIo, InterimAnswers, Wire},
    connect, forward, linger,
    pool::ReservedConnections,
    proxy_pages,
    request_scanner::{ContentFraming, LineError, RequestTarget},
    state::ProxyState,
    target::{self, Target, TargetError},
    upstream::MAX_FIELDS,
};
use hyper::{
    Request, Response,
    body::{Body as _, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::{
    convert::Infallible,
    net::SocketAddr,
    pin::pin,
    sync::{Arc, Weak},
    time::Duration,
};
use thalweg_uplinks::interfaces::Client;
use tokio::net::TcpStream;

/// How long a connection may be idle between requests: browsers keep theirs for five minutes.
const IDLE: Duration = Duration::from_secs(300);

/// How long a program may take from connecting to the end of its first request's head. A connection without a head
/// takes one of the limited slots, and programs on this host reach the proxy without network delay.
pub const FIRST_HEAD: Duration = Duration::from_secs(30);

/// The context in which the requests of one program connection are answered.
#[derive(Clone)]
pub struct ClientContext {
    pub shared: Arc<ProxyState>,
    /// The program's address.
    pub client: SocketAddr,
    pub program: Arc<Client>,
    /// The queue of interim answers.
    pub interim: InterimAnswers,
    /// The program's connection, while it lives.
    pub wire: Weak<Wire>,
}

/// Serves until the program leaves, a tunnel takes the connection over, or the proxy drains.
pub async fn serve(shared: Arc<ProxyState>, tcp: TcpStream, client: SocketAddr) {
    let stop = shared.stop.clone();
    let program = Arc::new(Client::at(client, tcp.local_addr().ok()));
    let _own = ReservedConnections { pool: Arc::clone(&shared.pool), number: program.number() };
    let (io, interim, rest) = ClientIo::new(tcp);
    let wire = io.weak_wire();
    let left = {
        let (left, slow) = (
            Wire::wait_until_left(wire.clone()),
            Wire::first_head_timeout(wire.clone(), FIRST_HEAD),
        );
        async move {
            tokio::select! { () = left => {}, () = slow => {} }
        }
    };
    let context = ClientContext { shared, client, program, interim, wire };
    let service = service_fn(move |request| {
        // Told at once, because the connection passes nothing on before.
        let line =
            context.wire.upgrade().and_then(|wire| wire.take_request_line(content(&request)));
        answer(context.clone(), line, request)
    });
    let connection = http1::Builder::new()
        .half_close(true)
        .preserve_header_case(true)
        .max_headers(MAX_FIELDS)
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE)
        .serve_connection(TokioIo::new(io), service)
        .with_upgrades();
    {
        let (mut connection, mut left) = (pin!(connection), pin!(left));
        // An error only means that the program broke off.
        tokio::select! {
            _ = connection.as_mut() => {}
            () = left.as_mut() => return,
            () = stop.cancelled() => {
                connection.as_mut().graceful_shutdown();
                tokio::select! { _ = connection => {}, () = left => return }
            }
        }
    }
    // Nothing is sent if all is read, or if a tunnel has the connection.
    let Ok(wire) = rest.await else { return };
    tokio::select! {
        () = wire.linger(linger::SILENT) => {}
        () = stop.cancelled() => wire.linger(linger::STOPPING).await,
    }
}

/// The content that follows a head, as hyper found it.
fn content(request: &Request<Incoming>) -> ContentFraming {
    let body = request.body();
    match body.size_hint().exact() {
        _ if body.is_end_stream() => ContentFraming::Length(0),
        Some(length) => ContentFraming::Length(length),
        None => ContentFraming::Chunked,
    }
}

async fn answer(
    context: ClientContext,
    line: Option<RequestTarget>,
    request: Request<Incoming>,
) -> Result<Response<Reply>, Infallible> {
    let line = line.unwrap_or(Err(LineError::NotHttp));
    let target = line.map_err(TargetError::from);
    Ok(match target.and_then(|target| target::read(request.method(), &target)) {
        Ok(Target::Tunnel(to)) => connect::connect(&context, to, request).await,
        Ok(Target::Forward(to)) => forward::forward(&context, to, request).await,
        Ok(Target::Own(path)) => {
            proxy_pages::answer(&path, &request.into_parts().0, &context.shared)
        }
        Err(error) => context.refuse(String::new(), &ForwardError::Target(error)),
    })
}

impl ClientContext {
    /// Records the refusal, and returns the answer for the program.
    pub fn refuse(&self, to: String, error: &ForwardError) -> Response<Reply> {
        self.shared.recorder.record_refusal(self.client, to, error.to_string());
        error.response()
    }
}
