//! One of many clients: a key, data, and a commitment to it.

use anyhow::Context as _;
use rand_core::Rng;
use std::io::Cursor;
use thalweg_dropbox::{Line, Target, nearest, push};
use thalweg_net::{PrivateKey, channel::Connector};
use thalweg_units::NodeId;
use thalweg_wire::{
    Signed, Signer as _,
    bistro::{Committing, Intent, Nonce, Refusal, Sheet, Stamp},
};

/// A client that is no member of any mesh.
pub struct Client {
    id: NodeId,
    connector: Connector,
    nonce: Nonce,
    data: Vec<u8>,
    intent: Intent,
}

fn random<const N: usize>(random: &mut impl Rng) -> [u8; N] {
    let mut bytes = [0; N];
    random.fill_bytes(&mut bytes);
    bytes
}

impl Client {
    /// With so many bytes of incompressible data.
    ///
    /// # Errors
    /// If TLS does not take the key; not expected.
    pub fn new(number: usize, size: usize, from: &mut impl Rng) -> anyhow::Result<Self> {
        let key = PrivateKey::from_seed(&random(from));
        let (id, connector, nonce) =
            (key.id(), Connector::new(&key)?, Nonce::from_bytes(random(from)));
        let mut data = vec![0; size];
        from.fill_bytes(&mut data);
        let mut committing = Committing::new(&nonce, &id);
        committing.update(&data);
        let label = format!("client-{number}").parse().context("a label")?;
        let intent = Intent { label, commitment: committing.finish() };
        Ok(Self { id, connector, nonce, data, intent })
    }

    /// Step 1, on a connection of its own; the stamp's signature is checked.
    ///
    /// # Errors
    /// The connection's; inside, what the destination says no with.
    pub async fn commit(&self, target: &Target) -> anyhow::Result<Result<Signed<Stamp>, Refusal>> {
        let mut line = Line::open(&self.connector, &target.port).await?;
        let intents = std::slice::from_ref(&self.intent);
        let mut stamps = target.commit(&mut line, self.id, intents).await?;
        line.close().await;
        Ok(stamps.pop().unwrap_or(Err(Refusal::Busy)))
    }

    /// What the destination says of its box.
    ///
    /// # Errors
    /// The connection's.
    pub async fn sheet(&self, target: &Target) -> anyhow::Result<Signed<Sheet>> {
        let mut line = Line::open(&self.connector, &target.port).await?;
        let sheet = target.sheet(&mut line).await?;
        line.close().await;
        Ok(sheet)
    }

    /// Step 2: chooses a node, pushes, and has its receipt; the node's name.
    ///
    /// # Errors
    /// If no node takes it.
    pub async fn push(
        &self,
        sheet: &Sheet,
        stamp: &Signed<Stamp>,
        draw: f64,
    ) -> anyhow::Result<String> {
        let size = self.data.len() as u64;
        let (offers, others) = nearest(&self.connector, sheet, size, draw).await;
        let mut why = others.into_iter().map(|(name, why)| format!("{name}: {why}")).next();
        for mut offer in offers {
            let data = &mut Cursor::new(&self.data);
            match push((&mut offer.line, &offer.node), stamp, self.nonce, data).await {
                Ok(_) => {
                    offer.line.close().await;
                    return Ok(offer.node.name.to_string());
                }
                Err(e) => why = Some(format!("{}: {e}", offer.node.name)),
            }
        }
        anyhow::bail!("no node takes the data: {}", why.unwrap_or_default())
    }
}
