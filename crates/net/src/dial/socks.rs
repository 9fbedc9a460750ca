//! The client's side of SOCKS5 on a connection to a relay.

use super::Cause;
use crate::socks5::read_message;
use thalweg_wire::{
    Destination,
    socks5::{self, Reply},
};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

/// Asks the relay at the other end of `leg` to connect to `toward` (RFC 1928 §3–6).
///
/// Not a byte beyond the reply is read, so afterwards `leg` is the stream to `toward`. The request waits for the
/// method: sending both at once would save a round trip, but some relays treat the result of one read as one message.
///
/// # Errors
/// [`Cause`]: the relay refuses, or is no supported relay.
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
