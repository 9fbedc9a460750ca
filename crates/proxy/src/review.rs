//! Closes connections by relays that have been revoked.

use super::state::ProxyState;
use std::{future::pending, sync::Arc};
use thalweg_net::Route;
use tokio::sync::watch;

/// Why a tunnel was cut.
pub const REVOKED: &str = "a relay on its path is no longer a member of the mesh";

/// Makes the proxy check whether the relays of its connections are still members of the mesh.
///
/// The part that learns of membership changes calls [`Reviewer::review`] after each; the proxy does not check
/// otherwise.
#[derive(Clone, Debug)]
pub struct Reviewer(Arc<watch::Sender<()>>);

impl Default for Reviewer {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(())))
    }
}

impl Reviewer {
    /// Resets tunnels and origin connections whose route [`thalweg_paths::chooser::PathChooser::may_go_on`] refuses.
    pub fn review(&self) {
        self.0.send_replace(());
    }
}

impl ProxyState {
    /// Completes when connections by this route must be closed; never for the direct route.
    pub(super) async fn wait_for_revocation(&self, route: &Route) {
        if route.is_direct() {
            return pending().await;
        }
        let mut reviews = self.reviewer.0.subscribe();
        // It fails only when no reviewer is left, and the proxy holds one.
        while self.chooser.may_go_on(route) && reviews.changed().await.is_ok() {}
    }
}
