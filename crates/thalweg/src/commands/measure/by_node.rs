//! Whether this host's node sends the trains, so that what its programs send to the member rides in them.

use super::{Args, Failed, method::Method};
use crate::commands::exit::Code;
use anyhow::anyhow;
use thalweg_mesh::State;
use thalweg_node::daemon::LocalClient;
use thalweg_probe::carrier::CarrierReport;
use thalweg_probe::client::{ByNode, Service};
use tokio::task::block_in_place;

/// Whether what this host's programs send rides in the trains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Riders {
    /// If the carrier has traffic to the member
    #[default]
    Auto,
    /// Yes; without the carrier nothing is measured
    On,
    /// No
    Off,
}

/// By the node of this state directory, if riders are wanted, and it can be that any ride; `None`: as without it.
///
/// # Errors
/// They are to ride, and cannot; or the node is there, and does not open a session to the member.
pub async fn open(args: &Args, state: &State) -> Result<Option<ByNode>, Failed> {
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
        let service = Service::at(&state.probe_socket(), args.node.as_str())?;
        ByNode::open(service, args.accept_busy)
    });
    match opened {
        Ok(node) => Ok(Some(node)),
        // The plain way says better what is wrong with the member.
        Err(_) if args.riders == Riders::Auto => Ok(None),
        Err(why) => Err((Code::Network, why)),
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
