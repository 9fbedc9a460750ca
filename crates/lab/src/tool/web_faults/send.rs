//! Answers on their way.

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

/// Bytes that are sent at once: at 1 Mbit/s an eighth of a second.
const CHUNK: usize = 16 * 1024;

/// What becomes of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// The next request may come.
    Goes,
    /// It is closed in order.
    Closes,
    /// It is reset.
    Resets,
}

/// Answers in words: what was found, or why not with status 400.
///
/// # Errors
/// When the connection breaks.
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

/// Answers as the site's faults will have it.
///
/// # Errors
/// When the connection breaks, or the file cannot be read.
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
        // Until the client has ended, or waits no longer than we do.
        _ = stream.read(&mut [0])?;
    }
    Ok(answer.after)
}

fn head(answer: &Answer) -> String {
    let fields: String = answer.fields.iter().map(|field| format!("{field}\r\n")).collect();
    let Answer { status, length, .. } = answer;
    format!("HTTP/1.1 {status} -\r\nContent-Length: {length}\r\n{fields}\r\n")
}

/// Sends a piece; false if the file was replaced meanwhile.
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
