//! The interfaces of a proxy: follows them, and answers `thalweg interfaces`.

use serde_json::{Value, json};
use std::{future::pending, net::SocketAddr, path::PathBuf};
use thalweg_uplinks::{
    bond::Bonding,
    interfaces::{Uplinks, serve},
};
use tokio::task::spawn_blocking;

/// A proxy's interfaces, and the socket for questions about them.
pub struct InterfaceService {
    pub uplinks: Uplinks,
    /// Its bonds, if the host is in a mesh.
    pub bonds: Option<Bonding>,
    /// The directory of sockets; without it the proxy answers no questions.
    pub sockets: Option<PathBuf>,
    /// The address at which it listens for programs.
    pub listen: SocketAddr,
}

impl InterfaceService {
    /// Follows the interfaces and answers questions; never ends.
    pub async fn keep(&self, note: &dyn Fn(String)) {
        tokio::join!(self.uplinks.keep(note), self.answer(note));
    }

    async fn answer(&self, note: &dyn Fn(String)) {
        let Some(sockets) = &self.sockets else { return pending().await };
        let more = |report: &mut Value| {
            report["listen"] = json!(self.listen.to_string());
            report["bonds"] = self.bonds.as_ref().map(Bonding::report).unwrap_or_else(|| json!([]));
        };
        if let Err(why) = serve(sockets, self.uplinks.clone(), &more).await {
            note(format!(
                "`thalweg interfaces` will not see this process: {}: {why}",
                sockets.display()
            ));
        }
        pending().await
    }

    /// Saves what was learnt, once no data moves any more.
    pub async fn save(&self, note: &dyn Fn(String)) {
        let uplinks = self.uplinks.clone();
        if let Ok(Err(why)) = spawn_blocking(move || uplinks.end()).await {
            note(self.uplinks.unsaved(&why));
        }
    }
}
