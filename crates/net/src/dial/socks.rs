//! The client's side of SOCKS5 on a connection to a relay.

use super::Cause;
use std::io;
use thalweg_wire::{
    Destination,
    socks5::{self, Decoded, Reply, Socks5Error},
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Has the relay at the other end of `leg` connect to `toward` (RFC 1928 §3–6).
///
/// Not a byte beyond the reply is read, so `leg` then is the stream to
/// `toward`. The request waits for the method: sending both at once would
/// save a round trip, but some relays take what one read gives for one message.
pub async fn connect_through<S>(leg: &mut S, toward: &Destination) -> Result<(), Cause>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    leg.write_all(&socks5::encode_methods()).await.map_err(Cause::Leg)?;
    let method = read_message(leg, socks5::decode_method).await?;
    if method != socks5::NO_AUTHENTICATION {
        return Err(Cause::Authentication);
    }
    leg.write_all(&socks5::encode_connect(toward)).await.map_err(Cause::Leg)?;
    match read_message(leg, socks5::decode_reply).await? {
        Reply::Succeeded => Ok(()),
        reply => Err(Cause::Refused(reply)),
    }
}

/// Reads one message, asking for no more bytes than the decoder needs.
async fn read_message<S, T>(
    leg: &mut S,
    decode: impl Fn(&[u8]) -> Result<Decoded<T>, Socks5Error>,
) -> Result<T, Cause>
where
    S: AsyncRead + Unpin,
{
    let mut message = [0; socks5::MAX_MESSAGE];
    let mut have = 0;
    loop {
        match decode(&message[..have]).map_err(Cause::NotSocks)? {
            Decoded::Message(value, _) => return Ok(value),
            Decoded::Needs(n) => {
                leg.read_exact(&mut message[have..have + n]).await.map_err(closed)?;
                have += n;
            }
        }
    }
}

fn closed(e: io::Error) -> Cause {
    if e.kind() == io::ErrorKind::UnexpectedEof { Cause::Closed } else { Cause::Leg(e) }
}
