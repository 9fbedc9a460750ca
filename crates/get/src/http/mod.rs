//! HTTP connections, each over one route, and the requests on them.
//!
//! No pool: a pool would hide which path bytes come by.

mod connection;
mod request;
mod wire;

pub(super) use connection::Connection;
pub(super) use request::{range_request, segment_request, user_header};
