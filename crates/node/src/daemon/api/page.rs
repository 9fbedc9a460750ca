//! The page: its files, the link that opens it, and the texts for those who have no link.

use super::{
    Api, PageDoor,
    doors::Connection,
    error::{ApiRefusal, ErrorBody, no_route},
    guard::Caller,
};
use axum::{
    Extension, Json, Router,
    extract::{FromRequestParts, Query, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header, request::Parts},
    response::{IntoResponse, Response},
    routing::get,
};
use serde::{Deserialize, Serialize};
use std::{
    net::SocketAddr,
    sync::{Arc, LazyLock},
    time::Instant,
};
use thalweg_base::clock::WallClock;
use thalweg_units::WallTime;
use thalweg_wire::bistro::show_date;
use tokio::task::spawn_blocking;
use utoipa::ToSchema;

/// A file of the page.
struct PageFile {
    content_type: &'static str,
    bytes: &'static [u8],
    etag: HeaderValue,
}

impl PageFile {
    fn new(content_type: &'static str, bytes: &'static [u8]) -> Self {
        let hash = blake3::hash(bytes).to_hex();
        // Hexadecimal digits are always valid in a header.
        let etag = HeaderValue::from_str(&format!("\"{}\"", &hash[..32]));
        Self { content_type, bytes, etag: etag.unwrap_or(HeaderValue::from_static("\"0\"")) }
    }

    fn reply(&self, headers: &HeaderMap) -> Response {
        // Browsers keep the files, and ask each time whether they are still the newest.
        let revalidate = HeaderValue::from_static("no-cache");
        let common = [(header::ETAG, self.etag.clone()), (header::CACHE_CONTROL, revalidate)];
        match headers.get(header::IF_NONE_MATCH).is_some_and(|known| *known == self.etag) {
            true => (StatusCode::NOT_MODIFIED, common).into_response(),
            false => {
                (common, [(header::CONTENT_TYPE, self.content_type)], self.bytes).into_response()
            }
        }
    }
}

macro_rules! page_file {
    ($name:ident, $content_type:literal, $file:literal) => {
        static $name: LazyLock<PageFile> = LazyLock::new(|| {
            PageFile::new($content_type, include_bytes!(concat!("../../../page/dist/", $file)))
        });
    };
}

page_file!(INDEX, "text/html; charset=utf-8", "index.html");
page_file!(SCRIPT, "text/javascript; charset=utf-8", "app.js");
page_file!(CHARTS, "text/javascript; charset=utf-8", "charts.js");
page_file!(STYLE, "text/css; charset=utf-8", "app.css");
page_file!(ICON, "image/svg+xml", "favicon.svg");

/// The routes of the page, on loopback only.
pub fn routes() -> Router<Arc<Api>> {
    Router::new()
        .route("/", get(index))
        .route("/enter", get(enter))
        .route("/app.js", get(|headers: HeaderMap| async move { SCRIPT.reply(&headers) }))
        .route("/charts.js", get(|headers: HeaderMap| async move { CHARTS.reply(&headers) }))
        .route("/app.css", get(|headers: HeaderMap| async move { STYLE.reply(&headers) }))
        .route("/favicon.svg", get(|headers: HeaderMap| async move { ICON.reply(&headers) }))
}

/// The page. The browser keeps the cookie for as long as the session may now be idle.
async fn index(State(api): State<Arc<Api>>, headers: HeaderMap) -> Response {
    let mut response = INDEX.reply(&headers);
    if let Ok(door) = &api.page
        && let Some(session) = door.guard.session(&headers)
        && let Ok(cookie) = HeaderValue::from_str(&door.guard.set_cookie(session))
    {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}

/// The query of a link.
#[derive(Debug, Deserialize)]
struct LinkQuery {
    #[serde(default)]
    code: String,
}

/// Exchanges a link's code for a cookie, which is valid only from connections of the same user of this host.
async fn enter(
    State(api): State<Arc<Api>>,
    method: Method,
    connection: Option<Extension<Connection>>,
    query: Result<Query<LinkQuery>, axum::extract::rejection::QueryRejection>,
) -> Result<Response, ApiRefusal> {
    let Ok(door) = &api.page else { return Err(no_route().await) };
    // A program that only looks at the link must not use it up.
    let code = query.map(|Query(query)| query.code).unwrap_or_default();
    if method != Method::GET {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let Some(user) = connection.and_then(|Extension(connection)| connection.user()) else {
        return Ok(text_page(StatusCode::FORBIDDEN, UNKNOWN_USER));
    };
    let session = door.credentials.open_session(&code, user, Instant::now());
    let Some(session) = session.map_err(ApiRefusal::broken)? else {
        return Ok(text_page(StatusCode::FORBIDDEN, USED));
    };
    let cookie = door.guard.set_cookie(&session);
    let headers = [(header::LOCATION, "/".to_owned()), (header::SET_COOKIE, cookie)];
    Ok((StatusCode::SEE_OTHER, headers).into_response())
}

const UNKNOWN_USER: &str = "The system does not say which user this connection is of, so the page \
                            cannot be opened here. The API works at the node's socket: see \
                            docs/console.md.";

const USED: &str = "This link was used already, or is older than five minutes. Run \
                    <code>thalweg page</code> for a new one.";

const LOCKED: &str = "To open this page, run <code>thalweg page</code> on the node's host, as the \
                      user that runs the node, and open the link that it prints.";

/// The page for a browser without a session.
pub fn locked() -> Response {
    text_page(StatusCode::UNAUTHORIZED, LOCKED)
}

/// A page of one paragraph, without anything that would have to be loaded.
fn text_page(status: StatusCode, paragraph: &str) -> Response {
    let text = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>Thalweg</title>\n\
         <h1>Thalweg</h1>\n<p>{paragraph}</p>\n</html>\n"
    );
    (status, [(header::CONTENT_TYPE, "text/html; charset=utf-8")], text).into_response()
}

/// The caller is the owner, at the socket; others are refused.
#[derive(Clone, Copy, Debug)]
pub struct OwnerOnly;

impl<S: Send + Sync> FromRequestParts<S> for OwnerOnly {
    type Rejection = ApiRefusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiRefusal> {
        let message = "this works only at the node's socket, node.sock in its state directory";
        match parts.extensions.get() {
            Some(Caller::Owner) => Ok(Self),
            _ => Err(ApiRefusal::new(StatusCode::FORBIDDEN, "socket_only", message)),
        }
    }
}

/// A link that opens the page once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PageLink {
    pub url: String,
    /// Until when it can be opened.
    #[schema(format = DateTime)]
    pub expires: String,
}

impl PageLink {
    /// The link with this code to the page at this address.
    fn to(at: SocketAddr, code: &str) -> Self {
        let validity = super::credentials::LINK_VALIDITY.as_secs();
        let now = WallClock::default().now().as_unix_nanos() / 1_000_000_000;
        let expires = now.saturating_add(validity).saturating_mul(1_000_000_000);
        let expires = show_date(WallTime::from_unix_nanos(expires));
        Self { url: format!("http://{at}/enter?code={code}"), expires }
    }
}

/// Make a link that opens the page
///
/// It can be opened once, within five minutes; the browser then keeps a cookie. At most 16 links are open at a time: a
/// new one replaces the oldest. Only at the socket.
#[utoipa::path(post, path = "/v1/page/links", operation_id = "make_page_link", tag = "page", responses(
    (status = 200, description = "The link", body = PageLink),
    (status = 503, description = "The page is off (`no_page`)", body = ErrorBody),
))]
pub async fn new_link(
    _: OwnerOnly,
    State(api): State<Arc<Api>>,
) -> Result<Json<PageLink>, ApiRefusal> {
    let door = open_door(&api)?;
    let code = door.credentials.new_link(Instant::now()).map_err(ApiRefusal::broken)?;
    Ok(Json(PageLink::to(door.at, &code)))
}

/// End all sessions and replace the token
///
/// Links that were not opened are no longer valid, all connections on loopback are closed, and the file `api.token` has
/// a new token. Only at the socket.
#[utoipa::path(post, path = "/v1/page/revoke", operation_id = "revoke_page", tag = "page", responses(
    (status = 204, description = "Nothing that was valid before is valid now"),
    (status = 500, description = "The token cannot be written (`internal`); nothing has changed", body = ErrorBody),
    (status = 503, description = "The page is off (`no_page`)", body = ErrorBody),
))]
pub async fn revoke(_: OwnerOnly, State(api): State<Arc<Api>>) -> Result<StatusCode, ApiRefusal> {
    let revoked =
        spawn_blocking(move || open_door(&api)?.credentials.revoke().map_err(ApiRefusal::broken));
    revoked.await.map_err(ApiRefusal::broken)??;
    Ok(StatusCode::NO_CONTENT)
}

fn open_door(api: &Api) -> Result<&PageDoor, ApiRefusal> {
    let off = |why: &String| ApiRefusal::new(StatusCode::SERVICE_UNAVAILABLE, "no_page", why);
    api.page.as_ref().map_err(off)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_the_browser_has_is_not_sent_again() {
        let mut headers = HeaderMap::new();
        let first = INDEX.reply(&headers);
        assert_eq!(first.status(), StatusCode::OK);
        assert_eq!(first.headers()[header::CONTENT_TYPE], "text/html; charset=utf-8");
        headers.insert(header::IF_NONE_MATCH, first.headers()[header::ETAG].clone());
        assert_eq!(INDEX.reply(&headers).status(), StatusCode::NOT_MODIFIED);
        assert_eq!(SCRIPT.reply(&headers).status(), StatusCode::OK, "another file");
    }

    #[test]
    fn a_link_names_the_address_and_ends_in_five_minutes() {
        let link = PageLink::to("[::1]:7".parse().unwrap(), "abc");
        assert_eq!(link.url, "http://[::1]:7/enter?code=abc");
        assert!(link.expires.ends_with('Z') && link.expires.len() == 20, "{}", link.expires);
    }
}
