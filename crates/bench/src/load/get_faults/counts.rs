//! Reads the counts of the faulty server (`thalweg-lab tool web-faults`) for a URL.

use anyhow::Context as _;
use serde_json::Value;
use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
};

/// Bytes of bodies that the server has sent for `url`.
///
/// # Errors
/// When the server does not answer.
pub fn sent_bytes(url: &str) -> anyhow::Result<u64> {
    let rest = url.strip_prefix("http://").context("the URL must begin with http://")?;
    let (authority, path) = rest.split_once('/').context("the URL must have a path")?;
    let mut stream = TcpStream::connect(authority)?;
    let ask = format!("GET /counts/{path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(ask.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let body = answer.split("\r\n\r\n").nth(1).context("the server sent no answer")?;
    let counts: Value = serde_json::from_str(body.trim()).context(body.trim().to_owned())?;
    counts["bytes"].as_u64().context("the server's answer has no number of bytes")
}
