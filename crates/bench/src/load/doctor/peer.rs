//! A member whose clock is wrong, or whose program has another version.

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use thalweg_base::clock::WallClock;
use thalweg_doctor::peer::DoctorService;
use thalweg_mesh::{Membership, State, service::MemberService as _};
use thalweg_net::channel::{Acceptor, Protocol};
use thalweg_units::{WallTime, parse_duration};
use tokio::net::TcpListener;

/// Arguments of the part.
#[derive(clap::Args)]
pub struct Args {
    /// The state directory of the member
    #[arg(long)]
    state: PathBuf,
    /// The address to listen at
    #[arg(long)]
    listen: SocketAddr,
    /// How far its clock is ahead
    #[arg(long, default_value = "0s", value_parser = parse_duration)]
    ahead: Duration,
    /// The version that it tells
    #[arg(long, default_value = env!("CARGO_PKG_VERSION"))]
    says: String,
}

/// Answers members' checks until it is killed.
///
/// # Errors
/// When the state directory cannot be used, or it cannot listen.
pub async fn run(args: &Args) -> anyhow::Result<()> {
    let state = State::open(&args.state)?;
    let (mesh, key, ahead) = (state.mesh()?, state.node_key()?, args.ahead);
    let clock = WallClock::new(move || {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default() + ahead;
        WallTime::from_unix_nanos(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX))
    });
    let membership = Membership::load_with_clock(mesh.mesh, state.roster_file(), clock)?;
    let service = DoctorService::new(mesh.name, &key, &args.says, membership.clone())?;
    let admission = Arc::new(membership.clone());
    let acceptor = Arc::new(Acceptor::new(&key, admission, &[Protocol::Doctor])?);
    let listener = TcpListener::bind(args.listen).await?;
    thalweg_console::say_line("ready")?;
    loop {
        let (tcp, from) = listener.accept().await?;
        let (acceptor, membership, service) =
            (Arc::clone(&acceptor), membership.clone(), service.clone());
        tokio::spawn(async move {
            let Ok(channel) = acceptor.accept(tcp).await else { return };
            if let Some(peer) = membership.peer(&channel.peer(), membership.now()) {
                service.serve(channel, peer, from).await;
            }
        });
    }
}
