//! The description of the API, made from its code, and the errors that many operations have in common.

use super::error::ErrorBody;
use axum::body::Bytes;
use utoipa::{
    Modify, OpenApi,
    openapi::{
        ContentBuilder, HttpMethod, Ref, Response, ResponseBuilder,
        path::{Operation, PathItem},
        security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme},
    },
};

/// What all operations have in common.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Thalweg node",
        description = "The API of a node, for the programs of its owner: on the socket `node.sock` in the state \
                       directory without credentials, and on loopback with the token in the file `api.token` \
                       there, or with the cookie of the page.",
    ),
    components(schemas(ErrorBody)),
    modifiers(&Credentials),
    security(("token" = []), ("page" = [])),
    tags(
        (name = "node", description = "The node and its mesh"),
        (name = "interfaces", description = "The interfaces of the node's host, and how processes may use them"),
        (name = "jobs", description = "Transfers: the queue, and commands in terminals"),
        (name = "page", description = "The page"),
    ),
)]
pub struct ApiDescription;

struct Credentials;

impl Modify for Credentials {
    fn modify(&self, api: &mut utoipa::openapi::OpenApi) {
        let Some(components) = api.components.as_mut() else { return };
        let token = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some("The content of the file `api.token` in the state directory"))
            .build();
        components.add_security_scheme("token", SecurityScheme::Http(token));
        let cookie = ApiKeyValue::with_description(
            "thalweg-7374",
            "The cookie of a link by `thalweg page`; its name has the port",
        );
        components.add_security_scheme("page", SecurityScheme::ApiKey(ApiKey::Cookie(cookie)));
    }
}

/// Adds the errors that follow from what an operation is, and returns the JSON of the description.
pub fn finish(mut api: utoipa::openapi::OpenApi) -> Bytes {
    for item in api.paths.paths.values_mut() {
        operations(item).for_each(|(method, operation)| add_errors(method, operation));
    }
    // These types are always serialisable.
    serde_json::to_vec(&api).unwrap_or_default().into()
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = (HttpMethod, &mut Operation)> {
    let PathItem { get, put, post, delete, .. } = item;
    let all = [
        (HttpMethod::Get, get),
        (HttpMethod::Put, put),
        (HttpMethod::Post, post),
        (HttpMethod::Delete, delete),
    ];
    all.into_iter().filter_map(|(method, operation)| Some((method, operation.as_mut()?)))
}

fn add_errors(method: HttpMethod, operation: &mut Operation) {
    let is_of_jobs = operation.tags.iter().flatten().any(|tag| tag == "jobs");
    let body = operation.request_body.as_ref();
    let has_json = body.is_some_and(|body| match body {
        utoipa::openapi::RefOr::T(body) => body.content.contains_key("application/json"),
        utoipa::openapi::RefOr::Ref(_) => true,
    });
    let errors = [
        (true, "401", "Neither the token nor the cookie of a session was sent (loopback only)"),
        (true, "403", "The request comes from another site, or is not allowed at this door"),
        (has_json, "400", "The request cannot be read (`bad_request`)"),
        (has_json, "413", "The body is longer than 64 kB (`too_large`)"),
        (has_json, "415", "The body is not declared as JSON (`media_type`)"),
        (has_json, "422", "The body has the wrong shape (`bad_request`)"),
        (is_of_jobs, "503", "The daemon has no queue (`no_jobs`); its log says why"),
        (is_of_jobs && method != HttpMethod::Get, "500", "The queue cannot be written (`disk`)"),
    ];
    for (applies, status, description) in errors {
        let responses = &mut operation.responses.responses;
        if applies && !responses.contains_key(status) {
            responses.insert(status.to_owned(), error(description).into());
        }
    }
}

fn error(description: &str) -> Response {
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name("ApiError"))).build();
    ResponseBuilder::new().description(description).content("application/json", content).build()
}
