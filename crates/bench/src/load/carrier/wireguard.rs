//! WireGuard in user space: `boringtun-cli`, configured over its socket (the cross-platform protocol of
//! wireguard.com/xplatform).

use super::{
    super::veth::{self, FAR as FAR_END, NEAR as NEAR_END},
    testbed::{ChildGuard, wait_until},
};
use anyhow::{Context as _, ensure};
use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::Ipv4Addr,
    os::unix::net::UnixStream,
    process::{Command, Stdio},
};

/// The far end's address in the tunnel.
pub const FAR: Ipv4Addr = Ipv4Addr::new(10, 8, 0, 2);
const NEAR: Ipv4Addr = Ipv4Addr::new(10, 8, 0, 1);

const PORT: u16 = 51820;

/// The MTU of the tunnel: what remains of 1500 bytes, as in `wg-quick`.
const MTU: &str = "1420";

/// One end: its device, its private key and its public key. The keys protect nothing but this measurement.
struct WireguardEnd {
    device: &'static str,
    private: &'static str,
    public: &'static str,
}

const ENDS: [WireguardEnd; 2] = [
    WireguardEnd {
        device: "wgnear",
        private: "38f87937a8f9042612012a5c23a9bfd466724f0a50d4d1f488ed36a76144395f",
        public: "83de0ad6d4590378e881065924e7dc2afc7c90d1e53c9fa32787ee91f79a5920",
    },
    WireguardEnd {
        device: "wgfar",
        private: "18cdf631ddd358f4ededf3886eb3508ae93f859bf92a57b1ffccb1838590d646",
        public: "9ad7f375e04cde93c3479798f016049132ca6ff4529db464ba7777cfebe7fa1a",
    },
];

/// Sets up a tunnel between the two namespaces; returns the programs at its ends.
///
/// # Errors
/// When the program is not installed or refuses its configuration.
pub fn start(far: &veth::FarNamespace) -> anyhow::Result<[ChildGuard; 2]> {
    let [near_end, far_end] = &ENDS;
    let near_part = ChildGuard::start(&mut program(Command::new("boringtun-cli"), near_end))?;
    let far_part = ChildGuard::start(&mut program(far.command("boringtun-cli"), far_end))?;
    configure(near_end, &configuration(near_end, far_end, FAR_END, FAR))?;
    configure(far_end, &configuration(far_end, near_end, NEAR_END, NEAR))?;
    let up = |ip: &dyn Fn(&[&str]) -> anyhow::Result<()>, end: &WireguardEnd, address: Ipv4Addr| {
        ip(&["addr", "add", &format!("{address}/24"), "dev", end.device])?;
        ip(&["link", "set", end.device, "mtu", MTU, "up"])
    };
    up(&veth::ip, near_end, NEAR)?;
    up(&|args| far.ip(args), far_end, FAR)?;
    Ok([near_part, far_part])
}

/// The command of an end. It has one thread, as each carrier has one that reads its device, so no other thread computes
/// checksums.
fn program(mut command: Command, end: &WireguardEnd) -> Command {
    command.args(["--foreground", "--disable-drop-privileges", "--threads", "1", end.device]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn configuration(
    end: &WireguardEnd,
    other: &WireguardEnd,
    at: Ipv4Addr,
    inside: Ipv4Addr,
) -> String {
    format!(
        "set=1\nprivate_key={}\nlisten_port={PORT}\npublic_key={}\nendpoint={at}:{PORT}\n\
         allowed_ip={inside}/32\n\n",
        end.private, other.public
    )
}

/// Configures the program of an end once it listens.
fn configure(end: &WireguardEnd, configuration: &str) -> anyhow::Result<()> {
    let socket = format!("/var/run/wireguard/{}.sock", end.device);
    let mut stream = wait_until("boringtun-cli accepts its configuration", || {
        Ok(UnixStream::connect(&socket).ok())
    })?;
    stream.write_all(configuration.as_bytes())?;
    let mut answer = String::new();
    BufReader::new(&stream).read_line(&mut answer).context("boringtun-cli does not answer")?;
    ensure!(answer.trim() == "errno=0", "boringtun-cli refused the configuration: {answer}");
    Ok(())
}
