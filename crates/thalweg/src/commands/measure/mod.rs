//! `thalweg measure`: measures one path with probe trains.

mod measurement_lock;
mod method;
mod node_trains;
mod progress;
mod result;
mod tcp_flow;

use super::{exit::Code, gather, host::StateDir};
use anyhow::{Context as _, anyhow};
use measurement_lock::MeasurementLock;
use method::Method;
use node_trains::Riders;
use progress::ProgressView;
use std::{
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};
use thalweg_console::note;
use thalweg_measure::{estimators::Ends, train::sizes};
use thalweg_mesh::{State, member_dialer::DialMemberError};
use thalweg_net::{Stream, channel::Protocol};
use thalweg_probe::trains::{
    Direction, Endpoint, MeasureError, Measured, OpenError, Session, SessionError, Terms,
    TrainSender, run as measure,
};
use thalweg_units::parse_duration;
use thalweg_wire::mesh::Name;
use tokio::task::block_in_place;

const HELP: &str = "\
Measures the path to another member with probe trains over UDP. Both hosts are calibrated first; a
train that they cannot time accurately is not sent, unless --accept-busy is given. The result has
a range, its cost, and whether it is valid. docs/measure.md explains each method.

  thalweg measure fra                         # available bandwidth to fra, as a range
  thalweg measure fra --back                  # available bandwidth from fra
  thalweg measure fra --method capacity       # the narrowest link's rate
  thalweg measure fra --method hops           # which link that is
  thalweg measure fra --method badabing --within 60s
  thalweg measure fra --riders off            # no application packets in the trains

Exit codes: 0 measured; 1 no result; 2 wrong usage; 4 the member was not reached, or not by
datagrams.";

/// Arguments of `thalweg measure`.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// The member at the other end
    #[arg(value_name = "NODE")]
    node: Name,

    /// What is measured, and how
    #[arg(long, value_enum, default_value = "pathload-fast")]
    method: Method,

    /// Measure the path from the member to this host
    #[arg(long)]
    back: bool,

    /// The maximum duration; badabing and pk1 to pk3 use all of it
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    within: Duration,

    /// The largest probe, without the headers of IP and UDP [default: the longest that arrives]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(200..=9000))]
    size: Option<u16>,

    /// Measure although a host is too busy to time probes; the result is then marked as not valid
    #[arg(long)]
    accept_busy: bool,

    /// Whether packets that this host's programs send to the member through the carrier ride in the
    /// trains (docs/carrier.md); the node then sends the trains, from its own budget
    #[arg(long, value_enum, default_value = "auto")]
    riders: Riders,

    /// Print nothing but the result
    #[arg(short, long)]
    quiet: bool,

    /// Print each train and the result as JSON, one object per line
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    state_dir: StateDir,
}

impl Args {
    fn way(&self) -> Direction {
        if self.back { Direction::Back } else { Direction::There }
    }
}

/// Runs the command.
///
/// # Errors
/// Failures of this host. Failures of the path and the member are printed here, with an exit code.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let runtime = gather::runtime()?;
    let ended = runtime.block_on(measure_path(&args));
    runtime.shutdown_background();
    match ended {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err((code, why)) => {
            note!("thalweg: {why:#}");
            Ok(code.into())
        }
    }
}

type ExitError = (Code, anyhow::Error);

async fn measure_path(args: &Args) -> Result<(), ExitError> {
    if args.back && args.method == Method::Hops {
        let why = "--method hops works only from this host, because routers answer the sender; \
                   leave out --back";
        return Err((Code::Usage, anyhow!(why)));
    }
    let state = args.state_dir.open().map_err(|why| (Code::Other, why))?;
    let _alone = block_in_place(|| MeasurementLock::take(state.dir(), note_waiting));
    if args.method == Method::Tcp {
        return tcp_flow::run(args, &state).await;
    }
    if let Some(mut node) = node_trains::open(args, &state).await? {
        let mut ends = node.ends();
        if let Some(size) = args.size {
            node.passes(size).await.map_err(|why| session_error(args, &why))?;
            ends.largest = size;
        }
        note_size(args, &ends);
        let (tool, found) = run_tool(args, &mut node, &ends).await?;
        return result::print(args, tool, &found, true).map_err(|why| (Code::Other, why));
    }
    let opened = match open(args, &state).await {
        // Nothing else can measure such a member, and no other method was chosen.
        Err(OpeningFailure::OnlyRelayed(why)) if args.method == Method::PathloadFast => {
            note!("thalweg: {why}; measuring by TCP (--method tcp)");
            return tcp_flow::run(args, &state).await;
        }
        opened => opened.map_err(ExitError::from),
    };
    let (mut session, endpoint) = opened?;
    let receiving = tokio::spawn(async move { endpoint.run().await });
    let found = match find_probe_size(args, &mut session).await {
        Ok(ends) => run_tool(args, &mut session, &ends).await,
        Err(why) => Err(session_error(args, &why)),
    };
    session.close().await;
    receiving.abort();
    let (tool, found) = found?;
    result::print(args, tool, &found, false).map_err(|why| (Code::Other, why))
}

/// Reports that another command measures.
fn note_waiting() {
    note!("thalweg: another measurement runs on this host; waiting for its end");
}

async fn run_tool(
    args: &Args,
    flies: &mut impl TrainSender,
    ends: &Ends,
) -> Result<(&'static str, Measured), ExitError> {
    let Some(mut tool) = method::tool(args, ends) else {
        return Err((Code::Usage, anyhow!("this method needs no probe trains")));
    };
    let mut shown = ProgressView::new(args);
    let mut each = |event| shown.event(&event);
    let found = measure(flies, tool.as_mut(), args.way(), args.within, &mut each).await;
    shown.end();
    let found = found.map_err(|error| match &error {
        MeasureError::Session { why, .. } => {
            (session_exit_code(why), anyhow!("{error}{}", hint(args, why)))
        }
        _ => (Code::Other, error.into()),
    })?;
    Ok((tool.name(), found))
}

/// The path's properties, with the longest probe that passes.
async fn find_probe_size(args: &Args, session: &mut Session<Stream>) -> Result<Ends, SessionError> {
    let sizes = args.size.map_or(sizes(session.overhead()).to_vec(), |size| vec![size]);
    let largest = session.fitting(args.way(), &sizes).await?;
    let ends = session.ends(args.way(), largest);
    note_size(args, &ends);
    Ok(ends)
}

/// Reports that probes are shorter than usual.
fn note_size(args: &Args, ends: &Ends) {
    if let Some(words) = shorter(ends).filter(|_| args.size.is_none() && !args.quiet) {
        note!("thalweg: {words}");
    }
}

fn shorter(ends: &Ends) -> Option<String> {
    let Ends { largest, overhead, .. } = *ends;
    let [longest, ..] = sizes(overhead);
    let mtu = u32::from(largest) + overhead;
    (largest < longest).then(|| {
        format!(
            "probes of {longest} bytes are lost, those of {largest} arrive: the path's MTU is \
             {mtu} or a little more"
        )
    })
}

fn session_exit_code(why: &SessionError) -> Code {
    match why {
        SessionError::Pacing(_) | SessionError::Refused(_) | SessionError::Node(_) => Code::Other,
        SessionError::Small { .. } | SessionError::Hops => Code::Usage,
        _ => Code::Network,
    }
}

fn session_error(args: &Args, why: &SessionError) -> ExitError {
    (session_exit_code(why), anyhow!("{why}{}", hint(args, why)))
}

/// What the user can try.
fn hint(args: &Args, why: &SessionError) -> &'static str {
    match why {
        SessionError::Pacing(_) => {
            "; --accept-busy measures anyway and marks the result as not valid"
        }
        SessionError::Mtu { .. } if args.size.is_some() => {
            "; without --size the longest probes that arrive are used"
        }
        _ => "",
    }
}

/// Why no session was opened.
enum OpeningFailure {
    /// The member is reached only through relays.
    OnlyRelayed(DialMemberError),
    Other(ExitError),
}

impl From<ExitError> for OpeningFailure {
    fn from(why: ExitError) -> Self {
        Self::Other(why)
    }
}

impl From<OpeningFailure> for ExitError {
    fn from(why: OpeningFailure) -> Self {
        match why {
            OpeningFailure::OnlyRelayed(why) => dial_error(why),
            OpeningFailure::Other(why) => why,
        }
    }
}

async fn open(
    args: &Args,
    state: &State,
) -> Result<(Session<Stream>, Arc<Endpoint>), OpeningFailure> {
    let own = |why: anyhow::Error| (Code::Other, why);
    let far = |why: anyhow::Error| (Code::Network, why);
    let dialer = gather::dialer(state).map_err(own)?;
    if args.node == *dialer.me() {
        let why = OpenError::Oneself(args.node.clone());
        return Err(OpeningFailure::Other((Code::Usage, why.into())));
    }
    let channel = match dialer.direct().channel(&args.node, &[], Protocol::Probe).await {
        Err(why @ DialMemberError::OnlyRelayed(_)) => {
            return Err(OpeningFailure::OnlyRelayed(why));
        }
        opened => opened.map_err(dial_error)?,
    };
    let at = channel.get_ref().tcp().and_then(|tcp| tcp.peer_addr().ok());
    let at = at.context("the member's address is not known").map_err(far)?;
    let any = match at {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    let endpoint = Endpoint::bind(any).await.context("cannot open a UDP socket").map_err(own)?;
    let endpoint = Arc::new(endpoint);
    let terms = Terms::found(args.accept_busy).await;
    let terms = terms.context("cannot calibrate this host").map_err(own)?;
    let session = Session::open(channel, at.ip(), &endpoint, terms).await;
    Ok((session.map_err(|why| session_error(args, &why))?, endpoint))
}

fn dial_error(why: DialMemberError) -> ExitError {
    match &why {
        DialMemberError::Name(_) => (Code::Usage, why.into()),
        // Its text already names the causes.
        DialMemberError::Dial { .. }
        | DialMemberError::Relayed { .. }
        | DialMemberError::OnlyRelayed(_)
        | DialMemberError::Unrelayed(_) => (Code::Network, anyhow!("{why}")),
    }
}
