//! `CONNECT` (RFC 9110 §9.3.6).

use super::{
    answer::No,
    body::Reply,
    client_io::ClientIo,
    event::Kind,
    http::Place,
    tunnel::{self, Tunnel},
    upstream::NoAnswer,
};
use bytes::Bytes;
use hyper::{Request, Response, body::Incoming, upgrade::Upgraded};
use hyper_util::rt::TokioIo;
use thalweg_paths::chooser::Content;
use thalweg_wire::Destination;
use tokio::net::TcpStream;

/// Connects, and answers once the connection is established; the tunnel begins after the answer.
pub async fn connect(
    place: &Place,
    to: Destination,
    mut request: Request<Incoming>,
) -> Response<Reply> {
    // Programs tunnel TLS on any port. They also tunnel plain WebSockets, which cannot be told apart yet.
    let content = Content::Encrypted;
    let dialled = match place.shared.reach(&place.program, &to, content).await {
        Ok(dialled) => dialled,
        Err(no) => return place.refuse(to.to_string(), &No::Answer(NoAnswer::NoWay(no))),
    };
    let (shared, client) = (place.shared.clone(), place.client);
    let upgrade = hyper::upgrade::on(&mut request);
    place.shared.tracker.spawn(async move {
        // It fails if the program leaves before the answer.
        let Ok(upgraded) = upgrade.await else { return };
        let Some((tcp, early)) = program(upgraded).await else { return };
        let (kind, late) = (Kind::Connect, Bytes::new());
        tunnel::run(&shared, Tunnel { client, kind, tcp, early, dialled, late, to, content }).await;
    });
    Response::new(Reply::empty())
}

/// The program's connection, and what it has already sent after its request.
pub async fn program(upgraded: Upgraded) -> Option<(TcpStream, Vec<u8>)> {
    let parts = upgraded.downcast::<TokioIo<ClientIo>>().ok()?;
    let (tcp, unseen) = parts.io.into_inner().into_tcp().await?;
    Some((tcp, [&parts.read_buf[..], &unseen].concat()))
}
