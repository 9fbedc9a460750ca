//! Probe trains of a daemon: who takes their datagrams, and who sends some.

use prometheus_client::registry::Registry;
use std::{net::SocketAddr, path::PathBuf, sync::Arc};
use thalweg_base::log::{Event, Log};
use thalweg_mesh::member_dialer::MemberDialer;
use thalweg_net::legs::Legs;
use thalweg_node::{config::MeasureSection, daemon::bind_local};
use thalweg_probe::{
    carrier::Carrier,
    overlay::Overlay,
    prober::Prober,
    trains::{Endpoint, Service, Trains},
};
use tokio::{sync::Semaphore, task::JoinSet};

/// Trains that are paid as `prober`'s measurements are, and go no faster than the settings say.
pub(super) fn trains(prober: &Prober, log: Log, settings: &MeasureSection) -> Trains {
    let trains = Trains::new(prober.purse(), log);
    if let Some(most) = settings.max_rate {
        trains.no_faster_than(most);
    }
    trains
}

/// What probe trains need beside the door.
#[derive(Clone, Debug)]
pub(super) struct Probing {
    pub(super) trains: Trains,
    /// Bulk flows have places of it.
    pub(super) flows: Arc<Semaphore>,
    /// Packets of programs ride in them, where there is one.
    pub(super) carrier: Option<Carrier>,
    /// Links are measured unasked, where there is one.
    pub(super) overlay: Option<Overlay>,
    pub(super) reach: MemberDialer,
    pub(super) socket: PathBuf,
    pub(super) log: Log,
}

impl Probing {
    /// Has links measured, if the settings say so; what transfers show of them is in `legs`.
    pub(super) fn measures(
        &mut self,
        settings: &MeasureSection,
        prober: &Prober,
        legs: &Legs,
        registry: &mut Registry,
    ) {
        let Some(run) = settings.overlay_run() else { return };
        prober.sees(legs.clone(), settings.passive);
        let (trains, reach, log) = (self.trains.clone(), self.reach.clone(), self.log.clone());
        let overlay = Overlay::new(run, prober.clone(), trains, reach, log);
        overlay.counts().register(registry);
        self.overlay = Some(overlay);
    }

    /// Takes trains' datagrams at the port of the node, over UDP; without it others measure no path to here. Without
    /// its socket only other programs of this host do without.
    pub(super) async fn run(self, listen: Vec<SocketAddr>) {
        let mut endpoints: Vec<Arc<Endpoint>> = Vec::new();
        for at in listen {
            let bound = match endpoints.first() {
                None => Endpoint::bind(at).await,
                Some(first) => first.beside(at).await,
            };
            match bound {
                Ok(endpoint) => endpoints.push(Arc::new(endpoint)),
                Err(why) => self.log.put(Event::new("no_trains").with("at", at).with("why", why)),
            }
        }
        let Some(endpoint) = endpoints.first().cloned() else { return };
        self.trains.receive_at(endpoints.clone());
        let mut receiving = JoinSet::new();
        for endpoint in endpoints {
            receiving.spawn(async move { endpoint.run().await });
        }
        let carrying = self.carrier.map(|carrier| carrier.serve(self.trains.clone()));
        let carries = async {
            if let Some(carrying) = carrying {
                carrying.await;
            }
        };
        let trains = self.trains.clone();
        let measures = async {
            trains.calibrate().await;
            if let Some(overlay) = self.overlay {
                overlay.run().await;
            }
        };
        match bind_local(&self.socket) {
            Ok(listener) => {
                let _removed = Removed(self.socket);
                let service = Service::new(self.trains, endpoint, self.reach, self.flows, self.log);
                tokio::join!(service.run(listener), carries, measures);
            }
            Err(why) => {
                let what = Event::new("no_probe_service").with("at", self.socket.display());
                self.log.put(what.with("why", why));
                tokio::join!(receiving.join_next(), carries, measures);
            }
        }
    }
}

/// A file that goes with this value.
struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        _ = std::fs::remove_file(&self.0);
    }
}
