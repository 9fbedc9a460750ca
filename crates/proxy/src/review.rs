//! Connections by relays that were revoked meanwhile: when they are looked at, and let go.

use super::shared::Shared;
use std::{future::pending, sync::Arc};
use thalweg_net::Route;
use tokio::sync::watch;

/// Why a tunnel was cut.
pub const REVOKED: &str = "a relay of its path is no member of the mesh any more";

/// Has the proxy look whether the relays of its connections are still what they were.
///
/// For whoever knows that the mesh is another one by now: nothing is looked at else.
#[derive(Clone, Debug)]
pub struct Reviewer(Arc<watch::Sender<()>>);

impl Default for Reviewer {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(())))
    }
}

impl Reviewer {
    /// Tunnels and links whose route [`thalweg_paths::chooser::PathChooser::may_go_on`] refuses are reset.
    pub fn review(&self) {
        self.0.send_replace(());
    }
}

impl Shared {
    /// Ends when connections by this route must be let go; for the direct one never.
    pub(super) async fn let_go(&self, route: &Route) {
        if route.is_direct() {
            return pending().await;
        }
        let mut reviews = self.reviewer.0.subscribe();
        // It fails only when nobody can review any more, and the proxy holds a reviewer.
        while self.chooser.may_go_on(route) && reviews.changed().await.is_ok() {}
    }
}
