//! HTTP connections, each over one route, and their requests.
//!
//! There is no connection pool, because a pool would hide which path delivers bytes.

mod chunk_lines;
mod connection;
mod first_answer;
mod request;
mod wire;

pub(super) use connection::Connection;
pub(super) use request::{plain_request, range_request, segment_request, user_header};

/// The most bytes of one read on HTTP/1.1, and of one piece of a body. A head must fit in it.
const READ_AT_ONCE: usize = 256 << 10;
