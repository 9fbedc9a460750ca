//! Drop boxes: collects submissions with a deadline (Bistro). Runs at the destination and at nodes that take data for
//! it.
//!
//! Input: commitments before the deadline, and the data later. Output: signed stamps and receipts, and the data at the
//! destination. The client encrypts the data for the destination.
//!
//! Source: Cheng et al., *Large-scale Data Collection: a Coordinated Approach* (INFOCOM 2004), §I. The messages are in
//! `wire::bistro`; `docs/submit.md` describes the operator's settings and tasks.
//!
//! ```text
//! client ── commit ──► destination: ledger ─ journal           (step 1; one sync for many)
//!    └───── push ────► node: spool ─ journal ── outbox ──► destination: receipts   (step 2)
//!                        └────── gather ────────────────► destination: collect     (step 3)
//! ```

mod client;
mod clock;
pub mod collect;
mod envelope;
mod files;
mod journal;
mod ledger;
mod node_channel;
mod node_timeout;
mod outbox;
mod promises;
mod rate_limit;
mod receipts;
mod report;
mod serve;
mod served_box;
mod settings;
mod spool;
mod strike;
mod submitters;
mod view;

pub use client::{
    ClientError, NodeOffer, PushError, Target, begin_evidence, find_nodes, load_evidence, new_draw,
    new_nonce, open_data, path_beside, push, save_evidence_in_turn,
};
pub use envelope::{BoxKey, Envelope, EnvelopeError, commit, new_keys, open};
pub use files::BoxFiles;
pub use ledger::Rules;
pub use node_channel::{NodeAddress, NodeChannel, NodeChannelError};
pub use receipts::{DeliveringNode, VerifiedReceipt};
pub use settings::Settings;
pub use spool::SpoolCounts;
pub use strike::strike;
pub use view::{Collected, View};

use futures_util::future::join_all;
use served_box::{ServedBox, ServingNode};
use std::{collections::BTreeMap, io, path::Path, sync::Arc};
use thalweg_base::{clock::WallClock, costly::Turns, log::Log, throttle::Throttle};
use thalweg_mesh::Membership;
use thalweg_net::{PrivateKey, channel::Connector};
use thalweg_wire::mesh::Name;
use thiserror::Error;

/// The drop boxes that a node serves; cheap to clone.
#[derive(Clone, Debug)]
pub struct DropBoxes(Arc<ServiceState>);

/// State shared by all parts.
#[derive(Debug)]
struct ServiceState {
    /// The name and key of this node.
    me: Name,
    key: Arc<PrivateKey>,
    membership: Membership,
    connector: Connector,
    boxes: BTreeMap<Name, ServedBox>,
    /// The settings of the boxes.
    settings: Vec<Settings>,
    counts: report::Counts,
    /// Turns for questions: one at a time for each client, however many channels it uses.
    asks: Turns,
    ends: Throttle,
    log: Log,
}

/// Questions that are answered at a time: as many as there are clients, because some wait for the disk.
const ASKS: usize = 4096;

/// A box cannot be served.
#[derive(Debug, Error)]
#[error("drop box `{name}`: {source}")]
pub struct DropBoxError {
    pub name: Name,
    /// The error of opening its directory.
    pub source: io::Error,
}

impl DropBoxes {
    /// Opens the boxes in these settings for the node with this name and key, below its state directory.
    ///
    /// # Errors
    /// [`DropBoxError`].
    pub fn open(
        settings: &[Settings],
        state: &Path,
        (me, key): (Name, PrivateKey),
        membership: Membership,
        log: Log,
    ) -> Result<Self, DropBoxError> {
        Self::open_with_clock(settings, state, (me, key), membership, WallClock::default(), log)
    }

    /// Opens the boxes with another clock.
    ///
    /// # Errors
    /// As [`DropBoxes::open`].
    pub fn open_with_clock(
        settings: &[Settings],
        state: &Path,
        (me, key): (Name, PrivateKey),
        membership: Membership,
        clock: WallClock,
        log: Log,
    ) -> Result<Self, DropBoxError> {
        let key = Arc::new(key);
        let failed = |source| DropBoxError { name: me.clone(), source };
        let connector = Connector::new(&key).map_err(failed)?;
        let host = ServingNode { state, name: &me, key: &key, clock: &clock };
        let mut boxes = BTreeMap::new();
        for one in settings {
            boxes.extend(ServedBox::open(one, &host)?.map(|one| (one.name.clone(), one)));
        }
        Ok(Self(Arc::new(ServiceState {
            me,
            key,
            membership,
            connector,
            boxes,
            settings: settings.to_vec(),
            counts: report::Counts::default(),
            asks: Turns::new(ASKS),
            ends: Throttle::default(),
            log,
        })))
    }

    /// Brings receipts to the destinations and never returns; drop the future to stop it.
    pub async fn run(self) {
        let telling = self.0.boxes.values().map(|one| self.0.deliver_receipts(one));
        join_all(telling).await;
    }

    /// The directories with the data of boxes, each with the destination that may read it through `thalweg_files`.
    pub fn offers(&self) -> Vec<(std::path::PathBuf, Name)> {
        let offer = |one: &ServedBox| {
            let to = match &one.role {
                served_box::BoxRole::Destination(_) => self.0.me.clone(),
                served_box::BoxRole::Node(destination) => destination.clone(),
            };
            one.spool.as_ref().map(|spool| (spool.files.data().to_owned(), to))
        };
        self.0.boxes.values().filter_map(offer).collect()
    }
}
