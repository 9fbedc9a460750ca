//! TLS 1.3 with X.509, as a peer's listener speaks it.

use anyhow::{Context as _, ensure};
use rustls::{
    CipherSuite, ClientConfig, RootCertStore,
    client::Resumption,
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use std::{path::Path, sync::Arc};
use tokio_rustls::TlsConnector;

/// The name in the certificate that the experiment creates.
pub const NAME: &str = "relay.test";

/// The compared cipher suite, which our implementation prefers, too.
const SUITE: CipherSuite = CipherSuite::TLS13_AES_128_GCM_SHA256;

/// A connector that trusts only the certificates in `file`, offers only [`SUITE`], and does not resume sessions, so
/// that each connection includes a full handshake, as in the mesh.
///
/// # Errors
/// When the file contains no usable certificate.
pub fn connector(file: &Path) -> anyhow::Result<TlsConnector> {
    let builder = ClientConfig::builder_with_provider(Arc::new(provider()?))
        .with_protocol_versions(&[&rustls::version::TLS13])?;
    let mut config = builder.with_root_certificates(roots(file)?).with_no_client_auth();
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config).into())
}

fn provider() -> anyhow::Result<CryptoProvider> {
    let mut provider = aws_lc_rs::default_provider();
    provider.cipher_suites.retain(|suite| suite.suite() == SUITE);
    ensure!(!provider.cipher_suites.is_empty(), "this TLS library does not support {SUITE:?}");
    Ok(provider)
}

fn roots(file: &Path) -> anyhow::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    let read = || format!("reading {}", file.display());
    for certificate in CertificateDer::pem_file_iter(file).with_context(read)? {
        roots.add(certificate.with_context(read)?).with_context(read)?;
    }
    ensure!(!roots.is_empty(), "{} contains no certificate", file.display());
    Ok(roots)
}

/// [`NAME`] as the type that TLS needs.
///
/// # Errors
/// Never; the name is valid.
pub fn name() -> anyhow::Result<ServerName<'static>> {
    Ok(ServerName::try_from(NAME)?)
}
