//! Reads and writes messages on a channel.

use super::{
    budget::PeerKey,
    costly,
    request_memory::{self, Charge},
};
use serde::{Serialize, de::DeserializeOwned};
use std::{error::Error, io};
use thalweg_wire::object;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

fn invalid(why: impl Into<Box<dyn Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// Reads the length of the next message; `None` if the peer has ended the stream.
async fn read_length(
    from: &mut (impl AsyncRead + Unpin),
    most: usize,
) -> io::Result<Option<usize>> {
    let mut head = [0; 4];
    if from.read(&mut head[..1]).await? == 0 {
        return Ok(None);
    }
    from.read_exact(&mut head[1..]).await?;
    object::length(head, most).map(Some).map_err(invalid)
}

/// Reads a message of at most `most` bytes; `None` if the peer has ended the stream.
///
/// # Errors
/// If the connection fails; `InvalidData` if the bytes are no such message.
pub async fn read<T: DeserializeOwned>(
    from: &mut (impl AsyncRead + Unpin),
    most: usize,
) -> io::Result<Option<T>> {
    let Some(length) = read_length(from, most).await? else { return Ok(None) };
    let mut body = vec![0; length];
    from.read_exact(&mut body).await?;
    object::decode(&body).map(Some).map_err(invalid)
}

/// Reads a message and charges its memory to a peer until the returned charge is dropped.
///
/// # Errors
/// As [`read`], and those of [`request_memory::body`].
pub async fn read_charged<T: DeserializeOwned>(
    from: &mut (impl AsyncRead + Unpin),
    most: usize,
    who: PeerKey,
) -> io::Result<Option<(T, Option<Charge>)>> {
    let Some(length) = read_length(from, most).await? else { return Ok(None) };
    let body = request_memory::body(from, length, who).await?;
    let message = object::decode(&body.bytes).map_err(invalid)?;
    Ok(Some((message, body.charge)))
}

/// The longest message that is decoded at once. A longer one is decoded in a turn of its sender ([`costly`]).
const DECODED_AT_ONCE: usize = 4 << 10;

/// Like [`read_charged`], but decodes a long message in a turn of the peer.
///
/// # Errors
/// As [`read_charged`].
pub async fn read_in_turn<T: DeserializeOwned + Send + 'static>(
    from: &mut (impl AsyncRead + Unpin),
    most: usize,
    who: PeerKey,
) -> io::Result<Option<(T, Option<Charge>)>> {
    let Some(length) = read_length(from, most).await? else { return Ok(None) };
    let request_memory::Body { bytes, charge } = request_memory::body(from, length, who).await?;
    let decoded = match length > DECODED_AT_ONCE {
        true => costly::run(who, move || object::decode(&bytes)).await.map_err(io::Error::other)?,
        false => object::decode(&bytes),
    };
    Ok(Some((decoded.map_err(invalid)?, charge)))
}

/// Writes a message.
///
/// # Errors
/// If the connection fails.
pub async fn write(to: &mut (impl AsyncWrite + Unpin), message: &impl Serialize) -> io::Result<()> {
    to.write_all(&object::encode(message)).await?;
    to.flush().await
}
