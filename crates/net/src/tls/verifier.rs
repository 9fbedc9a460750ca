//! Verifies a server's name: by an authority, or by the exact certificate that the user trusts.

use super::{common_name::common_name, error::is_authoritys};
use rustls::{
    CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::CryptoProvider,
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::ParsedCertificate,
};
use std::{collections::BTreeSet, sync::Arc};

/// webpki's verifier, extended by certificates that are trusted byte for byte.
///
/// Any trust anchor may end a certification path (RFC 5280 §6.1), including the server's own certificate: one that it
/// signed itself, with `CA:TRUE` or not, or one that an unknown authority issued. The validity period, the name and the
/// handshake's signature of such a certificate are checked as usual; only its issuer is not.
#[derive(Debug)]
pub(super) struct Verifier {
    by_authority: Arc<WebPkiServerVerifier>,
    /// The trusted certificates in DER.
    exact: BTreeSet<Vec<u8>>,
}

impl Verifier {
    /// Creates a verifier that trusts `roots`, and each of the `exact` certificates if the server presents it as its
    /// own.
    ///
    /// # Errors
    /// If there is no authority at all.
    pub(super) fn new(
        roots: RootCertStore,
        exact: &[CertificateDer<'static>],
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, Error> {
        let built = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
        let by_authority = built.map_err(|e| Error::General(e.to_string()))?;
        Ok(Self { by_authority, exact: exact.iter().map(|c| c.to_vec()).collect() })
    }
}

/// Whether webpki has rejected only the issuer, and not the certificate itself. It checks validity period and purpose
/// first, so an expired certificate never causes these errors.
fn is_of_issuer(error: &Error) -> bool {
    match error {
        Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        ) => true,
        Error::InvalidCertificate(CertificateError::Other(other)) => is_authoritys(other),
        _ => false,
    }
}

/// Whether a certificate names no host, because it has no subjectAltName.
fn names_nothing(error: &Error) -> bool {
    let Error::InvalidCertificate(CertificateError::NotValidForNameContext { presented, .. }) =
        error
    else {
        return false;
    };
    presented.is_empty()
}

/// Whether the common name is `name`: `openssl req -x509 -subj /CN=name` writes no other. Only for a certificate that
/// the user trusts itself, because an authority should have checked the name.
fn is_common_name(certificate: &CertificateDer<'_>, name: &ServerName<'_>) -> bool {
    common_name(certificate).is_some_and(|common| common.eq_ignore_ascii_case(&name.to_str()))
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let checked =
            self.by_authority.verify_server_cert(end_entity, intermediates, name, ocsp, now);
        let Err(error) = checked else { return checked };
        if !self.exact.contains(end_entity.as_ref()) {
            return Err(error);
        }
        let named = match is_of_issuer(&error) {
            true => verify_server_name(&ParsedCertificate::try_from(end_entity)?, name),
            false => Err(error),
        };
        match named {
            Err(error) if !names_nothing(&error) || !is_common_name(end_entity, name) => Err(error),
            _ => Ok(ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.by_authority.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.by_authority.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.by_authority.supported_verify_schemes()
    }
}
