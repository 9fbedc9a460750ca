//! The API of the node: HTTP/1.1 and JSON, for the programs of its owner, at two doors.
//!
//! ```text
//! node.sock (owner alone) ─────────────────────────────► Caller::Owner ─┐
//! loopback TCP ─► guard: Host, site, token or cookie ─► Token, Page ────┴─► routes ─► status, jobs, documents
//!                                                    └─► Stranger ─► 401, or how to get a link
//! ```
//!
//! | Request | Reply |
//! |---|---|
//! | `GET /v1/status` | [`super::NodeStatus`] |
//! | `GET /v1/roster` | the roster, as JSON |
//! | `GET /v1/paths`, `GET /v1/interfaces` | [`Documents`] of the program |
//! | `GET /v1/paths/matrix` | the rates in binary form, or their changes ([`path_matrix`]) |
//! | `PUT /v1/interfaces/…`, `… /v1/interfaces/rules…` | changes of running processes; the document afterwards |
//! | `GET /v1/drop-boxes` | counters and settings of drop boxes; null if there are none |
//! | `POST /v1/drop-boxes/strike` | the number of struck submissions, and their bytes |
//! | `GET /v1/carrier` | [`thalweg_probe::carrier::CarrierReport`]; null if nothing is carried |
//! | `GET /v1/oracle` | the oracle's status |
//! | `POST /v1/tokens`, `POST /v1/revoke`, `POST /v1/addresses` | as at the oracle, asked in this node's name |
//! | `POST /v1/reload` | what changed in the settings, and what needs a restart |
//! | `… /v1/jobs…`, `GET /v1/events` | the queue of transfers, and its changes |
//! | `POST /v1/jobs/terminal`, `POST /v1/page/links`, `POST /v1/page/revoke` | only at the socket |
//! | `GET /v1/openapi.json` | the description of all this |
//!
//! Errors: an object with `code` and `message`, with status 4xx or 5xx; also for paths and methods that do not exist.

mod credentials;
mod documents;
mod doors;
mod error;
mod events;
mod guard;
mod interfaces;
mod jobs;
mod node;
mod openapi;
mod page;
mod path_matrix;
mod terminal;

pub use documents::{Documents, NoDocuments, PathDocument};
pub use doors::bind;
pub use page::PageLink;

use super::{Reload, status::StatusSources};
use axum::{
    Extension, Router,
    body::Bytes,
    extract::{DefaultBodyLimit, Request, State},
    http::{HeaderName, HeaderValue, Method, StatusCode, header},
    middleware::{Next, from_fn_with_state},
    response::{IntoResponse, Response},
};
use credentials::Credentials;
use documents::DocumentCache;
use error::ApiRefusal;
use guard::{Caller, Guard, Head};
use std::{io, net::SocketAddr, path::PathBuf, sync::Arc, time::Instant};
use thalweg_base::log::{Event, Log};
use thalweg_jobs::Jobs;
use thalweg_uplinks::interfaces::listener_at;
use tokio::{
    net::{TcpListener, UnixListener},
    sync::Semaphore,
};
use tokio_util::sync::CancellationToken;
use utoipa::OpenApi as _;
use utoipa_axum::{router::OpenApiRouter, routes};

/// The longest request: a token request with all tags is below 4 kB, a job's arguments below the limit of the queue.
const MAX_BODY: usize = 64 * 1024;

/// The API on loopback.
#[derive(Clone, Debug)]
pub struct ApiConfig {
    /// A loopback address; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Whether the daemon starts without it if the port is taken.
    pub is_optional: bool,
    /// The file with the token of programs.
    pub token_file: PathBuf,
}

/// What requests are answered from.
#[derive(Debug)]
pub struct Api {
    pub(super) sources: StatusSources,
    /// The queue of transfers; `None`: it cannot be used.
    pub(super) jobs: Option<Jobs>,
    documents: DocumentCache,
    settings: Arc<dyn Reload>,
    /// The door on loopback, or why there is none.
    page: Result<PageDoor, String>,
    /// Places for streams of events.
    streams: Arc<Semaphore>,
    /// The daemon ends, and with it open streams.
    stop: CancellationToken,
    /// The JSON of the OpenAPI description.
    description: Bytes,
}

/// The door on loopback.
#[derive(Debug)]
struct PageDoor {
    at: SocketAddr,
    guard: Guard,
    credentials: Credentials,
}

impl PageDoor {
    /// The door of this listener.
    fn open(config: &ApiConfig, listener: &TcpListener) -> io::Result<Self> {
        let at = listener.local_addr()?;
        let credentials = Credentials::open(&config.token_file)?;
        let owner = rustix::process::geteuid().as_raw();
        Ok(Self { at, guard: Guard::new(at, owner), credentials })
    }
}

/// Says who has the port of the API, and removes the token, which programs may have sent there: the next start makes
/// another one. Reads `/proc`: do not call it on a runtime's thread.
pub fn port_is_taken(config: &ApiConfig) -> String {
    let at = config.listen;
    let holder = listener_at(at).map_or("another program".to_owned(), |holder| {
        let process = holder.process.map(|(id, name)| format!("process {id} ({name}), "));
        format!("{}user {}", process.unwrap_or_default(), holder.user)
    });
    let file = config.token_file.display();
    let token = match Credentials::discard(&config.token_file) {
        Ok(true) => {
            format!("; the token in {file} was removed, as programs may have sent it there")
        }
        Ok(false) => String::new(),
        Err(e) => format!("; remove {file}, which may have been sent there: {e}"),
    };
    format!(
        "{holder} uses {at}{token}; end it, or set `[api] listen` in the settings to another port, \
         and restart the node"
    )
}

/// The doors of a daemon, bound, and the API behind them.
#[derive(Debug)]
pub struct Doors {
    pub api: Arc<Api>,
    socket: UnixListener,
    loopback: Option<TcpListener>,
}

/// What the API needs beside the status.
#[derive(Debug)]
pub struct ApiParts {
    pub sources: StatusSources,
    pub jobs: Option<Jobs>,
    pub documents: Arc<dyn Documents>,
    pub settings: Arc<dyn Reload>,
    pub stop: CancellationToken,
}

impl Doors {
    /// Puts the API behind the socket and, if there is one, the listener on loopback, or says why there is none. A
    /// listener without a token is closed, which is logged.
    pub fn new(
        parts: ApiParts,
        socket: UnixListener,
        loopback: Result<(ApiConfig, TcpListener), String>,
        log: &Log,
    ) -> Self {
        let opened = loopback.and_then(|(config, listener)| {
            let failed = |e: io::Error| {
                let why = format!("cannot use the token in {}: {e}", config.token_file.display());
                log.put(Event::new("no_page").with("at", config.listen).with("why", &why));
                why
            };
            PageDoor::open(&config, &listener).map(|door| (door, listener)).map_err(failed)
        });
        let (page, loopback) = match opened {
            Ok((door, listener)) => (Ok(door), Some(listener)),
            Err(why) => (Err(why), None),
        };
        let api = Api {
            sources: parts.sources,
            jobs: parts.jobs,
            documents: DocumentCache::new(parts.documents),
            settings: parts.settings,
            page,
            streams: Arc::new(Semaphore::new(events::MAX_STREAMS)),
            stop: parts.stop,
            description: openapi::finish(described().into_openapi()),
        };
        Self { api: Arc::new(api), socket, loopback }
    }

    /// The address on loopback, if there is one.
    pub fn loopback_addr(&self) -> Option<SocketAddr> {
        self.api.page.as_ref().ok().map(|door| door.at)
    }

    /// Serves until the daemon stops; requests in progress are finished, streams end.
    pub async fn serve(self) {
        let Self { api, socket, loopback } = self;
        let at_socket = doors::serve_socket(socket, api.socket_router(), api.stop.clone());
        let at_loopback = async {
            if let Some(listener) = loopback {
                doors::serve_loopback(listener, &api).await;
            }
        };
        tokio::join!(at_socket, at_loopback);
    }
}

/// The routes of `/v1`, with their description.
fn described() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::with_openapi(openapi::ApiDescription::openapi())
        .routes(routes!(node::status))
        .routes(routes!(node::roster))
        .routes(routes!(node::paths))
        .routes(routes!(node::matrix))
        .routes(routes!(interfaces::interfaces))
        .routes(routes!(interfaces::set_settings))
        .routes(routes!(interfaces::set_policy))
        .routes(routes!(interfaces::add_rule))
        .routes(routes!(interfaces::remove_rule))
        .routes(routes!(node::drop_boxes))
        .routes(routes!(node::strike))
        .routes(routes!(node::carrier))
        .routes(routes!(node::oracle))
        .routes(routes!(node::token))
        .routes(routes!(node::revoke))
        .routes(routes!(node::set_addresses))
        .routes(routes!(node::reload))
        .routes(routes!(node::openapi))
        .routes(routes!(jobs::list, jobs::add))
        .routes(routes!(jobs::show, jobs::forget))
        .routes(routes!(jobs::job_events))
        .routes(routes!(jobs::pause))
        .routes(routes!(jobs::resume))
        .routes(routes!(jobs::cancel))
        .routes(routes!(jobs::set_priority))
        .routes(routes!(events::events))
        .routes(routes!(terminal::terminal))
        .routes(routes!(page::new_link))
        .routes(routes!(page::revoke))
}

impl Api {
    /// The queue.
    fn jobs(&self) -> Result<&Jobs, ApiRefusal> {
        let message = "this daemon has no queue of jobs; its log says why";
        let none = || ApiRefusal::new(StatusCode::SERVICE_UNAVAILABLE, "no_jobs", message);
        self.jobs.as_ref().ok_or_else(none)
    }

    /// The routes at the socket, whose callers are the owner.
    fn socket_router(self: &Arc<Self>) -> Router {
        self.complete(described().into()).layer(Extension(Caller::Owner))
    }

    /// The routes on loopback, with the page, behind the guard.
    fn loopback_router(self: &Arc<Self>) -> Router {
        let routes = Router::<Arc<Self>>::from(described()).merge(page::routes());
        self.complete(routes).layer(from_fn_with_state(self.clone(), guarded))
    }

    fn complete(self: &Arc<Self>, routes: Router<Arc<Self>>) -> Router {
        routes
            .fallback(error::no_route)
            .method_not_allowed_fallback(error::no_method)
            .layer(DefaultBodyLimit::max(MAX_BODY))
            .with_state(self.clone())
    }
}

/// Admits a request on loopback, or refuses it; adds the headers that keep the page from being abused.
async fn guarded(State(api): State<Arc<Api>>, mut request: Request, next: Next) -> Response {
    let Ok(door) = &api.page else { return error::no_route().await.into_response() };
    let PageDoor { at, guard, credentials } = door;
    let (method, uri, headers) = (request.method(), request.uri(), request.headers());
    let user = request.extensions().get().and_then(doors::Connection::user);
    let head = Head { method, uri, headers };
    let checked = guard.check(&head, user, credentials, Instant::now());
    let mut response = match checked {
        Err(denial) => {
            let (status, code, message) = denial.refusal(*at);
            ApiRefusal::new(status, code, message).into_response()
        }
        Ok(Caller::Stranger) if uri.path() != "/enter" => refuse_stranger(method, uri.path(), door),
        Ok(caller) => {
            if caller != Caller::Stranger
                && let Some(connection) = request.extensions().get::<doors::Connection>()
            {
                connection.set_known();
            }
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
    };
    protect(&mut response);
    response
}

/// Says how to get in.
fn refuse_stranger(method: &Method, path: &str, door: &PageDoor) -> Response {
    if path == "/" && [Method::GET, Method::HEAD].contains(method) {
        return page::locked();
    }
    let message = format!(
        "send the header `Authorization: Bearer TOKEN` with the token in {}; for the page, open the \
         link that `thalweg page` prints",
        door.credentials.token_file().display()
    );
    ApiRefusal::new(StatusCode::UNAUTHORIZED, "unauthorized", message).into_response()
}

/// The page loads nothing from elsewhere and is in no other page; replies are neither guessed at nor stored.
fn protect(response: &mut Response) {
    let headers = response.headers_mut();
    for (name, value) in [
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
        ),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
}
