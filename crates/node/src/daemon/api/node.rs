//! The routes of the node and its mesh.

use super::{
    Api,
    error::{ApiRefusal, ErrorBody, JsonBody, QueryOf},
};
use axum::{
    Json,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;
use thalweg_wire::bistro::{StrikeReply, StrikeRequest};
use thalweg_wire::mesh::{
    AddressesReply, AddressesRequest, RevokeReply, RevokeRequest, Roster, StatusReply, TokenReply,
    TokenRequest,
};
use utoipa::{IntoParams, ToSchema};

use crate::daemon::{NodeStatus, ReloadReply};

/// The signed list of members, as `thalweg mesh members --json` prints it.
#[derive(Debug, Serialize, ToSchema)]
#[serde(transparent)]
#[schema(value_type = Object)]
pub struct RosterDocument(Roster);

/// The oracle's view of the mesh: `mesh`, `version`, `expiry`, `time`, and for each of the `members` when it was seen.
#[derive(Debug, Serialize, ToSchema)]
#[serde(transparent)]
#[schema(value_type = Object)]
pub struct OracleDocument(StatusReply);

/// A new token: `token` and `expires`, nanoseconds since 1970.
#[derive(Debug, Serialize, ToSchema)]
#[serde(transparent)]
#[schema(value_type = Object)]
pub struct TokenDocument(TokenReply);

/// A revoked member: its `name`, and the `version` of the roster without it.
#[derive(Debug, Serialize, ToSchema)]
#[serde(transparent)]
#[schema(value_type = Object)]
pub struct RevokedDocument(RevokeReply);

/// The member's `name`, its `addresses`, and the `version` of the roster with them.
#[derive(Debug, Serialize, ToSchema)]
#[serde(transparent)]
#[schema(value_type = Object)]
pub struct AddressesDocument(AddressesReply);

/// What was struck: the number of `submissions`, and their `bytes`.
#[derive(Debug, Serialize, ToSchema)]
#[serde(transparent)]
#[schema(value_type = Object)]
pub struct StruckDocument(StrikeReply);

/// A document whose fields its command's page describes.
#[derive(ToSchema)]
#[schema(value_type = Object)]
#[allow(dead_code, reason = "only describes documents that are sent as they were made")]
pub struct Document(Value);

/// The shape of a name or tag.
#[derive(ToSchema)]
#[schema(value_type = String, pattern = "^[a-z0-9][-a-z0-9_=.]{0,62}$")]
#[allow(dead_code, reason = "only describes texts")]
pub struct NameShape(String);

/// The shape of a key.
#[derive(ToSchema)]
#[schema(value_type = String, pattern = "^[0-9a-f]{64}$")]
#[allow(dead_code, reason = "only describes texts")]
pub struct KeyShape(String);

/// The roles that a token can give.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
#[allow(dead_code, reason = "only describes texts")]
pub enum RoleShape {
    Client,
    Relay,
    Admin,
}

/// The shape of a request for a token.
#[derive(ToSchema)]
#[schema(as = TokenRequest)]
#[allow(dead_code, reason = "only describes the request, whose type is another crate's")]
pub struct TokenRequestShape {
    roles: Vec<RoleShape>,
    #[schema(max_items = 16)]
    tags: Vec<NameShape>,
    /// The name that the host must take; null: it chooses.
    #[schema(pattern = "^[a-z0-9][-a-z0-9_=.]{0,62}$")]
    name: Option<String>,
    /// How long the token is valid, with its unit, e.g. `1 h`.
    #[schema(example = "1 h", pattern = "^[1-9][0-9]{0,2} (s|min|h|d)$")]
    valid: String,
}

/// The shape of a request to revoke a member.
#[derive(ToSchema)]
#[schema(as = RevokeRequest)]
#[allow(dead_code, reason = "only describes the request, whose type is another crate's")]
pub struct RevokeRequestShape {
    /// The member's name, or one of its keys.
    member: String,
}

/// The shape of a request to replace this host's addresses.
#[derive(ToSchema)]
#[schema(as = AddressesRequest)]
#[allow(dead_code, reason = "only describes the request, whose type is another crate's")]
pub struct AddressesRequestShape {
    /// `HOST:PORT`, the best first.
    #[schema(max_items = 16)]
    addresses: Vec<String>,
}

/// The shape of a request to strike submissions from a drop box.
#[derive(ToSchema)]
#[schema(as = StrikeRequest)]
#[allow(dead_code, reason = "only describes the request, whose type is another crate's")]
pub struct StrikeRequestShape {
    #[schema(pattern = "^[a-z0-9][-a-z0-9_=.]{0,62}$")]
    drop_box: String,
    /// Numbers of submissions.
    numbers: Vec<u64>,
    /// Keys whose submissions are struck, present and later ones: 64 hexadecimal digits each.
    keys: Vec<KeyShape>,
}

/// Show the node's status
#[utoipa::path(get, path = "/v1/status", operation_id = "show_status", tag = "node", responses(
    (status = 200, description = "The status", body = NodeStatus),
))]
pub async fn status(State(api): State<Arc<Api>>) -> Json<NodeStatus> {
    Json(api.sources.status().await)
}

/// Show the members of the mesh
#[utoipa::path(get, path = "/v1/roster", operation_id = "show_roster", tag = "node", responses(
    (status = 200, description = "The roster that the node uses", body = RosterDocument),
    (status = 404, description = "The node has no roster yet (`no_roster`)", body = ErrorBody),
))]
pub async fn roster(State(api): State<Arc<Api>>) -> Result<Json<RosterDocument>, ApiRefusal> {
    let message =
        "this node has no roster yet; `thalweg status` shows whether it reaches its oracle";
    let none = || ApiRefusal::missing("no_roster", message);
    let roster = api.sources.membership.current().ok_or_else(none)?;
    Ok(Json(RosterDocument((*roster).clone())))
}

/// Show what is known of paths
///
/// The document of `thalweg paths --full --json`, and its `advice`. It is at most ten seconds old; of a large mesh two
/// minutes, because making it moves all rates.
#[utoipa::path(get, path = "/v1/paths", operation_id = "show_paths", tag = "node", responses(
    (status = 200, description = "Rates between all members, and relays", body = Document),
    (status = 404, description = "Nothing is known yet (`no_paths`)", body = ErrorBody),
))]
pub async fn paths(State(api): State<Arc<Api>>) -> Result<Response, ApiRefusal> {
    let document = api.documents.paths().await?;
    Ok(json(serde_json::to_vec(&*document).map_err(ApiRefusal::broken)?.into()))
}

/// The query of `GET /v1/paths/matrix`.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default)]
pub struct MatrixQuery {
    /// The version that the client has, the `ETag` of its last reply without quotes: only what has changed since then is sent.
    since: Option<String>,
}

/// Show the rates between all members in binary form
///
/// For meshes of hundreds of nodes: 13 bytes for each pair, and 17 for each that has changed. The format is described in
/// `docs/console.md`.
#[utoipa::path(get, path = "/v1/paths/matrix", operation_id = "show_matrix", tag = "node",
    params(MatrixQuery, ("If-None-Match" = Option<String>, Header,
        description = "The `ETag` of the last reply")),
    responses(
        (status = 200, description = "All cells, or those that have changed",
            content(("application/octet-stream"))),
        (status = 304, description = "Nothing has changed since the version in `If-None-Match`"),
        (status = 404, description = "Nothing is known yet (`no_paths`), or there are more than 2000 nodes (`no_matrix`)",
            body = ErrorBody),
    ))]
pub async fn matrix(
    State(api): State<Arc<Api>>,
    QueryOf(query): QueryOf<MatrixQuery>,
    headers: HeaderMap,
) -> Result<Response, ApiRefusal> {
    let known = headers.get(header::IF_NONE_MATCH).and_then(|known| known.to_str().ok());
    let matrix = api.documents.matrix(query.since.as_deref(), known.unwrap_or_default()).await?;
    let etag = [(header::ETAG, matrix.etag)];
    let kind = [(header::CONTENT_TYPE, "application/octet-stream")];
    Ok(match matrix.body {
        Some(body) => (etag, kind, body).into_response(),
        None => (StatusCode::NOT_MODIFIED, etag).into_response(),
    })
}

/// A document that is JSON already.
pub(super) fn json(text: Bytes) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}

/// Show the drop boxes
#[utoipa::path(get, path = "/v1/drop-boxes", operation_id = "show_drop_boxes", tag = "node", responses(
    (status = 200, description = "Counters and settings; null if there are none", body = Option<Document>),
))]
pub async fn drop_boxes(State(api): State<Arc<Api>>) -> Json<Value> {
    Json(api.sources.submit.as_ref().map(|submit| submit.report()).unwrap_or_default())
}

/// Strike submissions from a drop box
#[utoipa::path(post, path = "/v1/drop-boxes/strike", operation_id = "strike_submissions", tag = "node",
    request_body = StrikeRequestShape,
    responses(
        (status = 200, description = "What was struck", body = StruckDocument),
        (status = 404, description = "There is no such drop box (`no_drop_box`)", body = ErrorBody),
        (status = 409, description = "It cannot be struck", body = ErrorBody),
    ))]
pub async fn strike(
    State(api): State<Arc<Api>>,
    JsonBody(request): JsonBody<StrikeRequest>,
) -> Result<Json<StruckDocument>, ApiRefusal> {
    let none = || ApiRefusal::missing("no_drop_box", "this node has no drop box");
    let submit = api.sources.submit.as_ref().ok_or_else(none)?;
    Ok(Json(StruckDocument(submit.strike(request).await?)))
}

/// Show the carrier
#[utoipa::path(get, path = "/v1/carrier", operation_id = "show_carrier", tag = "node", responses(
    (status = 200, description = "Its state; null if nothing is carried", body = Option<Document>),
))]
pub async fn carrier(State(api): State<Arc<Api>>) -> Json<Value> {
    Json(api.sources.carrier())
}

/// Show the oracle's view of the mesh
#[utoipa::path(get, path = "/v1/oracle", operation_id = "show_oracle", tag = "node", responses(
    (status = 200, description = "Its reply", body = OracleDocument),
    (status = 400, description = "The oracle refused", body = ErrorBody),
    (status = 502, description = "The oracle could not be asked (`oracle_…`)", body = ErrorBody),
))]
pub async fn oracle(State(api): State<Arc<Api>>) -> Result<Json<OracleDocument>, ApiRefusal> {
    Ok(Json(OracleDocument(api.sources.control.status().await?)))
}

/// Make a token with which a host can join
#[utoipa::path(post, path = "/v1/tokens", operation_id = "make_token", tag = "node", request_body = TokenRequestShape, responses(
    (status = 200, description = "The token", body = TokenDocument),
    (status = 409, description = "The mesh does not allow it now", body = ErrorBody),
    (status = 429, description = "Too many requests (`rate_limited`)", body = ErrorBody),
    (status = 502, description = "The oracle could not be asked (`oracle_…`)", body = ErrorBody),
))]
pub async fn token(
    State(api): State<Arc<Api>>,
    JsonBody(request): JsonBody<TokenRequest>,
) -> Result<Json<TokenDocument>, ApiRefusal> {
    Ok(Json(TokenDocument(api.sources.control.token(request).await?)))
}

/// Revoke a member
#[utoipa::path(post, path = "/v1/revoke", operation_id = "revoke_member", tag = "node", request_body = RevokeRequestShape, responses(
    (status = 200, description = "The member is revoked", body = RevokedDocument),
    (status = 404, description = "There is no such member (`unknown_member`)", body = ErrorBody),
    (status = 409, description = "The member must stay (`yourself`, `last`)", body = ErrorBody),
    (status = 429, description = "Too many requests (`rate_limited`)", body = ErrorBody),
    (status = 502, description = "The oracle could not be asked (`oracle_…`)", body = ErrorBody),
))]
pub async fn revoke(
    State(api): State<Arc<Api>>,
    JsonBody(request): JsonBody<RevokeRequest>,
) -> Result<Json<RevokedDocument>, ApiRefusal> {
    Ok(Json(RevokedDocument(api.sources.control.revoke(request).await?)))
}

/// Replace the addresses at which other members reach this node
#[utoipa::path(post, path = "/v1/addresses", operation_id = "set_addresses", tag = "node", request_body = AddressesRequestShape, responses(
    (status = 200, description = "They are in the roster", body = AddressesDocument),
    (status = 400, description = "They cannot be addresses of this host, or it has none in the roster", body = ErrorBody),
    (status = 409, description = "The host is not a member (`not_listed`)", body = ErrorBody),
    (status = 429, description = "Too many requests (`rate_limited`)", body = ErrorBody),
    (status = 502, description = "The oracle could not be asked (`oracle_…`)", body = ErrorBody),
))]
pub async fn set_addresses(
    State(api): State<Arc<Api>>,
    JsonBody(request): JsonBody<AddressesRequest>,
) -> Result<Json<AddressesDocument>, ApiRefusal> {
    Ok(Json(AddressesDocument(api.sources.control.set_addresses(request).await?)))
}

/// Read the settings file again
///
/// All of it is checked first. Settings that can change while the node runs apply to what begins from now on.
#[utoipa::path(post, path = "/v1/reload", operation_id = "reload_settings", tag = "node", responses(
    (status = 200, description = "What was changed", body = ReloadReply),
    (status = 409, description = "The settings have mistakes; all former ones stay (`settings`)", body = ErrorBody),
))]
pub async fn reload(State(api): State<Arc<Api>>) -> Result<Json<ReloadReply>, ApiRefusal> {
    Ok(Json(api.settings.reload().await?))
}

/// Describe the API
#[utoipa::path(get, path = "/v1/openapi.json", operation_id = "describe", tag = "node", responses(
    (status = 200, description = "OpenAPI 3.1", body = Document),
))]
pub async fn openapi(State(api): State<Arc<Api>>) -> Response {
    json(api.description.clone())
}
