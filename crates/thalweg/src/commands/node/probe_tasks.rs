//! Probe trains of the daemon: receives their datagrams, and sends trains for the overlay, streams and programs.

use super::socket_file::SocketFile;
use prometheus_client::registry::Registry;
use std::{net::SocketAddr, path::PathBuf, sync::Arc};
use thalweg_base::log::{Event, Log};
use thalweg_measure::estimators::Pace;
use thalweg_mesh::member_dialer::MemberDialer;
use thalweg_net::legs::Legs;
use thalweg_node::{
    config::{MeasureSection, PaceChoice, StreamSection},
    daemon::bind_local,
};
use thalweg_probe::{
    carrier::Carrier,
    overlay::{
        LinkMeasurement, LinkMeasurer, LinkMeasurerSettings, LinkNews, MeasurementKind,
        MeasurementRequest, MeasurementRequests, Overlay,
    },
    prober::Prober,
    trains::{Endpoint, ProbeService, Trains},
};
use thalweg_stream::{AvailableRate, Measure, NeededMeasurement, Streams};
use tokio::{
    sync::{Semaphore, watch},
    task::JoinSet,
};

/// Trains with the budget of `prober`'s measurements, and the maximum rate in the settings.
pub(super) fn trains(prober: &Prober, log: Log, settings: &MeasureSection) -> Trains {
    let trains = Trains::new(prober.probe_budget(), log);
    if let Some(most) = settings.max_rate {
        trains.set_max_rate(most);
    }
    trains
}

/// The probe trains and their users, until they run.
#[derive(Clone, Debug)]
pub(super) struct ProbeTasks {
    pub(super) trains: Trains,
    /// Bulk flows hold permits of it.
    pub(super) flows: Arc<Semaphore>,
    /// The carrier, if packets of programs ride in trains.
    pub(super) carrier: Option<Carrier>,
    /// The overlay, if links are measured continuously.
    pub(super) overlay: Option<Overlay>,
    /// The measurements of links that streams use, if enabled.
    pub(super) follow: Option<(LinkMeasurer, Streams)>,
    pub(super) dialer: MemberDialer,
    pub(super) socket: PathBuf,
    pub(super) log: Log,
}

impl ProbeTasks {
    /// Measures links continuously, if the settings enable it. `legs` shows what transfers see of links.
    pub(super) fn enable_overlay(
        &mut self,
        settings: &MeasureSection,
        prober: &Prober,
        legs: &Legs,
        registry: &mut Registry,
    ) {
        let Some(run) = settings.overlay_run() else { return };
        prober.observe_transfers(legs.clone(), settings.passive);
        let (trains, dialer, log) = (self.trains.clone(), self.dialer.clone(), self.log.clone());
        let overlay = Overlay::new(run, prober.clone(), trains, dialer, log);
        overlay.counts().register(registry);
        self.overlay = Some(overlay);
    }

    /// Measures links that streams use, if the settings enable it.
    pub(super) fn enable_stream_measurements(
        &mut self,
        settings: &StreamSection,
        prober: &Prober,
        streams: &Streams,
    ) {
        if settings.measure == Measure::Off {
            return;
        }
        let pace = match settings.pace {
            PaceChoice::Fast => Pace::Fast,
            PaceChoice::Slow => Pace::Slow,
        };
        let run = LinkMeasurerSettings { pace, rides: settings.ride };
        let (trains, dialer, log) = (self.trains.clone(), self.dialer.clone(), self.log.clone());
        let measurer = LinkMeasurer::new(run, prober.clone(), trains, dialer, log);
        self.follow = Some((measurer, streams.clone()));
    }

    /// Receives trains' datagrams at the node's port over UDP. If no port can be bound, no member can measure a path to
    /// this host. If only the local socket fails, only other programs of this host cannot measure.
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
        self.trains.set_endpoints(endpoints.clone());
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
        let follows = async {
            if let Some((measurer, streams)) = self.follow {
                measure_stream_links(measurer, streams).await;
            }
        };
        let measures = async {
            trains.calibrate().await;
            if let Some(overlay) = self.overlay {
                overlay.run().await;
            }
        };
        match bind_local(&self.socket) {
            Ok(listener) => {
                let _removed = SocketFile(self.socket);
                let service =
                    ProbeService::new(self.trains, endpoint, self.dialer, self.flows, self.log);
                tokio::join!(service.run(listener), carries, measures, follows);
            }
            Err(why) => {
                let what = Event::new("no_probe_service").with("at", self.socket.display());
                self.log.put(what.with("why", why));
                tokio::join!(receiving.join_next(), carries, measures, follows);
            }
        }
    }
}

/// Measures the links that streams request, and reports the results to the streams.
async fn measure_stream_links(measurer: LinkMeasurer, streams: Streams) {
    let (sender, requests) = watch::channel(MeasurementRequests::new());
    let mut needed_measurements = streams.needed_measurements();
    let forward_requests = async {
        loop {
            let all = needed_measurements.borrow_and_update().clone();
            let to_request = |needed: NeededMeasurement| MeasurementRequest {
                kind: needed.test_bps.map_or(MeasurementKind::Range, MeasurementKind::Fits),
                state: needed.falls,
            };
            let all = all.into_iter().map(|(to, needed)| (to, to_request(needed))).collect();
            sender.send_replace(all);
            if needed_measurements.changed().await.is_err() {
                return;
            }
        }
    };
    let add = |found: LinkMeasurement| match found.kind {
        MeasurementKind::Range => {
            streams.report_measurement(&found.to, found.value, found.is_lower_bound, found.began);
            streams.record_measurement(&found.to, AvailableRate::About(found.value), found.began);
        }
        MeasurementKind::Fits(_) if found.is_lower_bound => {
            streams.report_measurement(&found.to, found.low, true, found.began);
            streams.record_measurement(&found.to, AvailableRate::AtLeast(found.low), found.began);
        }
        MeasurementKind::Fits(_) => {
            streams.record_measurement(&found.to, AvailableRate::Below(found.high), found.began)
        }
    };
    let handle_news = |news| match news {
        LinkNews::Found(found) => add(found),
        LinkNews::Unreachable(to) => streams.report_unreachable(&to),
    };
    tokio::join!(forward_requests, measurer.run(requests, handle_news));
}
