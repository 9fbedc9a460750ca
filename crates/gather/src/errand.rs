//! What an executor is given.

use super::{EventSink, Greeted};
use std::sync::Arc;
use thalweg_files::{inventory::Inventory, land::Land};
use thalweg_mesh::member_dialer::MemberDialer;
use thalweg_paths::overlay::Overlay;
use tokio_util::sync::CancellationToken;

/// A collection to carry out: which data, from whom, to where.
#[derive(Clone, Debug)]
pub struct Errand {
    /// Opens channels to the others.
    pub reach: MemberDialer,
    /// Connections to sources that are open already.
    pub greeted: Greeted,
    /// Who takes part, and what is known of the legs.
    pub overlay: Arc<Overlay>,
    /// What is to be fetched.
    pub inventory: Arc<Inventory>,
    /// Where it goes.
    pub land: Arc<dyn Land>,
    /// Who wants to know.
    pub events: Arc<dyn EventSink>,
    /// A wish to end: what is under way is left, what came is kept.
    pub stop: CancellationToken,
}
