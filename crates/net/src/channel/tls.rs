//! The TLS configuration of channels: version 1.3 only, one provider, raw public keys of both ends, no resumption
//! (decision 0013).

use super::{Admission, Protocol};
use crate::PrivateKey;
use ed25519_dalek::VerifyingKey;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, OtherError,
    ServerConfig, SignatureScheme,
    client::{
        AlwaysResolvesClientRawPublicKeys, Resumption,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, aws_lc_rs, verify_tls13_signature_with_raw_key},
    pki_types::{
        CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
    },
    server::{
        AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
    sign::CertifiedKey,
    version::TLS13,
};
use std::{io, sync::Arc};
use thalweg_units::NodeId;
use thalweg_wire::Signer as _;
use thiserror::Error;

/// The SubjectPublicKeyInfo of an Ed25519 key without the key itself (RFC 8410 §4).
const SPKI_PREFIX: [u8; 12] = *b"\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21\x00";

/// The peer has proven this key, but the key is not admitted.
#[derive(Clone, Copy, Debug, Error)]
#[error("key {0:?} is not admitted")]
pub(super) struct NotAdmitted(pub NodeId);

/// AES-128-GCM first, which is the fastest where the processor has AES. The key exchange is hybrid: recorded traffic
/// stays secret unless both X25519 and ML-KEM-768 (FIPS 203) are broken. X25519 alone is for members of older versions.
fn provider() -> Arc<CryptoProvider> {
    let mut provider = aws_lc_rs::default_provider();
    provider.cipher_suites = vec![
        aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256,
        aws_lc_rs::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    ];
    provider.kx_groups = vec![aws_lc_rs::kx_group::X25519MLKEM768, aws_lc_rs::kx_group::X25519];
    Arc::new(provider)
}

fn certified(key: &PrivateKey, provider: &CryptoProvider) -> io::Result<Arc<CertifiedKey>> {
    let pkcs8 = PrivatePkcs8KeyDer::from(key.pkcs8()?);
    let signer = provider.key_provider.load_private_key(pkcs8.into()).map_err(io::Error::other)?;
    let spki = [&SPKI_PREFIX[..], key.id().as_bytes()].concat();
    Ok(Arc::new(CertifiedKey::new(vec![spki.into()], signer)))
}

/// The acceptor's configuration for connections that ask for `protocol`.
pub(super) fn server_config(
    key: &PrivateKey,
    admission: Arc<dyn Admission>,
    protocol: Protocol,
) -> io::Result<ServerConfig> {
    let provider = provider();
    let certified = certified(key, &provider)?;
    let proof = Proof(provider.clone());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .map_err(io::Error::other)?
        .with_client_cert_verifier(Arc::new(Members { proof, admission, protocol }))
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(certified)));
    config.alpn_protocols = vec![protocol.alpn().to_vec()];
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(config)
}

/// The connector's configuration; [`expecting`] adapts it to one server.
pub(super) fn client_config(key: &PrivateKey) -> io::Result<ClientConfig> {
    let provider = provider();
    let certified = certified(key, &provider)?;
    let nobody = Expected { proof: Proof(provider.clone()), key: NodeId::from_bytes([0; 32]) };
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .map_err(io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(nobody))
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(certified)));
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    Ok(config)
}

/// The configuration for the server with `key` and for `protocol`.
pub(super) fn expecting(base: &ClientConfig, key: NodeId, protocol: Protocol) -> ClientConfig {
    let mut config = base.clone();
    let proof = Proof(base.crypto_provider().clone());
    config.dangerous().set_certificate_verifier(Arc::new(Expected { proof, key }));
    config.alpn_protocols = vec![protocol.alpn().to_vec()];
    config
}

/// The node whose raw public key stands in for a certificate.
pub(super) fn node(certificate: &CertificateDer<'_>) -> Option<NodeId> {
    let key: [u8; 32] = certificate.strip_prefix(&SPKI_PREFIX)?.try_into().ok()?;
    // Anybody can make signatures of a key of small order.
    VerifyingKey::from_bytes(&key).ok().filter(|k| !k.is_weak()).map(|_| NodeId::from_bytes(key))
}

fn node_of(certificate: &CertificateDer<'_>) -> Result<NodeId, Error> {
    node(certificate).ok_or(Error::InvalidCertificate(CertificateError::BadEncoding))
}

/// Verifies the signature that proves a raw public key.
#[derive(Debug)]
struct Proof(Arc<CryptoProvider>);

impl Proof {
    fn check(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let spki = SubjectPublicKeyInfoDer::from(certificate.as_ref());
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature_with_raw_key(message, &spki, signature, algorithms)
    }
}

fn no_tls12() -> Error {
    Error::General("TLS 1.2 is not supported".into())
}

/// Lets in the keys that `admission` admits, once they are proven.
#[derive(Debug)]
struct Members {
    proof: Proof,
    admission: Arc<dyn Admission>,
    protocol: Protocol,
}

impl ClientCertVerifier for Members {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    /// Checks only the form, so that a peer that has not proven a key does not learn whether it is a member's.
    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        node_of(end_entity).map(|_| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(no_tls12())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let valid = self.proof.check(message, certificate, signature)?;
        let key = node_of(certificate)?;
        if self.admission.admits(&key, self.protocol) {
            return Ok(valid);
        }
        let why = CertificateError::Other(OtherError(Arc::new(NotAdmitted(key))));
        Err(Error::InvalidCertificate(why))
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

/// Accepts only the server with this key.
#[derive(Debug)]
struct Expected {
    proof: Proof,
    key: NodeId,
}

impl ServerCertVerifier for Expected {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if node_of(end_entity)? == self.key {
            return Ok(ServerCertVerified::assertion());
        }
        Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(no_tls12())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.proof.check(message, certificate, signature)
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
    use super::*;
    use rustls::{ClientConnection, NamedGroup, ServerConnection};

    #[derive(Debug)]
    struct Everybody;

    impl Admission for Everybody {
        fn admits(&self, _: &NodeId, _: Protocol) -> bool {
            true
        }
    }

    /// The key exchange group that two nodes agree on. `change` makes the client's settings those of an older version.
    fn group(change: impl FnOnce(&mut ClientConfig)) -> NamedGroup {
        let (server, client) = (PrivateKey::from_seed(&[1; 32]), PrivateKey::from_seed(&[2; 32]));
        let accepting = server_config(&server, Arc::new(Everybody), Protocol::Api).unwrap();
        let base = client_config(&client).unwrap();
        let mut config = expecting(&base, server.id(), Protocol::Api);
        change(&mut config);
        let name = ServerName::try_from("node").unwrap();
        let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
        let mut server = ServerConnection::new(Arc::new(accepting)).unwrap();
        while client.is_handshaking() || server.is_handshaking() {
            let mut wire = Vec::new();
            while client.wants_write() {
                client.write_tls(&mut wire).unwrap();
            }
            server.read_tls(&mut &wire[..]).unwrap();
            server.process_new_packets().unwrap();
            wire.clear();
            while server.wants_write() {
                server.write_tls(&mut wire).unwrap();
            }
            client.read_tls(&mut &wire[..]).unwrap();
            client.process_new_packets().unwrap();
        }
        let [mine, theirs] =
            [client.negotiated_key_exchange_group(), server.negotiated_key_exchange_group()]
                .map(|group| group.unwrap().name());
        assert_eq!(mine, theirs);
        mine
    }

    #[test]
    fn two_nodes_agree_on_a_hybrid_key_exchange() {
        assert_eq!(group(|_| ()), NamedGroup::X25519MLKEM768);
    }

    #[test]
    fn a_node_of_an_older_version_is_understood() {
        let older = |config: &mut ClientConfig| {
            let mut provider = CryptoProvider::clone(config.crypto_provider());
            provider.kx_groups = vec![aws_lc_rs::kx_group::X25519];
            let key = PrivateKey::from_seed(&[2; 32]);
            let certified = certified(&key, &provider).unwrap();
            let server = PrivateKey::from_seed(&[1; 32]).id();
            let expected = Expected { proof: Proof(Arc::new(provider.clone())), key: server };
            let mut old = ClientConfig::builder_with_provider(Arc::new(provider))
                .with_protocol_versions(&[&TLS13])
                .unwrap()
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(expected))
                .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(
                    certified,
                )));
            old.alpn_protocols = config.alpn_protocols.clone();
            *config = old;
        };
        assert_eq!(group(older), NamedGroup::X25519);
    }
}
