//! Which program is at the other end of a local connection (DBAS §II-B: the process's name).

use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::VecDeque,
    ffi::OsStr,
    fs, io,
    net::{IpAddr, SocketAddr},
    os::unix::{ffi::OsStrExt as _, fs::MetadataExt as _},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};
use thalweg_net::{socket_inode, socket_user};
use tokio::{sync::OnceCell, task::spawn_blocking};

/// A program's connection to this process. Its owner is looked up once, when it matters.
#[derive(Debug)]
pub struct Client {
    at: SocketAddr,
    far: Option<SocketAddr>,
    program: OnceCell<Option<String>>,
    user: OnceCell<Option<u32>>,
    number: u64,
}

/// The next number of a program's connection.
static NUMBERS: AtomicU64 = AtomicU64::new(0);

impl Client {
    /// Takes the local address of the program's socket, and the address that it is connected to, if known.
    pub fn at(at: SocketAddr, far: Option<SocketAddr>) -> Self {
        let number = NUMBERS.fetch_add(1, Relaxed);
        Self { at, far, program: OnceCell::new(), user: OnceCell::new(), number }
    }

    /// A number that is unique among the connections of programs to this process.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The user that owns the program's socket, from [`user_at`]; `None` if the socket's far end is not known.
    pub async fn user(&self) -> Option<u32> {
        let (at, far) = (self.at, self.far?);
        let find = || async move { spawn_blocking(move || user_at(at, far)).await.ok().flatten() };
        *self.user.get_or_init(find).await
    }

    /// The program's name, from [`program_at`]; `None` if it cannot be found out: it is another user's program, or has
    /// ended.
    pub async fn program(&self) -> Option<String> {
        let (at, far) = (self.at, self.far);
        let find = move || program_at(at, far);
        let find = || async move { spawn_blocking(find).await.ok().flatten() };
        self.program.get_or_init(find).await.clone()
    }
}

/// Processes that were found last, and are looked at first: a program that has opened a connection opens more, and
/// looking at all descriptors of all processes takes milliseconds of a processor.
static FOUND: Mutex<VecDeque<PathBuf>> = Mutex::new(VecDeque::new());

/// How many of them are kept. If the program is none of these, all processes are looked at.
const KEPT: usize = 8;

/// The name of the program whose socket has this local address and is connected to `far`. Without root it finds only
/// this user's processes, since others' descriptors cannot be seen. It reads `/proc`, which takes some milliseconds, so
/// do not call it on a runtime's thread.
pub fn program_at(local: SocketAddr, far: Option<SocketAddr>) -> Option<String> {
    let inode = far
        .and_then(|far| socket_inode(local, far).ok())
        .or_else(|| Some(listed(local, far)?.inode))?;
    let link = format!("socket:[{inode}]");
    let holds = |process: &PathBuf| holds(process, OsStr::new(&link));
    let before = found().clone();
    let holder = before.into_iter().find(holds).or_else(|| all().into_iter().find(holds))?;
    let name = fs::read_to_string(holder.join("comm")).ok()?;
    let mut found = found();
    found.retain(|other| *other != holder);
    found.push_front(holder);
    found.truncate(KEPT);
    Some(name.trim_end().to_owned())
}

/// The user of the program whose socket has this local address and is connected to `far`. `None` if no process of this
/// network namespace holds it, or this user namespace does not know the user.
pub fn user_at(local: SocketAddr, far: SocketAddr) -> Option<u32> {
    let user = match socket_user(local, far) {
        Ok(user) => user,
        // The kernel knows that there is no such socket.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(_) => listed(local, Some(far))?.user,
    };
    (Some(user) != unmapped_user()).then_some(user)
}

/// The user that the kernel reports for all users without a number in this namespace; `None` if all have one, as in the
/// first namespace (user_namespaces(7)).
fn unmapped_user() -> Option<u32> {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    if map.split_ascii_whitespace().eq(["0", "0", "4294967295"]) {
        return None;
    }
    let read = || fs::read_to_string("/proc/sys/kernel/overflowuid").ok()?.trim().parse().ok();
    Some(read().unwrap_or(65_534))
}

/// Who listens at a port of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortHolder {
    /// The user that opened the listener.
    pub user: u32,
    /// The process and its name; `None` if this process may not see it: it is another user's.
    pub process: Option<(u32, String)>,
}

/// Who listens at this address, or at all addresses with this port; `None` if nobody does, or `/proc` cannot be read.
/// It reads `/proc`, which takes some milliseconds, so do not call it on a runtime's thread.
pub fn listener_at(at: SocketAddr) -> Option<PortHolder> {
    let of = |table: &str| listening_in(&fs::read_to_string(table).ok()?, at);
    let Listed { user, inode } = of("/proc/net/tcp").or_else(|| of("/proc/net/tcp6"))?;
    let link = format!("socket:[{inode}]");
    let holder = all().into_iter().find(|process| holds(process, OsStr::new(&link)));
    let process = holder.and_then(|holder| {
        let name = fs::read_to_string(holder.join("comm")).ok()?;
        Some((holder.file_name()?.to_str()?.parse().ok()?, name.trim_end().to_owned()))
    });
    Some(PortHolder { user, process })
}

fn found() -> MutexGuard<'static, VecDeque<PathBuf>> {
    FOUND.lock()
}

/// The processes whose descriptors may be seen. Those of this network namespace come first: a socket belongs to one
/// namespace, and is seldom handed to a process of another.
fn all() -> Vec<PathBuf> {
    let Ok(own) = fs::metadata("/proc/self") else { return Vec::new() };
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut processes: Vec<PathBuf> = processes
        .map(|entry| entry.path())
        .filter(|path| {
            let is_number = path.file_name().is_some_and(|n| n.as_bytes()[0].is_ascii_digit());
            let of = |found: fs::Metadata| own.uid() == 0 || found.uid() == own.uid();
            is_number && fs::metadata(path).is_ok_and(of)
        })
        .collect();
    let network = |process: &Path| fs::read_link(process.join("ns/net")).ok();
    let here = network(Path::new("/proc/self"));
    processes.sort_by_cached_key(|process| network(process) != here);
    processes
}

fn holds(process: &Path, link: &OsStr) -> bool {
    let Ok(open) = fs::read_dir(process.join("fd")) else { return false };
    open.flatten().any(|fd| fs::read_link(fd.path()).is_ok_and(|to| to.as_os_str() == link))
}

/// A row of `/proc/net/tcp`.
struct Listed {
    user: u32,
    inode: u64,
}

/// Finds the socket in the list of all sockets of the machine, which takes milliseconds more. Without `far` any
/// connection of the local address matches.
fn listed(local: SocketAddr, far: Option<SocketAddr>) -> Option<Listed> {
    let of = |table: &str| row_in(&fs::read_to_string(table).ok()?, local, far);
    of("/proc/net/tcp").or_else(|| of("/proc/net/tcp6"))
}

/// Columns of `/proc/net/tcp`: number, local, remote, state, queues, timer, retransmissions, user, time-out, inode.
fn row_in(table: &str, local: SocketAddr, far: Option<SocketAddr>) -> Option<Listed> {
    let is_same = |a: SocketAddr, b: SocketAddr| {
        a.ip().to_canonical() == b.ip().to_canonical() && a.port() == b.port()
    };
    let mut rows = table.lines().skip(1).map(str::split_ascii_whitespace);
    rows.find_map(|mut row| {
        let (at, remote) = (address(row.nth(1)?)?, address(row.next()?)?);
        let user = row.nth(4)?.parse().ok()?;
        let inode = row.nth(1)?.parse().ok()?;
        let is_it = is_same(at, local) && far.is_none_or(|far| is_same(remote, far));
        (is_it && inode != 0).then_some(Listed { user, inode })
    })
}

/// The row of a listener that gets connections to this address.
fn listening_in(table: &str, at: SocketAddr) -> Option<Listed> {
    /// TCP_LISTEN of include/net/tcp_states.h.
    const LISTENING: &str = "0A";
    let gets = |own: SocketAddr| {
        let ip = own.ip().to_canonical();
        own.port() == at.port() && (ip == at.ip().to_canonical() || ip.is_unspecified())
    };
    let mut rows = table.lines().skip(1).map(str::split_ascii_whitespace);
    rows.find_map(|mut row| {
        let (own, state) = (address(row.nth(1)?)?, row.nth(1)?);
        let user = row.nth(3)?.parse().ok()?;
        let inode = row.nth(1)?.parse().ok()?;
        (state == LISTENING && gets(own)).then_some(Listed { user, inode })
    })
}

/// Parses `0100007F:0C38`: each four bytes of the address in this machine's order, and the port as a number.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let word = |at: usize| u32::from_str_radix(ip.get(at..at + 8)?, 16).ok().map(u32::to_ne_bytes);
    let ip = match ip.len() {
        8 => IpAddr::from(word(0)?),
        32 => {
            let words = [word(0)?, word(8)?, word(16)?, word(24)?];
            let mut bytes = [0; 16];
            bytes.iter_mut().zip(words.as_flattened()).for_each(|(to, from)| *to = *from);
            IpAddr::from(bytes)
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn the_holder_of_a_socket_is_found_in_both_families() {
        let own = fs::read_to_string("/proc/self/comm").unwrap().trim_end().to_owned();
        for listen in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(listen) else {
                eprintln!("skipped in part: no {listen} here");
                continue;
            };
            let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let at = near.local_addr().unwrap();
            let far = listener.local_addr().unwrap();
            assert_eq!(program_at(at, Some(far)), Some(own.clone()), "{listen}");
            // The process that was found is looked at first.
            assert!(found().iter().any(|kept| kept.ends_with(std::process::id().to_string())));
            assert_eq!(program_at(at, None), Some(own.clone()), "{listen}");
            let user = Some(fs::metadata("/proc/self").unwrap().uid());
            assert_eq!(user_at(at, far), user, "{listen}");
        }
        let none = "192.0.2.1:1".parse().unwrap();
        assert_eq!((program_at(none, None), user_at(none, none)), (None, None));
    }

    #[test]
    fn who_listens_is_found_also_at_all_addresses() {
        let name = fs::read_to_string("/proc/self/comm").unwrap().trim_end().to_owned();
        let user = fs::metadata("/proc/self").unwrap().uid();
        for listen in ["127.0.0.1:0", "0.0.0.0:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(listen) else {
                eprintln!("skipped in part: no {listen} here");
                continue;
            };
            let mut at = listener.local_addr().unwrap();
            // A connection with the same local port is no listener.
            let near = TcpStream::connect(at).unwrap();
            if at.ip().is_unspecified() {
                at.set_ip([127, 0, 0, 1].into());
            }
            let process = Some((std::process::id(), name.clone()));
            assert_eq!(listener_at(at), Some(PortHolder { user, process }), "{listen}");
            assert_eq!(listener_at(near.local_addr().unwrap()), None, "{listen}");
            drop((near, listener));
            assert_eq!(listener_at(at), None, "{listen}");
        }
    }

    #[test]
    fn invalid_rows_are_skipped() {
        let local = "127.0.0.1:3128".parse().unwrap();
        assert!(row_in("head\n\n 0: zz:1 x\n 1: 01:0C38", local, None).is_none());
    }

    /// With `SO_REUSEADDR` another user may have a connection with the same local address.
    #[test]
    fn a_row_must_match_both_addresses() {
        let row = |far: &str, user: u32, inode: u64| {
            format!(
                "  0: 0100007F:0C38 {far} 01 00000000:00000000 00:00000000 00000000  {user} 0 {inode} 1\n"
            )
        };
        let table = ["head\n".to_owned(), row("07710F0A:0050", 1, 11), row("0100007F:1F90", 2, 22)];
        let table = table.concat();
        let user = |far: Option<&str>| {
            let far = far.map(|far| far.parse().unwrap());
            row_in(&table, "127.0.0.1:3128".parse().unwrap(), far).map(|row| (row.user, row.inode))
        };
        assert_eq!(user(Some("127.0.0.1:8080")), Some((2, 22)));
        assert_eq!(user(Some("127.0.0.1:8081")), None);
        assert_eq!(user(None), Some((1, 11)));
    }
}
