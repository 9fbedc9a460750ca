//! `CONNECT` (RFC 9110 §9.3.6).

use super::{
    answer::ForwardError,
    body::Reply,
    client_io::ClientIo,
    event::TunnelKind,
    http::ClientContext,
    tunnel::{self, Tunnel},
    upstream::UpstreamError,
};
use bytes::Bytes;
use hyper::{Request, Response, body::Incoming, upgrade::Upgraded};
use hyper_util::rt::TokioIo;
use thalweg_paths::chooser::Content;
use thalweg_wire::Destination;
use tokio::net::TcpStream;

/// Connects to the requested destination, and answers once the connection is established. The tunnel begins after the
/// answer.
pub async fn connect(
    context: &ClientContext,
    to: Destination,
    mut request: Request<Incoming>,
) -> Response<Reply> {
    // Programs tunnel TLS on any port, but plain WebSockets, mail and databases too, and their bytes come only after the
    // answer. A relay must not read those.
    let content = Content::of_tunnel(to.port);
    let dialled = match context.shared.connect(&context.program, &to, content).await {
        Ok(dialled) => dialled,
        Err(error) => {
            return context
                .refuse(to.to_string(), &ForwardError::Answer(UpstreamError::Connect(error)));
        }
    };
    let (shared, client) = (context.shared.clone(), context.client);
    let upgrade = hyper::upgrade::on(&mut request);
    context.shared.tracker.spawn(async move {
        // It fails if the program leaves before the answer.
        let Ok(upgraded) = upgrade.await else { return };
        let Some((tcp, early)) = take_program_stream(upgraded).await else { return };
        let (kind, late) = (TunnelKind::Connect, Bytes::new());
        tunnel::run(&shared, Tunnel { client, kind, tcp, early, dialled, late, to, content }).await;
    });
    Response::new(Reply::empty())
}

/// Takes the program's connection back from hyper, with the bytes that the program has already sent after its request.
pub async fn take_program_stream(upgraded: Upgraded) -> Option<(TcpStream, Vec<u8>)> {
    let parts = upgraded.downcast::<TokioIo<ClientIo>>().ok()?;
    let (tcp, unseen) = parts.io.into_inner().into_tcp().await?;
    Some((tcp, [&parts.read_buf[..], &unseen].concat()))
}
