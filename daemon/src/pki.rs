//! Certificates: mutual TLS under the authority of a cluster.
//!
//! A cluster has one authority, which signs a certificate of the head node and of every daemon. Each
//! connection, control or data, begins with a handshake in which both sides prove theirs; a daemon ignores a
//! peer without a certificate.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName},
    server::WebPkiClientVerifier,
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The name in every certificate of a cluster: a certificate proves membership, not the host.
const MEMBER_NAME: &str = "member.coswitch.internal";

#[derive(Debug, Error)]
pub enum PkiError {
    #[error("certificate could not be made")]
    Make(#[from] rcgen::Error),
    #[error("certificate could not be used")]
    Use(#[from] rustls::Error),
    #[error("cluster authority could not be used")]
    Authority(#[from] rustls::server::VerifierBuilderError),
}

/// Certificate and key of a member, and the authority's certificate; all in DER.
#[derive(Clone, Serialize, Deserialize)]
pub struct Identity {
    authority: Vec<u8>,
    certificate: Vec<u8>,
    key: Vec<u8>,
}

/// The certificate authority of a cluster.
pub struct Authority {
    certificate: Vec<u8>,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub fn new() -> Result<Self, PkiError> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        let certificate = params.self_signed(&key)?.der().to_vec();
        Ok(Self { certificate, issuer: Issuer::new(params, key) })
    }

    /// Signs a new member.
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

    /// TLS configuration of the accepting side.
    pub fn server(&self) -> Result<Arc<ServerConfig>, PkiError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(self.roots()?, Arc::clone(&provider)).build()?;
        let (chain, key) = self.chain();
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)?;
        // A data link leaves TLS after the handshake: no ticket may follow it.
        config.send_tls13_tickets = 0;
        Ok(Arc::new(config))
    }

    /// TLS configuration of the connecting side.
    pub fn client(&self) -> Result<Arc<ClientConfig>, PkiError> {
        let (chain, key) = self.chain();
        let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_root_certificates(self.roots()?)
            .with_client_auth_cert(chain, key)?;
        Ok(Arc::new(config))
    }
}

/// The name that the connecting side expects in the certificate.
pub fn member_name() -> ServerName<'static> {
    ServerName::try_from(MEMBER_NAME).expect("a valid host name")
}
