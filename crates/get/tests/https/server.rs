//! A real server of one file, with or without TLS, over HTTP/1.1 or HTTP/2.

use bytes::Bytes;
use http_body_util::Full;
use hyper::{HeaderMap, Request, Response, Version, body::Incoming, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{Arc, Mutex},
};
use tokio::{io::AsyncWriteExt, net::TcpListener, task::JoinSet};
use tokio_rustls::{TlsAcceptor, rustls::ServerConfig};

/// A request as the server saw it.
#[derive(Clone, Debug)]
pub struct Ask {
    pub version: Version,
    /// `Host`, or `:authority`.
    pub authority: String,
    pub fields: HeaderMap,
}

/// What the server answers.
#[derive(Clone, Debug)]
pub enum Site {
    /// This file, in ranges.
    File(Bytes),
    /// The same, with this many additional fields in each answer.
    Wordy(Bytes, usize),
    /// A redirect to this URL.
    Moved(String),
    /// A file without a length, of which these bytes are sent; then the connection ends without TLS's or HTTP's end
    /// mark.
    Cut(Bytes),
}

/// Stops when dropped.
pub struct Server {
    pub address: SocketAddr,
    asks: Arc<Mutex<Vec<Ask>>>,
    _tasks: JoinSet<()>,
}

impl Server {
    pub async fn start(tls: Option<Arc<ServerConfig>>, site: Site) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asks = Arc::default();
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, tls, site, Arc::clone(&asks)));
        Self { address, asks, _tasks: tasks }
    }

    pub fn asks(&self) -> Vec<Ask> {
        self.asks.lock().unwrap().clone()
    }
}

type Asks = Arc<Mutex<Vec<Ask>>>;

async fn accept(listener: TcpListener, tls: Option<Arc<ServerConfig>>, site: Site, asks: Asks) {
    let mut connections = JoinSet::new();
    while let Ok((tcp, _)) = listener.accept().await {
        let (tls, site, asks) = (tls.clone(), site.clone(), Arc::clone(&asks));
        connections.spawn(async move {
            let Some(tls) = tls else { return http1(tcp, site, asks).await };
            // Clients that do not trust the certificate end the handshake.
            let Ok(mut stream) = TlsAcceptor::from(tls).accept(tcp).await else { return };
            if let Site::Cut(data) = &site {
                let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
                let chunk = format!("{:x}\r\n", data.len());
                let all = [head.as_bytes(), chunk.as_bytes(), data, b"\r\n"].concat();
                stream.write_all(&all).await.unwrap();
                // Only TCP is closed, as a relay or a reset could do it.
                return stream.get_mut().0.shutdown().await.unwrap();
            }
            match stream.get_ref().1.alpn_protocol() {
                Some(b"h2") => http2(stream, site, asks).await,
                _ => http1(stream, site, asks).await,
            }
        });
    }
}

async fn http1<IO>(io: IO, site: Site, asks: Asks)
where
    IO: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    let service = service_fn(|request| answer(request, &site, &asks));
    let http = hyper::server::conn::http1::Builder::new();
    _ = http.serve_connection(TokioIo::new(io), service).await;
}

async fn http2<IO>(io: IO, site: Site, asks: Asks)
where
    IO: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + 'static,
{
    let service = service_fn(move |request| {
        let (site, asks) = (site.clone(), Arc::clone(&asks));
        async move { answer(request, &site, &asks).await }
    });
    let http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    _ = http.serve_connection(TokioIo::new(io), service).await;
}

async fn answer(
    request: Request<Incoming>,
    site: &Site,
    asks: &Asks,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let host = request.headers().get("host").map(|h| h.to_str().unwrap().to_owned());
    let authority = request.uri().authority().map(|a| a.to_string());
    asks.lock().unwrap().push(Ask {
        version: request.version(),
        authority: authority.or(host).unwrap(),
        fields: request.headers().clone(),
    });
    let mut response = Response::builder().header("etag", "\"1\"");
    if let Site::Wordy(_, n) = site {
        response = (0..*n)
            .fold(response, |r, i| r.header(format!("x-field-{i}"), "a value of some length"));
    }
    let response = match site {
        Site::Moved(to) => response.status(302).header("location", to).body(Full::default()),
        Site::File(file) | Site::Wordy(file, _) => match range(&request, file.len()) {
            Some((first, end)) => response
                .status(206)
                .header("content-range", format!("bytes {first}-{}/{}", end - 1, file.len()))
                .body(Full::new(file.slice(first..end))),
            // This server does not support lists of ranges.
            None => response.status(200).body(Full::new(file.clone())),
        },
        Site::Cut(_) => panic!("is not HTTP"),
    };
    Ok(response.unwrap())
}

/// The requested range, if it is a single one; end exclusive.
fn range(request: &Request<Incoming>, length: usize) -> Option<(usize, usize)> {
    let text = request.headers().get("range")?.to_str().ok()?.strip_prefix("bytes=")?;
    let (first, last) = text.split_once('-')?;
    let (first, last) = (first.parse().ok()?, last.parse::<usize>().ok()?);
    (first < length).then(|| (first, length.min(last + 1)))
}
