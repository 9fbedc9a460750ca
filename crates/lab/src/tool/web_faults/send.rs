//! Sends answers.

use super::{
    answer::{Answer, Piece},
    request::Request,
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
pub enum After {
    /// It stays open for the next request.
    Goes,
    /// It is closed normally.
    Closes,
    Resets,
}

/// Answers with text: `said`, or its error with status 400.
///
/// # Errors
/// If the connection breaks.
pub fn text(
    mut stream: &TcpStream,
    request: &Request,
    said: anyhow::Result<String>,
) -> anyhow::Result<After> {
    let (status, body) = match said {
        Ok(body) => (200, body),
        Err(e) => (400, format!("{e:#}")),
    };
    let body = format!("{body}\n");
    let head = format!("HTTP/1.1 {status} -\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all(head.as_bytes())?;
    if request.method != "HEAD" {
        stream.write_all(body.as_bytes())?;
    }
    Ok(After::Goes)
}

/// Answers a request with the faults of its site.
///
/// # Errors
/// If the connection breaks or the file cannot be read.
pub fn answer(mut stream: &TcpStream, request: &Request, site: &Site) -> anyhow::Result<After> {
    let (_open, refusal) = site.begin();
    let version = site.version()?;
    let mut answer = match refusal {
        Some(refusal) => Answer::refused(refusal),
        None => Answer::right(request, &version, site.ignores_ranges()),
    };
    site.spoil(&mut answer);
    stream.write_all(head(&answer).as_bytes())?;
    if request.method == "HEAD" {
        return Ok(After::Goes);
    }
    for piece in &answer.pieces {
        if !send(stream, piece, site, &version)? {
            return Ok(After::Resets);
        }
    }
    if answer.stalls {
        // Wait until the client closes the connection or the read timeout expires.
        _ = stream.read(&mut [0])?;
    }
    Ok(answer.after)
}

fn head(answer: &Answer) -> String {
    let fields: String = answer.fields.iter().map(|field| format!("{field}\r\n")).collect();
    let Answer { status, length, .. } = answer;
    format!("HTTP/1.1 {status} -\r\nContent-Length: {length}\r\n{fields}\r\n")
}

/// Sends a piece. Returns `false` if the file was replaced in the meantime.
fn send(stream: &TcpStream, piece: &Piece, site: &Site, version: &Version) -> io::Result<bool> {
    match piece {
        Piece::Bytes(bytes) => chunk(stream, bytes, site, version),
        Piece::File(range) => {
            let mut at = range.start;
            let mut buffer = vec![0; CHUNK];
            while at < range.end {
                let n = usize::try_from(range.end - at).unwrap_or(CHUNK).min(CHUNK);
                read(&version.file, &mut buffer[..n], at)?;
                if !chunk(stream, &buffer[..n], site, version)? {
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

fn chunk(mut stream: &TcpStream, bytes: &[u8], site: &Site, version: &Version) -> io::Result<bool> {
    if let Some(turn) = site.reserve(bytes.len()).filter(|turn| *turn > Instant::now()) {
        pace::sleep_until(turn);
    }
    stream.write_all(bytes)?;
    Ok(site.went(bytes.len(), version))
}
