//! Lets this host's node send the trains, so that packets of its programs to the member ride in them.

use super::{Args, ExitError, method::Method};
use crate::commands::exit::Code;
use anyhow::anyhow;
use thalweg_mesh::State;
use thalweg_node::daemon::LocalClient;
use thalweg_probe::carrier::CarrierReport;
use thalweg_probe::client::{NodeSession, ProbeServiceClient};
use tokio::task::block_in_place;

/// Whether what this host's programs send rides in the trains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Riders {
    /// If the carrier has traffic to the member
    #[default]
    Auto,
    /// Yes; without the carrier the command fails
    On,
    /// No
    Off,
}

/// Opens a measurement by the node of this state directory. `None` if riders are off, or if no packets could ride and
/// riders are not required: then the command sends the trains itself.
///
/// # Errors
/// If riders are required and none are possible, or the node cannot open a session to the member.
pub async fn open(args: &Args, state: &State) -> Result<Option<NodeSession>, ExitError> {
    if args.riders == Riders::Off {
        return Ok(None);
    }
    if let Err(why) = carries(args, state).await {
        return match args.riders {
            Riders::On => Err((
                Code::Other,
                anyhow!("no packets can ride: {why}; --riders off measures without them"),
            )),
            _ => Ok(None),
        };
    }
    let opened = block_in_place(|| {
        let service = ProbeServiceClient::at(&state.probe_socket(), args.node.as_str())?;
        NodeSession::open(service, args.accept_busy)
    });
    match opened {
        Ok(node) => Ok(Some(node)),
        // The command's own attempt explains better what is wrong with the member.
        Err(_) if args.riders == Riders::Auto => Ok(None),
        Err(why) => Err((Code::Network, why)),
    }
}

/// Checks that the node runs and that packets may ride to the member. The error says why not.
async fn carries(args: &Args, state: &State) -> Result<(), String> {
    if args.back || args.method == Method::Hops {
        return Err("--back and --method hops do not support riders".to_owned());
    }
    let client = LocalClient::find(&state.socket()).await.map_err(|why| why.to_string())?;
    let report = client.carrier().await.map_err(|why| why.to_string())?;
    let report = report
        .ok_or("this host's node has no carrier (`[carrier] enabled = true` in its settings)")?;
    match report {
        CarrierReport { is_up: false, why, .. } => Err(why.unwrap_or_default()),
        // Without a session no packets are sent there, so none could ride.
        report if args.riders == Riders::Auto && !is_open(args, &report) => {
            Err("no packets go to the member through the carrier".to_owned())
        }
        _ => Ok(()),
    }
}

fn is_open(args: &Args, report: &CarrierReport) -> bool {
    report.members.iter().any(|member| member.name == args.node && member.session == "open")
}
