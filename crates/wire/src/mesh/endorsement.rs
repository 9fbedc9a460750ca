//! Endorsements: the root key of a mesh names the key that signs its rosters (decision 0103).

use super::Roster;
use crate::{DecodeError, Signable, Signature, Signed, SignedError, Verifier};
use serde::{Deserialize, Serialize};
use thalweg_units::{NodeId, WallTime};
use thiserror::Error;

/// The statement of the root key that a key signs the mesh's rosters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endorsement {
    /// The key that signs rosters.
    pub key: NodeId,
    /// Counts the signing keys, from 1. Whoever knows a number refuses rosters with a lower one.
    pub number: u64,
    /// When the root key signed this.
    pub time: WallTime,
}

/// An endorsement with the root key and its signature, as rosters carry it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignedEndorsement {
    endorsement: Endorsement,
    root: NodeId,
    signature: [[u8; 32]; 2],
}

/// Why the signer of a roster may not sign it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AuthorityError {
    /// The roster is another mesh's, or forged.
    #[error("the roster is signed for {signer:?}, not for this mesh, whose key is {root:?}")]
    OtherMesh {
        /// The key that signed it or its endorsement.
        signer: NodeId,
        /// The mesh's key.
        root: NodeId,
    },
    /// The endorsement names another key than the roster's signer.
    #[error("the roster is signed by {signer:?}, but the mesh's key endorses {endorsed:?}")]
    OtherKey {
        /// The key that signed the roster.
        signer: NodeId,
        /// The endorsed key.
        endorsed: NodeId,
    },
    /// The key that the endorsement names as the root key did not sign it.
    #[error("the roster's {0}")]
    Endorsement(SignedError),
}

impl SignedEndorsement {
    /// Signs an endorsement with the root key.
    pub fn sign(endorsement: Endorsement, root: &impl crate::Signer) -> Self {
        Self::from(&Signed::sign(endorsement, root))
    }

    /// The endorsement, which is verified only together with the roster: [`Signed::root`].
    pub fn endorsement(&self) -> &Endorsement {
        &self.endorsement
    }

    /// Verifies the signature of the root key.
    ///
    /// # Errors
    /// [`SignedError::Signature`].
    fn verify(&self, verifier: &impl Verifier) -> Result<Signed<Endorsement>, SignedError> {
        let [first, second] = &self.signature;
        let mut signature = [0; 64];
        signature[..32].copy_from_slice(first);
        signature[32..].copy_from_slice(second);
        Signed::from_parts(self.endorsement, self.root, Signature::from_bytes(signature), verifier)
    }
}

impl From<&Signed<Endorsement>> for SignedEndorsement {
    fn from(signed: &Signed<Endorsement>) -> Self {
        let (mut first, mut second) = ([0; 32], [0; 32]);
        let bytes = signed.signature().as_bytes();
        first.copy_from_slice(&bytes[..32]);
        second.copy_from_slice(&bytes[32..]);
        Self { endorsement: *signed.value(), root: signed.signer(), signature: [first, second] }
    }
}

impl Signable for Endorsement {
    const DOMAIN: &'static str = "mesh endorsement 1";
    /// A key and two numbers.
    const MAX_BYTES: usize = 64;

    fn encode(&self, out: &mut Vec<u8>) {
        // Encoding this type to a vector cannot fail.
        if let Ok(bytes) = postcard::to_stdvec(self) {
            out.extend(bytes);
        }
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (endorsement, rest) = postcard::take_from_bytes::<Self>(bytes)
            .map_err(|_| DecodeError::Invalid("a field of the endorsement is not readable"))?;
        match (rest.len(), endorsement.number) {
            (0, 0) => Err(DecodeError::Invalid("the endorsement has the number 0")),
            (0, _) => Ok(endorsement),
            (more, _) => Err(DecodeError::TooLong(more)),
        }
    }
}

impl Signed<Roster> {
    /// The root key of the mesh whose roster this is, without a check of the endorsement.
    pub fn claimed_root(&self) -> NodeId {
        self.value().endorsement.map_or(self.signer(), |endorsement| endorsement.root)
    }

    /// The root key of the mesh whose roster this is: it signed the roster, or endorses the key that did.
    ///
    /// # Errors
    /// [`AuthorityError`].
    pub fn root(&self, verifier: &impl Verifier) -> Result<NodeId, AuthorityError> {
        if let Some(endorsement) = &self.value().endorsement {
            let (signer, endorsed) = (self.signer(), endorsement.endorsement.key);
            if endorsed != signer {
                return Err(AuthorityError::OtherKey { signer, endorsed });
            }
            endorsement.verify(verifier).map_err(AuthorityError::Endorsement)?;
        }
        Ok(self.claimed_root())
    }

    /// Checks that this is a roster of the mesh with this root key.
    ///
    /// # Errors
    /// [`AuthorityError`].
    pub fn check_authority(
        &self,
        root: &NodeId,
        verifier: &impl Verifier,
    ) -> Result<(), AuthorityError> {
        match self.root(verifier)? {
            signer if signer == *root => Ok(()),
            signer => Err(AuthorityError::OtherMesh { signer, root: *root }),
        }
    }
}
