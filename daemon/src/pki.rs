//! Who may talk to a daemon: mutual TLS under a cluster certificate authority (DESIGN §8).
//!
//! A cluster has one authority. The head node and every daemon hold a certificate of it; each connection, control or
//! data, begins with a handshake in which both sides prove theirs. A peer without one can make a daemon do nothing.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName},
    server::WebPkiClientVerifier,
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Every certificate of a cluster carries this name: a member proves that it belongs, not which host it is.
const MEMBER_NAME: &str = "member.coswitch.internal";

/// Why certificates could not be made or used.
#[derive(Debug, Error)]
pub enum PkiError {
    /// They could not be made.
    #[error("certificate could not be made")]
    Make(#[from] rcgen::Error),
    /// They could not be used.
    #[error("certificate could not be used")]
    Use(#[from] rustls::Error),
    /// The authority's certificate is no authority.
    #[error("cluster authority could not be used")]
    Authority(#[from] rustls::server::VerifierBuilderError),
}

/// What a member holds to prove itself; DER throughout.
#[derive(Clone, Serialize, Deserialize)]
pub struct Identity {
    authority: Vec<u8>,
    certificate: Vec<u8>,
    key: Vec<u8>,
}

/// The authority of a cluster; signs members.
pub struct Authority {
    certificate: Vec<u8>,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// A new authority with a new key.
    ///
    /// # Errors
    /// [`PkiError::Make`]
    pub fn new() -> Result<Self, PkiError> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        let certificate = params.self_signed(&key)?.der().to_vec();
        Ok(Self { certificate, issuer: Issuer::new(params, key) })
    }

    /// A new member.
    ///
    /// # Errors
    /// [`PkiError::Make`]
    pub fn member(&self) -> Result<Identity, PkiError> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(vec![MEMBER_NAME.to_string()])?;
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&key, &self.issuer)?.der().to_vec();
        Ok(Identity { authority: self.certificate.clone(), certificate, key: key.serialize_der() })
    }
}

impl Identity {
    fn roots(&self) -> Result<Arc<RootCertStore>, PkiError> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from(self.authority.clone()))?;
        Ok(Arc::new(roots))
    }

    fn chain(&self) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        let key = PrivatePkcs8KeyDer::from(self.key.clone());
        (vec![CertificateDer::from(self.certificate.clone())], PrivateKeyDer::Pkcs8(key))
    }

    /// For the side that accepts.
    ///
    /// # Errors
    /// [`PkiError`]
    pub fn server(&self) -> Result<Arc<ServerConfig>, PkiError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(self.roots()?, Arc::clone(&provider)).build()?;
        let (chain, key) = self.chain();
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)?;
        // A data link leaves TLS after the handshake: no ticket may trail behind it.
        config.send_tls13_tickets = 0;
        Ok(Arc::new(config))
    }

    /// For the side that connects.
    ///
    /// # Errors
    /// [`PkiError`]
    pub fn client(&self) -> Result<Arc<ClientConfig>, PkiError> {
        let (chain, key) = self.chain();
        let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_root_certificates(self.roots()?)
            .with_client_auth_cert(chain, key)?;
        Ok(Arc::new(config))
    }
}

/// The name that a connecting side expects.
#[must_use]
pub fn member_name() -> ServerName<'static> {
    ServerName::try_from(MEMBER_NAME).expect("a valid host name")
}
