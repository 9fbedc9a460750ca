//! How servers are spoken to, whatever the path.

use thalweg_net::{Dialer, TlsClient};

/// Which versions of HTTP are spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HttpVersion {
    /// HTTP/1.1: one answer at a time on a connection, so that a path's connection carries
    /// nothing but its own segment.
    #[default]
    Http1,
    /// HTTP/2 over TLS if the server offers it, else HTTP/1.1.
    Http2,
}

/// What all connections of a download are made with; cheap to clone.
#[derive(Clone, Default)]
pub struct Web {
    /// Makes the connections.
    pub dialer: Dialer,
    /// Proves servers' names; without it no `https` URL can be fetched.
    pub tls: Option<TlsClient>,
    /// What is spoken.
    pub version: HttpVersion,
}
