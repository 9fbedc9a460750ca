//! Connects to a port with a given identity and counts every byte that the port sends.

use anyhow::Context as _;
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme,
    client::{
        AlwaysResolvesClientRawPublicKeys,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime},
    sign::CertifiedKey,
    version::TLS13,
};
use std::{io::Write as _, net::SocketAddr, sync::Arc, time::Duration};
use thalweg_net::PrivateKey;
use thalweg_units::NodeId;
use thalweg_wire::Signer as _;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

/// The longest wait until a port closes the connection; bytes sent until then are counted.
const PATIENCE: Duration = Duration::from_secs(20);

/// The prefixes of the SubjectPublicKeyInfo of an Ed25519 key and of the PKCS #8 of its seed (RFC 8410 §4, §7).
const SPKI: &[u8] = b"\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21\x00";
const PKCS8: &[u8] = b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20";

/// The length of an alert under the handshake's keys: header, two bytes, their type, the tag.
const SEALED_ALERT: usize = 5 + 2 + 1 + 16;

/// The length of an alert before there are keys: header, level, description.
const CLEAR_ALERT: usize = 7;

/// The client's identity.
pub enum Identity {
    NoKey,
    /// A public key that is shown, and the seed that signs.
    Shows {
        /// The shown key.
        shown: NodeId,
        /// The signing seed.
        signs: [u8; 32],
    },
}

impl Identity {
    /// The owner of this seed.
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        Self::forged(seed, seed)
    }

    /// A client that shows the public key of one seed and signs with another.
    pub fn forged(shown: &[u8; 32], signs: &[u8; 32]) -> Self {
        Self::Shows { shown: PrivateKey::from_seed(shown).id(), signs: *signs }
    }
}

/// The behaviour of a port.
#[derive(Debug)]
pub struct PortResponse {
    /// The number of bytes that it sent.
    pub sent: usize,
    /// The bytes that it sent.
    bytes: Vec<u8>,
    /// The number of bytes that it sent until the handshake was complete for us; `None` if it never was.
    flight: Option<usize>,
    /// Whether it sent an alert.
    alert: bool,
}

impl PortResponse {
    /// The number of bytes beyond the handshake and one alert.
    pub fn extra_bytes(&self) -> usize {
        match self.flight {
            Some(flight) => self.sent.saturating_sub(flight + SEALED_ALERT),
            None => beyond_unfinished(&self.bytes),
        }
    }

    /// Whether it refused us with an alert.
    pub const fn has_alert(&self) -> bool {
        self.alert
    }
}

/// The number of bytes that are neither records of a handshake without encryption (RFC 8446 §5.1: types 20 and 22) nor
/// one alert.
fn beyond_unfinished(mut bytes: &[u8]) -> usize {
    let mut flight_over = Vec::new();
    while let [kind, _, _, high, low, ..] = *bytes {
        let length = (5 + usize::from(u16::from_be_bytes([high, low]))).min(bytes.len());
        if kind != 20 && kind != 22 {
            flight_over.push((kind, length));
        }
        bytes = bytes.get(length..).unwrap_or_default();
    }
    let all: usize = flight_over.iter().map(|(_, length)| length).sum::<usize>() + bytes.len();
    let is_alert = |(kind, length): &&(u8, usize)| {
        (*kind, *length) == (21, CLEAR_ALERT) || (*kind, *length) == (23, SEALED_ALERT)
    };
    all - flight_over.first().filter(is_alert).map_or(0, |(_, length)| *length)
}

/// Sends `words` without TLS.
///
/// # Errors
/// When there is no connection.
pub async fn send_plain(at: SocketAddr, words: &[u8]) -> anyhow::Result<PortResponse> {
    let mut tcp = TcpStream::connect(at).await.context("cannot connect")?;
    // The port may close the connection before it has read everything.
    _ = tcp.write_all(words).await;
    _ = tcp.shutdown().await;
    let mut got = Vec::new();
    _ = timeout(PATIENCE, tcp.read_to_end(&mut got)).await;
    Ok(PortResponse { sent: got.len(), flight: None, alert: got.first() == Some(&21), bytes: got })
}

/// Executes a handshake as `identity` and at once sends a SOCKS5 request.
///
/// # Errors
/// When there is no connection or TLS rejects the key.
pub async fn handshake(
    at: SocketAddr,
    identity: &Identity,
    alpn: &[u8],
) -> anyhow::Result<PortResponse> {
    let mut tls = client(identity, alpn)?;
    let mut tcp = TcpStream::connect(at).await.context("cannot connect")?;
    let mut response = PortResponse { sent: 0, bytes: Vec::new(), flight: None, alert: false };
    // A time-out ends the exchange; the port has then been silent.
    match timeout(PATIENCE, talk(&mut tls, &mut tcp, &mut response)).await {
        Ok(done) => done?,
        Err(_) => thalweg_console::note!(
            "thalweg-bench: load strangers: {at} did not close the connection"
        ),
    }
    Ok(response)
}

async fn talk(
    tls: &mut ClientConnection,
    tcp: &mut TcpStream,
    response: &mut PortResponse,
) -> anyhow::Result<()> {
    let mut over = false;
    loop {
        if !tls.is_handshaking() && response.flight.is_none() {
            response.flight = Some(response.sent);
            tls.writer().write_all(b"\x05\x01\x00\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x50")?;
            tls.send_close_notify();
        }
        let mut out = Vec::new();
        while tls.wants_write() {
            tls.write_tls(&mut out)?;
        }
        // The read below notices that the port has closed the connection.
        _ = tcp.write_all(&out).await;
        let mut bytes = [0; 4096];
        let Ok(n @ 1..) = tcp.read(&mut bytes).await else { return Ok(()) };
        response.sent += n;
        response.bytes.extend_from_slice(&bytes[..n]);
        let mut rest = &bytes[..n];
        while !rest.is_empty() && !over {
            tls.read_tls(&mut rest)?;
            if let Err(e) = tls.process_new_packets() {
                response.alert |= matches!(e, rustls::Error::AlertReceived(_));
                over = true;
            }
        }
    }
}

/// The first message of a handshake, for attacks that send it repeatedly and never continue.
///
/// # Errors
/// If TLS cannot create it; not expected.
pub fn hello(alpn: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut tls = client(&Identity::NoKey, alpn)?;
    let mut bytes = Vec::new();
    while tls.wants_write() {
        tls.write_tls(&mut bytes)?;
    }
    Ok(bytes)
}

fn client(identity: &Identity, alpn: &[u8]) -> anyhow::Result<ClientConnection> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyServer));
    let mut config = match identity {
        Identity::NoKey => builder.with_no_client_auth(),
        Identity::Shows { shown, signs } => {
            let pkcs8 = PrivatePkcs8KeyDer::from([PKCS8, signs].concat());
            let signer = provider.key_provider.load_private_key(pkcs8.into())?;
            let spki = [SPKI, shown.as_bytes()].concat();
            let key = Arc::new(CertifiedKey::new(vec![spki.into()], signer));
            builder.with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(key)))
        }
    };
    config.alpn_protocols = vec![alpn.to_vec()];
    let name = ServerName::try_from("node.example")?;
    Ok(ClientConnection::new(Arc::new(config), name)?)
}

/// Accepts any server, like a port scanner.
#[derive(Debug)]
struct AnyServer;

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }
    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }
    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }
    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }
    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::beyond_unfinished;

    #[test]
    fn one_alert_after_the_handshake_does_not_count() {
        let hello = [&[22, 3, 3, 0, 4][..], b"hell"].concat();
        let change = [20, 3, 3, 0, 1, 1];
        let sealed = [&[23, 3, 3, 0, 19][..], &[0; 19]].concat();
        let clear = [21, 3, 3, 0, 2, 2, 40];
        assert_eq!(beyond_unfinished(&[]), 0);
        assert_eq!(beyond_unfinished(&clear), 0);
        assert_eq!(beyond_unfinished(&[&hello[..], &change, &sealed].concat()), 0);
        assert_eq!(beyond_unfinished(&[&hello[..], &sealed, &sealed].concat()), 24);
        assert_eq!(beyond_unfinished(&[&hello[..], &[23, 3, 3, 0, 1, 9]].concat()), 6);
        assert_eq!(beyond_unfinished(b"\x05\x00"), 2);
        assert_eq!(beyond_unfinished(b"HTTP/1.1 400 Bad Request"), 24);
    }
}
