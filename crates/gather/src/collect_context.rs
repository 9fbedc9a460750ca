//! The input of an executor.

use super::{Connections, EventSink, IdleRemotes};
use std::sync::Arc;
use thalweg_files::{inventory::Inventory, land::Land};
use thalweg_mesh::member_dialer::MemberDialer;
use thalweg_paths::overlay::Overlay;
use tokio_util::sync::CancellationToken;

/// A collection to carry out: the data, the participants and the destination.
#[derive(Clone, Debug)]
pub struct CollectContext {
    /// Opens channels to the other participants.
    pub dialer: MemberDialer,
    /// Connections to sources that are already open.
    pub idle_remotes: IdleRemotes,
    /// The participants, and the known rates and round trips of the legs between them.
    pub overlay: Arc<Overlay>,
    /// The files to fetch, and their missing ranges.
    pub inventory: Arc<Inventory>,
    /// Receives the data.
    pub land: Arc<dyn Land>,
    pub events: Arc<dyn EventSink>,
    /// The connections over which data comes, for the verdict.
    pub connections: Arc<Connections>,
    /// Requests an early end: transfers under way are abandoned, data received so far is kept.
    pub stop: CancellationToken,
}
