//! The output of tools: one JSON object per line on stdout, flushed at once.

use anyhow::Context;
use serde::Serialize;
use std::{io::Write, net::SocketAddr};

/// Prints `value` as one line of JSON.
///
/// # Errors
/// If stdout is closed or `value` cannot be serialised.
pub fn print_line(value: &impl Serialize) -> anyhow::Result<()> {
    let mut text = serde_json::to_vec(value).context("cannot write the result as JSON")?;
    text.push(b'\n');
    let mut out = std::io::stdout().lock();
    out.write_all(&text).and_then(|()| out.flush()).context("cannot write to stdout")
}

/// Reports that a server listens on `address`: `{"ready":{"address":"IP:PORT"}}`.
///
/// # Errors
/// As for [`print_line`].
pub fn print_ready(address: SocketAddr) -> anyhow::Result<()> {
    print_line(&serde_json::json!({ "ready": { "address": address.to_string() } }))
}

/// A measured value with its unit, as in every report.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MeasuredValue {
    /// The unit's symbol: "bit/s", "ms", "1" …
    pub unit: &'static str,
    /// The value in that unit; `null` in JSON if there was nothing to measure.
    pub value: Option<f64>,
}

impl MeasuredValue {
    /// Creates a value in `unit`.
    pub fn new(unit: &'static str, value: impl Into<Option<f64>>) -> Self {
        Self { unit, value: value.into() }
    }
}
