//! Who is let in: members, and strangers where a drop box is open to them.

use std::sync::Arc;
use thalweg_mesh::Membership;
use thalweg_mesh::service::SubmitService;
use thalweg_net::channel::{Admission, Protocol};
use thalweg_units::NodeId;

/// The roster, and the settings of drop boxes.
#[derive(Debug)]
pub(super) struct Doorman {
    pub membership: Membership,
    pub submit: Option<Arc<dyn SubmitService>>,
}

impl Admission for Doorman {
    fn admits(&self, key: &NodeId, protocol: Protocol) -> bool {
        let is_open = || self.submit.as_ref().is_some_and(|submit| submit.admits(key));
        self.membership.admits(key, protocol) || (protocol == Protocol::Submit && is_open())
    }
}
