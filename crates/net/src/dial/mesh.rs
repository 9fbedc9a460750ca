//! The client's side of a mesh relay, inside a channel to it. The client itself tunnels chains (decision 0024).

use super::Cause;
use crate::{
    channel::{Channel, ChannelError},
    socks5::{ReadError, read_message},
};
use std::io;
use thalweg_wire::{
    Destination,
    mesh::{GO, GO_ACK, METHOD, RelayRequest},
    socks5::{self, Reply, VERSION},
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Asks the relay at the other end of `channel` to connect to `toward`, on these terms.
///
/// The whole request is one flight, so that a hop costs one round trip besides TLS's. Not a byte beyond the reply is
/// read: afterwards `channel` is the stream to `toward`, or, on an open leg, is positioned at GO ([`cut_over`]).
///
/// # Errors
/// [`Cause`]: the relay refuses, or is no relay of a mesh.
pub async fn connect_by_terms<S>(
    channel: &mut S,
    asked: &RelayRequest,
    toward: &Destination,
) -> Result<(), Cause>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let methods = &[VERSION, 1, METHOD][..];
    let flight = [methods, &asked.encode(), &socks5::encode_connect(toward)].concat();
    channel.write_all(&flight).await.map_err(broken)?;
    channel.flush().await.map_err(broken)?;
    let method = read_message(channel, socks5::decode_method).await.map_err(unread)?;
    if method != METHOD {
        return Err(Cause::Authentication);
    }
    match read_message(channel, socks5::decode_reply).await.map_err(unread)? {
        Reply::Succeeded => Ok(()),
        reply => Err(Cause::Refused(reply)),
    }
}

/// Ends TLS on an open leg: reads GO, sends GO-ACK, and returns the clear connection with the bytes read from it.
///
/// # Errors
/// [`Cause`]: the connection broke, or the relay broke the agreement.
pub async fn cut_over<IO>(mut channel: Channel<IO>) -> Result<(IO, Vec<u8>), Cause>
where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    let said = channel.read_u8().await.map_err(broken)?;
    if said != GO {
        let why = format!("received byte {said:#04x} instead of the byte that ends TLS");
        return Err(broken(io::Error::new(io::ErrorKind::InvalidData, why)));
    }
    channel.write_all(&[GO_ACK]).await.map_err(broken)?;
    channel.flush().await.map_err(broken)?;
    channel.into_clear().map_err(broken)
}

fn broken(error: io::Error) -> Cause {
    match ChannelError::is_not_admitted(&error) {
        true => Cause::Channel(ChannelError::NotAdmitted),
        false => ReadError::Leg(error).into(),
    }
}

fn unread(error: ReadError) -> Cause {
    match error {
        ReadError::Leg(error) => broken(error),
        other => other.into(),
    }
}
