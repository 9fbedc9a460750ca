//! Downloads one object to one file or stream, over several paths.
//!
//! The input is a URL and candidates for paths; the output is the object and the observations of each path.
//!
//! ```text
//! URL, candidates ─► discovery: the first good answer ─► the object, pinned
//!                                                           │
//! path ─► net::Dialer ─► http ─► worker (task per path) ────┤ checked pieces
//!                           ▲                               ▼
//!                           └── next range ── ranged (one task; plan::selection) ─► part::Writer ─► file
//! ```
//!
//! Each path has one connection (`http`) and one task (`worker`), which checks every answer against the pinned object.
//! One task (`ranged`) carries out the actions of [`Selection`](thalweg_plan::selection::Selection) and passes the
//! bytes to [`part::Writer`](thalweg_part::Writer). [`net::Dialer`](thalweg_net::Dialer) opens the connections.
//!
//! 1. **Discovery**: the first path requests the first missing bytes (if it is the only path, all bytes) while the
//!    others connect. The first answer that offers ranges pins the object: {final URL, length, strong entity tag or
//!    else modification date}.
//! 2. **Sampling and completion** (UKAIRO §3.2.1) of the missing bytes. A segment is accepted only with status 206, a
//!    Content-Range that begins at the requested position, and the pinned validator; with `If-Match` the server checks
//!    the version too.
//! 3. **Publication**: digest, sync, rename.
//!
//! If the server reports that the object changed, all bytes are discarded and the download starts again. A path that
//! answers with another object is dropped and named. If ranges or versions cannot be used, the whole object is fetched
//! with one plain `GET` (`run::Mode`, decision 0090).

mod call_memory;
mod cookies;
mod destination;
mod digest_login;
mod discovery;
mod ending;
mod error;
mod facts;
mod http;
mod http_settings;
mod idle_connections;
mod many;
mod metadata;
mod meter;
mod multipart;
pub mod netrc;
mod outcome;
mod output;
mod paths;
mod ranged;
mod repair;
mod request;
mod resource;
mod retry_after;
mod run;
mod server;
mod store;
mod targets;
mod version;
mod whole_object;
mod worker;

pub use error::{GetError, GetFailed, NotHttp, PathError};
pub use idle_connections::IdleConnections;

pub use many::{ManyOptions, ManySink, Tally, many};
pub use outcome::{Outcome, Phases};
pub use request::{CostDeadline, Output, PricedPath, Request, Target};
pub use retry_after::MAX_WAIT;

pub use http_settings::{Credentials, HttpSettings, HttpVersion};

use cookies::Cookies;
use digest_login::DigestLogins;
use facts::FactCollector;
use hyper::HeaderMap;
use run::{AttemptError, Run};
use server::ServerTraits;
use std::{sync::Arc, time::Duration};
use thalweg_base::job::{Event, EventSink};
use thalweg_units::ByteSize;
use tokio::sync::watch;

/// A signal that asks a download to stop. The bytes received so far are kept.
#[derive(Clone, Debug)]
pub struct Stop(watch::Receiver<bool>);

impl Stop {
    /// Creates a stop signal and its sender; sending `true` requests the stop.
    pub fn new() -> (watch::Sender<bool>, Self) {
        let (sender, receiver) = watch::channel(false);
        (sender, Self(receiver))
    }

    fn is_requested(&self) -> bool {
        *self.0.borrow()
    }

    async fn requested(&mut self) {
        if self.0.wait_for(|stop| *stop).await.is_err() {
            // The sender was dropped, so nobody can request a stop any more.
            std::future::pending().await
        }
    }
}

/// Parses a user's header `NAME: VALUE` and adds it to `fields`.
///
/// # Errors
/// [`GetError::Header`] if it is not valid HTTP, or is a field that `get` sets itself, such as `Range`.
pub fn add_field(fields: &mut HeaderMap, text: &str) -> Result<(), GetError> {
    let (name, value) =
        http::user_header(text).map_err(|why| GetError::Header(shown_name(text), why))?;
    fields.append(name, value);
    Ok(())
}

/// The field name in `text`, safe to print. The value may be secret; so may a text without `:`, which is shown as `?`.
fn shown_name(text: &str) -> String {
    const MOST: usize = 64;
    match text.split_once(':') {
        Some((name, _)) => name.trim().chars().take(MOST).flat_map(char::escape_debug).collect(),
        None => "?".to_owned(),
    }
}

/// Downloads one object to one file. See the [module](self).
///
/// Reports its progress to `sink`; the last event is `finished` or `failed`.
///
/// # Errors
/// [`GetFailed`] with the number of bytes kept. The target file is then unchanged.
pub async fn get(request: Request, sink: &dyn EventSink, stop: Stop) -> Result<Outcome, GetFailed> {
    advised(request, Advice::default(), sink, stop).await
}

/// Knowledge from earlier downloads of the same call.
#[derive(Clone, Debug, Default)]
struct Advice {
    /// How long the other paths wait before they connect.
    head_start: Duration,
    /// What is known about the server; the download adds what it learns.
    server: Arc<ServerTraits>,
    /// The cookies that servers have set so far.
    cookies: Arc<Cookies>,
    /// The challenges of servers that take Digest logins.
    logins: Arc<DigestLogins>,
}

async fn advised(
    request: Request,
    advice: Advice,
    sink: &dyn EventSink,
    mut stop: Stop,
) -> Result<Outcome, GetFailed> {
    let collector = FactCollector::new(sink);
    let mut run = Run::new(&request, advice, &collector);
    run.connections = collector.connections();
    match run.until_done(&mut stop).await {
        Ok(()) => {
            let outcome = Outcome { facts: collector.facts(&run), ..run.outcome() };
            sink.event(&outcome.event());
            Ok(outcome)
        }
        Err(error) => {
            let kept = ByteSize::from_bytes(run.kept);
            let (why, kept_bytes) = (error.to_string(), run.kept);
            sink.event(&Event::Failed { why, kept_bytes });
            Err(GetFailed { error, kept, corrupt: run.corrupt.into() })
        }
    }
}
