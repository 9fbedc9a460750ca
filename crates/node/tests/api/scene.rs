//! A daemon with the API at both doors, a queue that starts nothing, and an HTTP client that sends any header.

use futures_util::future::BoxFuture;
use http_body_util::{BodyExt as _, Full};
use hyper::{
    HeaderMap, Method, Request, Response,
    body::{Body, Bytes, Incoming},
    client::conn::http1,
};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::{
    convert::Infallible,
    fs,
    net::SocketAddr,
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process::{Command, Stdio},
    sync::{Arc, mpsc::Receiver},
    time::Duration,
};
use tempfile::TempDir;
use thalweg_base::log::{Event, Log};
use thalweg_jobs::{Jobs, JobsSettings};
use thalweg_mesh::Membership;
use thalweg_net::PrivateKey;
use thalweg_node::daemon::{
    ApiConfig, Daemon, DaemonConfig, Documents, HandshakeLimits, NoReload, Node, OracleDown,
    PathDocument, Services, Summary,
};
use thalweg_uplinks::interfaces::Change;
use thalweg_wire::{Signer as _, mesh::ApiError};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
    sync::oneshot,
    task::JoinHandle,
};

/// A running daemon.
pub struct Scene {
    pub api: Option<SocketAddr>,
    pub socket: PathBuf,
    pub token_file: PathBuf,
    pub log: Receiver<Event>,
    stop: Option<oneshot::Sender<()>>,
    running: JoinHandle<Summary>,
    _dir: TempDir,
}

/// A whole reply.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Reply {
    pub fn json(&self) -> Value {
        assert_eq!(self.header("content-type"), "application/json", "{self:?}");
        serde_json::from_slice(&self.body).unwrap()
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.body.to_vec()).unwrap()
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// Checks that it is a refusal with this status and code. Returns its message.
    pub fn refusal(&self, status: u16, code: &str) -> String {
        assert_eq!((self.status, &self.json()["code"]), (status, &json!(code)), "{self:?}");
        let message = self.json()["message"].as_str().unwrap().to_owned();
        assert!(!message.is_empty());
        message
    }
}

impl Scene {
    pub async fn start() -> Self {
        Self::start_at("127.0.0.1:0".parse().unwrap(), false).await
    }

    pub async fn start_at(listen: SocketAddr, is_optional: bool) -> Self {
        let dir = TempDir::new().unwrap();
        let (log, queue) = Log::to_queue();
        let jobs = JobsSettings {
            directory: dir.path().join("jobs"),
            program: "/nonexistent/thalweg".into(),
            environment: Vec::new(),
            // Nothing is started, so that jobs stay as the tests leave them.
            parallel: 0,
            max_open: 100,
            max_ended: 100,
        };
        let key = PrivateKey::from_seed(&[1; 32]);
        let membership = Membership::new(key.id(), None);
        let node = Node {
            name: "n1".parse().unwrap(),
            key,
            membership: membership.clone(),
            services: Services::default(),
            control: Arc::new(OracleDown::new(membership, "it is elsewhere")),
            jobs: Some(Jobs::open(jobs, log.clone()).unwrap()),
            documents: Arc::new(FixedDocuments),
            settings: Arc::new(NoReload),
            registry: Default::default(),
            legs: None,
            reach: None,
            log,
        };
        let token_file = dir.path().join("api.token");
        let config = DaemonConfig {
            listen: Vec::new(),
            riding: None,
            handshake: Duration::from_secs(10),
            limits: HandshakeLimits::default(),
            drain: Duration::ZERO,
            metrics: None,
            socket: dir.path().join("node.sock"),
            api: Some(ApiConfig { listen, is_optional, token_file: token_file.clone() }),
            socks: None,
        };
        let socket = config.socket.clone();
        let daemon = Daemon::bind(config, node).await.unwrap();
        let api = daemon.api_addr();
        let (stop, stopped) = oneshot::channel();
        let running = daemon.run(async { _ = stopped.await }, std::future::pending());
        let (stop, running) = (Some(stop), tokio::spawn(running));
        Self { api, socket, token_file, log: queue, stop, running, _dir: dir }
    }

    /// The authority on loopback.
    pub fn host(&self) -> String {
        self.api.unwrap().to_string()
    }

    /// The value of `Authorization`.
    pub fn bearer(&self) -> String {
        format!("Bearer {}", fs::read_to_string(&self.token_file).unwrap().trim())
    }

    /// Sends a request on loopback with exactly these headers.
    pub async fn raw(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Reply {
        let tcp = TcpStream::connect(self.api.unwrap()).await.unwrap();
        reply(exchange(tcp, request(method, path, headers, body)).await).await
    }

    /// Sends a request on loopback with the token; a body is JSON.
    pub async fn send(&self, method: &str, path: &str, body: Option<Value>) -> Reply {
        let (host, bearer) = (self.host(), self.bearer());
        let headers =
            [("host", &*host), ("authorization", &*bearer), ("content-type", "application/json")];
        let body = body.map_or(String::new(), |body| body.to_string());
        self.raw(method, path, &headers[..if body.is_empty() { 2 } else { 3 }], &body).await
    }

    pub async fn get(&self, path: &str) -> Reply {
        self.send("GET", path, None).await
    }

    /// Opens a stream of events on loopback.
    pub async fn open(&self, path: &str, headers: &[(&str, &str)]) -> Response<Incoming> {
        let (host, bearer) = (self.host(), self.bearer());
        let ours = [("host", &*host), ("authorization", &*bearer)];
        let headers: Vec<_> = ours.iter().chain(headers).copied().collect();
        let tcp = TcpStream::connect(self.api.unwrap()).await.unwrap();
        exchange(tcp, request("GET", path, &headers, "")).await
    }

    /// Sends a request at the socket.
    pub async fn at_socket(&self, method: &str, path: &str) -> Reply {
        let request = request(method, path, &[("host", "node")], "");
        reply(self.exchange_at_socket(request).await).await
    }

    pub async fn exchange_at_socket<B>(&self, request: Request<B>) -> Response<Incoming>
    where
        B: Body<Data = Bytes, Error = Infallible> + Send + 'static,
    {
        exchange(UnixStream::connect(&self.socket).await.unwrap(), request).await
    }

    /// Queues a download, and waits until the queue has nothing more to say of it. Returns its number.
    pub async fn add_job(&self) -> u64 {
        let body = json!({ "arguments": ["get", "https://example.org/a"], "directory": "/" });
        let added = self.send("POST", "/v1/jobs", Some(body)).await;
        assert_eq!(added.status, 201, "{added:?}");
        let id = added.json()["id"].as_u64().unwrap();
        while self.get(&format!("/v1/jobs/{id}")).await.json()["waits_for"] != "slot" {
            tokio::task::yield_now().await;
        }
        id
    }

    /// Stops it in order.
    pub async fn end(mut self) {
        self.stop.take().unwrap().send(()).unwrap();
        self.running.await.unwrap();
    }
}

pub fn request(
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Request<Full<Bytes>> {
    let method = Method::from_bytes(method.as_bytes()).unwrap();
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Full::from(body.to_owned())).unwrap()
}

/// Sends the request on this connection, which goes on for the reply's body.
async fn exchange<S, B>(stream: S, request: Request<B>) -> Response<Incoming>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    B: Body<Data = Bytes, Error = Infallible> + Send + 'static,
{
    let (mut send, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    send.send_request(request).await.unwrap()
}

pub async fn reply(response: Response<Incoming>) -> Reply {
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let body = response.into_body().collect().await.unwrap().to_bytes();
    Reply { status, headers, body }
}

/// The text that has arrived of a body, up to and with this text.
pub async fn read_until(body: &mut Incoming, end: &str) -> String {
    let mut text = String::new();
    let reading = async {
        while !text.contains(end) {
            let frame = body.frame().await.expect("the body goes on").unwrap();
            text += std::str::from_utf8(frame.data_ref().unwrap()).unwrap();
        }
    };
    let in_time = tokio::time::timeout(Duration::from_secs(20), reading).await;
    assert!(in_time.is_ok(), "no `{end}` in: {text}");
    text
}

/// Says what was asked for; of interfaces nothing is known. Changes are answered as they came, and removing rules is
/// refused.
#[derive(Debug)]
struct FixedDocuments;

impl Documents for FixedDocuments {
    fn paths(&self) -> BoxFuture<'_, Result<PathDocument, ApiError>> {
        let (age, valid_for) = (Duration::ZERO, Duration::from_secs(10));
        let (paths, rest) = (None, json!({ "candidates": [] }));
        Box::pin(async move { Ok(PathDocument { paths, rest, age, valid_for }) })
    }

    fn interfaces(&self) -> BoxFuture<'_, Result<Value, ApiError>> {
        let error = ApiError { code: "no_interfaces".into(), message: "cannot read them".into() };
        Box::pin(async { Err(error) })
    }

    fn change_interfaces(&self, changes: Vec<Change>) -> BoxFuture<'_, Result<Value, ApiError>> {
        Box::pin(async move {
            match changes.as_slice() {
                [Change::Unrule(_)] => {
                    let message = "not changed: process 7: there is no rule".into();
                    Err(ApiError { code: "not_changed".into(), message })
                }
                changes => Ok(json!(changes)),
            }
        })
    }
}

/// Sends a GET request with this header as this user of the host. Returns the whole reply. Only root can.
pub async fn request_as(user: u32, scene: &Scene, path: &str, header: &str) -> String {
    let at = scene.api.unwrap();
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: {at}\r\n{header}\r\nConnection: close\r\n\r\n");
    let script =
        format!("exec 3<>/dev/tcp/{}/{}; printf %s \"$1\" >&3; cat <&3", at.ip(), at.port());
    let mut bash = Command::new("bash");
    bash.args(["-c", &script, "bash", &request]).uid(user).gid(user).current_dir("/");
    bash.stdin(Stdio::null());
    let output = tokio::task::spawn_blocking(move || bash.output().unwrap()).await.unwrap();
    String::from_utf8(output.stdout).unwrap()
}
