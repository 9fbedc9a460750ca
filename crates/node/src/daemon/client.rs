//! The client of the local API, for the command line.

use super::{NodeStatus, PageLink, ReloadReply};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{Method, Request, StatusCode, client::conn::http1, header};
use hyper_util::rt::TokioIo;
use serde::{Serialize, de::DeserializeOwned};
use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};
use thalweg_mesh::service::Control;
use thalweg_probe::carrier::CarrierReport;
use thalweg_wire::bistro::{StrikeReply, StrikeRequest};
use thalweg_wire::mesh::{
    AddressesReply, AddressesRequest, ApiError, RevokeReply, RevokeRequest, Roster, StatusReply,
    TokenReply, TokenRequest,
};
use thiserror::Error;
use tokio::{net::UnixStream, time::timeout};

/// The time for a whole request: the node waits at most 10 s for an oracle on another host, and for several of its
/// addresses in turn.
const PATIENCE: Duration = Duration::from_secs(45);

/// The longest reply, bytes: a hundred thousand jobs.
const MAX_REPLY: usize = 256 * 1024 * 1024;

/// A client of the daemon of one state directory.
#[derive(Clone, Debug)]
pub struct LocalClient {
    socket: PathBuf,
}

/// Why the daemon did not do what was asked.
#[derive(Debug, Error)]
pub enum LocalError {
    #[error("no daemon answers at {0}; start it with `thalweg node`")]
    NoDaemon(PathBuf),
    /// The socket is another user's.
    #[error("{0} belongs to another user; run this command as the user that runs `thalweg node`")]
    NotOurs(PathBuf),
    /// The connection broke, or the reply cannot be read.
    #[error("the daemon at {socket} failed: {why}")]
    Broken { socket: PathBuf, why: String },
    /// The daemon, or the oracle behind it, refused.
    #[error("{}", .0.message)]
    Refused(ApiError),
}

impl LocalClient {
    /// The client of the daemon that listens at `socket`, if one does.
    ///
    /// # Errors
    /// [`LocalError::NoDaemon`], [`LocalError::NotOurs`].
    pub async fn find(socket: &Path) -> Result<Self, LocalError> {
        let client = Self { socket: socket.to_owned() };
        client.connect().await.map(|_| client)
    }

    /// The node's status.
    ///
    /// # Errors
    /// [`LocalError`].
    pub async fn node_status(&self) -> Result<NodeStatus, LocalError> {
        self.ask(Method::GET, "/v1/status", &()).await
    }

    /// The node's drop boxes, as [`thalweg_mesh::service::SubmitService::report`] shows them.
    ///
    /// # Errors
    /// [`LocalError`].
    pub async fn drop_boxes(&self) -> Result<serde_json::Value, LocalError> {
        self.ask(Method::GET, "/v1/drop-boxes", &()).await
    }

    /// Strikes submissions and keys from one of the node's drop boxes.
    ///
    /// # Errors
    /// [`LocalError`].
    pub async fn strike(&self, request: &StrikeRequest) -> Result<StrikeReply, LocalError> {
        self.ask(Method::POST, "/v1/drop-boxes/strike", request).await
    }

    /// The state of the node's carrier; `None` if it carries nothing.
    ///
    /// # Errors
    /// [`LocalError`].
    pub async fn carrier(&self) -> Result<Option<CarrierReport>, LocalError> {
        self.ask(Method::GET, "/v1/carrier", &()).await
    }

    /// The node's roster.
    ///
    /// # Errors
    /// [`LocalError`].
    pub async fn roster(&self) -> Result<Roster, LocalError> {
        self.ask(Method::GET, "/v1/roster", &()).await
    }

    /// Makes a link that opens the node's page once.
    ///
    /// # Errors
    /// [`LocalError`].
    pub async fn page_link(&self) -> Result<PageLink, LocalError> {
        self.ask(Method::POST, "/v1/page/links", &()).await
    }

    /// Ends all sessions of the page and replaces the API's token.
    ///
    /// # Errors
    /// [`LocalError`].
    pub async fn revoke_page(&self) -> Result<(), LocalError> {
        self.ask_without_reply(Method::POST, "/v1/page/revoke").await
    }

    /// Makes the node read its settings again.
    ///
    /// # Errors
    /// [`LocalError`]; the node then keeps its former settings.
    pub async fn reload(&self) -> Result<ReloadReply, LocalError> {
        self.ask(Method::POST, "/v1/reload", &()).await
    }

    pub(super) async fn connect(&self) -> Result<UnixStream, LocalError> {
        let socket = || self.socket.clone();
        UnixStream::connect(&self.socket).await.map_err(|e| match e.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                LocalError::NoDaemon(socket())
            }
            io::ErrorKind::PermissionDenied => LocalError::NotOurs(socket()),
            _ => LocalError::Broken { socket: socket(), why: e.to_string() },
        })
    }

    pub(super) fn broken(&self, why: impl ToString) -> LocalError {
        LocalError::Broken { socket: self.socket.clone(), why: why.to_string() }
    }

    pub(super) async fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, LocalError> {
        let reply = self.ask_for_bytes(method, path, body).await?;
        serde_json::from_slice(&reply).map_err(|e| self.broken(e))
    }

    /// A request without a body, whose reply has none either.
    pub(super) async fn ask_without_reply(
        &self,
        method: Method,
        path: &str,
    ) -> Result<(), LocalError> {
        self.ask_for_bytes(method, path, &()).await.map(drop)
    }

    async fn ask_for_bytes(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> Result<Bytes, LocalError> {
        let late = |_| self.broken(format!("no answer within {PATIENCE:?}"));
        let body = serde_json::to_vec(body).map_err(|e| self.broken(e))?;
        let (status, reply) =
            timeout(PATIENCE, self.exchange(method, path, body)).await.map_err(late)??;
        if status.is_success() {
            return Ok(reply);
        }
        let text = || String::from_utf8_lossy(&reply).chars().take(200).collect::<String>();
        match serde_json::from_slice(&reply) {
            Ok(error) => Err(LocalError::Refused(error)),
            Err(_) => Err(self.broken(format!("{status}: {}", text()))),
        }
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<(StatusCode, Bytes), LocalError> {
        let stream = TokioIo::new(self.connect().await?);
        let (mut send, connection) = http1::handshake(stream).await.map_err(|e| self.broken(e))?;
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "node")
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::<Bytes>::from(body))
            .map_err(|e| self.broken(e))?;
        let exchange = async {
            let reply = send.send_request(request).await.map_err(|e| self.broken(e))?;
            let status = reply.status();
            let body = Limited::new(reply.into_body(), MAX_REPLY).collect().await;
            Ok((status, body.map_err(|e| self.broken(e))?.to_bytes()))
        };
        // The connection moves the bytes; it ends after the exchange, or interrupts it.
        let mut exchange = std::pin::pin!(exchange);
        tokio::select! {
            done = &mut exchange => return done,
            _ = connection => {}
        }
        exchange.await
    }
}

impl From<LocalError> for ApiError {
    fn from(error: LocalError) -> Self {
        match error {
            LocalError::Refused(refused) => refused,
            other => Self { code: "daemon".to_owned(), message: other.to_string() },
        }
    }
}

impl Control for LocalClient {
    fn token(&self, request: TokenRequest) -> BoxFuture<'_, Result<TokenReply, ApiError>> {
        Box::pin(async move { Ok(self.ask(Method::POST, "/v1/tokens", &request).await?) })
    }

    fn revoke(&self, request: RevokeRequest) -> BoxFuture<'_, Result<RevokeReply, ApiError>> {
        Box::pin(async move { Ok(self.ask(Method::POST, "/v1/revoke", &request).await?) })
    }

    fn set_addresses(
        &self,
        request: AddressesRequest,
    ) -> BoxFuture<'_, Result<AddressesReply, ApiError>> {
        Box::pin(async move { Ok(self.ask(Method::POST, "/v1/addresses", &request).await?) })
    }

    fn status(&self) -> BoxFuture<'_, Result<StatusReply, ApiError>> {
        Box::pin(async move { Ok(self.ask(Method::GET, "/v1/oracle", &()).await?) })
    }
}
