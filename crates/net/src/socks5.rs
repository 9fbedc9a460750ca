//! Reads SOCKS5 messages from a connection; [`thalweg_wire::socks5`] defines their format.

use std::io;
use thalweg_wire::socks5::{Decoded, MAX_MESSAGE, Socks5Error};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt};

/// The error of a message that could not be read.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The connection broke, or ended within the message (`UnexpectedEof`).
    #[error("the connection broke: {0}")]
    Leg(#[source] io::Error),
    /// The bytes are no such message.
    #[error(transparent)]
    NotSocks(#[from] Socks5Error),
}

/// Reads the one message that `decode` expects, and not a byte beyond it.
///
/// Afterwards `from` is at the first byte behind the message. There is no deadline: the caller sets one. At most
/// [`MAX_MESSAGE`] bytes are held.
///
/// # Errors
/// [`ReadError`]; some bytes of the message may have been taken from `from`.
pub async fn read_message<S, T>(
    from: &mut S,
    decode: impl Fn(&[u8]) -> Result<Decoded<T>, Socks5Error>,
) -> Result<T, ReadError>
where
    S: AsyncRead + Unpin,
{
    let mut message = [0; MAX_MESSAGE];
    let mut have = 0;
    loop {
        match decode(&message[..have])? {
            Decoded::Message(value, _) => return Ok(value),
            Decoded::Needs(n) => {
                from.read_exact(&mut message[have..have + n]).await.map_err(ReadError::Leg)?;
                have += n;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_wire::socks5::{decode_methods, decode_request};

    #[tokio::test]
    async fn not_a_byte_beyond_the_message_is_taken() {
        let mut from = &b"\x05\x01\x00\x05\x01\x00\x03\x01a\x00\x50GET /"[..];
        assert!(read_message(&mut from, decode_methods).await.unwrap());
        let to = read_message(&mut from, decode_request).await.unwrap();
        assert_eq!(to.to_string(), "a:80");
        assert_eq!(from, b"GET /");
    }

    #[tokio::test]
    async fn an_end_within_the_message_and_other_protocols_are_told_apart() {
        let short = read_message(&mut &b"\x05\x02\x00"[..], decode_methods).await;
        assert!(
            matches!(&short, Err(ReadError::Leg(e)) if e.kind() == io::ErrorKind::UnexpectedEof),
            "{short:?}"
        );
        let other = read_message(&mut &b"GET / HTTP/1.1"[..], decode_methods).await;
        assert!(matches!(other, Err(ReadError::NotSocks(Socks5Error::Version(b'G')))), "{other:?}");
    }
}
