//! Responses that the proxy itself generates, because a request is refused or cannot be forwarded.

use super::{
    body::Reply, request_scanner::LineError, state::ConnectError, target::TargetError,
    upstream::UpstreamError,
};
use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Response, StatusCode,
    header::{self, HeaderName, HeaderValue},
};
use std::io;
use thalweg_net::{Cause, DialError};
use thalweg_wire::socks5::Reply as SocksReply;

/// The field that tells programs what went wrong: `Proxy-Status` (RFC 9209).
const PROXY_STATUS: HeaderName = HeaderName::from_static("proxy-status");

/// An answer in plain text.
pub fn text(status: StatusCode, text: impl Into<String>) -> Response<Reply> {
    let mut response = Response::new(Reply::Own(Full::new(Bytes::from(text.into() + "\n"))));
    *response.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    response
}

/// A refusal of a request for the proxy's own pages.
pub fn denied(status: StatusCode, why: &str) -> Response<Reply> {
    let mut response = text(status, why);
    let error = HeaderValue::from_static("thalweg; error=http_request_denied");
    response.headers_mut().insert(PROXY_STATUS, error);
    response
}

/// Why a request is not forwarded.
#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    /// Its target is invalid.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// `Host` is absent, or there are several (RFC 9112 §3.2).
    #[error("an HTTP/1.1 request must have exactly one Host field")]
    Host,
    /// A transfer coding that this proxy cannot remove (RFC 9112 §6.1).
    #[error("the request's transfer coding `{0}` is not supported")]
    Coding(String),
    /// It has been through this proxy before.
    #[error("the request has passed through this proxy before: proxies forward it in a loop")]
    Loop,
    /// `Max-Forwards` is used up (RFC 9110 §7.6.2).
    #[error("Max-Forwards is 0, so this proxy does not forward the request")]
    MaxForwards,
    /// The origin did not answer.
    #[error("{0}")]
    Answer(#[from] UpstreamError),
    /// The program's content has an invalid chunk, or ended too early.
    #[error("the request's content has an invalid chunk or ended too early")]
    Content,
    /// The origin answered 101 without being asked (RFC 9110 §15.2.2).
    #[error("the origin answered 101 (Switching Protocols), which was not requested")]
    Unasked,
    /// The answer has a transfer coding that nobody asked for.
    #[error("the origin's answer has the transfer coding `{0}`, which was not requested")]
    AnswerCoding(String),
}

/// The response, as bytes, to a request head that hyper refuses to parse. The connection is closed after it.
pub fn refusal(status: StatusCode) -> Vec<u8> {
    let why = match status {
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => {
            "the request has too many fields, or its fields are too long"
        }
        StatusCode::URI_TOO_LONG => "the request's target is too long",
        StatusCode::REQUEST_TIMEOUT => "the request's header was not received in time",
        _ => {
            "the request's header is invalid: a field's name or value contains forbidden bytes, or the content \
             lengths contradict each other"
        }
    };
    let (code, reason) = (status.as_u16(), status.canonical_reason().unwrap_or_default());
    let text = format!("thalweg proxy: {why}\n");
    format!(
        "HTTP/1.1 {code} {reason}\r\nProxy-Status: thalweg; error=http_request_error\r\n\
         Content-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{text}",
        text.len()
    )
    .into_bytes()
}

impl ForwardError {
    /// The answer to the program.
    pub fn response(&self) -> Response<Reply> {
        let (status, error) = match self {
            Self::Target(TargetError::Line(LineError::Long)) => {
                (StatusCode::URI_TOO_LONG, "http_request_error")
            }
            Self::Target(TargetError::Line(LineError::Version)) => {
                (StatusCode::HTTP_VERSION_NOT_SUPPORTED, "http_request_error")
            }
            Self::Target(
                TargetError::Authority(_) | TargetError::Form(_) | TargetError::Line(_),
            )
            | Self::Host
            | Self::Content => (StatusCode::BAD_REQUEST, "http_request_error"),
            Self::Target(TargetError::Scheme(_)) | Self::Coding(_) => {
                (StatusCode::NOT_IMPLEMENTED, "http_request_error")
            }
            Self::Loop => (StatusCode::LOOP_DETECTED, "proxy_loop_detected"),
            Self::MaxForwards => (StatusCode::METHOD_NOT_ALLOWED, "http_request_denied"),
            Self::Answer(UpstreamError::Connect(error)) => connect_error_status(error),
            Self::Answer(UpstreamError::Http { is_garbled: true, .. }) => {
                (StatusCode::BAD_GATEWAY, "http_protocol_error")
            }
            Self::Answer(UpstreamError::Http { .. }) => {
                (StatusCode::BAD_GATEWAY, "http_response_incomplete")
            }
            Self::Unasked => (StatusCode::BAD_GATEWAY, "http_protocol_error"),
            Self::AnswerCoding(_) => (StatusCode::BAD_GATEWAY, "http_response_transfer_coding"),
        };
        let mut response = text(status, format!("thalweg proxy: {self}"));
        if let Ok(value) = HeaderValue::from_str(&format!("thalweg; error={error}")) {
            response.headers_mut().insert(PROXY_STATUS, value);
        }
        if matches!(self, Self::Target(TargetError::Line(_))) {
            // Nothing more is read from the connection.
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(header::CONNECTION, close);
        }
        response
    }
}

fn connect_error_status(error: &ConnectError) -> (StatusCode, &'static str) {
    let cause = match error {
        ConnectError::Own => return (StatusCode::LOOP_DETECTED, "proxy_loop_detected"),
        ConnectError::Rebound => return (StatusCode::FORBIDDEN, "destination_ip_prohibited"),
        ConnectError::Interfaces => return (StatusCode::BAD_GATEWAY, "destination_unavailable"),
        ConnectError::Dial(DialError { cause, .. }) => cause,
    };
    match cause {
        Cause::Resolve(_) | Cause::NoAddress => (StatusCode::BAD_GATEWAY, "dns_error"),
        Cause::TimedOut(_) | Cause::Refused(SocksReply::TtlExpired) => {
            (StatusCode::GATEWAY_TIMEOUT, "connection_timeout")
        }
        Cause::Refused(SocksReply::NotAllowed) => {
            (StatusCode::BAD_GATEWAY, "destination_ip_prohibited")
        }
        Cause::Connect { source, .. } => match source.kind() {
            io::ErrorKind::TimedOut => (StatusCode::GATEWAY_TIMEOUT, "connection_timeout"),
            io::ErrorKind::ConnectionRefused => (StatusCode::BAD_GATEWAY, "connection_refused"),
            _ => (StatusCode::BAD_GATEWAY, "destination_ip_unroutable"),
        },
        _ => (StatusCode::BAD_GATEWAY, "destination_unavailable"),
    }
}
