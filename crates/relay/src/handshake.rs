//! The relay's side of the SOCKS5 handshake: reads a client's request; a member's request may carry terms
//! ([`thalweg_wire::mesh::Terms`]: the kind of leg, and tags to avoid) and the key of the next hop.

use super::refusal::Refusal;
use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};
use thalweg_net::socks5::read_message;
use thalweg_units::NodeId;
use thalweg_wire::{
    Destination,
    mesh::{LegKind, METHOD, RelayRequest, Terms},
    socks5::{self, Decoded, Socks5Error},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    time::timeout,
};

/// The bound address in replies that have none to report (RFC 1928 §6 leaves it open).
pub const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// A member's request inside its channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberRequest {
    /// Its terms; the defaults (sealed, nothing avoided) if it sent none.
    pub terms: Terms,
    /// The member that it expects at the other end: the next hop of its chain.
    pub next: Option<NodeId>,
    /// The destination to connect to.
    pub to: Destination,
}

/// The methods in a client's first message that a relay supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfferedMethods {
    /// "No authentication": CONNECT follows.
    pub plain: bool,
    /// [`METHOD`]: terms follow, and then CONNECT at once.
    pub terms: bool,
}

/// Decodes a client's first message (RFC 1928 §3).
///
/// # Errors
/// As [`socks5::decode_methods`].
pub fn decode_methods(bytes: &[u8]) -> Result<Decoded<OfferedMethods>, Socks5Error> {
    Ok(match socks5::decode_methods(bytes)? {
        Decoded::Message(plain, end) => {
            let terms = bytes.get(2..end).is_some_and(|all| all.contains(&METHOD));
            Decoded::Message(OfferedMethods { plain, terms }, end)
        }
        Decoded::Needs(n) => Decoded::Needs(n),
    })
}

/// Reads a plain client's two messages within `limit`, and no byte beyond them.
///
/// # Errors
/// [`Refusal`], which was not sent to the client yet.
pub async fn read_request<S>(client: &mut S, limit: Duration) -> Result<Destination, Refusal>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let messages = async {
        let methods = read_message(client, decode_methods).await?;
        if !methods.plain {
            return Err(Refusal::NoMethod);
        }
        choose_plain(client).await
    };
    timeout(limit, messages).await.unwrap_or(Err(Refusal::Slow))
}

/// The state of a member's handshake, which determines the form of the answer.
#[derive(Debug, Default)]
pub struct Handshake {
    terms: Option<Terms>,
}

impl Handshake {
    /// The bytes to send before the reply: the choice of the method [`METHOD`], which is sent together with the reply.
    pub fn prefix(&self) -> Vec<u8> {
        self.terms.as_ref().map(|_| socks5::encode_method(METHOD).to_vec()).unwrap_or_default()
    }

    /// How the client's leg is carried after the reply: sealed (in TLS) or open (in clear).
    pub fn leg(&self) -> LegKind {
        self.terms.as_ref().map(|terms| terms.leg).unwrap_or_default()
    }

    /// Reads a member's messages within `limit`, and no byte beyond them.
    ///
    /// # Errors
    /// [`Refusal`], which was not sent to the client yet.
    pub async fn read<S>(
        &mut self,
        client: &mut S,
        limit: Duration,
    ) -> Result<MemberRequest, Refusal>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let messages = async {
            let methods = read_message(client, decode_methods).await?;
            match methods {
                OfferedMethods { terms: true, .. } => {
                    let ask = read_relay_request(client).await?;
                    self.terms = Some(ask.terms.clone());
                    let to = read_message(client, socks5::decode_request).await?;
                    Ok((ask, to))
                }
                OfferedMethods { plain: true, .. } => {
                    Ok((RelayRequest::default(), choose_plain(client).await?))
                }
                _ => Err(Refusal::NoMethod),
            }
        };
        let (ask, to) = timeout(limit, messages).await.unwrap_or(Err(Refusal::Slow))?;
        Ok(MemberRequest { terms: ask.terms, next: ask.next, to })
    }
}

async fn read_relay_request<S: AsyncRead + Unpin>(client: &mut S) -> Result<RelayRequest, Refusal> {
    let mut head = [0; 2];
    client.read_exact(&mut head).await.map_err(Refusal::Left)?;
    let mut body = vec![0; RelayRequest::length(head)?];
    client.read_exact(&mut body).await.map_err(Refusal::Left)?;
    Ok(RelayRequest::decode(&body)?)
}

/// Chooses "no authentication" and reads the request.
async fn choose_plain<S>(client: &mut S) -> Result<Destination, Refusal>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let chosen = socks5::encode_method(socks5::NO_AUTHENTICATION);
    client.write_all(&chosen).await.map_err(Refusal::Left)?;
    client.flush().await.map_err(Refusal::Left)?;
    Ok(read_message(client, socks5::decode_request).await?)
}
