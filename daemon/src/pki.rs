//! Certificates: mutual TLS under the authority of a cluster.
//!
//! A cluster has one authority, which signs a certificate of the head node and of every daemon. Each
//! connection, control or data, begins with a handshake in which both sides prove theirs. A certificate names
//! its holder, so no node is taken for another one, or for the head node: the connecting side expects that of
//! the one it wants to reach, and the accepting side compares what the peer says of itself ([`proves`]).

use std::sync::Arc;

use coswitch_policies::NodeId;
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName},
    server::WebPkiClientVerifier,
};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use webpki::EndEntityCert;

/// Who holds a certificate of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// The head node.
    Head,
    /// The daemon of a node.
    Node(NodeId),
    /// A daemon that a batch system has started, and that does not know yet which node it is of.
    Arriving,
}

impl Holder {
    fn name(self) -> String {
        match self {
            Self::Head => "head.coswitch.internal".into(),
            Self::Node(node) => format!("{node}.coswitch.internal"),
            Self::Arriving => "arriving.coswitch.internal".into(),
        }
    }

    /// The name that the connecting side expects in the certificate.
    ///
    /// # Panics
    /// Never: it is a host name.
    #[must_use]
    pub fn server_name(self) -> ServerName<'static> {
        ServerName::try_from(self.name()).expect("a valid host name")
    }
}

/// Whether a peer, whose certificate the handshake has found to be of this cluster, is that holder.
#[must_use]
pub fn proves(certificates: Option<&[CertificateDer<'_>]>, holder: Holder) -> bool {
    let certificate = certificates.and_then(|chain| EndEntityCert::try_from(chain.first()?).ok());
    certificate.is_some_and(|own| own.verify_is_valid_for_subject_name(&holder.server_name()).is_ok())
}

#[derive(Debug, Error)]
pub enum PkiError {
    #[error("certificate could not be made")]
    Make(#[from] rcgen::Error),
    #[error("certificate could not be used")]
    Use(#[from] rustls::Error),
    #[error("cluster authority could not be used")]
    Authority(#[from] rustls::server::VerifierBuilderError),
}

/// Certificate and key of a holder, and the authority's certificate; all in DER.
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

    /// Signs a certificate.
    pub fn certify(&self, holder: Holder) -> Result<Identity, PkiError> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(vec![holder.name()])?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_that_of_its_holder_alone() {
        let holders = [Holder::Head, Holder::Node(NodeId(1)), Holder::Node(NodeId(11)), Holder::Arriving];
        let authority = Authority::new().unwrap();
        for holder in holders {
            let identity = authority.certify(holder).unwrap();
            let (chain, _) = identity.chain();
            let proven: Vec<Holder> =
                holders.into_iter().filter(|other| proves(Some(&chain), *other)).collect();
            assert_eq!(proven, [holder]);
        }
        assert!(!proves(None, Holder::Head) && !proves(Some(&[]), Holder::Head));
        assert!(!proves(Some(&[CertificateDer::from(vec![0; 9])]), Holder::Head));
    }
}
