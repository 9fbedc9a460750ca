//! Sends answers.

use super::{
    answer::{BodyPart, HttpAnswer},
    request::HttpRequest,
    site::{Site, Version},
};
use crate::tool::pace;
use std::{
    fs::File,
    io::{self, Read as _, Write as _},
    net::TcpStream,
    os::unix::fs::FileExt as _,
    time::Instant,
};

/// Bytes sent at once: an eighth of a second at 1 Mbit/s.
const CHUNK: usize = 16 * 1024;

/// The fate of the connection after an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionFate {
    /// It stays open for the next request.
    StaysOpen,
    /// It is closed normally.
    Closes,
    Resets,
}

/// Answers with text: `outcome`, or its error with status 400.
///
/// # Errors
/// If the connection breaks.
pub fn send_text(
    mut stream: &TcpStream,
    request: &HttpRequest,
    outcome: anyhow::Result<String>,
) -> anyhow::Result<ConnectionFate> {
    let (status, body) = match outcome {
        Ok(body) => (200, body),
        Err(e) => (400, format!("{e:#}")),
    };
    let body = format!("{body}\n");
    let head = format!("HTTP/1.1 {status} -\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all(head.as_bytes())?;
    if request.method != "HEAD" {
        stream.write_all(body.as_bytes())?;
    }
    Ok(ConnectionFate::StaysOpen)
}

/// Answers a request with the faults of its site.
///
/// # Errors
/// If the connection breaks or the file cannot be read.
pub fn send_answer(
    mut stream: &TcpStream,
    request: &HttpRequest,
    site: &Site,
) -> anyhow::Result<ConnectionFate> {
    let (_open, refusal) = site.begin();
    let version = site.version()?;
    let mut answer = match refusal {
        Some(refusal) => HttpAnswer::from_refusal(refusal),
        None => HttpAnswer::correct(request, &version, site.ignores_ranges()),
    };
    site.inject(&mut answer);
    stream.write_all(format_head(&answer).as_bytes())?;
    if request.method == "HEAD" {
        return Ok(ConnectionFate::StaysOpen);
    }
    for piece in &answer.pieces {
        if !send(stream, piece, site, &version)? {
            return Ok(ConnectionFate::Resets);
        }
    }
    if answer.stalls {
        // Wait until the client closes the connection or the read timeout expires.
        _ = stream.read(&mut [0])?;
    }
    Ok(answer.after)
}

fn format_head(answer: &HttpAnswer) -> String {
    let fields: String = answer.fields.iter().map(|field| format!("{field}\r\n")).collect();
    let HttpAnswer { status, length, .. } = answer;
    format!("HTTP/1.1 {status} -\r\nContent-Length: {length}\r\n{fields}\r\n")
}

/// Sends a piece. Returns `false` if the file was replaced in the meantime.
fn send(stream: &TcpStream, piece: &BodyPart, site: &Site, version: &Version) -> io::Result<bool> {
    match piece {
        BodyPart::Bytes(bytes) => send_chunk(stream, bytes, site, version),
        BodyPart::File(range) => {
            let mut at = range.start;
            let mut buffer = vec![0; CHUNK];
            while at < range.end {
                let n = usize::try_from(range.end - at).unwrap_or(CHUNK).min(CHUNK);
                read(&version.file, &mut buffer[..n], at)?;
                if !send_chunk(stream, &buffer[..n], site, version)? {
                    return Ok(false);
                }
                at += n as u64;
            }
            Ok(true)
        }
    }
}

fn read(file: &File, buffer: &mut [u8], at: u64) -> io::Result<()> {
    file.read_exact_at(buffer, at)
}

fn send_chunk(
    mut stream: &TcpStream,
    bytes: &[u8],
    site: &Site,
    version: &Version,
) -> io::Result<bool> {
    if let Some(turn) = site.reserve(bytes.len()).filter(|turn| *turn > Instant::now()) {
        pace::sleep_until(turn);
    }
    stream.write_all(bytes)?;
    Ok(site.count_sent(bytes.len(), version))
}
