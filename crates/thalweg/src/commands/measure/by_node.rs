//! Trains that this host's node sends, so that what its programs send to the member rides in them.

use super::{Args, Failed, SIZES, method::Method};
use crate::commands::{
    exit::Code,
    probe_service::{Opened, Order, Service},
};
use anyhow::anyhow;
use std::time::Duration;
use thalweg_measure::train::{Calibration, Doubt, End, Flight, Probe, Train};
use thalweg_node::{
    carrier::CarrierReport,
    daemon::LocalClient,
    mesh::State,
    trains::{Flies, SessionError, Way},
};
use tokio::task::block_in_place;

/// Whether what this host's programs send rides in the trains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Riders {
    /// Where anything goes to the member by the carrier
    #[default]
    Auto,
    /// They do, or nothing is measured
    On,
    /// They do not
    Off,
}

/// So many probes show whether any of a size passes.
const SHOWN: usize = 5;

/// A connection to the node's probe service.
pub struct ByNode {
    service: Service,
    opened: Opened,
    accepts_busy: bool,
}

impl ByNode {
    /// By the node of this state directory, if riders are wanted, and it can be that any ride; `None`: as without it.
    ///
    /// # Errors
    /// They are to ride, and cannot; or the node is there, and does not open a session to the member.
    pub async fn open(args: &Args, state: &State) -> Result<Option<Self>, Failed> {
        if args.riders == Riders::Off {
            return Ok(None);
        }
        if let Err(why) = carries(args, state).await {
            return match args.riders {
                Riders::On => {
                    Err((Code::Other, anyhow!("no riders: {why}; --riders off measures without")))
                }
                _ => Ok(None),
            };
        }
        let opened = block_in_place(|| {
            let mut service = Service::at(&state.probe_socket(), args.node.as_str())?;
            let opened = service.open()?;
            Ok(Self { service, opened, accepts_busy: args.accept_busy })
        });
        match opened {
            Ok(node) => Ok(Some(node)),
            // The plain way says better what is wrong with the member.
            Err(_) if args.riders == Riders::Auto => Ok(None),
            Err(why) => Err((Code::Network, why)),
        }
    }

    /// The round trip.
    pub fn rtt(&self) -> Duration {
        self.opened.rtt()
    }

    /// What this host and the member's can do, as trains are held against it.
    pub fn hosts(&self) -> [Calibration; 2] {
        let judged = |host: Calibration| if self.accepts_busy { host.as_it_is() } else { host };
        self.opened.hosts().map(judged)
    }

    /// The longest probe that passes.
    pub async fn fitting(&mut self, args: &Args) -> Result<u16, SessionError> {
        let Some(size) = args.size else { return Ok(self.opened.largest.min(SIZES[0])) };
        let probe = Probe { size, header: 0, gap: Duration::ZERO, may_carry: false };
        let train =
            Train::uniform(probe, SHOWN).map_err(|why| SessionError::Node(why.to_string()))?;
        let flight = self.fly(&train, Way::There, Duration::ZERO).await?;
        match flight.passed().next() {
            Some(_) => Ok(size),
            None => Err(SessionError::Mtu { size }),
        }
    }
}

impl Flies for ByNode {
    async fn fly(
        &mut self,
        train: &Train,
        _way: Way,
        after: Duration,
    ) -> Result<Flight, SessionError> {
        self.hosts()[0].check(train)?;
        let accepts_busy = self.accepts_busy;
        let order = Order { train, after, header: &[], awaits: true, accepts_busy };
        // Beside it nothing but Ctrl-C is waited for.
        let told = block_in_place(|| self.service.send(&order));
        let told = told.map_err(|gone| SessionError::Node(format!("{gone:#}")))?;
        Ok(told.map_err(SessionError::Node)?.flight())
    }

    fn doubts(&self, _way: Way) -> Vec<Doubt> {
        let hosts = [End::Sender, End::Receiver].into_iter().zip(self.opened.hosts());
        hosts.filter_map(|(end, host)| Doubt::of_host(end, &host)).collect()
    }
}

/// That the node runs, and that it may be that packets ride to the member; why not.
async fn carries(args: &Args, state: &State) -> Result<(), String> {
    if args.back || args.method == Method::Hops {
        return Err("they ride to the member alone, and not in trains that routers are to answer"
            .to_owned());
    }
    let client = LocalClient::find(&state.socket()).await.map_err(|why| why.to_string())?;
    let report = client.carrier().await.map_err(|why| why.to_string())?;
    let report = report
        .ok_or("this host's node has no carrier (`[carrier] enabled = true` in its settings)")?;
    match report {
        CarrierReport { is_up: false, why, .. } => Err(why.unwrap_or_default()),
        // Without it nothing is sent there, so nothing could ride.
        report if args.riders == Riders::Auto && !is_open(args, &report) => {
            Err("nothing goes to the member by the carrier".to_owned())
        }
        _ => Ok(()),
    }
}

fn is_open(args: &Args, report: &CarrierReport) -> bool {
    report.members.iter().any(|member| member.name == args.node && member.session == "open")
}
