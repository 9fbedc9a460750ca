//! One submitting client: a key, data, and a commitment to the data.

use anyhow::Context as _;
use rand_core::Rng;
use std::io::Cursor;
use thalweg_dropbox::{Envelope, NodeChannel, Target, commit, find_nodes, new_keys, push};
use thalweg_net::{PrivateKey, channel::Connector};
use thalweg_units::NodeId;
use thalweg_wire::{
    Signed, Signer as _,
    bistro::{ContentHash, EnvelopeKeys, Intent, Label, Nonce, Refusal, Sheet, Stamp},
};

/// A client that is not a member of any mesh.
pub struct Client {
    id: NodeId,
    connector: Connector,
    nonce: Nonce,
    label: Label,
    data: Vec<u8>,
}

/// A signed commitment with the keys and the content that it covers.
pub struct Committed {
    pub sheet: Signed<Sheet>,
    pub stamp: Signed<Stamp>,
    keys: EnvelopeKeys,
    content: ContentHash,
}

fn random<const N: usize>(random: &mut impl Rng) -> [u8; N] {
    let mut bytes = [0; N];
    random.fill_bytes(&mut bytes);
    bytes
}

impl Client {
    /// Creates a client with `size` bytes of incompressible data.
    ///
    /// # Errors
    /// If TLS rejects the key; not expected.
    pub fn new(number: usize, size: usize, from: &mut impl Rng) -> anyhow::Result<Self> {
        let key = PrivateKey::from_seed(&random(from));
        let (id, connector, nonce) =
            (key.id(), Connector::new(&key)?, Nonce::from_bytes(random(from)));
        let mut data = vec![0; size];
        from.fill_bytes(&mut data);
        let label = format!("client-{number}").parse().context("a label")?;
        Ok(Self { id, connector, nonce, label, data })
    }

    /// Step 1, on its own connection: asks for the box's key, encrypts, and commits. Signatures are checked.
    ///
    /// # Errors
    /// When the connection fails; the inner error is the destination's refusal.
    pub async fn commit(&self, target: &Target) -> anyhow::Result<Result<Committed, Refusal>> {
        let mut line = NodeChannel::open(&self.connector, &target.port).await?;
        let sheet = target.sheet(&mut line).await?;
        let keys = new_keys(&sheet, &self.id)?;
        let (commitment, content) = commit(&self.data[..], &keys, &self.nonce, &self.id)?;
        let intents = [Intent { label: self.label.clone(), commitment }];
        let mut stamps = target.commit(&mut line, self.id, &intents).await?;
        line.close().await;
        let stamp = stamps.pop().unwrap_or(Err(Refusal::Busy));
        Ok(stamp.map(|stamp| Committed { sheet, stamp, keys, content }))
    }

    /// Step 2: chooses a node, pushes, and receives its receipt. Returns the node's name.
    ///
    /// # Errors
    /// If no node accepts the data.
    pub async fn push(
        &self,
        Committed { sheet, stamp, keys, content }: &Committed,
        draw: f64,
    ) -> anyhow::Result<String> {
        let commitment = &stamp.value().commitment;
        let found = find_nodes(&self.connector, sheet.value(), commitment.size, draw).await;
        let (offers, others) = found;
        let mut why = others.into_iter().map(|(name, why)| format!("{name}: {why}")).next();
        for mut offer in offers {
            let data = &mut Envelope::new(Cursor::new(&self.data), *keys, *content, commitment)?;
            match push((&mut offer.line, &offer.node), stamp, self.nonce, data).await {
                Ok(_) => {
                    offer.line.close().await;
                    return Ok(offer.node.name.to_string());
                }
                Err(e) => why = Some(format!("{}: {e}", offer.node.name)),
            }
        }
        anyhow::bail!("no node accepts the data: {}", why.unwrap_or_default())
    }
}
